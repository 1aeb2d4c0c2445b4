"""Timed collectives of ``torch.distributed`` in nccl-tests' conventions, and the search for a slow pair."""

from .pairs import slowest_pairs
from .sweeping import Sweep, default_most_bytes, sweep, sweep_sizes

__all__ = ["Sweep", "default_most_bytes", "slowest_pairs", "sweep", "sweep_sizes"]
