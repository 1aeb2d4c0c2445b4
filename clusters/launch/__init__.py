"""The launch: from a plan that was shown to a cluster that is proven, or to nothing left.

How to call it::

    from clusters.launch import machine, down
    from clusters.launch.nouns import Hands, LaunchRequest, Limits

    finished = machine.launch(request, hands)      # plan launch
    finished = machine.resume(launch_id, hands)    # plan launch --resume
    finished = down.down(launch_id, hands)         # plan down
    finished.exit_code, finished.outcome, finished.launch_id

``request`` (``nouns.LaunchRequest``) is the plan, the user's choices and the bounds; ``hands``
(``nouns.Hands``) is everything that acts: ledger, clouds, probe, screen, clock, sleep, randomness, prompt.
Nothing here reads a clock or sleeps by itself, so a test passes ``Hands`` whose clock moves when it sleeps.

States are written to the ledger before their act: ``planned -> preflight -> confirmed -> creating -> up ->
probing -> verdict -> committed | tearing_down -> gone``.
"""
