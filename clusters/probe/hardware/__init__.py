"""What a node is, read from the node itself and compared with what the plan takes it to be.

Every check fails closed: an absent tool, one that hangs, or a value that makes no sense is a reading whose
value is ``None``, which did not pass, with the reason. What the plan expects nothing of is shown, never
judged.
"""

from __future__ import annotations

from ..place import Place
from ..request import Expected
from ..results import RankHardware

TOOL_TIMEOUT_S = 15.0


def read(expected: Expected, place: Place, timeout_s: float = TOOL_TIMEOUT_S) -> RankHardware:
    """Read and judge the hardware of this rank; all ranks of the default group call this together.

    Never raises for what a machine lacks. Readings that must be the same on all ranks name the odd one.
    ``timeout_s``: what each tool may take.
    """
    raise NotImplementedError
