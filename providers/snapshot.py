"""Last good offers of each provider on disk, under the user's cache directory (``PLAN_CACHE_DIR``).

A snapshot is three lines: the SHA-256 of the rest, a header (schema version, provider, time seen) and the
offers, both JSON. It is written beside its place and renamed, under a lock: a reader sees the old one or the
new one, never half of one, and two processes that refresh at once leave the newer. A file that is truncated
or foreign is set aside as ``.bad``. Only a good refresh writes one: no failure renews an age. Where prices
have changed, the snapshot is kept under ``history/`` too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from planner.types import Links, Offer
from providers.base import Key, UnknownGpu, key

SCHEMA_VERSION = 1
MOST_HISTORY = 90
_STAMP = "%Y%m%dT%H%M%S%fZ"
_SAME_TIME = 8  # fields of an offer's row without a time of its own


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Offers of one provider as one refresh saw them. ``complete``: what is not named is not sold."""

    provider: str
    seen: datetime
    complete: bool
    offers: tuple[Offer, ...]
    unknown_gpus: tuple[UnknownGpu, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was found for a provider: its snapshot, or a warning why there is none to use."""

    snapshot: Snapshot | None
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The last refresh of a provider, where it failed."""

    provider: str
    time: datetime
    reason: str


class BadFileError(ValueError):
    """A file is not one of ours, or not whole."""


def directory() -> Path:
    """Directory of the price snapshots; ``PLAN_CACHE_DIR`` puts it elsewhere."""
    told = os.environ.get("PLAN_CACHE_DIR")
    if told:
        return Path(told) / "prices"
    from platformdirs import user_cache_dir  # only where nothing was told

    return Path(user_cache_dir("plan")) / "prices"


def path_of(provider: str, where: Path) -> Path:
    """File of a provider's snapshot."""
    return where / f"{provider}.json"


# ---------------------------------------------------------------------------------- rows


@lru_cache(maxsize=1)
def _blank() -> Offer:
    """Make an offer to copy: copying is the fastest way to many records that the checksum vouches for."""
    return Offer.model_construct(
        provider="", instance_type="", region="", market="on-demand", gpu="", usd_per_hour=None, source=""
    )


def _machine_row(offer: Offer) -> tuple[object, ...]:
    """What all offers of one machine share: written once, as many offers are of few machines."""
    return (
        offer.instance_type,
        offer.gpu,
        offer.gpus_per_node,
        (offer.links.intra, offer.links.inter, offer.links.inter_gbit_per_s),
        offer.vcpus,
        offer.host_memory_bytes,
        offer.local_disk_bytes,
        offer.min_billing_s,
        offer.billing_increment_s,
        offer.not_included,
        offer.max_nodes,
        offer.source,
    )


def _machine(provider: str, row: list[Any]) -> Offer:
    """Build an offer of a machine without place and price."""
    return _blank().model_copy(
        update={
            "provider": provider,
            "instance_type": row[0],
            "gpu": row[1],
            "gpus_per_node": row[2],
            "links": Links.model_construct(intra=row[3][0], inter=row[3][1], inter_gbit_per_s=row[3][2]),
            "vcpus": row[4],
            "host_memory_bytes": row[5],
            "local_disk_bytes": row[6],
            "min_billing_s": row[7],
            "billing_increment_s": row[8],
            "not_included": tuple(row[9]),
            "max_nodes": row[10],
            "source": row[11],
            "origin": "live",
        }
    )


def _offer_row(offer: Offer, machine: int, seen: datetime) -> list[object]:
    """One offer: the number of its machine, place, market, price. The time only where it is another."""
    row: list[object] = [
        machine,
        offer.region,
        offer.zone,
        offer.market,
        None if offer.usd_per_hour is None else str(offer.usd_per_hour),
        offer.unknown_why,
        offer.available,
        offer.note,
    ]
    if offer.price_seen != seen:
        row.append(None if offer.price_seen is None else offer.price_seen.isoformat())
    return row


def _offer(machine: Offer, row: list[Any], seen: datetime) -> Offer:
    """Build the offer of a row. Not validated, for speed: the checksum says that we wrote it."""
    return machine.model_copy(
        update={
            "region": row[1],
            "zone": row[2],
            "market": row[3],
            "usd_per_hour": None if row[4] is None else Decimal(row[4]),
            "unknown_why": row[5],
            "available": row[6],
            "note": row[7],
            "price_seen": seen if len(row) == _SAME_TIME else _time(row[8]),
        }
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def encode(snapshot: Snapshot) -> bytes:
    """Write a snapshot as the three lines of its file."""
    machines: dict[tuple[object, ...], int] = {}
    rows = [
        _offer_row(o, machines.setdefault(_machine_row(o), len(machines)), snapshot.seen)
        for o in snapshot.offers
    ]
    content = {"machines": list(machines), "offers": rows}
    body = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    header = {
        "schema_version": SCHEMA_VERSION,
        "provider": snapshot.provider,
        "seen": snapshot.seen.astimezone(UTC).isoformat(),
        "complete": snapshot.complete,
        "unknown_gpus": [[u.name, u.count] for u in snapshot.unknown_gpus],
        "notes": list(snapshot.notes),
    }
    return sealed(json.dumps(header, ensure_ascii=False).encode() + b"\n" + body + b"\n")


def sealed(content: bytes) -> bytes:
    """``content`` under a line with its SHA-256."""
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def decode(content: bytes, provider: str, wanted: Collection[Key] | None = None) -> Snapshot:
    """Read the lines of a file: all offers, or those of the keys that are ``wanted``.

    Raises ``BadFileError`` unless they are whole, and of this provider.
    """
    digest, _, rest = content.partition(b"\n")
    if len(digest) != len(hashlib.sha256().hexdigest()):
        raise BadFileError("not a file of prices")
    if digest != hashlib.sha256(rest).hexdigest().encode():
        raise BadFileError("the checksum does not fit: truncated or changed")
    first, _, body = rest.partition(b"\n")
    try:
        header = json.loads(first)
        version, owner = header["schema_version"], header["provider"]
    except (ValueError, KeyError, TypeError):
        raise BadFileError("cannot be read (no header)") from None
    if version != SCHEMA_VERSION:
        raise BadFileError(f"schema version {version!r}, not {SCHEMA_VERSION}")
    if owner != provider:
        raise BadFileError("prices of another provider")
    try:
        return _decoded(header, json.loads(body), provider, wanted)
    except (KeyError, TypeError, ValueError, ArithmeticError, IndexError) as error:
        raise BadFileError(f"cannot be read ({type(error).__name__})") from None


def _decoded(
    header: dict[str, Any], body: dict[str, Any], provider: str, wanted: Collection[Key] | None
) -> Snapshot:
    """Build the snapshot of a file whose checksum fits."""
    seen = datetime.fromisoformat(header["seen"])
    machines = [_machine(provider, row) for row in body["machines"]]
    rows = body["offers"]
    if wanted is not None:
        names = [m.instance_type for m in machines]
        rows = [r for r in rows if (provider, names[r[0]], r[1], r[2] or "", r[3]) in wanted]
    return Snapshot(
        provider=provider,
        seen=seen,
        complete=bool(header["complete"]),
        offers=tuple(_offer(machines[row[0]], row, seen) for row in rows),
        unknown_gpus=tuple(UnknownGpu(provider, name, count) for name, count in header["unknown_gpus"]),
        notes=tuple(header["notes"]),
    )


# ---------------------------------------------------------------------------------- files


@contextmanager
def _locked(where: Path, provider: str) -> Iterator[None]:
    """Hold the lock of a provider's files against other processes, where the system has such locks."""
    where.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows: the rename alone keeps files whole
        yield
        return
    with (where / f".{provider}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and on the disk before its name points to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load(provider: str, where: Path) -> Loaded:
    """Read the snapshot of a provider; a file that is not whole is renamed to ``.bad`` and warned of."""
    return _load(path_of(provider, where), provider)


def _load(path: Path, provider: str, wanted: Collection[Key] | None = None) -> Loaded:
    try:
        return Loaded(decode(path.read_bytes(), provider, wanted))
    except FileNotFoundError:
        return Loaded(None)
    except OSError as error:
        return Loaded(None, f"prices of {provider}: {path.name} cannot be read ({error.strerror})")
    except BadFileError as error:
        aside = path.with_suffix(".bad")
        try:
            os.replace(path, aside)
        except OSError:  # another process was first, or the directory is read-only
            return Loaded(None, f"prices of {provider}: {path.name} is not used: {error}")
        return Loaded(None, f"prices of {provider}: {error}; set aside as {aside.name}, the catalog serves")


def providers_in(where: Path) -> tuple[str, ...]:
    """Return the providers that have a snapshot, sorted."""
    return tuple(sorted(p.stem for p in where.glob("*.json")))


def save(snapshot: Snapshot, where: Path) -> bool:
    """Make ``snapshot`` the last good one, unless a newer one is there already: then ``False``."""
    content = encode(snapshot)
    with _locked(where, snapshot.provider):
        before = load(snapshot.provider, where).snapshot
        if before is not None and before.seen >= snapshot.seen:
            return False
        if before is None or prices(before) != prices(snapshot):
            _write(_history_dir(snapshot.provider, where) / f"{snapshot.seen:{_STAMP}}.json", content)
            _prune(snapshot.provider, where)
        _write(path_of(snapshot.provider, where), content)
        _failure_path(snapshot.provider, where).unlink(missing_ok=True)
    return True


# ---------------------------------------------------------------------------------- history, failures


def prices(snapshot: Snapshot) -> dict[tuple[str, ...], object]:
    """Price of every key, to compare two snapshots."""
    return {key(o): o.usd_per_hour for o in snapshot.offers}


def _history_dir(provider: str, where: Path) -> Path:
    return where / "history" / provider


def _prune(provider: str, where: Path) -> None:
    """Keep the newest of the history."""
    for old in sorted(_history_dir(provider, where).glob("*.json"))[:-MOST_HISTORY]:
        old.unlink(missing_ok=True)


def history(
    provider: str, where: Path, *, last: int = MOST_HISTORY, wanted: Collection[Key] | None = None
) -> tuple[Snapshot, ...]:
    """Return the ``last`` snapshots in which a price had changed, oldest first, with the ``wanted`` offers.

    Files that are not whole are left out.
    """
    paths = sorted(_history_dir(provider, where).glob("*.json"))[-last:]
    return tuple(s for p in paths if (s := _load(p, provider, wanted).snapshot) is not None)


def _failure_path(provider: str, where: Path) -> Path:
    return where / f"{provider}.failed"


def record_failure(failure: Failure, where: Path) -> None:
    """Remember that the last refresh failed. The snapshot and its age stay as they are."""
    content = json.dumps({"time": failure.time.isoformat(), "reason": failure.reason})
    with _locked(where, failure.provider):
        _write(_failure_path(failure.provider, where), content.encode())


def last_failure(provider: str, where: Path) -> Failure | None:
    """Return how the last refresh failed; ``None`` where it did not, or there was none."""
    try:
        read = json.loads(_failure_path(provider, where).read_bytes())
        return Failure(provider, datetime.fromisoformat(read["time"]), str(read["reason"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
