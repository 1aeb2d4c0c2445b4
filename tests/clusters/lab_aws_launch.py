"""Whole launches on the EC2 of ``lab_aws``: failover, probe, full run, hosts that lose power, teardown.

Run as root in a network namespace of its own, which has no way out:
``python -m tests.clusters.lab_aws_launch DIR`` prints what it saw as JSON. The hosts have no GPU:
``nvidia-smi`` there pretends one, and the probe and the run take CPU workers over gloo, one a host.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import boto3

from clusters.backend.jobs import connect
from clusters.backend.shell import Log
from clusters.clouds import aws
from clusters.clouds.aws import AwsCloud
from clusters.clouds.base import Created, Order, Place, PreflightCheck
from clusters.config.nodes import cluster_of
from clusters.config.yaml_text import to_yaml
from clusters.faults import CloudFault
from clusters.launch import down, machine
from clusters.launch.nouns import Confirmation, Finished, Hands, LaunchRequest, Limits
from clusters.launch.running import order_of
from planner.cli.launch import hands as launch_hands
from planner.cli.launch import next_plans as launch_next
from planner.cli.launch.hands import RealProving
from planner.launched import Event, Launch
from planner.probed import ProbeResult, ProbeVerdict, Repriced
from planner.results import Plan
from tests.clusters import tools
from tests.clusters.lab import Host, sh
from tests.clusters.lab_aws import GATEWAY, Hypervisor, ec2_of

ROOT = Path(__file__).parents[2]
FIRST, SECOND = "us-west-2", "us-east-1"  # the first region has no machines at all
FREE = "us-east-1c"
ZONES = ["us-west-2a", "us-east-1a", "us-east-1b=1"]  # b has one machine of the two
STEPS = 10
EVERY, PREEMPTED_AT, SPOT_STEPS = 10, 12, 30  # train.py writes a checkpoint every ten steps
BY_NAME = "export GLOO_SOCKET_IFNAME=eth0\n"  # hosts of EC2 know their own name, these do not
TRAIN = "python train.py --address auto --steps {steps} --name {name} --storage {lab}/runs"


class Seen:
    """A screen that keeps everything, and tells who listens."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.said: list[str] = []
        self.prices: list[Confirmation] = []
        self.verdicts: list[ProbeVerdict] = []
        self.on_event: Callable[[Event], None] = lambda event: None
        self.on_line: Callable[[str], None] = lambda line: None

    def event(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    def say(self, text: str) -> None:
        self.said.append(text)
        self.on_line(text)

    def checks(self, checks: tuple[PreflightCheck, ...]) -> None:
        self.said += [f"check {c.name}: {c.passed} {c.detail}" for c in checks]

    def confirmation(self, confirmation: Confirmation) -> None:
        self.prices.append(confirmation)

    def verdict(self, verdict: ProbeVerdict, launch: Launch) -> None:
        self.verdicts.append(verdict)


class OnCpu(RealProving):
    """The real probe and jobs, on the CPUs of hosts that pretend GPUs; ``known``: a probe that ran before."""

    known: ProbeResult | None = None
    last: ProbeResult | None = None

    def probe(self, created: Created, plan: Plan, timeout_s: float, log: Log) -> ProbeResult:
        if self.known is not None:
            self._on_cpu = True
            return self.known
        self.last = super().probe(created.model_copy(update={"num_gpus": 0}), plan, timeout_s, log)
        return self.last

    def judge(self, plan: Plan, result: ProbeResult, budget_usd: Decimal | None) -> ProbeVerdict:
        """The real verdict; since a CPU's step prices nothing, the plan's own figures stand for the rest."""
        found, c = super().judge(plan, result, budget_usd), plan.candidate
        rest = Repriced(hours=c.hours, cost_usd=c.cost_usd, budget_usd=budget_usd, within_budget=True)
        return found.model_copy(update={"repriced": rest})


class Lab:
    """What the trials share."""

    def __init__(self, where: Path, hypervisor: Hypervisor) -> None:
        self.where, self.hypervisor = where, hypervisor
        self.plan = one_rank_a_host(Plan.model_validate_json((where / "plan.json").read_text()))
        others = map(one_rank_a_host, launch_next.next_plans(self.plan))
        self.second = next(p for p in others if p.candidate.offer.region == SECOND)
        self.out: dict[str, object] = {}
        self.proven: ProbeResult | None = None

    def hands(self, seen: Seen, proving: RealProving) -> Hands:
        real = launch_hands.hands({"no_calibration": True, "quiet": True}, seen)
        return replace(
            real,
            proving=proving,
            price_now=lambda offer: offer.usd_per_hour,  # nobody out there to ask
            next_plans=lambda plan: map(one_rank_a_host, launch_next.next_plans(plan)),
            ask=None,
        )

    def request(self, plan: Plan, name: str, steps: int, zone: str | None) -> LaunchRequest:
        now = datetime.now(UTC).replace(microsecond=0)
        choices = tools.choices(
            made=now, deadline=now + timedelta(hours=2), ssh_from=GATEWAY, zone=zone,
            subnet=None, security_group=None, launch_id="l-not-yet",
        )  # fmt: skip
        return LaunchRequest(
            plan=plan, choices=choices, kind="aws", user="ada", directory=str(self.where / "data/launches"),
            budget_usd=Decimal(100), then=TRAIN.format(steps=steps, name=name, lab=self.where),
            working_dir=str(self.where / "train"), yes=True,
            limits=Limits(create_timeout_s=300, probe_timeout_s=240, look_every_s=1.0),
        )  # fmt: skip

    def keep(self, name: str, found: object) -> None:
        """Write what was seen so far, should a later trial never end."""
        self.out[name] = found
        (self.where / "seen.json").write_text(json.dumps(self.out, default=str))


def one_rank_a_host(plan: Plan) -> Plan:
    """The plan on machines of one processor, so that its two workers stand on two hosts."""
    offer = plan.candidate.offer.model_copy(update={"vcpus": 1})
    return plan.model_copy(update={"candidate": plan.candidate.model_copy(update={"offer": offer})})


def main(where: Path) -> None:
    os.environ |= {"PLAN_DATA_DIR": str(where / "data"), "PLAN_CACHE_DIR": str(where / "cache")}
    shutil.copytree(ROOT / "examples/train_gpt", where / "train")
    wanted = (sys.argv[2] if len(sys.argv) > 2 else ",".join(TRIALS)).split(",")
    with ec2_of(where, 1, ZONES, BY_NAME) as hypervisor:
        prepare_regions()
        lab = Lab(where, hypervisor)
        for name in wanted:
            lab.keep(name, TRIALS[name](lab))
        lab.keep("calls", calls(where, heads(hypervisor)))
    print(json.dumps(lab.out, default=str))


def prepare_regions() -> None:
    """An image in each region, and one zone alone in the region that has no machines."""
    for region in (FIRST, SECOND):
        boto3.client("ec2", region).register_image(Name="deep learning")
    ec2 = boto3.client("ec2", FIRST)
    for subnet in ec2.describe_subnets()["Subnets"]:
        if subnet["AvailabilityZone"] != f"{FIRST}a":
            ec2.delete_subnet(SubnetId=subnet["SubnetId"])


# ------------------------------------------------------------------------------------- trials


def whole(lab: Lab) -> dict:
    """No region, no zone, half a zone, a zone; probe; ten steps; down; down again."""
    seen, proving = Seen(), OnCpu(None, quiet=True)
    hands, ground = lab.hands(seen, proving), {}

    def look(event: Event) -> None:
        if event.state == "probing" and not ground:
            ground.update(standing(event.launch_id))

    seen.on_event = look
    finished = machine.launch(lab.request(lab.plan, "ten", STEPS, None), hands)
    lab.proven = proving.last
    began = time.monotonic()
    ended = down.down(finished.launch_id, hands)
    took = round(time.monotonic() - began, 1)
    again = down.down(finished.launch_id, hands)
    return {**told(seen, finished), "down": ended.model_dump(mode="json"), "again": again.exit_code,
            "ground": ground, "down_s": took, "state": hands.ledger.launch(finished.launch_id).state,
            "left": left(lab.hypervisor)}  # fmt: skip


def dies_mid_probe(lab: Lab) -> dict:
    """The worker loses its power while its rank of the probe runs."""
    seen, proving = Seen(), OnCpu(None, quiet=True)
    killed: list[str] = []

    def pull(event: Event) -> None:
        if event.state == "probing" and not killed:
            killed.append("soon")
            threading.Thread(target=lambda: killed.append(power_off_when_busy(lab)), daemon=True).start()

    seen.on_event = pull
    finished = machine.launch(lab.request(lab.second, "never", STEPS, FREE), lab.hands(seen, proving))
    return {**told(seen, finished), "killed": killed, "left": left(lab.hypervisor)}


def dies_mid_run(lab: Lab) -> dict:
    """The worker loses its power after the fifth step of the full run; the head ends itself at the cap."""
    seen, proving = Seen(), OnCpu(None, quiet=True)
    proving.known = lab.proven
    killed: list[str] = []

    def pull(line: str) -> None:
        if "step 5 " in line and not killed:
            killed.append(power_off_when_busy(lab))

    seen.on_line = pull
    hands, request = lab.hands(seen, proving), lab.request(lab.second, "long", 1_000_000, FREE)
    finished = machine.launch(request, hands)
    ended_by_head = spends_all(lab, request, finished.launch_id)
    ended = down.down(finished.launch_id, hands)
    return {**told(seen, finished), "killed": killed, "ended_by_head": ended_by_head,
            "down": ended.model_dump(mode="json"), "left": left(lab.hypervisor)}  # fmt: skip


def spends_all(lab: Lab, request: LaunchRequest, launch_id: str) -> list[str]:
    """Let the budget be spent; states of the machines a minute later, without anybody here doing anything."""
    order = order_of(request, launch_id, Place(region=SECOND, zone=FREE), None)
    with suppress(CloudFault):  # the worker is gone: the timer was moved on one machine of two
        AwsCloud([SECOND]).extend(
            order.model_copy(update={"budget_usd": Decimal("0.01")}), request.choices.deadline
        )
    until = time.monotonic() + 90
    while set(states := left(lab.hypervisor)["states"]) != {"terminated"} and time.monotonic() < until:
        time.sleep(1)
    return states


def preempted(lab: Lab) -> dict:
    """EC2 takes the spot worker back between two checkpoints; the run ends on a cluster built again."""
    seen, proving = Seen(), OnCpu(None, quiet=True)
    proving.known = lab.proven
    taken: list[str] = []

    def pull(line: str) -> None:
        if f"step {PREEMPTED_AT} " in line and not taken:
            taken.append(interrupted(lab))

    seen.on_line = pull
    hands = lab.hands(seen, proving)
    request = lab.request(on_spot(lab.second), "spot", SPOT_STEPS, FREE)
    finished = machine.launch(request, hands)
    row = hands.ledger.launch(finished.launch_id)
    ended = down.down(finished.launch_id, hands)
    return {**told(seen, finished), "taken": taken, "lost": [x.model_dump(mode="json") for x in row.lost],
            "down": ended.model_dump(mode="json"), "left": left(lab.hypervisor)}  # fmt: skip


def on_spot(plan: Plan) -> Plan:
    """The same plan on machines that EC2 may take back."""
    offer = plan.candidate.offer.model_copy(update={"market": "spot"})
    return plan.model_copy(update={"candidate": plan.candidate.model_copy(update={"offer": offer})})


def interrupted(lab: Lab) -> str:
    """What EC2 does to a spot machine after its two minutes: it terminates it."""
    name, host = next(iter(workers(lab.hypervisor)))
    sh(f"ip link set {host.ns}h down")
    lab.hypervisor.ec2.terminate_instances(InstanceIds=[name])
    return name


def bare(lab: Lab) -> dict:
    """Seconds of ``ray up`` by itself with the same document, of its worker, and of ``ray down``."""
    cloud, request = AwsCloud([SECOND]), lab.request(lab.second, "none", STEPS, FREE)
    order = order_of(request, "l-bare", Place(region=SECOND, zone=FREE), None)
    Path(order.directory).mkdir()
    ready = cloud.prepare(order)
    file = Path(order.directory) / "bare.yaml"
    file.write_text(to_yaml(aws._document(cluster_of(ready.plan, ready.choices, "aws"), ready.choices)))
    up = timed(lambda: ray("up", file))
    joined = timed(lambda: wait_for_nodes(cloud, ready, 2))
    ended = timed(lambda: ray("down", file))
    for _ in range(4):
        for resource in cloud.find("l-bare"):
            with suppress(CloudFault):
                cloud.delete(resource)
    return {"up_s": up, "joined_s": joined, "down_s": ended, "left": left(lab.hypervisor)}


def ray(word: str, file: Path) -> None:
    """Run Ray's launcher, as its manual says."""
    command = [sys.executable, "-m", "ray.scripts.scripts", word, "-y", str(file)]
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=400)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def wait_for_nodes(cloud: AwsCloud, order: Order, wanted: int) -> None:
    """Look through the tunnel until so many nodes are alive."""
    until = time.monotonic() + 200
    with cloud.reach(order) as created:
        jobs = connect(created.address, created.auth_token_path)
        while sum(node["Alive"] is True for node in jobs.nodes()) < wanted:
            assert time.monotonic() < until, "the worker did not join"
            time.sleep(1)


