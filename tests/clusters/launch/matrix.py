"""Cells of the fault matrix: a launch over moto in which one thing goes wrong at one state.

Ray's launcher is a stand-in (``tests/clusters/clouds/stand_in.py``) that makes the calls to EC2 that Ray
makes; the cloud, the machine and the ledger are the real ones.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import botocore.exceptions as boto

from clusters import watchdog
from clusters.backend import sorting
from clusters.backend.launcher import Launcher
from clusters.backend.shell import Log
from clusters.clouds.aws import AwsCloud
from clusters.clouds.base import Created, Order
from clusters.faults import CloudFault
from clusters.launch import down, machine
from clusters.launch.nouns import Finished, Hands
from clusters.ledger.store import Ledger
from clusters.scrub import scrubber
from planner.launched import STATES, Launch, Resource, Transition
from tests.clusters import tools
from tests.clusters.clouds.stand_in import RayWithoutSsh
from tests.clusters.launch.hands import LIMITS, Clock, Proving, Screen, hands, request
from tests.clusters.launch.wire import (
    Killed,
    OneSession,
    Rule,
    Wire,
    client_error,
    left,
    on,
    reset,
    timed_out,
)

REGION, LAUNCH, ZONES = "us-east-1", "l-01", ("us-east-1a", "us-east-1c")
FAULTS = (
    "no capacity",
    "quota",
    "UnauthorizedOperation",
    "throttling",
    "time-out",
    "connection reset",
    "SSH unreachable",
    "setup fails",
    "node never joins",
    "probe OOM",
    "probe hangs",
    "verdict fail",
    "teardown throttled",
    "volume stuck",
)
DELETED_BY = {
    "RunInstances": "TerminateInstances",
    "CreateVolume": "DeleteVolume",
    "AllocateAddress": "ReleaseAddress",
    "CreateSecurityGroup": "DeleteSecurityGroup",
    "ImportKeyPair": "DeleteKeyPair",
    "CreateRole": "DeleteRole",
    "CreateInstanceProfile": "DeleteInstanceProfile",
}
DONE, FAILED, PROBE_FAILED, MAY_BILL = (
    ("committed", 0),
    ("torn_down", 1),
    ("torn_down", 5),
    ("may_still_bill", 6),
)


class RayStandIn(RayWithoutSsh):
    """As Ray does, with what may be left behind: a data volume and an address of the launch."""

    def __init__(self, ec2: object) -> None:
        super().__init__(ec2)
        self.up_fault: CloudFault | None = None
        self.join_fault: CloudFault | None = None
        self.joined: int | None = None
        self.down_fault: CloudFault | None = None
        self.during_up: Callable[[], None] = lambda: None

    def up(
        self, launch: Launcher, document: dict, limits: watchdog.Limits, timeout_s: float, log: Log
    ) -> None:
        try:
            super().up(launch, document, limits, timeout_s, log)
        except (boto.ClientError, boto.BotoCoreError) as error:  # Ray prints it; the launcher reads that
            raise sorting.of_launcher("ray up", f"{type(error).__name__}: {error}", timed_out=False) from None
        tags = [{"Key": "plan-launch", "Value": launch.launch_id}]
        self.ec2.create_volume(
            AvailabilityZone=ZONES[0],
            Size=1,
            TagSpecifications=[{"ResourceType": "volume", "Tags": tags}],
        )
        self.ec2.allocate_address(
            Domain="vpc", TagSpecifications=[{"ResourceType": "elastic-ip", "Tags": tags}]
        )
        self.during_up()
        if self.up_fault is not None:
            raise self.up_fault

    def wait_joined(
        self, launch: Launcher, num_nodes: int, gpus_per_node: int, kind: str, timeout_s: float, log: Log
    ) -> tuple[int, int]:
        if self.join_fault is not None:
            raise self.join_fault
        nodes = num_nodes if self.joined is None else self.joined
        return nodes, nodes * gpus_per_node

    def down(self, launch: Launcher, log: Log) -> bool:
        if self.down_fault is not None:
            raise self.down_fault
        return True


class Aws(AwsCloud):
    """AWS on moto. ``reach`` opens no tunnel; ``find`` may lag behind, as EC2's lists do."""

    def __init__(self, session: OneSession, backend: RayStandIn) -> None:
        super().__init__([REGION], session=session, backend=backend)
        self.reach_faults: list[CloudFault] = []
        self.lag = 0

    @contextmanager
    def reach(self, order: Order) -> Iterator[Created]:
        address = self._head_address(order)
        if self.reach_faults:
            raise self.reach_faults.pop(0)
        yield Created(address=f"http://{address}:8265", num_nodes=order.num_nodes, num_gpus=4)

    def find(self, launch_id: str | None) -> tuple[Resource, ...]:
        found = super().find(launch_id)
        if self.lag:
            self.lag -= 1
            return ()
        return found


