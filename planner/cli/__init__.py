"""The command line: options in, screens or JSON out. The only part of the planner with a clock or a disk."""
