"""Prediction against measurement: does what was rented do what was planned? Pure.

>>> from planner.verdict import Subject, judge, of_plan
"""

from planner.verdict.judging import judge
from planner.verdict.subject import Subject, of_plan

__all__ = ["Subject", "judge", "of_plan"]
