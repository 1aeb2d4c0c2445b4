"""What runs on the machines of a launch: ends the job and the cluster in time, with everything of ours gone.

This file ships by itself and runs on whatever Python a host has (3.8 or newer): the standard library, and
Ray only in what needs it. Everything that a launch starts carries its id in the environment; by that mark it
is found again in ``/proc`` and ended, and nothing else is touched.

    python watchdog.py watch FILE [node]      until the limits of FILE are reached, then end everything
    python watchdog.py facts                  what this machine is, as JSON
    python watchdog.py set FILE               new limits from standard input, written at once or not at all
    python watchdog.py find ID | end ID       processes of a launch on this machine, one JSON line each
    python watchdog.py joined NODES GPUS KIND SECONDS    wait on the head until all nodes have joined
    python watchdog.py spread FILE JSON       new limits on every node of the cluster; runs on the head
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

MARK = "PLAN_LAUNCH_ID"
TIMER = "/root/plan-deadline"  # when the machine itself ends; clusters/config/guards.py reads it
JOINED, FAULT, SET = "PLAN-JOINED ", "PLAN-FAULT ", "PLAN-LIMITS-SET "
TEARDOWN_S = 120.0  # still billed after the order to end a machine: the cap counts as reached so much earlier
TICK_S = 5.0
KILL_AFTER_S = 5.0
GIVE_UP_S = 60.0
_CALL_S = 60.0  # one call to Ray or to a cloud may take so long
# The timer of the machine belongs to root; it is replaced at once, since the machine ends if it is not there.
_PUT_TIMER = f"""set -e; root=$([ "$(id -u)" = 0 ] || echo sudo -n)
echo "$0" | $root tee {TIMER}.new >/dev/null; $root mv {TIMER}.new {TIMER}"""
_FAULTS = re.compile(
    r"InsufficientInstanceCapacity|InsufficientReservedInstanceCapacity|VcpuLimitExceeded"
    r"|MaxSpotInstanceCountExceeded|SpotMaxPriceTooLow|UnauthorizedOperation|InstanceLimitExceeded"
    r"|ZONE_RESOURCE_POOL_EXHAUSTED\w*|QUOTA_EXCEEDED|quotaExceeded|PERMISSION_DENIED"  # Google Cloud
    r"|SkuNotAvailable|\w*AllocationFailed|QuotaExceeded|AuthorizationFailed"  # Azure
)
# How a rented machine ends itself. Azure bills one that only shuts down; Google Cloud deletes it at the
# deadline, but not one that was stopped before, so there it waits (TEARDOWN_S is kept back of the budget).
_SHUT_DOWN = "[ $(id -u) = 0 ] && shutdown -P {0} || sudo -n shutdown -P {0}"
_END_MACHINE = {
    "aws": _SHUT_DOWN.format("now"),
    "gcp": _SHUT_DOWN.format("+2"),
    "azure": "sudo -n /usr/local/sbin/plan-end",
}


class Limits(NamedTuple):
    """When a launch ends. Moments are seconds since 1970, amounts USD as text; ``None`` = unknown.

    ``since_s``: from when on an hour costs ``usd_per_hour``. ``grace_s``: from SIGTERM to the job until the
    end. ``end``: ``here`` ends this machine's processes of the launch, ``aws`` terminates the instances with
    its tag, ``gcp`` and ``azure`` end the machine itself. ``address``: of Ray's job submission, where this
    machine is the head. ``paths``: deleted at the end, separated by colons; ``head_paths``: on it alone.
    """

    launch_id: str
    deadline_s: float
    since_s: float
    budget_usd: str | None = None
    usd_per_hour: str | None = None
    grace_s: float = 120.0
    end: str = "here"
    region: str = ""
    address: str = ""
    paths: str = ""
    head_paths: str = ""


def end_s(limits: Limits) -> float:
    """Moment of the end: the deadline, or before the hours cost more than the budget."""
    if limits.budget_usd is None or limits.usd_per_hour is None or not Decimal(limits.usd_per_hour):
        return limits.deadline_s
    seconds = float(Decimal(limits.budget_usd) / Decimal(limits.usd_per_hour)) * 3600
    return min(limits.deadline_s, limits.since_s + max(seconds - TEARDOWN_S, 0.0))


def read(path: str) -> Limits:
    """Limits of a file."""
    with open(path, encoding="utf-8") as file:
        return Limits(**json.load(file))


def write(path: str, limits: Limits) -> None:
    """Replace the limits of a file, at once or not at all; only the owner may read or write them."""
    beside = f"{path}.{os.getpid()}"
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(limits._asdict(), file)
    os.replace(beside, path)


# ------------------------------------------------------------------------------------------ processes


def marked(launch_id: str | None) -> list[tuple[int, str, str]]:
    """Processes of a launch (``None``: of any) on this machine: number, name, launch. Never this one."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                environment = file.read()
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                state = file.read().rpartition(")")[2].split()[0]
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # it has ended, or is another user's
            continue
        owner = _mark_of(environment)
        if owner is not None and state != "Z" and launch_id in (None, owner):
            found.append((int(entry), words[:80], owner))
    return found


