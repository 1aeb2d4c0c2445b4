"""What a provider, or the way to its machines, answered instead of machines: one exception, sorted."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

FaultKind = Literal[
    "capacity",
    "quota",
    "credentials",
    "permission",
    "image",
    "parameter",
    "throttling",
    "timeout",
    "connection",
    "unreachable",
    "setup",
    "not-joined",
]


class CloudFault(Exception):  # noqa: N818 (a fault of the cloud, sorted)
    """What a provider, or the way to its machines, answered instead of machines.

    ``log``: the end of the output of the step that failed, without secrets. ``status``: of HTTP, ``None``
    where nothing was answered over it.
    """

    def __init__(
        self, kind: FaultKind, message: str, hint: str = "", log: str = "", status: int | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.hint = hint
        self.log = log
        self.status = status


def is_absent(fault: CloudFault) -> bool:
    """Whether the cloud answered that there is no such thing."""
    return fault.status == HTTPStatus.NOT_FOUND


def is_conflict(fault: CloudFault) -> bool:
    """Whether the cloud answered that something is in the way: it is there already, or still in use."""
    return fault.status == HTTPStatus.CONFLICT
