"""Owned hosts out of one machine: a launch on hosts of ``lab``, from preflight until nothing is left.

Run as root in a network namespace of its own, which has no way out:
``python -m tests.clusters.lab_hosts DIR`` prints what it saw as JSON.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import requests

from clusters import watchdog
from clusters.backend import launcher
from clusters.clouds.base import Order, Place
from clusters.clouds.hosts import HostsCloud
from clusters.faults import CloudFault
from planner.results import Plan
from tests.clusters import lab, tools

LAUNCH = "l-lab1"


def main(where: Path) -> None:
    asked = json.loads((where / "asked.json").read_text())
    (where / "home").mkdir()
    os.environ |= {"HOME": str(where / "home"), "PATH": lab.search_path()}
    hosts = lab.hosts_of(where, asked["hosts"], asked["gpus_per_node"])
    try:
        time.sleep(0.5)
        print(json.dumps(trial(where, asked, hosts)))
    finally:
        for host in hosts:
            host.kill()


def trial(where: Path, asked: dict, hosts: list[lab.Host]) -> dict:
    order, cloud = order_of(where, asked), cloud_of(where, asked)
    said: list[str] = []
    seen: dict[str, object] = {"decoys": [decoy(host) for host in hosts], "times": {}}

    def timed(name: str, act: Callable[[], object]) -> object:
        began = time.monotonic()
        done = act()
        seen["times"][name] = round(time.monotonic() - began, 1)
        return done

    seen["before"] = [
        check.model_dump() for check in timed("preflight", lambda: cloud.preflight(order, None))
    ]
    order = cloud.prepare(order)
    seen["cells"] = {
        name: cell(cloud, order, hosts, where) for name, cell in CELLS.items() if name in asked["cells"]
    }
    try:
        created = timed("up", lambda: cloud.create(order, said.append))
    except CloudFault as fault:
        return {**seen, "fault": [fault.kind, str(fault), fault.log]}
    if asked["cells"]:
        seen["cells"]["node never joins"] = node_never_joins(order)
    seen["created"] = created.model_dump()
    seen["found"] = [r.model_dump() for r in timed("find", lambda: cloud.find(LAUNCH))]
    seen["found_by_any"] = len(cloud.find(None))
    seen["answers"] = timed("reach", lambda: answers(cloud, order))
    later = order.choices.deadline + timedelta(hours=5)
    timed("extend", lambda: cloud.extend(order, later))
    seen["moved"] = [moved(host, later) for host in hosts]
    timed("down", lambda: cloud.stop_cluster(order, said.append))
    seen["left"] = [r.model_dump() for r in cloud.find(LAUNCH)]
    seen["files_left"] = [files_left(host) for host in hosts]
    seen["decoys_alive"] = [Path(f"/proc/{pid}").exists() for pid in seen["decoys"]]
    seen["said"] = said
    seen["log"] = (where / "launch/launcher.log").read_text()
    seen["down_after_sshd_was_gone"] = lab.deadline_without_ssh(asked["guard"], hosts[-1])
    seen["unreachable"] = fault_of(lambda: cloud.find(LAUNCH))
    return seen


# Faults through the real launcher: what was raised, and what is left after a teardown.


def _ends_with(cloud: HostsCloud, order: Order, mend: Callable[[], object] = lambda: None) -> dict:
    said: list[str] = []
    began, fault = time.monotonic(), None
    try:
        cloud.create(order, said.append)
    except CloudFault as raised:
        fault = raised
    seconds = round(time.monotonic() - began, 1)
    if fault is None:
        return {"kind": None, "s": seconds}
    mend()
    cloud.stop_cluster(order, said.append)
    left = [r.model_dump() for r in cloud.find(LAUNCH)]
    return {"kind": fault.kind, "message": str(fault), "log": fault.log, "left": left, "s": seconds}


def setup_fails(cloud: HostsCloud, order: Order, hosts: list[lab.Host], where: Path) -> dict:
    with fewer_gpus(hosts[0]):
        return _ends_with(cloud, order)


def node_never_joins(order: Order) -> dict:
    """A third node is waited for on the cluster of two."""
    launch = launcher.Launcher(directory=order.directory, launch_id=LAUNCH, own_temp=True)
    try:
        launcher.wait_joined(launch, 3, 8, "accelerator_type:H100", 3.0, lambda line: None)
    except CloudFault as fault:
        return {"kind": fault.kind, "message": str(fault), "log": fault.log, "left": []}
    return {"kind": None}


def ssh_unreachable(cloud: HostsCloud, order: Order, hosts: list[lab.Host], where: Path) -> dict:
    """The head's network is down while Ray wants it, and up again for the teardown."""
    ns = hosts[0].ns
    up = f"ip -n {ns} link set eth0 up; ip -n {ns} route add default dev eth0"
    lab.sh(f"ip -n {ns} link set eth0 down")
    return _ends_with(cloud, order.model_copy(update={"create_timeout_s": 40}), lambda: lab.sh(up))


@contextmanager
def fewer_gpus(host: lab.Host) -> Iterator[None]:
    """One of eight GPUs of a host is gone."""
    tool = host.home / "bin/nvidia-smi"
    whole = tool.read_text()
    tool.write_text(whole.replace("seq 8", "seq 7"))
    try:
        yield
    finally:
        tool.write_text(whole)


CELLS = {
    "ssh unreachable": ssh_unreachable,
    "setup fails": setup_fails,
}


def order_of(where: Path, asked: dict) -> Order:
    now = datetime.now(UTC)
    choices = tools.choices(
        made=now,
        deadline=now + timedelta(hours=1),
        launch_id=LAUNCH,
        hosts=tuple(asked["hosts"]),
        ssh_user="root",
        ssh_key=str(where / "key"),
        preinstalled=True,
    )
    (where / "launch").mkdir()
    return Order(
        plan=Plan.model_validate_json(asked["plan"]),
        choices=choices,
        launch_id=LAUNCH,
        place=Place(region="own"),
        directory=str(where / "launch"),
        num_nodes=len(asked["hosts"]),
        create_timeout_s=150,
    )


def cloud_of(where: Path, asked: dict) -> HostsCloud:
    return HostsCloud(asked["hosts"], "root", str(where / "key"), str(where / "known_hosts"))


def decoy(host: lab.Host) -> int:
    """A process of someone else on a host; its id as we see it from outside."""
    host.run("PLAN_LAUNCH_ID=l-other setsid nohup sleep 987 >/dev/null 2>&1 &")
    time.sleep(0.2)
    return max(int(p) for p in lab.sh("pgrep -fx 'sleep 987'").split())


def answers(cloud: HostsCloud, order: Order) -> dict:
    """What job submission says through the tunnel, with the token and without."""
    with cloud.reach(order) as created:
        token = Path(created.auth_token_path or "").read_text()
        url = f"{created.address}/api/version"
        with_token = requests.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=10)
        return {"with": with_token.status_code, "without": requests.get(url, timeout=10).status_code}


def moved(host: lab.Host, deadline: datetime) -> bool:
    limits = watchdog.read(str(host.home / f".plan-{LAUNCH}/limits.json"))
    return limits.deadline_s == deadline.timestamp()


def files_left(host: lab.Host) -> list[str]:
    ours = (f".plan-{LAUNCH}", "ray_bootstrap_key.pem", "ray_bootstrap_config.yaml")
    return [name for name in ours if (host.home / name).exists()]


def fault_of(act: Callable[[], object]) -> str | None:
    try:
        act()
    except CloudFault as fault:
        return fault.kind
    return None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
