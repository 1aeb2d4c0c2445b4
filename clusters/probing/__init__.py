"""The probe from this side: what is asked (``asking``), and the job that is followed (``following``)."""

from clusters.probing.asking import Wishes, request_of
from clusters.probing.following import ProbeError, probe

__all__ = ["ProbeError", "Wishes", "probe", "request_of"]
