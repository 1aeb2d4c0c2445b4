"""What can be looked at without a plan: programs and packages, files of the user, credentials, prices."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from planner import units
from planner.cli import calibration_store, store, text
from planner.cli.launch import ledger
from planner.cli.text import Terminal
from planner.errors import UserError
from planner.types import Record

State = Literal["ok", "failed", "not set"]
_MARKS: dict[State, str] = {"ok": "✔", "failed": "✘", "not set": "–"}
_PACKAGES = (
    ("ray", "launches and probes run on it", "pip install 'ray[default]'"),
    ("torch", "plan probe on this machine needs it", "pip install 'plan[probe]'"),
    ("boto3", "AWS is asked with it", "pip install boto3"),
    ("kubernetes", "launches on Kubernetes need it", "pip install 'plan[kubernetes]'"),
)
_PROGRAMS = (
    ("ssh", "clusters over SSH are reached with it", "apt-get install openssh-client"),
    ("rsync", "Ray copies files to hosts with it", "apt-get install rsync"),
)
# Where the clients of the clouds that we launch on look for credentials: variables, then files.
_LAUNCHES = (
    ("aws", ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"), ("~/.aws/credentials", "~/.aws/config"), "aws configure"),
    (
        "gcp",
        ("GOOGLE_APPLICATION_CREDENTIALS",),
        ("~/.config/gcloud/application_default_credentials.json",),
        "gcloud auth application-default login",
    ),
    ("azure", ("AZURE_ACCESS_TOKEN",), ("~/.azure/azureProfile.json",), "az login"),
    (
        "kuberay",
        ("KUBECONFIG",),
        ("~/.kube/config",),
        "plan launch PLAN --provider kuberay --kubeconfig FILE",
    ),
)


class Look(Record):
    """One thing that was looked at. ``not set``: absent, and needed only by those who use it."""

    name: str
    state: State
    detail: str
    hint: str = ""


def looks() -> tuple[Look, ...]:
    """Look at everything; nothing is started, and nobody is asked over the network."""
    now = datetime.now(UTC)
    return (
        *(_package(*each) for each in _PACKAGES),
        *(_program(*each) for each in _PROGRAMS),
        _data_directory(),
        _ledger(),
        _calibration(),
        _catalog(now),
        *(_launches(*each) for each in _LAUNCHES),
        *_credentials(),
    )


def _package(name: str, why: str, hint: str) -> Look:
    """Whether a package can be imported, and its version."""
    state: State = "failed" if name == "ray" else "not set"
    if importlib.util.find_spec(name) is None:
        return Look(name=name, state=state, detail=f"not installed: {why}", hint=hint)
    try:
        return Look(name=name, state="ok", detail=version(name))
    except PackageNotFoundError:
        return Look(name=name, state="failed", detail="half installed: no version", hint=hint)


def _program(name: str, why: str, hint: str) -> Look:
    found = shutil.which(name)
    if found is None:
        return Look(name=name, state="not set", detail=f"not found: {why}", hint=hint)
    return Look(name=name, state="ok", detail=found)


def _data_directory() -> Look:
    """Whether plans and the ledger can be written."""
    path = store.data_dir()
    there = next((p for p in (path, *path.parents) if p.exists()), Path("/"))
    if there.is_dir() and os.access(there, os.W_OK):
        return Look(name="data directory", state="ok", detail=str(path))
    hint = "PLAN_DATA_DIR=DIR   puts it elsewhere"
    return Look(name="data directory", state="failed", detail=f"cannot write to {path}", hint=hint)


def _ledger() -> Look:
    try:
        known = ledger.launches()
    except UserError as error:
        return Look(name="ledger", state="failed", detail=str(error), hint=error.hint)
    return Look(name="ledger", state="ok", detail=f"{len(known)} launches" if len(known) != 1 else "1 launch")


def _calibration() -> Look:
    own = calibration_store.load()
    if own:
        return Look(name="calibration", state="ok", detail=units.counted(len(own), "measured figure"))
    detail = "no measured runs of yours: predictions rest on the shipped ones"
    return Look(name="calibration", state="not set", detail=detail, hint="plan calibrate FILE.jsonl")


def _catalog(now: datetime) -> Look:
    """How old the prices are that the next suggest takes."""
    from providers import registry
    from providers.age import ages, warning

    found = ages(registry.offers(now=now).offers, now)
    priced = f"{units.counted(found.num_priced, 'price')}"
    if said := warning(found):
        return Look(name="prices", state="not set", detail=said, hint="plan prices refresh")
    return Look(name="prices", state="ok", detail=priced)


def _launches(name: str, variables: tuple[str, ...], files: tuple[str, ...], hint: str) -> Look:
    """Whether credentials of a cloud are found; whether they are good is what doctor asks with a plan."""
    told = [v for v in variables if os.environ.get(v)]
    found = told or [f for f in files if Path(f).expanduser().exists()]
    if not found:
        return Look(name=f"launches on {name}", state="not set", detail="no credentials found", hint=hint)
    return Look(name=f"launches on {name}", state="ok", detail=f"credentials found ({found[0]}), not tried")


def _credentials() -> Iterator[Look]:
    """Whether each provider with live prices finds its credentials."""
    from providers.adapters import adapters

    for name, adapter in adapters().items():
        missing = adapter.unavailable(os.environ)
        if missing is None:
            yield Look(name=f"prices of {name}", state="ok", detail="can be asked")
        else:
            yield Look(name=f"prices of {name}", state="not set", detail=missing.reason, hint=missing.hint)


def screen(found: tuple[Look, ...], term: Terminal) -> str:
    """Draw a line for each look, and what to do where it is not ok."""
    lines: list[str] = []
    width = max(len(look.name) for look in found)
    for look in found:
        lead = f"{_MARKS[look.state]} {look.name:<{width}}  {look.state:<7}  "
        lines += text.paragraph(f"{lead}{look.detail}", term, " ", " " * len(lead))
        if look.hint and look.state != "ok":
            lines += text.paragraph(f"hint: {look.hint}", term, " " * (len(lead) + 1))
    return "\n".join(lines)