@dataclass
class World:
    """One launch's surroundings."""

    directory: Path
    session: OneSession
    wire: Wire = field(default_factory=Wire)
    proving: Proving = field(default_factory=Proving)
    clock: Clock = field(default_factory=Clock)
    screen: Screen = field(default_factory=Screen)
    image: str = ""
    plans: tuple = ()
    then: str | None = "python train.py"
    looks: int = LIMITS.looks

    def __post_init__(self) -> None:
        self.ec2 = self.session.client("ec2", REGION)
        self.ray = RayStandIn(self.ec2)
        self.cloud = Aws(self.session, self.ray)
        self.ledger: Ledger = Ledger(self.directory, scrubber({}))
        self.wire.ledger_state = lambda: self.ledger.launches()[-1].state
        self.screen.on_event = self._seen

    def _seen(self, event) -> None:
        if self.wire.dead:
            raise Killed
        self.wire.state = event.state

    def hands(self) -> Hands:
        return hands(
            self.directory,
            self.cloud,
            clock=self.clock,
            screen=self.screen,
            proving=self.proving,
            ledger=self.ledger,
            next_plans=lambda plan: self.plans,
        )

    def launch(self) -> Finished:
        choices = tools.choices(
            launch_id="by-hand", subnet=None, security_group=None, image=self.image, ssh_key="-"
        )
        limits = LIMITS.model_copy(update={"looks": self.looks})
        asked = request(self.directory, choices=choices, then=self.then, limits=limits)
        return machine.launch(asked, self.hands())

    def left(self) -> dict[str, list[str]]:
        """What is in the account, asked past the wire."""
        self.wire.looking = True
        try:
            return left(self.ec2)
        finally:
            self.wire.looking = False

    def heal(self) -> None:
        """What went wrong is over; the ledger's process may be a new one."""
        self.wire.rules.clear()
        self.wire.empty.clear()
        self.ray.down_fault = None
        self.wire.dead = False
        self.ledger = Ledger(self.directory, scrubber({}))
        self.screen = Screen()
        self.screen.on_event = self._seen
        self.proving.passes = True


@dataclass(frozen=True)
class Cell:
    """A fault at a state, and what the launch must come to."""

    state: str
    fault: str
    arrange: Callable[[World], None]
    expected: tuple[str, int]

    @property
    def name(self) -> str:
        return f"{self.state} × {self.fault}"


def run(cell: Cell, world: World) -> list[str]:
    """Run a cell; returns what is not as it must be."""
    cell.arrange(world)
    with on(world.wire):
        finished = world.launch()
        found = _against(cell.expected, finished, world)
        found += _settled(world)
    return [f"{cell.name}: {problem}" for problem in found]


def _against(expected: tuple[str, int], finished: Finished, world: World) -> list[str]:
    outcome, code = expected
    found = []
    if (finished.outcome, finished.exit_code) != expected:
        found.append(
            f"{finished.outcome}, exit {finished.exit_code}, not {outcome}, {code}: {finished.message}"
        )
    launch = world.ledger.launch(finished.launch_id)
    state = {"committed": "committed", "torn_down": "gone", "may_still_bill": "tearing_down"}[outcome]
    if (launch.state, launch.outcome) != (state, outcome):
        found.append(f"the ledger says {launch.state}, {launch.outcome}")
    there = world.left()
    if outcome == "torn_down" and there:
        found.append(f"left: {there}")
    if outcome == "may_still_bill" and not ({"volume", "instance"} & set(there)):
        found.append("nothing is left that could bill")
    if outcome == "may_still_bill" and not (finished.left or "not known" in finished.message):
        found.append("what is left is not said")
    return found


