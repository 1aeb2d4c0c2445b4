"""The only package that drives Ray: its cluster launcher, job submission, and a Ray of this machine."""
