"""Sorts what went wrong: error codes of AWS, and what Ray's cluster launcher prints, into kinds of faults.

The kind decides what happens next (another zone, another region, stop, wait), so a code that is not in
``data/aws_faults.csv`` counts as ``parameter``: stop at once, and show it.
"""

from __future__ import annotations

import csv
import re
from functools import lru_cache
from importlib.resources import files
from typing import cast, get_args

from clusters.faults import CloudFault, FaultKind

_CODE = re.compile(r"(?:An error occurred|Node Launch Exception) \(([A-Za-z0-9.]+)\)")
# Lines of the launcher and of ssh around what a host says; frames of a traceback.
_OF_RAY = re.compile(r"\d{4}-\d\d-\d\d |.*Shared connection to |\s|\(ended after ")
# What Ray, ssh and botocore print; the first that is found decides.
_SAID: tuple[tuple[re.Pattern[str], FaultKind, str], ...] = (
    (re.compile(r"NoCredentialsError|Unable to locate credentials|PartialCredentialsError"), "credentials",
     "aws configure"),
    (re.compile(r"EndpointConnectionError|Could not connect to the endpoint|ConnectionClosedError"
                r"|ConnectTimeoutError|ReadTimeoutError"), "connection", ""),
    (re.compile(r"New status: .*(?:syncing-files|setting-up)"), "setup", ""),  # so SSH was there
    (re.compile(r"Permission denied \(publickey|Host key verification failed"), "unreachable",
     "is it the right user and key? --ssh-user NAME --ssh-key FILE"),
    (re.compile(r"SSH still not available|ssh: connect to host|Connection refused|Connection timed out"
                r"|No route to host|Could not resolve hostname|wait_ready timeout"), "unreachable",
     "does the security group let this machine in? --ssh-from ADDRESS/32"),
    (re.compile(r"No subnets? found|No usable subnets"), "parameter", "plan launch PLAN --subnet ID"),
)  # fmt: skip


@lru_cache(maxsize=1)
def table() -> dict[str, FaultKind]:
    """Kinds by error code of AWS."""
    text = files("clusters.backend").joinpath("data/aws_faults.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert all(row["kind"] in get_args(FaultKind) for row in rows)
    return {row["code"]: cast(FaultKind, row["kind"]) for row in rows}


def of_code(code: str) -> FaultKind:
    """Kind of an error code of AWS; one that nobody listed stops the launch."""
    known = table().get(code) or table().get(code.partition(".")[0])
    return known or "parameter"


def of_launcher(step: str, said: str, timed_out: bool) -> CloudFault:
    """Sort a failed step of Ray's launcher by what it printed; the last error of the cloud decides.

    Args:
        step: what failed, for people: ``ray up``.
        said: its output, without secrets.
        timed_out: it was ended for taking too long.

    """
    codes = [code for code in _CODE.findall(said) if code in table()]
    if codes:
        return CloudFault(
            of_code(codes[-1]), f"{step}: {codes[-1]}: {_line_of(said, codes[-1])}", log=_end(said)
        )
    for pattern, kind, hint in _SAID:
        found = pattern.search(said)
        if found:
            told = _told(said) if kind == "setup" else _line_of(said, found.group(0))
            return CloudFault(kind, f"{step}: {told}", hint, _end(said))
    if timed_out:
        return CloudFault("timeout", f"{step} took too long", log=_end(said))
    return CloudFault("setup", f"{step} failed: {_last(said)}", log=_end(said))


def of_nodes(wanted: int, joined: int, codes: str, said: str) -> CloudFault:
    """Not all nodes joined in time. ``codes``: errors of the cloud that the head's autoscaler met."""
    kinds = [of_code(code) for code in codes.split()]
    for kind in ("permission", "quota", "capacity"):
        if kind in kinds:
            return CloudFault(
                cast(FaultKind, kind),
                f"{joined} of {wanted} nodes joined; the cloud said {codes}",
                log=_end(said),
            )
    return CloudFault("not-joined", f"{joined} of {wanted} nodes joined in time", log=_end(said))


def _line_of(said: str, words: str) -> str:
    line = next((line for line in reversed(said.splitlines()) if words in line), words)
    return " ".join(line.split())[:300]


def _told(said: str) -> str:
    """Last words of the command that failed on the host, which stand before Ray's own of its failure."""
    before = said.partition("New status: update-failed")[0].splitlines()
    lines = [" ".join(line.split()) for line in before if not _OF_RAY.match(line)]
    return next((line[:300] for line in reversed(lines) if line), _last(said))


def _last(said: str) -> str:
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def _end(said: str) -> str:
    return "\n".join(said.splitlines()[-40:])