def timed(act: Callable[[], object]) -> float:
    """Seconds that something took."""
    began = time.monotonic()
    act()
    return round(time.monotonic() - began, 1)


TRIALS: dict[str, Callable[[Lab], dict]] = {
    "whole": whole,
    "dies_mid_probe": dies_mid_probe,
    "dies_mid_run": dies_mid_run,
    "preempted": preempted,
    "bare": bare,
}


# ------------------------------------------------------------------------------------- what is seen


def told(seen: Seen, finished: Finished) -> dict:
    """What the launch said of itself."""
    return {
        "finished": finished.model_dump(mode="json"),
        "events": [e.model_dump(mode="json") for e in seen.events],
        "said": seen.said,
        "asked_for": [c.plan.candidate.offer.region for c in seen.prices],
        "verdicts": [v.model_dump(mode="json") for v in seen.verdicts],
    }


def power_off_when_busy(lab: Lab) -> str:
    """Wait for a rank on the host that is no head, and take its power: nothing of it says goodbye."""
    until = time.monotonic() + 200
    while time.monotonic() < until:
        for name, host in workers(lab.hypervisor):
            if any("TrainWorker" in title for title in titles(host)):
                sh(f"ip link set {host.ns}h down")
                host.kill()
                return name
        time.sleep(0.2)
    return "no rank was seen"


