"""A full run on spot: hosts are taken away, the cluster is built again, a real training goes on."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
import torch

from clusters.backend.shell import Log
from clusters.clouds.base import Created
from clusters.clouds.base import Order as AnOrder
from clusters.faults import CloudFault
from clusters.launch import machine
from clusters.launch.interrupts import Interrupted
from clusters.launch.nouns import Finished
from clusters.launch.running import read_work
from clusters.probe import checkpoint, spec, step
from planner import spend
from planner.cli.launch.rows import row
from planner.cli.screens.launches import lost_work
from planner.launched import Launch
from tests.clusters import tools
from tests.clusters.launch.cloud import FileCloud
from tests.clusters.launch.hands import LIMITS, Clock, Proving, Screen, hands, request

EVERY, STEPS, STEP_S = 5, 12, 60.0
MODEL = {"name": "tiny", "num_layers": 1, "hidden_size": 16, "num_heads": 2, "num_kv_heads": 2, "head_dim": 8}
RUN = {
    "model": {**MODEL, "vocab_size": 64, "ffn_size": 32},
    "training": {"seq_len": 8, "precision": "fp32"},
    "layout": {},
}
SPOT = LIMITS.model_copy(update={"looks": 1, "capacity_waits": 3})


class Training(Proving):
    """A real training on one CPU with checkpoints in a directory; ``end_at``: what happens after a step."""

    def __init__(self, storage: Path, clock: Clock) -> None:
        super().__init__()
        self.cost_usd = 10.0
        self.storage, self.ticks = storage, clock
        self.end_at: dict[int, Callable[[], None]] = {}
        self.steps_done: list[int] = []
        self.starts: list[int] = []

    def follow(self, created: Created, job_id: str, log: Log, tick: Callable[[], None] | None = None) -> bool:
        trainer = step.build(spec.read_plan({"run": RUN}), torch.device("cpu"))
        saved = sorted(self.storage.iterdir(), key=lambda p: int(p.name)) if self.storage.exists() else []
        first = checkpoint.load(trainer, saved[-1]) if saved else 0
        self.starts.append(first)
        for done in range(first + 1, STEPS + 1):
            step.train_step(trainer, step.synthetic_batches(trainer, done))
            self.ticks.sleep(STEP_S)
            self.steps_done.append(done)
            log(f"step {done}  loss 4.1")
            if done % EVERY == 0:
                checkpoint.save(trainer, self.storage / str(done), done)
                log(f"checkpoint at step {done}")
            if done in self.end_at:
                self.end_at.pop(done)()
            if tick is not None:
                tick()
        return True


@pytest.fixture
def cloud(tmp_path: Path) -> FileCloud:
    return FileCloud(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def training(tmp_path: Path, clock: Clock) -> Training:
    return Training(tmp_path / "storage", clock)


def taken(cloud: FileCloud, name: str = "i-0") -> Callable[[], None]:
    """The host vanishes, and with it the head's answer."""

    def take() -> None:
        vanish(cloud, name)
        raise CloudFault("connection", "the head does not answer")

    return take


def vanish(cloud: FileCloud, name: str = "i-0") -> None:
    cloud._write([r for r in cloud.resources() if r.id != name])


def asked(tmp_path: Path, nodes: int = 2, **more: object):
    fields = {"plan": tools.plan(market="spot", nodes=nodes), "then": "python train.py", "limits": SPOT}
    return request(tmp_path, **{**fields, **more})


def launched(tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock, **more: object):
    h = hands(tmp_path, cloud, clock=clock, proving=training, screen=(screen := Screen()))
    finished = machine.launch(asked(tmp_path, **more), h)
    return finished, h.ledger.launches()[-1], h, screen


def states(launch: Launch) -> list[str]:
    return [t.state for t in launch.transitions]


def test_a_host_that_vanishes_costs_the_work_since_the_checkpoint_and_the_step_counter_goes_on(
    tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock
):
    training.end_at[7] = taken(cloud)
    finished, launch, _, _ = launched(tmp_path, cloud, training, clock)
    assert (finished.exit_code, finished.message.split(";")[0]) == (0, "job l-01 succeeded")
    assert training.starts == [0, 5]
    assert training.steps_done == [1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9, 10, 11, 12]
    (lost,) = launch.lost
    assert (lost.steps, lost.why) == (2, "1 of 2 machines are gone: i-0")
    assert lost.seconds is not None
    assert 2 * STEP_S <= lost.seconds < 3 * STEP_S  # and the looks at what is left
    assert states(launch)[-4:] == ["tearing_down", "creating", "up", "committed"]
    assert training.probes == 1
    assert [attempt for _, attempt in cloud.creates] == [1, 2]  # another client token
    assert len(cloud.resources()) == 5


