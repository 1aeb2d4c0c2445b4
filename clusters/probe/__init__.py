"""What runs on the cluster: the plan's own training step.

The package ships by itself: it imports torch, ray, numpy and the standard library, nothing of the planner.
A plan reaches it as the plain dictionary of the plan's JSON. Imports inside are relative for that reason.
"""