def _settled(world: World) -> list[str]:
    """After ``down`` nothing is left, every delete was seen, and every create was written down before."""
    found = []
    created = world.wire.landed("RunInstances")
    world.heal()
    for launch in world.ledger.launches():
        finished = down.down(launch.id, world.hands())
        if finished.exit_code != 0:
            found.append(f"down exits with {finished.exit_code}: {finished.message}")
        found += _in_order(world, launch.id)
    if there := world.left():
        found.append(f"left after down: {there}")
    tokens = [c["ClientToken"] for c in created if "ClientToken" in c]
    if len(tokens) != len(set(tokens)):
        found.append(f"RunInstances with the same token: {tokens}")
    if len(world.wire.landed("RunInstances")) != len(created):
        found.append("down has created something")
    if len(created) > 1 and len({c["Placement"]["AvailabilityZone"] for c in created}) == 1:
        found.append("RunInstances was called twice in one zone")
    if any(state != "creating" for state in world.wire.states_at_creates):
        found.append(f"created in ledger state {world.wire.states_at_creates}")
    for made, name in DELETED_BY.items():
        if world.wire.landed(made) and not world.wire.landed(name):
            found.append(f"{name} was never called")
    return found


def _in_order(world: World, launch_id: str) -> list[str]:
    """States go in one direction; what follows ``gone`` is another teardown at most."""
    states = [t.state for t in world.ledger.launch(launch_id).transitions]
    if states[-1] != "gone":
        return [f"the ledger ends with {states[-1]}"]
    after = states[states.index("gone") + 1 :]
    if set(after) - {"tearing_down", "gone"}:
        return [f"after gone: {after}"]
    return []


# ------------------------------------------------------------------------------------- the cells


def _rule(operation: str, error: Callable[[], Exception], **more: object) -> Callable[[World], None]:
    return lambda world: world.wire.rules.append(Rule(operation, error, **more))  # type: ignore[arg-type]


def _refused(code: str, operation: str, **more: object) -> Callable[[World], None]:
    return _rule(operation, lambda: client_error(code, operation), **more)


def _both(*parts: Callable[[World], None]) -> Callable[[World], None]:
    def arrange(world: World) -> None:
        for part in parts:
            part(world)

    return arrange


def _set(path: str, value: object) -> Callable[[World], None]:
    owner, name = path.split(".")
    return lambda world: setattr(getattr(world, owner), name, value)


def _reach(*faults: CloudFault) -> Callable[[World], None]:
    return lambda world: world.cloud.reach_faults.extend(faults)


def _quota(value: float) -> Callable[[World], None]:
    from tests.clusters.clouds import moto_more

    return lambda world: moto_more.QUOTAS.update({"L-DB2E81BA": value})


def _empty(operation: str, key: str) -> Callable[[World], None]:
    return lambda world: world.wire.empty.update({operation: key})


def _fails() -> Callable[[World], None]:
    return _set("proving.passes", False)


STUCK = _refused("VolumeInUse", "DeleteVolume")
SETUP = CloudFault("setup", "pip failed", log="ERROR: no matching distribution")
UNREACHABLE = CloudFault("unreachable", "ssh: connect to host: timed out")


