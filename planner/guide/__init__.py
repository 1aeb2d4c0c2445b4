"""The guide for choosing: tables, explanations and lists of changes, computed by the planner itself."""
