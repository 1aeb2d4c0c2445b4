"""The planner thinks: memory, time, cost and layouts of a training run. Pure, its ``cli`` aside."""
