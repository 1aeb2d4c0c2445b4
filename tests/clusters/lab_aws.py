"""EC2 out of one machine: each instance that moto knows becomes a host of ``lab``, with its own address.

Run as root in a network namespace of its own, which has no way out: ``python -m tests.clusters.lab_aws DIR``
runs ``plan cluster --prepare``, ``ray up`` and ``ray down`` as the user does, and prints what it saw as JSON.
"""

import base64
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import boto3
import yaml

from tests.clusters.lab import PYTHON_DIR, Host, client, joined, sh

GATEWAY, PREFIX, PORT = "172.31.0.1", 16, 5055  # moto's default network
AWS = {
    "AWS_ENDPOINT_URL": f"http://{GATEWAY}:{PORT}",
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
ENV = "".join(f"export {k}='{v}'\n" for k, v in AWS.items())


class Hypervisor(threading.Thread):
    """Boots a host for each instance, runs its user data, and powers it off when it is terminated."""

    def __init__(self, lab: Path, gpus: int) -> None:
        super().__init__(daemon=True)
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

    def boot(self, instance: dict) -> Host:
        pairs = self.ec2.describe_key_pairs(IncludePublicKey=True)["KeyPairs"]
        keys = "".join(f"{p.get('PublicKey', '')}\n" for p in pairs)
        ip, number = instance["PrivateIpAddress"], len(list(self.lab.glob("host[0-9]*")))
        host = Host(self.lab, number, ip, self.gpus, keys, ENV, PREFIX)
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
    os.environ.pop("AWS_CA_BUNDLE", None)
    os.environ.update(AWS)
    asked = json.loads((lab / "asked.json").read_text())
    sh("mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns")
    sh(f"ip link set lo up; ip link add labbr type bridge; ip addr add {GATEWAY}/{PREFIX} dev labbr")
    sh(f"ip link set labbr up; ssh-keygen -q -t ed25519 -N '' -f {lab}/host_key")
    moto = subprocess.Popen(
        [PYTHON_DIR / "moto_server", "-H", GATEWAY, "-p", str(PORT)],
        stdout=(lab / "moto.log").open("w"),
        stderr=subprocess.STDOUT,
    )
    wait_for_moto()
    hypervisor = Hypervisor(lab, asked["gpus_per_node"])
    hypervisor.start()
    try:
        print(json.dumps(trial(lab, asked, hypervisor)))
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
    """Write, start, count, stop, look again."""
    seen: dict[str, object] = {}
    plan = [sys.executable, "-c", "from planner.cli.main import main; main()"]
    done = subprocess.run(
        [*plan, "cluster", asked["plan"], "--prepare", "--cpu-head", "--ssh-from", GATEWAY, "--out", lab],
        env={**os.environ, "PLAN_DATA_DIR": str(lab / "data")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    seen["plan"] = {"code": done.returncode, "said": done.stdout + done.stderr}
    (lab / "home/.ray").mkdir(parents=True)
    (lab / "home/.ray/auth_token").write_text((lab / "auth_token").read_text())
    done = client(lab, "ray", "up", "-y", "--no-config-cache", **AWS)
    seen["up"] = {"code": done.returncode, "said": done.stdout[-3000:]}
    if done.returncode or not hypervisor.hosts:
        return seen
    (head,) = [h for h in hypervisor.hosts.values() if h.home.name == "host0"]
    (key,) = (lab / "home/.ssh").glob("plan-*.pem")
    (lab / "key").write_text(key.read_text())
    (lab / "key").chmod(0o600)
    seen["joined"] = joined(lab, asked["num_gpus"], [head], seconds=90)
    seen["setups"] = {h.home.name: setups(h) for h in hypervisor.hosts.values()}
    seen["guarded"] = len(sh("pgrep -f '^/bin/bash -c sleep [0-9]+.while left='", check=False).split())
    done = client(lab, "ray", "down", "-y", **AWS)
    seen["down"] = {"code": done.returncode, "said": done.stdout[-1500:]}
    seen["left"] = [i["State"]["Name"] for i in hypervisor.instances()]
    return seen


def setups(host: Host) -> int:
    """How often Ray ran the setup commands on a host."""
    log = host.home / "setup.log"
    return log.read_text().count("pip") if log.exists() else 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
