"""Last good offers of each provider on disk, under the user's cache directory (``PLAN_CACHE_DIR``).

A snapshot is two lines of JSON: a header (schema version, provider, time seen, SHA-256 of the second line)
and the offers. It is written beside its place and renamed, under a lock: a reader sees the old one or the
new one, never half of one, and two processes that refresh at once leave the newer. A file that is truncated
or foreign is set aside as ``.bad``. Only a good refresh writes one: no failure renews an age. Where prices
have changed, the snapshot is kept under ``history/`` too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from planner.types import Links, Offer
from providers.base import UnknownGpu, key

SCHEMA_VERSION = 1
MOST_HISTORY = 90
_STAMP = "%Y%m%dT%H%M%S%fZ"


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


@lru_cache(maxsize=1024)
def _links(intra: str, inter: str, gbit: float | None) -> Links:
    """Links of a row; one record for all rows that say the same."""
    return Links(intra=intra, inter=inter, inter_gbit_per_s=gbit)


def _row(offer: Offer) -> list[Any]:
    """One offer as a row; what all of a snapshot share stands in the header."""
    return [
        offer.instance_type,
        offer.region,
        offer.zone,
        offer.market,
        offer.gpu,
        offer.gpus_per_node,
        [offer.links.intra, offer.links.inter, offer.links.inter_gbit_per_s],
        offer.vcpus,
        offer.host_memory_bytes,
        offer.local_disk_bytes,
        None if offer.usd_per_hour is None else str(offer.usd_per_hour),
        offer.unknown_why,
        offer.min_billing_s,
        offer.billing_increment_s,
        list(offer.not_included),
        offer.max_nodes,
        None if offer.price_seen is None else offer.price_seen.isoformat(),
        offer.source,
        offer.available,
        offer.note,
    ]


def _offer(provider: str, row: list[Any]) -> Offer:
    """Build the offer of a row. Not validated, for speed: the checksum says that we wrote it."""
    return _blank().model_copy(
        update={
            "provider": provider,
            "instance_type": row[0],
            "region": row[1],
            "zone": row[2],
            "market": row[3],
            "gpu": row[4],
            "gpus_per_node": row[5],
            "links": _links(*row[6]),
            "vcpus": row[7],
            "host_memory_bytes": row[8],
            "local_disk_bytes": row[9],
            "usd_per_hour": None if row[10] is None else Decimal(row[10]),
            "unknown_why": row[11],
            "min_billing_s": row[12],
            "billing_increment_s": row[13],
            "not_included": tuple(row[14]),
            "max_nodes": row[15],
            "price_seen": _time(row[16]),
            "source": row[17],
            "origin": "live",
            "available": row[18],
            "note": row[19],
        }
    )


@lru_cache(maxsize=256)
def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def encode(snapshot: Snapshot) -> bytes:
    """Write a snapshot as the two lines of its file."""
    body = json.dumps([_row(o) for o in snapshot.offers], separators=(",", ":"), ensure_ascii=False).encode()
    header = {
        "schema_version": SCHEMA_VERSION,
        "provider": snapshot.provider,
        "seen": snapshot.seen.astimezone(UTC).isoformat(),
        "complete": snapshot.complete,
        "unknown_gpus": [[u.name, u.count] for u in snapshot.unknown_gpus],
        "notes": list(snapshot.notes),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    return json.dumps(header, ensure_ascii=False).encode() + b"\n" + body + b"\n"


def decode(content: bytes, provider: str) -> Snapshot:
    """Read the two lines of a file. Raises ``BadFileError`` unless they are whole, and of this provider."""
    first, _, rest = content.partition(b"\n")
    body = rest.removesuffix(b"\n")
    try:
        header = json.loads(first)
    except ValueError:
        raise BadFileError("no header") from None
    if not isinstance(header, dict) or header.get("provider") != provider:
        raise BadFileError("not a snapshot of this provider")
    if header.get("schema_version") != SCHEMA_VERSION:
        raise BadFileError(f"schema version {header.get('schema_version')!r}, not {SCHEMA_VERSION}")
    if header.get("sha256") != hashlib.sha256(body).hexdigest():
        raise BadFileError("the checksum does not fit: truncated or changed")
    try:
        return Snapshot(
            provider=provider,
            seen=datetime.fromisoformat(header["seen"]),
            complete=bool(header["complete"]),
            offers=tuple(_offer(provider, row) for row in json.loads(body)),
            unknown_gpus=tuple(UnknownGpu(provider, name, count) for name, count in header["unknown_gpus"]),
            notes=tuple(header["notes"]),
        )
    except (KeyError, TypeError, ValueError, ArithmeticError, IndexError) as error:
        raise BadFileError(f"cannot be read ({type(error).__name__})") from None


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


def _load(path: Path, provider: str) -> Loaded:
    try:
        return Loaded(decode(path.read_bytes(), provider))
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


def history(provider: str, where: Path) -> tuple[Snapshot, ...]:
    """All snapshots in which a price had changed, oldest first; files that are not whole are left out."""
    paths = sorted(_history_dir(provider, where).glob("*.json"))
    return tuple(s for p in paths if (s := _load(p, provider).snapshot) is not None)


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
