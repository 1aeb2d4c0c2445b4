"""Clusters touch the world: cluster files of a plan, and the training step that runs on them."""