def test_lost_work_stands_in_ls_and_in_the_forecast(
    tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock
):
    training.end_at[7] = taken(cloud)
    _, launch, _, _ = launched(tmp_path, cloud, training, clock)
    shown = row(launch, clock.now())
    before = row(launch.model_copy(update={"lost": ()}), clock.now())
    twice = float(spend.lost_usd(launch, clock.now()))
    assert twice >= 2 * STEP_S / 3600 * 20  # two nodes at 10 USD
    assert shown.forecast_usd is not None
    assert before.forecast_usd is not None
    assert shown.forecast_usd.mid == pytest.approx(before.forecast_usd.mid + twice)
    said = lost_work(shown)
    assert said.startswith("l-01: machines were taken away once; lost work: 2 steps, 2 min")
    assert said.endswith(f"${twice:.2f} more in the forecast")


def test_a_budget_that_pays_no_other_start_ends_the_run_with_nothing_left(
    tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock
):
    training.end_at[7] = taken(cloud)
    finished, launch, _, _ = launched(tmp_path, cloud, training, clock, budget_usd=Decimal(37))
    assert (finished.outcome, finished.exit_code) == ("torn_down", 1)
    assert "1 of 2 machines are gone: i-0; not rebuilt: the budget has $" in finished.message
    assert not cloud.resources()
    assert len(cloud.creates) == 1
    assert launch.state == "gone"
    assert len(launch.lost) == 1
    assert spend.spent(launch, clock.now()).usd < 37


def test_what_is_spent_stays_within_the_budget_over_many_losses(
    tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock
):
    """Hosts are taken away at every checkpoint until the money is over."""

    class Unlucky(Training):
        def follow(self, created, job_id, log, tick=None) -> bool:  # type: ignore[no-untyped-def]
            self.ticks.sleep(1800)
            vanish(cloud)
            raise CloudFault("connection", "the head does not answer")

    unlucky = Unlucky(tmp_path / "storage", clock)
    finished, launch, _, _ = launched(tmp_path, cloud, unlucky, clock, budget_usd=Decimal(100))
    assert finished.outcome == "torn_down"
    assert 1 < len(launch.lost) < 20
    assert 60 < spend.spent(launch, clock.now()).usd <= 100
    assert all(x.steps is None for x in launch.lost)  # no checkpoint was ever named
    assert not cloud.resources()


def test_the_number_of_rebuilds_is_bounded(
    tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock
):
    for number in (2, 3, 4):
        training.end_at[number] = taken(cloud)
    limits = SPOT.model_copy(update={"rebuilds": 2})
    finished, launch, _, _ = launched(tmp_path, cloud, training, clock, limits=limits)
    assert "not rebuilt: it was rebuilt 2 times" in finished.message
    assert (len(launch.lost), len(cloud.creates)) == (3, 3)
    assert not cloud.resources()


def test_without_spot_capacity_it_waits_while_nothing_bills(
    tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock
):
    def take() -> None:
        cloud.faults["create"] = [CloudFault("capacity", "none")] * 2
        taken(cloud)()

    training.end_at[7] = take
    finished, launch, _, screen = launched(tmp_path, cloud, training, clock)
    assert finished.exit_code == 0
    assert clock.slept.count(SPOT.capacity_wait_s) == 2
    assert [a for _, a in cloud.creates] == [1, 2, 3, 4]
    assert any("no spot capacity" in e.detail for e in screen.events)
    node = [(p.since, p.quantity) for p in launch.prices if p.item == "node"]
    assert [quantity for _, quantity in node] == [2, 0, 2]  # tries that made nothing do not bill


def test_without_any_capacity_it_ends_and_no_other_candidate_is_started(
    tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock
):
    def take() -> None:
        cloud.faults["create"] = [CloudFault("capacity", "none")] * 9
        taken(cloud)()

    training.end_at[7] = take
    finished, _, _, _ = launched(tmp_path, cloud, training, clock)
    assert (finished.outcome, finished.exit_code, finished.elsewhere) == ("torn_down", 1, None)
    assert len(cloud.creates) == 1 + 1 + SPOT.capacity_waits
    assert not cloud.resources()