def cells() -> list[Cell]:
    """Every pair that can happen."""
    made: list[Cell] = []

    def add(state: str, fault: str, expected: tuple[str, int], *parts: Callable[[World], None]) -> None:
        made.append(Cell(state, fault, _both(*parts), expected))

    # preflight: what is asked of AWS before anything bills
    preflight = {"state": "preflight"}
    add("preflight", "no capacity", FAILED, _empty("DescribeInstanceTypeOfferings", "InstanceTypeOfferings"))
    add("preflight", "quota", FAILED, _quota(0.0))
    add("preflight", "UnauthorizedOperation", FAILED,
        _refused("UnauthorizedOperation", "DescribeInstanceTypeOfferings", **preflight))  # fmt: skip
    add("preflight", "throttling", FAILED, _refused("RequestLimitExceeded", "DescribeRegions", **preflight))
    add("preflight", "time-out", FAILED, _rule("DescribeRegions", timed_out, **preflight))
    add("preflight", "connection reset", FAILED, _rule("GetCallerIdentity", reset, **preflight))

    # creating
    creating = {"state": "creating"}
    add("creating", "no capacity", DONE,
        _refused("InsufficientInstanceCapacity", "RunInstances", times=1, **creating))  # fmt: skip
    add("creating", "no capacity, nowhere", FAILED,
        _refused("InsufficientInstanceCapacity", "RunInstances", **creating))  # fmt: skip
    add("creating", "quota", FAILED, _refused("VcpuLimitExceeded", "RunInstances", **creating))
    add("creating", "UnauthorizedOperation", FAILED,
        _refused("UnauthorizedOperation", "RunInstances", **creating))  # fmt: skip
    add("creating", "UnauthorizedOperation, before", FAILED,
        _refused("UnauthorizedOperation", "CreateSecurityGroup", **creating))  # fmt: skip
    add("creating", "throttling", DONE,
        _refused("RequestLimitExceeded", "RunInstances", times=2, **creating))  # fmt: skip
    add("creating", "throttling, before", DONE,
        _refused("Throttling", "CreateSecurityGroup", times=2, **creating))  # fmt: skip
    add("creating", "time-out", FAILED, _rule("RunInstances", timed_out, landed=True, **creating))
    add("creating", "connection reset", FAILED, _rule("RunInstances", reset, landed=True, **creating))
    add("creating", "connection reset, before", DONE, _rule("RunInstances", reset, times=1, **creating))
    add("creating", "SSH unreachable", FAILED, _set("ray.up_fault", UNREACHABLE))
    add("creating", "setup fails", FAILED, _set("ray.up_fault", SETUP))
    add("creating", "node never joins", FAILED,
        _set("ray.join_fault", CloudFault("not-joined", "0 of 1 nodes joined in time")))  # fmt: skip
    add("creating", "teardown throttled", FAILED, _set("ray.up_fault", SETUP),
        _refused("RequestLimitExceeded", "TerminateInstances", times=3))  # fmt: skip
    add("creating", "volume stuck", MAY_BILL, _set("ray.up_fault", SETUP), STUCK)

    # up
    up = {"state": "up"}
    add("up", "UnauthorizedOperation", FAILED,
        _refused("UnauthorizedOperation", "DescribeInstances", times=1, **up))  # fmt: skip
    add("up", "throttling", DONE, _refused("RequestLimitExceeded", "DescribeInstances", times=2, **up))
    add("up", "time-out", DONE, _rule("DescribeVolumes", timed_out, times=2, **up))
    add("up", "connection reset", DONE, _rule("DescribeInstances", reset, times=2, **up))
    add("up", "connection reset, for good", FAILED, _rule("DescribeInstances", reset, times=4, **up))
    add("up", "node never joins", FAILED, _set("ray.joined", 0))
    add("up", "teardown throttled", FAILED, _set("ray.joined", 0),
        _refused("RequestLimitExceeded", "TerminateInstances", times=3))  # fmt: skip
    add("up", "volume stuck", MAY_BILL, _set("ray.joined", 0), STUCK)

    # probing
    probing = {"state": "probing"}
    add("probing", "UnauthorizedOperation", PROBE_FAILED,
        _refused("UnauthorizedOperation", "DescribeInstances", times=1, **probing))  # fmt: skip
    add("probing", "throttling", DONE,
        _refused("RequestLimitExceeded", "DescribeInstances", times=2, **probing))  # fmt: skip
    add("probing", "time-out", DONE, _rule("DescribeInstances", timed_out, times=1, **probing))
    add(
        "probing", "connection reset", DONE, _set("proving.probe_faults", [CloudFault("connection", "reset")])
    )
    add("probing", "SSH unreachable", PROBE_FAILED, _reach(UNREACHABLE))
    add("probing", "setup fails", PROBE_FAILED, _set("proving.probe_faults", [SETUP]))
    add("probing", "node never joins", PROBE_FAILED,
        _set("proving.probe_faults", [CloudFault("not-joined", "a node of the probe was lost")]))  # fmt: skip
    add("probing", "probe OOM", PROBE_FAILED, _set("proving.failure", "oom"))
    add("probing", "probe hangs", PROBE_FAILED, _set("proving.failure", "hang"), _set("proving.takes_s", 1e9))
    add("probing", "teardown throttled", PROBE_FAILED, _set("proving.failure", "oom"),
        _refused("RequestLimitExceeded", "TerminateInstances", times=3))  # fmt: skip
    add("probing", "volume stuck", MAY_BILL, _set("proving.failure", "oom"), STUCK)

    # verdict
    add("verdict", "verdict fail", PROBE_FAILED, _fails())
    add("verdict", "verdict fail, over budget", PROBE_FAILED, _set("proving.cost_usd", 2000.0))
    add("verdict", "teardown throttled", PROBE_FAILED, _fails(),
        _refused("RequestLimitExceeded", "TerminateInstances", times=3))  # fmt: skip
    add("verdict", "volume stuck", MAY_BILL, _fails(), STUCK)

    # committed: the job is to be started
    committed = {"state": "committed"}
    add("committed", "UnauthorizedOperation", FAILED,
        _refused("UnauthorizedOperation", "DescribeInstances", times=1, **committed))  # fmt: skip
    add("committed", "throttling", DONE,
        _refused("RequestLimitExceeded", "DescribeInstances", times=2, **committed))  # fmt: skip
    add("committed", "time-out", DONE, _set("proving.submit_faults", [CloudFault("timeout", "no answer")]))
    add("committed", "connection reset", DONE,
        _set("proving.submit_faults", [CloudFault("connection", "reset")] * 2))  # fmt: skip
    add("committed", "connection reset, for good", FAILED,
        _set("proving.submit_faults", [CloudFault("connection", "reset")] * 9))  # fmt: skip
    add("committed", "SSH unreachable", DONE, _rule("DescribeInstances", reset, times=1, **committed))
    add("committed", "setup fails", FAILED,
        _set("proving.submit_faults", [CloudFault("setup", "the job was refused")]))  # fmt: skip
    add("committed", "teardown throttled", FAILED, _set("proving.submit_faults", [SETUP]),
        _refused("RequestLimitExceeded", "TerminateInstances", times=3))  # fmt: skip
    add("committed", "volume stuck", MAY_BILL, _set("proving.submit_faults", [SETUP]), STUCK)

    # tearing down, after a verdict that failed
    down_ = {"state": "tearing_down"}
    add("tearing_down", "UnauthorizedOperation", MAY_BILL, _fails(),
        _refused("UnauthorizedOperation", "TerminateInstances", **down_))  # fmt: skip
    add("tearing_down", "UnauthorizedOperation, to look", MAY_BILL, _fails(),
        _refused("UnauthorizedOperation", "DescribeInstances", **down_))  # fmt: skip
    add("tearing_down", "throttling", PROBE_FAILED, _fails(),
        _refused("RequestLimitExceeded", "DescribeInstances", times=5, **down_))  # fmt: skip
    add("tearing_down", "time-out", PROBE_FAILED, _fails(),
        _rule("TerminateInstances", timed_out, times=2, landed=True, **down_))  # fmt: skip
    add("tearing_down", "connection reset", PROBE_FAILED, _fails(), _rule("*", reset, times=7, **down_))
    add("tearing_down", "connection reset, for good", MAY_BILL, _fails(), _rule("*", reset, **down_))
    add("tearing_down", "SSH unreachable", PROBE_FAILED, _fails(), _set("ray.down_fault", UNREACHABLE))
    add("tearing_down", "teardown throttled", PROBE_FAILED, _fails(),
        _refused("RequestLimitExceeded", "TerminateInstances", times=3, **down_),
        _refused("RequestLimitExceeded", "DeleteVolume", times=3, **down_))  # fmt: skip
    add("tearing_down", "teardown throttled, for good", MAY_BILL, _fails(),
        _refused("RequestLimitExceeded", "TerminateInstances", **down_))  # fmt: skip
    add("tearing_down", "volume stuck", MAY_BILL, _fails(), STUCK)
    add("tearing_down", "volume stuck, for a while", PROBE_FAILED, _fails(),
        _refused("VolumeInUse", "DeleteVolume", times=3))  # fmt: skip
    add("tearing_down", "the list lags", PROBE_FAILED, _fails(), _lag_at("tearing_down"))
    return made


