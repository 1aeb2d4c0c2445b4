"""The probe from this side: what is asked (``asking``), and the job that is followed (``following``)."""

from clusters.probing.asking import Wishes, request_of
from clusters.probing.following import STOP_S, ProbeError, probe

__all__ = ["STOP_S", "ProbeError", "Wishes", "probe", "request_of"]
