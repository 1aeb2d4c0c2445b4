"""What was launched, written down before it is done: so that a crash leaves nothing that nobody knows of.

``store.Ledger`` keeps launches (``planner.launched.Launch``) in one SQLite file, ``locks`` lets one process
at a time act on a launch. No secret is ever stored: every text passes a scrubber that the caller hands in.
"""