def workers(hypervisor: Hypervisor) -> Iterator[tuple[str, Host]]:
    """Hosts of instances that Ray calls workers."""
    for one in hypervisor.instances():
        tags = {t["Key"]: t["Value"] for t in one.get("Tags", [])}
        host = hypervisor.hosts.get(one["InstanceId"])
        if host is not None and tags.get("ray-node-type") == "worker":
            yield one["InstanceId"], host


def titles(host: Host) -> Iterator[str]:
    """Command lines of what runs on a host."""
    for pid in sh(f"ip netns pids {host.ns}", check=False).split():
        path = Path(f"/proc/{pid}/cmdline")
        if path.exists():
            yield path.read_bytes().decode(errors="replace")


def standing(launch_id: str) -> dict:
    """What boto3 says of a launch that is up: who may come in, disks, metadata service, rights."""
    mine = [{"Name": "tag:plan-launch", "Values": [launch_id]}]
    ec2, iam = boto3.client("ec2", SECOND), boto3.client("iam")
    machines = [i for r in ec2.describe_instances(Filters=mine)["Reservations"] for i in r["Instances"]]
    machines = [i for i in machines if i["State"]["Name"] == "running"]
    used = sorted({g["GroupId"] for i in machines for g in i["SecurityGroups"]})
    disks = [d["Ebs"]["VolumeId"] for i in machines for d in i["BlockDeviceMappings"]]
    roles = {}
    for role in iam.list_roles()["Roles"]:
        names = iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]
        roles[role["RoleName"]] = {
            "inline": [
                iam.get_role_policy(RoleName=role["RoleName"], PolicyName=name)["PolicyDocument"]
                for name in names
            ],
            "attached": iam.list_attached_role_policies(RoleName=role["RoleName"])["AttachedPolicies"],
        }
    return {
        "zones": [i["Placement"]["AvailabilityZone"] for i in machines],
        "machines": machines,
        "groups": ec2.describe_security_groups(GroupIds=used)["SecurityGroups"],
        "disks": ec2.describe_volumes(VolumeIds=disks)["Volumes"],
        "roles": roles,
    }


