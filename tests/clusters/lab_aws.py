"""EC2 out of one machine: each instance that moto knows becomes a host of ``lab``, with its own address.

Run as root in a network namespace of its own, which has no way out: ``python -m tests.clusters.lab_aws DIR``
launches through Ray's own launcher, until nothing is left, and prints what it saw as JSON.
"""

import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import requests
import yaml

from clusters.clouds.aws import AwsCloud
from clusters.clouds.base import Order, Place
from clusters.faults import CloudFault
from planner.results import Plan
from tests.clusters import tools
from tests.clusters.lab import PATIENT, Host, search_path, sh

GATEWAY, PREFIX, PORT = "172.31.0.1", 16, 5055  # moto's default network
AWS = {
    "AWS_ENDPOINT_URL": f"http://{GATEWAY}:{PORT}",
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
LAUNCH = "l-lab2"
FREE = "us-east-1b"
REFUSING = {  # what RunInstances answers in other zones
    "no capacity": "us-east-1a",
    "quota": "us-east-1c=VcpuLimitExceeded",
    "UnauthorizedOperation": "us-east-1d=UnauthorizedOperation",
}
ENV = PATIENT + "".join(f"export {k}='{v}'\n" for k, v in AWS.items())


class Hypervisor(threading.Thread):
    """Boots a host for each instance, runs its user data, and powers it off when it is terminated."""

    def __init__(self, lab: Path, gpus: int, env: str) -> None:
        super().__init__(daemon=True)
        self.env = env
        self.lab, self.gpus, self.hosts, self.over = lab, gpus, {}, threading.Event()
        self.ec2 = boto3.client("ec2")

    def run(self) -> None:
        while not self.over.wait(0.5):
            running = {i["InstanceId"]: i for i in self.instances() if i["State"]["Name"] == "running"}
            for name in running.keys() - self.hosts.keys():
                self.hosts[name] = self.boot(running[name])
            for name in self.hosts.keys() - running.keys():
                self.hosts.pop(name).kill()

    def instances(self) -> list[dict]:
        answer = self.ec2.describe_instances()
        return [i for r in answer["Reservations"] for i in r["Instances"]]

    def runs(self) -> int:
        """How often RunInstances was called, by whomever: each call makes a reservation."""
        return len(self.ec2.describe_instances()["Reservations"])

    def boot(self, instance: dict) -> Host:
        pairs = self.ec2.describe_key_pairs(IncludePublicKey=True)["KeyPairs"]
        keys = "".join(f"{p.get('PublicKey', '')}\n" for p in pairs)
        ip, number = instance["PrivateIpAddress"], len(list(self.lab.glob("host[0-9]*")))
        host = Host(self.lab, number, ip, self.gpus, keys, self.env, PREFIX)
        public = instance.get("PublicIpAddress")
        if public:
            sh(f"ip -n {host.ns} addr add {public}/32 dev eth0; ip route add {public}/32 via {ip}")
        time.sleep(0.5)
        asked = self.ec2.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
        text = base64.b64decode(asked["UserData"]["Value"]).decode()
        for _, _, script in yaml.safe_load(text)["bootcmd"]:
            host.run(script)
        return host


def main(lab: Path) -> None:
    asked = json.loads((lab / "asked.json").read_text())
    zones = [*REFUSING.values(), f"{FREE}=503x2"]
    with ec2_of(lab, asked["gpus_per_node"], zones) as hypervisor:
        print(json.dumps(trial(lab, asked, hypervisor)))


@contextmanager
def ec2_of(lab: Path, gpus: int, zones: list[str], env: str = "") -> Iterator[Hypervisor]:
    """Run moto and a hypervisor. ``zones``: that refuse; ``env``: what shells on hosts set besides."""
    os.environ.pop("AWS_CA_BUNDLE", None)
    (lab / "home").mkdir()
    os.environ.update(AWS, HOME=str(lab / "home"), PATH=search_path())
    sh("mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns")
    sh(f"ip link set lo up; ip link add labbr type bridge; ip addr add {GATEWAY}/{PREFIX} dev labbr")
    sh(f"ip link set labbr up; ssh-keygen -q -t ed25519 -N '' -f {lab}/host_key")
    moto = subprocess.Popen(
        [sys.executable, "-m", "tests.clusters.clouds.moto_more", GATEWAY, str(PORT), *zones],
        env={**os.environ, "MOTO_EC2_LOAD_DEFAULT_AMIS": "false", "CALLS": str(lab / "calls.jsonl")},
        stdout=(lab / "moto.log").open("w"),
        stderr=subprocess.STDOUT,
    )
    wait_for_moto()
    hypervisor = Hypervisor(lab, gpus, ENV + env)
    hypervisor.start()
    try:
        yield hypervisor
    finally:
        hypervisor.over.set()
        hypervisor.join()
        for host in hypervisor.hosts.values():
            host.kill()
        moto.kill()


def wait_for_moto() -> None:
    import socket

    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            socket.create_connection((GATEWAY, PORT), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("moto does not answer")


def trial(lab: Path, asked: dict, hypervisor: Hypervisor) -> dict:
    """Look, start, count, reach, extend, stop, look again."""
    seen: dict[str, object] = {"times": {}}
    cloud, order = AwsCloud(["us-east-1"]), order_of(lab, asked, hypervisor)
    said: list[str] = []

    def timed(name: str, act: Callable[[], object]) -> object:
        began = time.monotonic()
        done = act()
        seen["times"][name] = round(time.monotonic() - began, 1)
        return done

    seen["before"] = [c.model_dump() for c in timed("preflight", lambda: cloud.preflight(order, None))]
    seen["cells"] = {name: refused(cloud, order, zone[:10]) for name, zone in REFUSING.items()}
    order = order.model_copy(update={"place": Place(region="us-east-1", zone=FREE), "attempt": 2})
    ready = timed("prepare", lambda: cloud.prepare(order))
    try:
        seen["created"] = timed("up", lambda: cloud.create(ready, said.append)).model_dump()
    except CloudFault as fault:
        return {**seen, "fault": [fault.kind, str(fault), fault.log]}
    seen["found"] = [r.kind for r in cloud.find(LAUNCH)]
    seen["calls"] = hypervisor.runs()
    seen["throttled"] = (lab / "moto.log").read_text().count('" 503 ')
    seen["setups"] = {h.home.name: setups(h) for h in hypervisor.hosts.values()}
    seen["guarded"] = len(sh("pgrep -f '^/bin/bash -c sleep [0-9]+.while left='", check=False).split())
    with cloud.reach(ready) as created:
        token = Path(created.auth_token_path).read_text()
        answer = requests.get(
            f"{created.address}/api/version", headers={"Authorization": f"Bearer {token}"}, timeout=20
        )
        seen["answers"] = answer.status_code
    later = ready.choices.deadline + timedelta(hours=3)
    timed("extend", lambda: cloud.extend(ready, later))
    seen["timers"] = [(h.home / "plan-deadline").read_text().strip() for h in hypervisor.hosts.values()]
    seen["later"] = str(round(later.timestamp()))
    timed("ray down", lambda: cloud.stop_cluster(ready, said.append))
    for _ in range(4):
        for resource in cloud.find(LAUNCH):
            with suppress(CloudFault):
                cloud.delete(resource)
    seen["left"] = [r.model_dump() for r in cloud.find(LAUNCH)]
    seen["states"] = [i["State"]["Name"] for i in hypervisor.instances()]
    return seen


def refused(cloud: AwsCloud, order: Order, zone: str) -> dict:
    """What is raised in a zone that refuses, and which machines are there then."""
    here = order.model_copy(update={"place": Place(region="us-east-1", zone=zone)})
    try:
        cloud.create(cloud.prepare(here), lambda line: None)
    except CloudFault as fault:
        left = [r.kind for r in cloud.find(LAUNCH) if r.bills]
        return {"kind": fault.kind, "message": str(fault), "log": fault.log, "left": left}
    return {"kind": None}


def order_of(lab: Path, asked: dict, hypervisor: Hypervisor) -> Order:
    """The plan of the test, with an image that moto has, reached from the bridge."""
    hypervisor.ec2.register_image(Name="deep learning")
    image = hypervisor.ec2.describe_images()["Images"][0]["ImageId"]
    now = datetime.now(UTC).replace(microsecond=0)
    choices = tools.choices(
        made=now,
        deadline=now + timedelta(hours=1),
        launch_id=LAUNCH,
        cpu_head=True,
        ssh_from=GATEWAY,
        subnet=None,
        security_group=None,
        image=image,
    )
    plan = Plan.model_validate_json(asked["plan"])
    (lab / "launch").mkdir()
    return Order(
        plan=plan,
        choices=choices,
        launch_id=LAUNCH,
        place=Place(region="us-east-1"),
        directory=str(lab / "launch"),
        num_nodes=plan.candidate.num_nodes,
        create_timeout_s=300,
    )


def setups(host: Host) -> int:
    """How often Ray ran the setup commands on a host."""
    log = host.home / "setup.log"
    return log.read_text().count("pip") if log.exists() else 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