def _lag_at(state: str) -> Callable[[World], None]:
    """The first look after ``state`` was entered names nothing."""

    def arrange(world: World) -> None:
        seen = world.screen.on_event

        def on_event(event) -> None:
            if event.state == state and world.wire.state != state:
                world.cloud.lag = 1
            seen(event)

        world.screen.on_event = on_event

    return arrange


_NOT_ASKED = "only the ledger is written"
EXCLUDED: dict[tuple[str, str], str] = {
    **{("planned", fault): _NOT_ASKED for fault in FAULTS},
    **{("confirmed", fault): "the answer was given; nothing is asked of anyone" for fault in FAULTS},
    **{("gone", fault): "nothing is done any more" for fault in FAULTS},
    **{
        ("preflight", fault): "there is no machine yet"
        for fault in (
            *("SSH unreachable", "setup fails", "node never joins", "probe OOM", "probe hangs"),
            *("verdict fail", "teardown throttled", "volume stuck"),
        )
    },
    **{("creating", fault): "no probe runs yet" for fault in ("probe OOM", "probe hangs", "verdict fail")},
    **{("up", fault): "nothing is created any more" for fault in ("no capacity", "quota")},
    **{("up", fault): "machines are counted, not reached" for fault in ("SSH unreachable", "setup fails")},
    **{("up", fault): "no probe runs yet" for fault in ("probe OOM", "probe hangs", "verdict fail")},
    **{("probing", fault): "nothing is created any more" for fault in ("no capacity", "quota")},
    ("probing", "verdict fail"): "is the state after it",
    **{
        ("verdict", fault): "is worked out here, nothing is asked of anyone"
        for fault in FAULTS
        if fault not in ("verdict fail", "teardown throttled", "volume stuck")
    },
    **{("committed", fault): "nothing is created any more" for fault in ("no capacity", "quota")},
    ("committed", "node never joins"): "all have joined; one that is lost later is the job's to survive",
    **{("committed", fault): "the probe is over" for fault in ("probe OOM", "probe hangs", "verdict fail")},
    **{("tearing_down", fault): "nothing is created any more" for fault in ("no capacity", "quota")},
    **{
        ("tearing_down", fault): "nothing is set up or probed any more"
        for fault in ("setup fails", "node never joins", "probe OOM", "probe hangs", "verdict fail")
    },
}