def test_a_job_that_waits_for_machines_that_are_gone_is_not_waited_for_without_end(
    tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock
):
    training.end_at[6] = lambda: vanish(cloud, "i-1")  # the head and the job go on
    finished, launch, _, _ = launched(tmp_path, cloud, training, clock)
    assert finished.exit_code == 0
    assert training.starts == [0, 10]  # five minutes later
    assert launch.lost[0].why == "1 of 2 machines are gone: i-1"


def test_a_worker_that_ray_has_replaced_is_no_loss_while_the_job_goes_on(
    tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock
):
    def replace() -> None:
        cloud._write([r.model_copy(update={"id": "i-9"}) if r.id == "i-1" else r for r in cloud.resources()])

    training.end_at[3] = replace
    _, launch, _, _ = launched(tmp_path, cloud, training, clock)
    assert (launch.lost, training.starts) == ((), [0])


def test_a_job_that_fails_on_machines_that_are_there_is_a_failure_and_no_loss(
    tmp_path: Path, cloud: FileCloud, clock: Clock
):
    proving = Proving()
    proving.job_succeeds = False
    finished = machine.launch(asked(tmp_path), h := hands(tmp_path, cloud, clock=clock, proving=proving))
    assert (finished.exit_code, h.ledger.launches()[0].lost) == (1, ())
    assert cloud.resources()


def detached(tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock) -> Finished:
    def leave() -> None:
        raise Interrupted("SIGINT")

    training.end_at[7] = leave
    return launched(tmp_path, cloud, training, clock)[0]


def test_resume_of_a_committed_run_builds_it_again_where_its_machines_are_gone(
    tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock
):
    assert "detached" in detached(tmp_path, cloud, training, clock).message
    cloud._write([])
    h = hands(tmp_path, cloud, clock=clock, proving=training)
    finished = machine.resume("l-01", h)
    assert "succeeded" in finished.message
    assert training.starts == [0, 5]
    (lost,) = h.ledger.launch("l-01").lost
    assert (lost.steps, lost.seconds) == (None, None)  # nobody saw when they went
    assert "an unknown number of steps, an unknown time" in lost_work(
        row(h.ledger.launch("l-01"), clock.now())
    )
    cloud._write([])
    again = machine.resume("l-01", h)  # it had succeeded: nothing is built for it
    assert (again.outcome, len(cloud.creates)) == ("torn_down", 2)


def test_resume_of_a_committed_run_attaches_where_its_machines_are_there(
    tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock
):
    detached(tmp_path, cloud, training, clock)
    h = hands(tmp_path, cloud, clock=clock, proving=training)
    assert "succeeded" in machine.resume("l-01", h).message
    assert len(cloud.creates) == 1
    assert h.ledger.launch("l-01").lost == ()


def test_what_cannot_be_deleted_stops_the_rebuild_and_is_named(
    tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock
):
    def take() -> None:
        cloud.stuck = ("vol-1",)
        taken(cloud)()

    training.end_at[7] = take
    finished, _, _, _ = launched(tmp_path, cloud, training, clock)
    assert (finished.outcome, finished.exit_code) == ("may_still_bill", 6)
    assert [r.id for r in finished.left] == ["vol-1"]
    assert len(cloud.creates) == 1


def test_an_interrupt_during_the_rebuild_leaves_nothing(
    tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock
):
    def take() -> None:
        cloud.faults["create"] = [Interrupted("SIGINT")]  # type: ignore[list-item]
        taken(cloud)()

    training.end_at[7] = take
    finished, _, _, _ = launched(tmp_path, cloud, training, clock)
    assert finished.exit_code == 130
    assert not cloud.resources()


def test_a_rebuild_that_is_dearer_than_was_confirmed_is_not_started(
    tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock
):
    prices = [Decimal("10.00"), Decimal("10.40")]
    training.end_at[7] = taken(cloud)
    h = hands(tmp_path, cloud, clock=clock, proving=training, price_now=lambda offer: prices.pop(0))
    finished = machine.launch(asked(tmp_path), h)
    assert "not rebuilt" in finished.message
    assert "costs more than was confirmed" in finished.message
    assert not cloud.resources()


def test_the_order_of_a_rebuild_has_what_is_left_of_the_budget(
    tmp_path: Path, cloud: FileCloud, training: Training, clock: Clock
):
    training.end_at[7] = taken(cloud)
    _, launch, h, _ = launched(tmp_path, cloud, training, clock)
    order: AnOrder | None = read_work("l-01", h).order
    assert order is not None
    assert order.budget_usd is not None
    assert order.budget_usd < 1000 - spend.lost_usd(launch, clock.now())
