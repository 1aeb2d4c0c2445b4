"""Hosts that are network namespaces on one bridge, each with a link of a known rate.

Run as root in a network namespace of its own, which has no way out: ``python -m tests.clusters.lab_links``
takes ``{"rates": ["1gbit", …], "cases": {…}}`` on stdin, starts a gloo rank on each host, and prints what
rank 0 measured (``collective_ranks.py``) as JSON.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.clusters.lab import search_path, sh

ROOT = Path(__file__).parents[2]
NET = "10.91.0"
MTU = 9000  # the rate counts headers too: of frames of 1514 bytes TCP carries 95.6 %, of these 99.3 %
BRIDGE, PORT = "linkbr", 29511
SHAPE = "root tbf rate {rate} burst 256kb latency 100ms"  # netem, fq and hfsc are in few kernels; tbf in all


def why_not() -> str | None:
    """What keeps the lab from running here, or ``None``."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "the lab needs root on Linux"
    missing = [
        name for name in ("ip", "tc", "unshare", "mount") if not shutil.which(name, path=search_path())
    ]
    if missing:
        return f"the lab needs {', '.join(missing)} (apt-get install iproute2)"
    trial = "ip link set lo up && tc qdisc add dev lo " + SHAPE.format(rate="1gbit")
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", trial], check=False, capture_output=True, text=True
    )
    return None if done.returncode == 0 else f"links cannot be shaped here: {done.stderr.strip()[:100]}"


def measure(rates: list[str], cases: dict[str, dict]) -> dict:
    """Run cases on hosts with links of ``rates``; in a network of their own, from the test's process."""
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-m", "tests.clusters.lab_links"],
        cwd=ROOT,
        input=json.dumps({"rates": rates, "cases": cases}),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def make_bridge() -> None:
    sh("mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns")
    sh(f"ip link set lo up; ip link add {BRIDGE} type bridge && ip link set {BRIDGE} up")


def add_host(number: int, rate: str) -> str:
    """A namespace with one link to the bridge, shaped on both of its ends. Returns its name."""
    name = f"link{number}"
    shape = SHAPE.format(rate=rate)
    sh(
        f"ip netns add {name} && ip link add {name}h mtu {MTU} type veth peer name {name}n mtu {MTU}"
        f" && ip link set {name}n netns {name} name eth0 && ip link set {name}h master {BRIDGE} up"
        f" && ip -n {name} addr add {NET}.{number + 2}/24 dev eth0"
        f" && ip -n {name} link set eth0 up && ip -n {name} link set lo up"
        f" && tc qdisc add dev {name}h {shape} && ip netns exec {name} tc qdisc add dev eth0 {shape}"
    )
    return name


def start_rank(host: str, rank: int, asked: dict) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [
            "ip",
            "netns",
            "exec",
            host,
            sys.executable,
            "-m",
            "tests.clusters.probe.collective_ranks",
            "rank",
            str(rank),
        ],
        cwd=ROOT,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "eth0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(asked))
    process.stdin.close()
    return process


def main() -> None:
    told = json.load(sys.stdin)
    make_bridge()
    hosts = [add_host(number, rate) for number, rate in enumerate(told["rates"])]
    asked = {
        "nodes": list(range(len(hosts))),
        "store": f"tcp://{NET}.2:{PORT}",
        "cases": told["cases"],
    }
    ranks = [start_rank(host, rank, asked) for rank, host in enumerate(hosts)]
    try:
        said = [process.stdout.read() for process in ranks if process.stdout]
        codes = [process.wait() for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert codes == [0] * len(ranks), codes
    print(said[0].strip())


if __name__ == "__main__":
    main()
