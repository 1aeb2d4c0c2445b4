"""Error codes of clouds that are asked over REST, as kinds of faults: ``data/*_faults.csv``."""

from __future__ import annotations

import csv
import re
from functools import lru_cache
from importlib.resources import files
from typing import cast, get_args

from clusters.faults import CloudFault, FaultKind
from planner.types import Record

_WORD = re.compile(r"[A-Za-z][A-Za-z_]{6,}")


class Code(Record):
    """One code. ``in_text``: it is no ordinary word, so it counts wherever Ray's launcher prints it."""

    code: str
    kind: FaultKind
    in_text: bool


def rows(name: str) -> list[dict[str, str]]:
    """Rows of a table of ``data/``."""
    text = files("clusters.clouds").joinpath(f"data/{name}").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@lru_cache(maxsize=4)
def table(cloud: str) -> dict[str, Code]:
    """Codes of a cloud, ``gcp`` or ``azure``."""
    found = rows(f"{cloud}_faults.csv")
    assert all(row["kind"] in get_args(FaultKind) for row in found)
    return {
        row["code"]: Code(
            code=row["code"], kind=cast(FaultKind, row["kind"]), in_text=row["in_text"] == "yes"
        )
        for row in found
    }


def resorted(cloud: str, fault: CloudFault, hints: dict[FaultKind, str]) -> CloudFault:
    """Sort what Ray's launcher reported by the last code of the cloud that it printed, if there is one."""
    codes = table(cloud)
    for text in (fault.log, str(fault)):
        known = [word for word in _WORD.findall(text) if word in codes and codes[word].in_text]
        if known:
            kind = codes[known[-1]].kind
            message = str(fault) if known[-1] in str(fault) else f"{fault} ({known[-1]})"
            return CloudFault(kind, message, hints.get(kind, ""), fault.log, fault.status)
    return fault
