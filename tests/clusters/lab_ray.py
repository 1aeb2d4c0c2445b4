"""The probe's job on a Ray cluster whose hosts are namespaces, with links of known rates between them.

Run as root in namespaces of its own: ``python -m tests.clusters.lab_ray DIR`` takes
``{"rates": ["1gbit", …], "request": {…}}`` on stdin and prints what the job printed. Each host has its own
processes, so that nothing of Ray outlives it, and nothing of another Ray is seen.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.clusters import lab_links
from tests.clusters.lab import search_path, sh

ROOT = Path(__file__).parents[2]
HEAD = f"{lab_links.NET}.2"
ADDRESS = f"{HEAD}:6379"
HOST = """\
mount --make-rprivate / && mkdir -p /tmp/ray && mount -t tmpfs tmpfs /tmp/ray
mount -t tmpfs -o size=1g tmpfs /dev/shm && hostname {name}
start() {{ ray start --node-ip-address {ip} --num-cpus 1 --object-store-memory 100000000 "$@" >&2; }}
"""
AS_HEAD = """\
start --head --port 6379 --include-dashboard=false --disable-usage-stats
python -m tests.clusters.lab_ray wait {hosts}
exec python -m clusters.probe.job {request}
"""
AS_WORKER = """\
until start --address {address}; do sleep 1; done
exec sleep infinity
"""


def probe(rates: list[str], request: dict, folder: Path) -> str:
    """Lines that the job printed on the first of these hosts."""
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-m", "tests.clusters.lab_ray", str(folder)],
        cwd=ROOT,
        input=json.dumps({"rates": rates, "request": request}),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def start(name: str, ip: str, script: str) -> subprocess.Popen[str]:
    isolated = "unshare --mount --uts --pid --fork --kill-child --mount-proc bash -ec"
    return subprocess.Popen(
        ["ip", "netns", "exec", name, *isolated.split(), HOST.format(name=name, ip=ip) + script],
        cwd=ROOT,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{search_path()}",
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ADDRESS": ADDRESS,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


def main(folder: Path) -> int:
    told = json.load(sys.stdin)
    (folder / "request.json").write_text(json.dumps(told["request"]))
    lab_links.make_bridge()
    names = [lab_links.add_host(number, rate) for number, rate in enumerate(told["rates"])]
    for name in names:
        sh(f"ip -n {name} route add default dev eth0")  # Ray takes 127.0.0.1 for its address without one
    as_head = AS_HEAD.format(hosts=len(names), request=folder / "request.json")
    scripts = [as_head] + [AS_WORKER.format(address=ADDRESS)] * (len(names) - 1)
    hosts = [
        start(name, f"{lab_links.NET}.{number + 2}", script)
        for number, (name, script) in enumerate(zip(names, scripts, strict=True))
    ]
    try:
        said, _ = hosts[0].communicate()
        sys.stdout.write(said)
        return hosts[0].returncode
    finally:
        for host in hosts:
            host.send_signal(signal.SIGKILL)
            host.wait()


def wait_for(hosts: int) -> None:
    """Return when so many hosts have joined."""
    import time

    import ray

    ray.init(address=ADDRESS, log_to_driver=False, logging_level="ERROR")
    while sum(node["Alive"] for node in ray.nodes()) < hosts:
        time.sleep(0.5)
    ray.shutdown()


if __name__ == "__main__":
    if sys.argv[1] == "wait":
        wait_for(int(sys.argv[2]))
    else:
        sys.exit(main(Path(sys.argv[1])))