def left(hypervisor: Hypervisor) -> dict:
    """Everything of any launch that moto still has."""
    ours = [{"Name": "tag-key", "Values": ["plan-launch"]}]
    found: dict[str, object] = {"states": [], "things": []}
    for region in (FIRST, SECOND):
        ec2 = boto3.client("ec2", region)
        states = [
            i["State"]["Name"] for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]
        ]
        found["states"] += states
        for operation, key in (
            ("describe_volumes", "Volumes"),
            ("describe_security_groups", "SecurityGroups"),
            ("describe_key_pairs", "KeyPairs"),
            ("describe_placement_groups", "PlacementGroups"),
            ("describe_network_interfaces", "NetworkInterfaces"),
        ):
            found["things"] += [str(x) for x in getattr(ec2, operation)(Filters=ours)[key]]
        found["things"] += [k["KeyName"] for k in ec2.describe_key_pairs()["KeyPairs"]]
    iam = boto3.client("iam")
    found["things"] += [r["RoleName"] for r in iam.list_roles()["Roles"]]
    found["things"] += [p["InstanceProfileName"] for p in iam.list_instance_profiles()["InstanceProfiles"]]
    return found


def heads(hypervisor: Hypervisor) -> set[str]:
    """Addresses that heads had."""
    found = set()
    for one in hypervisor.instances():
        tags = {t["Key"]: t["Value"] for t in one.get("Tags", [])}
        if tags.get("ray-node-type") == "head":
            found.add(one["PrivateIpAddress"])
    return found


def calls(where: Path, addresses: set[str]) -> dict:
    """Actions that moto was asked for, by whom."""
    lines = [json.loads(line) for line in (where / "calls.jsonl").read_text().splitlines()]
    here = {ask for line in lines if line["from"] == GATEWAY for ask in line["asks"]}
    others = {line["from"] for line in lines} - {GATEWAY}
    there = {ask for line in lines if line["from"] != GATEWAY for ask in line["asks"]}
    return {
        "heads": sorted(addresses),
        "callers": sorted(others),
        "user": sorted(here),
        "nodes": sorted(there),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
