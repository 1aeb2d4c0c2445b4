"""The ledger keeps launches: in order, whole or not at all, one process at a time, without secrets."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from clusters.ledger import locks
from clusters.ledger.locks import HeldError
from clusters.ledger.schema import MIGRATIONS, LedgerError, connect
from clusters.ledger.store import Ledger, LiveLaunchError
from clusters.scrub import scrubber
from planner.errors import UserError
from planner.launched import STATES, Launch, PricePoint, Transition

NOW = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)


def launch(launch_id: str = "l-01", plan_id: str = "p-1", **more: object) -> Launch:
    fields = {
        "id": launch_id,
        "plan_id": plan_id,
        "plan_json": "{}",
        "user": "ada",
        "project": None,
        "kind": "aws",
        "provider": "aws",
        "region": "us-east-1",
        "zone": None,
        "market": "on-demand",
        "instance_type": "g6e.12xlarge",
        "gpu": "L40S",
        "gpus_per_node": 4,
        "num_nodes": 1,
        "budget_usd": Decimal("200.10"),
        "created": NOW,
        "deadline": NOW + timedelta(hours=48),
        "transitions": (Transition(at=NOW, state="planned"),),
        **more,
    }
    return Launch.model_validate(fields)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path, scrubber({}))


def test_a_launch_reads_back_as_it_was_written(ledger: Ledger):
    price = PricePoint(since=NOW, item="node", quantity=1, usd_per_hour=Decimal("10.49"), source="list")
    written = launch(prices=(price,), then="python train.py")
    ledger.begin(written, {"work": "{}"})
    assert ledger.launch("l-01") == written
    assert ledger.launches() == (written,)
    assert ledger.note("l-01", "work") == "{}"
    assert ledger.note("l-01", "other") is None


def test_states_stand_in_the_order_in_which_they_were_entered(ledger: Ledger):
    ledger.begin(launch(), {})
    for state in STATES[1:]:
        ledger.enter("l-01", Transition(at=NOW, state=state, detail=f"to {state}"))
    assert [t.state for t in ledger.launch("l-01").transitions] == list(STATES)
    assert ledger.launch("l-01").transitions[-1].detail == "to gone"


def test_saving_a_launch_leaves_its_transitions_alone(ledger: Ledger):
    ledger.begin(launch(), {})
    ledger.enter("l-01", Transition(at=NOW, state="preflight"))
    ledger.save(launch(outcome="declined", transitions=()))
    found = ledger.launch("l-01")
    assert (found.outcome, found.state) == ("declined", "preflight")


def test_a_plan_has_one_live_launch(ledger: Ledger):
    ledger.begin(launch(), {})
    with pytest.raises(LiveLaunchError) as live:
        ledger.begin(launch("l-02"), {})
    assert live.value.launch_id == "l-01"
    ledger.begin(launch("l-03", plan_id="p-2"), {})
    ledger.enter("l-01", Transition(at=NOW, state="gone"))
    ledger.begin(launch("l-02"), {})
    assert {x.id for x in ledger.launches()} == {"l-01", "l-02", "l-03"}


def test_no_ledger_means_no_launches_and_makes_no_file(tmp_path: Path):
    assert Ledger(tmp_path / "new", scrubber({})).launches() == ()
    assert not (tmp_path / "new").exists()


def test_an_unknown_launch_is_named_with_what_is_near(ledger: Ledger):
    ledger.begin(launch("l-abc1"), {})
    with pytest.raises(UserError, match=r"no launch 'l-abc2' \(did you mean l-abc1\?\)"):
        ledger.launch("l-abc2")


def test_the_file_is_in_wal_mode(ledger: Ledger):
    ledger.begin(launch(), {})
    with closing(sqlite3.connect(ledger.path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)


def test_an_older_file_is_migrated_and_kept_beside_it(ledger: Ledger):
    with closing(connect(ledger.path, MIGRATIONS[:1])) as connection:
        connection.execute(
            "INSERT INTO launches VALUES ('l-01', 'p-1', ?)",
            (launch().model_dump_json(exclude={"transitions"}),),
        )
        connection.execute("INSERT INTO transitions VALUES ('l-01', 1, ?, 'planned', '')", (NOW.isoformat(),))
    assert ledger.launch("l-01") == launch()
    ledger.write_note("l-01", "work", "x")
    with closing(sqlite3.connect(f"{ledger.path}.v1")) as connection:
        assert connection.execute("SELECT id FROM launches").fetchall() == [("l-01",)]
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_migration_that_fails_changes_nothing(ledger: Ledger):
    ledger.begin(launch(), {})
    with pytest.raises(LedgerError, match="nothing in it was changed"):
        connect(ledger.path, (*MIGRATIONS, ("CREATE TABLE more (id TEXT)", "no such statement")))
    assert ledger.launch("l-01") == launch()


def test_a_newer_file_is_refused_and_left_as_it_is(ledger: Ledger):
    ledger.begin(launch(), {})
    with closing(connect(ledger.path, (*MIGRATIONS, ("CREATE TABLE more (id TEXT)",)))):
        pass
    before = ledger.path.read_bytes()
    with pytest.raises(LedgerError, match="newer plan") as error:
        ledger.launches()
    assert "upgrade" in error.value.hint
    assert ledger.path.read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database, but long enough to be looked at" * 9, None])
def test_a_damaged_file_is_an_error_and_never_emptied(ledger: Ledger, content: bytes | None):
    ledger.begin(launch(), {})
    if content is None:
        content = ledger.path.read_bytes()[:100] + os.urandom(8000)
    for name in ("-wal", "-shm"):
        Path(f"{ledger.path}{name}").unlink(missing_ok=True)
    ledger.path.write_bytes(content)
    with pytest.raises(LedgerError, match="cannot be read") as error:
        ledger.launch("l-01")
    assert "plan down --all" in error.value.hint
    assert ledger.path.read_bytes() == content


def test_a_database_of_something_else_is_not_touched(ledger: Ledger):
    with closing(sqlite3.connect(ledger.path)) as connection:
        connection.execute("CREATE TABLE pictures (id TEXT)")
    with pytest.raises(LedgerError, match="something else"):
        ledger.begin(launch(), {})


def test_a_lock_keeps_a_second_process_out_and_names_its_holder(tmp_path: Path):
    script = (
        "import sys, time; from pathlib import Path; from clusters.ledger import locks\n"
        "with locks.held(Path(sys.argv[1]), 'l-01'): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(HeldError) as error, locks.held(tmp_path, "l-01"):
            pass
        assert error.value.holder is not None
        assert error.value.holder.pid == other.pid
        assert locks.is_same(error.value.holder)
        with locks.held(tmp_path, "l-02"):
            pass
        other.kill()
    with locks.held(tmp_path, "l-01"):  # the kernel dropped the lock of the dead
        assert not locks.is_same(error.value.holder)


def test_the_holder_of_a_reused_process_number_is_not_taken_for_the_old_one(tmp_path: Path):
    mine = locks.holder_of(os.getpid())
    assert locks.is_same(mine)
    assert not locks.is_same(mine.model_copy(update={"began": "1"}))
    assert not locks.is_same(mine.model_copy(update={"began": ""}))


def test_secrets_never_reach_the_file(tmp_path: Path):
    environment = {"AWS_SECRET_ACCESS_KEY": 'wJalr"XUt\\nFEMI', "HF_TOKEN": "hf-secret-of-mine"}
    ledger = Ledger(tmp_path, scrubber(environment))
    said = "; ".join([*environment.values(), "AKIAIOSFODNN7EXAMPLE"])
    ledger.begin(launch(then=said), {"work": said})
    ledger.enter("l-01", Transition(at=NOW, state="preflight", detail=said))
    assert ledger.launch("l-01").transitions[-1].detail == "***; ***; ***"
    for path in tmp_path.rglob("*"):
        for secret in ("XUt", "secret-of-mine", "AKIA"):
            assert path.is_dir() or secret.encode() not in path.read_bytes()