def _mark_of(environment: bytes) -> str | None:
    mark = f"{MARK}=".encode()
    found = [pair[len(mark) :] for pair in environment.split(b"\0") if pair.startswith(mark)]
    return found[0].decode(errors="replace") if found else None


def _homes(launch_id: str | None) -> list[tuple[int, str, str]]:
    """Directories of launches in the home of this user, as ``marked`` lists processes, without a number."""
    base = os.path.expanduser("~")
    names = [n[len(".plan-") :] for n in os.listdir(base) if n.startswith(".plan-")]
    return [(0, f"files in ~/.plan-{n}", n) for n in names if launch_id in (None, n)]


def end_marked(launch_id: str, kill_after_s: float = KILL_AFTER_S) -> list[tuple[int, str, str]]:
    """End the processes of a launch: SIGTERM, then SIGKILL; returns those that are still there."""
    until = time.monotonic() + kill_after_s
    _signal(launch_id, signal.SIGTERM)
    while marked(launch_id) and time.monotonic() < until:
        time.sleep(0.1)
    until = time.monotonic() + kill_after_s
    while marked(launch_id) and time.monotonic() < until:
        _signal(launch_id, signal.SIGKILL)  # again: one may have been forked meanwhile
        time.sleep(0.1)
    return marked(launch_id)


def _signal(launch_id: str, number: int) -> None:
    for process, _, _ in marked(launch_id):
        with contextlib.suppress(OSError):
            os.kill(process, number)


# ---------------------------------------------------------------------------------------------- watch


def watch(
    path: str,
    stop_jobs: Callable[[Limits], None],
    end: Callable[[Limits], None],
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the limits are reached; they are read again at every tick, since they may be moved.

    The job gets SIGTERM ``grace_s`` before the end, so that it can write a checkpoint.
    """
    stopped = False
    while True:
        limits = read(path)
        left = end_s(limits) - now()
        if left <= 0:
            break
        if left <= limits.grace_s and not stopped:
            stop_jobs(limits)
            stopped = True
        sleep(min(left, TICK_S))
    end(limits)


def stop_all_jobs(limits: Limits) -> None:
    """Ask Ray to stop every job that runs. In a process of its own: the end must come though Ray hangs."""
    if limits.address:
        _bounded([sys.executable, os.path.abspath(__file__), "stop-jobs", limits.address])


def _stop_jobs(address: str) -> None:
    from ray.job_submission import JobSubmissionClient

    client = JobSubmissionClient(address)
    for job in client.list_jobs():
        if job.submission_id and not job.status.is_terminal():
            client.stop_job(job.submission_id)


def end_all(limits: Limits, is_head: bool = True) -> None:
    """End the launch: its instances where it has some, then its processes here, this one last."""
    if limits.end == "aws":
        _bounded([sys.executable, os.path.abspath(__file__), "end-aws", limits.launch_id, limits.region])
    if limits.end in _END_MACHINE:
        _bounded(["sh", "-c", _END_MACHINE[limits.end]])
    end_marked(limits.launch_id)
    for path in f"{limits.paths}:{limits.head_paths if is_head else ''}".split(":"):
        whole = os.path.expanduser(path)
        if os.path.isdir(whole):
            shutil.rmtree(whole, ignore_errors=True)
        elif path:
            with contextlib.suppress(OSError):
                os.remove(whole)


def _end_aws(launch_id: str, region: str) -> None:
    """Terminate every instance of the launch. Ray's head has boto3, and the right to do this to its own."""
    import boto3  # type: ignore[import-untyped]

    client = boto3.client("ec2", region_name=region)
    filters = [
        {"Name": "tag:plan-launch", "Values": [launch_id]},
        {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]},
    ]
    for _ in range(3):  # a machine that the autoscaler asked for meanwhile
        pages = client.get_paginator("describe_instances").paginate(Filters=filters)
        ids = [i["InstanceId"] for page in pages for r in page["Reservations"] for i in r["Instances"]]
        if not ids:
            return
        client.terminate_instances(InstanceIds=ids)
        time.sleep(2.0)


def _bounded(command: list[str]) -> None:
    """Run a command that may fail or hang; what it says goes to our own log."""
    try:
        subprocess.run(command, timeout=_CALL_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"{error}\n")


