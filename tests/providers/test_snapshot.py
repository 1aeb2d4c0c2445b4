"""Last good prices on disk."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.types import Links, Offer
from providers import snapshot
from providers.base import UnknownGpu, key
from providers.snapshot import Failure, Snapshot

SEEN = datetime(2026, 11, 30, 12, tzinfo=UTC)
Build = Callable[..., Offer]


@pytest.fixture
def a_snapshot(an_offer: Build) -> Callable[..., Snapshot]:
    def build(price: str = "24", hours: float = 0, provider: str = "acme") -> Snapshot:
        seen = SEEN + timedelta(hours=hours)
        offers = (
            an_offer(provider=provider, usd_per_hour=Decimal(price), price_seen=seen, origin="live"),
            an_offer(
                provider=provider,
                market="spot",
                zone="n1",
                usd_per_hour=None,
                unknown_why="no price",
                price_seen=seen,
                origin="live",
                not_included=("disk", "tax"),
                available=True,
                vcpus=192,
                note="ünïcode",
            ),
        )
        return Snapshot(provider, seen, False, offers, (UnknownGpu(provider, "Zeus", 2),), ("a note",))

    return build


def test_a_snapshot_comes_back_as_it_was(a_snapshot: Callable[..., Snapshot], tmp_path: Path):
    assert snapshot.save(a_snapshot(), tmp_path)
    assert snapshot.load("acme", tmp_path) == snapshot.Loaded(a_snapshot())


def test_nothing_saved_is_no_warning(tmp_path: Path):
    assert snapshot.load("acme", tmp_path) == snapshot.Loaded(None)
    assert snapshot.providers_in(tmp_path) == ()


def test_an_older_refresh_does_not_replace_a_newer_one(a_snapshot: Callable[..., Snapshot], tmp_path: Path):
    assert snapshot.save(a_snapshot("24", hours=2), tmp_path)
    assert not snapshot.save(a_snapshot("20", hours=1), tmp_path)
    assert snapshot.load("acme", tmp_path).snapshot == a_snapshot("24", hours=2)


def resealed(content: bytes, old: bytes, new: bytes) -> bytes:
    """A file that says something else, with the checksum that fits."""
    return snapshot.sealed(content.split(b"\n", 1)[1].replace(old, new, 1))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda c: c[: len(c) // 2], "truncated or changed"),
        (lambda c: c[:-20], "truncated or changed"),
        (lambda c: c.replace(b'"24"', b'"23"'), "truncated or changed"),
        (lambda c: c.replace(b"2026-11-30T12", b"2026-11-30T13"), "truncated or changed"),
        (lambda c: c + b"more", "truncated or changed"),
        (lambda _: b"", "not a file of prices"),
        (lambda _: b"\x00\xff\x00", "not a file of prices"),
        (lambda _: b'{"some": "other tool"}', "not a file of prices"),
        (lambda c: resealed(c, b'"acme"', b'"other"'), "prices of another provider"),
        (lambda c: resealed(c, b'"schema_version": 1', b'"schema_version": 99'), "schema version 99"),
        (lambda c: resealed(c, b'"complete"', b'"completed"'), "cannot be read (KeyError)"),
        (lambda c: resealed(c, b'"machines":[', b'"machines":{'), "cannot be read (JSONDecodeError)"),
        (lambda _: snapshot.sealed(b"[]\n[]\n"), "cannot be read (no header)"),
        (lambda c: resealed(c, b'"seen": "2026', b'"seen": "once'), "cannot be read (ValueError)"),
    ],
)
def test_a_file_that_is_not_whole_or_not_ours_is_set_aside_with_a_warning(
    damage: Callable[[bytes], bytes], said: str, a_snapshot: Callable[..., Snapshot], tmp_path: Path
):
    snapshot.save(a_snapshot(), tmp_path)
    path = snapshot.path_of("acme", tmp_path)
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    loaded = snapshot.load("acme", tmp_path)
    assert loaded.snapshot is None
    assert said in str(loaded.warning)
    assert not path.exists()
    assert path.with_suffix(".bad").read_bytes() == damaged
    assert snapshot.save(a_snapshot(hours=1), tmp_path)


def test_a_directory_in_the_place_of_the_file_is_a_warning(tmp_path: Path):
    (tmp_path / "acme.json").mkdir()
    assert "acme.json" in str(snapshot.load("acme", tmp_path).warning)


def test_a_write_that_fails_leaves_the_last_good_one(
    a_snapshot: Callable[..., Snapshot], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    snapshot.save(a_snapshot(), tmp_path)

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        snapshot.save(a_snapshot("20", hours=1), tmp_path)
    assert snapshot.load("acme", tmp_path).snapshot == a_snapshot()
    assert not list(tmp_path.glob(".acme.json.*"))


def test_history_keeps_what_changed_only(a_snapshot: Callable[..., Snapshot], tmp_path: Path):
    for hours, price in enumerate(["24", "24", "22", "22", "25"]):
        snapshot.save(a_snapshot(price, hours=hours), tmp_path)
    assert [str(s.offers[0].usd_per_hour) for s in snapshot.history("acme", tmp_path)] == ["24", "22", "25"]


def test_the_end_of_history_and_single_offers_can_be_asked_for(
    a_snapshot: Callable[..., Snapshot], tmp_path: Path
):
    for hours, price in enumerate(["24", "22", "25"]):
        snapshot.save(a_snapshot(price, hours=hours), tmp_path)
    wanted = {key(a_snapshot().offers[0])}
    found = snapshot.history("acme", tmp_path, last=2, wanted=wanted)
    assert [[str(o.usd_per_hour) for o in s.offers] for s in found] == [["22"], ["25"]]


def test_history_does_not_grow_without_end(
    a_snapshot: Callable[..., Snapshot], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(snapshot, "MOST_HISTORY", 3)
    for hours in range(6):
        snapshot.save(a_snapshot(str(20 + hours), hours=hours), tmp_path)
    assert [s.seen for s in snapshot.history("acme", tmp_path)] == [
        SEEN + timedelta(hours=h) for h in (3, 4, 5)
    ]


def test_a_failure_is_remembered_until_a_good_refresh(a_snapshot: Callable[..., Snapshot], tmp_path: Path):
    snapshot.save(a_snapshot(), tmp_path)
    failure = Failure("acme", SEEN + timedelta(hours=1), "HTTP 503")
    snapshot.record_failure(failure, tmp_path)
    assert snapshot.last_failure("acme", tmp_path) == failure
    assert snapshot.load("acme", tmp_path).snapshot == a_snapshot()
    snapshot.save(a_snapshot(hours=2), tmp_path)
    assert snapshot.last_failure("acme", tmp_path) is None


def test_the_place_is_the_cache_directory_or_what_the_user_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("PLAN_CACHE_DIR", str(tmp_path))
    assert snapshot.directory() == tmp_path / "prices"
    monkeypatch.delenv("PLAN_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert snapshot.directory().is_relative_to(tmp_path / "xdg")


texts = st.text(max_size=20)
sizes = st.none() | st.integers(0, 2**50)
offers = st.builds(
    Offer,
    provider=st.just("acme"),
    instance_type=texts,
    region=texts,
    zone=st.none() | texts,
    market=st.sampled_from(["on-demand", "spot", "capacity-block", "community"]),
    gpu=texts,
    gpus_per_node=st.integers(1, 72),
    links=st.builds(Links, intra=texts, inter=texts, inter_gbit_per_s=st.none() | st.floats(1, 1e5)),
    vcpus=sizes,
    host_memory_bytes=sizes,
    local_disk_bytes=sizes,
    usd_per_hour=st.none() | st.decimals("0.001", 10_000, places=6),
    unknown_why=st.none() | texts,
    min_billing_s=sizes,
    billing_increment_s=sizes,
    not_included=st.lists(texts, max_size=3).map(tuple),
    max_nodes=sizes,
    price_seen=st.none() | st.datetimes(timezones=st.just(UTC)),
    source=texts,
    origin=st.just("live"),
    available=st.none() | st.booleans(),
    note=texts,
)


@given(st.lists(offers, max_size=4), st.booleans())
def test_any_offers_come_back_as_they_were(found: list[Offer], complete: bool):
    before = Snapshot("acme", SEEN, complete, tuple(found))
    assert snapshot.decode(snapshot.encode(before), "acme") == before


@given(st.data())
def test_no_damage_goes_unnoticed(data: st.DataObject):
    content = snapshot.encode(Snapshot("acme", SEEN, False, (offers_sample(),)))
    at = data.draw(st.integers(0, len(content) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda b: b != content[at]))
    damaged = content[:at] + bytes([other]) + content[at + 1 :]
    with pytest.raises(snapshot.BadFileError):
        snapshot.decode(damaged, "acme")


@given(st.binary(max_size=300))
def test_any_file_is_a_snapshot_or_a_bad_file(content: bytes):
    with pytest.raises(snapshot.BadFileError):
        snapshot.decode(content, "acme")


def offers_sample() -> Offer:
    return Offer(
        provider="acme",
        instance_type="c99",
        region="north",
        market="on-demand",
        gpu="L4",
        gpus_per_node=1,
        links=Links(intra="none", inter="ethernet"),
        usd_per_hour=Decimal("1.5"),
        price_seen=SEEN,
        source="an API",
        origin="live",
    )


WRITER = """
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from planner.types import Links, Offer
from providers import snapshot
where, first = Path(sys.argv[1]), int(sys.argv[2])
links = Links(intra="none", inter="ethernet")
for i in range(first, 60, 2):
    seen = datetime(2026, 11, 30, tzinfo=UTC) + timedelta(minutes=i)
    offers = tuple(
        Offer(provider="acme", instance_type=f"t{n}", region="r", market="on-demand", gpu="L4",
              gpus_per_node=1, links=links, usd_per_hour=Decimal(i + 1), price_seen=seen, source="s",
              origin="live")
        for n in range(200)
    )
    snapshot.save(snapshot.Snapshot("acme", seen, False, offers), where)
    loaded = snapshot.load("acme", where)
    assert loaded.warning is None, loaded.warning
    assert len({o.usd_per_hour for o in loaded.snapshot.offers}) == 1
    assert loaded.snapshot.seen >= seen
"""


def test_two_processes_at_once_never_see_half_a_file_and_leave_the_newer(tmp_path: Path):
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(first)], stderr=subprocess.PIPE, text=True
        )
        for first in (0, 1)
    ]
    torn: list[str] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            loaded = snapshot.load("acme", tmp_path)
            if loaded.warning:
                torn.append(loaded.warning)

    reader = threading.Thread(target=watch)
    reader.start()
    errors = [w.communicate()[1] for w in writers]
    done.set()
    reader.join()
    assert [w.returncode for w in writers] == [0, 0], errors
    assert not torn
    last = snapshot.load("acme", tmp_path).snapshot
    assert last is not None
    assert last.seen == datetime(2026, 11, 30, tzinfo=UTC) + timedelta(minutes=59)
    assert not list(tmp_path.glob("*.bad"))


def test_the_header_says_what_the_file_is(a_snapshot: Callable[..., Snapshot], tmp_path: Path):
    snapshot.save(a_snapshot(), tmp_path)
    header = json.loads(snapshot.path_of("acme", tmp_path).read_bytes().split(b"\n")[1])
    assert (header["schema_version"], header["provider"]) == (1, "acme")
    assert datetime.fromisoformat(header["seen"]) == SEEN