def uncovered() -> list[tuple[str, str]]:
    """Pairs that are neither a cell nor excluded with a reason."""
    covered = {(c.state, c.fault) for c in cells()} | set(EXCLUDED)
    return [(state, fault) for state in STATES for fault in FAULTS if (state, fault) not in covered]


# ------------------------------------------------------------------------------------- two at once


def run_two(world: World) -> list[str]:
    """A second process resumes the launch while the first creates: it must be refused."""
    refused: list[str] = []

    def resume() -> None:
        world.ray.during_up = lambda: None
        try:
            machine.resume(LAUNCH, world.hands())
        except machine.RefusedError as error:
            refused.append(str(error))

    world.ray.during_up = resume
    with on(world.wire):
        finished = world.launch()
        found = [] if refused else ["the second process was not refused"]
        found += _against(DONE, finished, world)
        found += _settled(world)
    return [f"two at once: {problem}" for problem in found]


# ------------------------------------------------------------------------------------- kills


class DyingLedger(Ledger):
    """The process dies at a state: ``before`` its act, right after it was written, or ``after`` it."""

    def __init__(self, directory: Path, world: World, state: str, when: str) -> None:
        super().__init__(directory, scrubber({}))
        self._world, self._state, self._when = world, state, when

    def begin(self, launch: Launch, notes: Mapping[str, str]) -> None:
        super().begin(launch, notes)
        if self._state == "planned" and self._when == "before":
            self._world.wire.dead = True
            raise Killed

    def enter(self, launch_id: str, transition: Transition) -> None:
        self._die_if_dead()
        if self._when == "after" and self.launch(launch_id).state == self._state:
            self._world.wire.dead = True
            raise Killed
        super().enter(launch_id, transition)
        last = self._state in ("committed", "gone")
        if transition.state == self._state and (self._when == "before" or last):
            self._world.wire.dead = True
            raise Killed

    def save(self, launch: Launch) -> None:
        self._die_if_dead()
        super().save(launch)

    def write_note(self, launch_id: str, name: str, text: str) -> None:
        self._die_if_dead()
        super().write_note(launch_id, name, text)

    def _die_if_dead(self) -> None:
        if self._world.wire.dead:
            raise Killed


def run_kill(world: World, state: str, when: str, then: str) -> list[str]:
    """Kill at a state, then resume or take down with a new process; returns what is not as it must be."""
    name = f"killed {when} {state}, then {then}"
    world.proving.passes = state not in ("tearing_down", "gone")
    real, world.ledger = world.ledger, DyingLedger(world.directory, world, state, when)
    with on(world.wire):
        try:
            world.launch()
            return [f"{name}: was not killed"]
        except Killed:
            pass
        world.heal()
        world.ledger = real
        if not real.launches():
            return [f"{name}: nothing was written"]
        found = []
        if then == "resume":
            finished = machine.resume(LAUNCH, world.hands())
            if finished.exit_code not in (0, 1):
                found.append(f"resume exits with {finished.exit_code}")
            if real.launch(LAUNCH).state not in ("committed", "gone"):
                found.append(f"resumed, and left in {real.launch(LAUNCH).state}")
        found += _settled(world)
        if len(world.wire.landed("RunInstances")) > 1:
            found.append("created twice")
    return [f"{name}: {problem}" for problem in found]