def _watch_once(path: str, is_head: bool) -> None:
    """Watch, unless another watchdog of the same file does: ``ray up`` may start us twice."""
    with open(f"{path}.lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if is_head:
            watch(path, stop_all_jobs, end_all)
        else:
            watch(path, lambda limits: None, lambda limits: end_all(limits, is_head=False))


# ------------------------------------------------------------------------------------------- machine


def facts(ports: list[int]) -> dict[str, object]:
    """What a host has and is; a count that cannot be read is ``None``. ``ports_taken``: of those asked."""
    return {
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "cpus": os.cpu_count(),
        "gpus": num_gpus(),
        "disk_free_bytes": shutil.disk_usage(os.path.expanduser("~")).free,
        "shm_free_bytes": shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else None,
        "time_s": time.time(),
        "ports_taken": [port for port in ports if _taken(port)],
    }


def num_gpus() -> int | None:
    """GPUs as the driver lists them; 0 without its tool, ``None`` where the tool fails or hangs."""
    if shutil.which("nvidia-smi") is None:
        return 0
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=_CALL_S,
            check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return len([line for line in listed.stdout.splitlines() if line.strip()])


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False


# ------------------------------------------------------------------------------------- on the cluster


def wait_joined(num_nodes: int, gpus_per_node: int, kind: str, seconds: float) -> bool:
    """Wait on the head until ``num_nodes`` nodes with the plan's GPUs are alive; prints what it sees.

    ``kind``: the resource that a node of the right kind has (``accelerator_type:H100``), or ``-``. What has
    joined bills: where the cloud still says no ``GIVE_UP_S`` after it first did, the wait is over.
    """
    import ray

    ray.init(address="auto", logging_level=logging.ERROR, log_to_driver=False)
    until, seen, faults, refused = time.monotonic() + seconds, (-1, -1), ("", 0), float("inf")
    while True:
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        right = [r for r in alive if r.get("GPU", 0) >= gpus_per_node and (kind == "-" or kind in r)]
        found, said, now = (len(right), int(sum(r.get("GPU", 0) for r in alive))), _faults(), time.monotonic()
        if found != seen:
            refused = float("inf")
            _say(JOINED + json.dumps({"nodes": found[0], "gpus": found[1], "alive": len(alive)}))
        if said[0] and said[0] != faults[0]:
            _say(FAULT + said[0])
        if said != faults:
            refused, until = min(refused, now), (now if now - refused > GIVE_UP_S else until)
        seen, faults = found, said
        if found[0] >= num_nodes:
            return True
        if now >= until:
            _say("\n".join([*_autoscaler("monitor.log")[-10:], *_autoscaler("monitor.out")[-25:]]))
            return False
        time.sleep(1.0)


def _faults() -> tuple[str, int]:
    """Error codes of the cloud in the log of the head's autoscaler, and how many there are."""
    found = _FAULTS.findall("\n".join(_autoscaler("monitor.log")))
    return " ".join(sorted(set(found))), len(found)


def _autoscaler(name: str) -> list[str]:
    """Last lines of a file of the head's autoscaler; none where it has not begun."""
    log = os.path.join(os.environ.get("RAY_TMPDIR", "/tmp"), "ray/session_latest/logs", name)
    with contextlib.suppress(FileNotFoundError), open(log, encoding="utf-8", errors="replace") as file:
        return file.read()[-200_000:].splitlines()
    return []


def spread(path: str, text: str) -> int:
    """Write new limits on every node of the cluster; returns on how many. Runs on the head."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init(address="auto", logging_level=logging.ERROR, log_to_driver=False)

    def put(path: str, text: str) -> bool:
        beside = f"{path}.new"
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
        deadline = str(int(json.loads(text)["deadline_s"]))
        if json.loads(text)["end"] != "here":  # the timer of the machine itself, which belongs to root
            subprocess.run(["bash", "-c", _PUT_TIMER, deadline], check=True)
        return True

    remote = ray.remote(num_cpus=0)(put)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    pinned = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    calls = [remote.options(scheduling_strategy=strategy).remote(path, text) for strategy in pinned]
    done = sum(ray.get(calls, timeout=_CALL_S))
    _say(SET + str(done))
    return done


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(words: list[str]) -> int:
    """Run one of the commands of the module's docstring."""
    command, rest = words[0], words[1:]
    if command == "watch":
        _watch_once(rest[0], is_head=rest[1:] != ["node"])
    elif command == "set":
        write(rest[0], Limits(**json.load(sys.stdin)))
    elif command in ("find", "end"):
        wanted = None if rest[0] == "-" else rest[0]
        found = [*marked(wanted), *_homes(wanted)] if command == "find" else end_marked(rest[0])
        for process, name, launch in found:
            _say(json.dumps({"pid": process, "name": name, "launch_id": launch}))
    elif command == "facts":
        _say(json.dumps(facts([int(port) for port in rest])))
    elif command == "joined":
        return 0 if wait_joined(int(rest[0]), int(rest[1]), rest[2], float(rest[3])) else 1
    elif command == "spread":
        spread(os.path.expandvars(rest[0]), rest[1])
    else:
        calls: dict[str, Callable[..., None]] = {"stop-jobs": _stop_jobs, "end-aws": _end_aws}
        calls[command](*rest)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
