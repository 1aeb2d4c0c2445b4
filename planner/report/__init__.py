"""Plans, launches and bills as one report: what was planned, spent and billed against the budget."""

from planner.report.build import Asked, plan_of, report

__all__ = ["Asked", "plan_of", "report"]
