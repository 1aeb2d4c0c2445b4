"""The guards really run: a machine ends at its deadline, and when it has nothing to do."""

import os
import signal
import stat
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from clusters.config import guards
from clusters.config.choices import Choices
from clusters.config.nodes import cluster_of
from tests.clusters import tools


def machine(tmp_path: Path, busy: bool = False) -> dict[str, str]:
    """PATH of a pretended machine: ``shutdown`` leaves a mark, ``nvidia-smi`` shows work or none."""
    scripts = {
        "shutdown": f"date +%s.%N > {tmp_path}/down",
        "nvidia-smi": "echo 4711" if busy else "true",
        "pgrep": "echo '12 ray::IDLE'",
    }
    for name, body in scripts.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def boot(script: str, env: dict[str, str]) -> int:
    """Run a boot command as cloud-init does, in a session of its own; the group of what it leaves running."""
    process = subprocess.Popen(["/bin/bash", "-c", script], env=env, start_new_session=True)
    assert process.wait(timeout=5) == 0  # the guards never hold up the boot
    return process.pid


def ends_within(tmp_path: Path, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if (tmp_path / "down").exists():
            return True
        time.sleep(0.05)
    return False


def end_all(tmp_path: Path) -> None:
    """End what a pretended machine left running: its guards carry the path of its own mark."""
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            environment = (proc / "environ").read_bytes()
        except OSError:
            continue
        if f"PATH={tmp_path}:".encode() in environment:
            os.kill(int(proc.name), signal.SIGKILL)


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path):
    yield
    end_all(tmp_path)


def due(seconds: float) -> Choices:
    now = datetime.now(UTC)
    return tools.choices(made=now, deadline=now + timedelta(seconds=seconds))


def script(tmp_path: Path, seconds: float, **more: int) -> str:
    """Guards that end after so many seconds; the timer's file is this test's own."""
    return guards.guard_script(due(seconds), timer=str(tmp_path / "timer"), **more)


def needs_no_systemd() -> None:
    if Path("/run/systemd/system").is_dir():
        pytest.skip("systemd runs here: a timer of this test would be one of the machine's own")


def test_a_machine_ends_at_its_deadline_although_it_works(tmp_path: Path):
    needs_no_systemd()
    boot(script(tmp_path, 2, tick_s=1, least_s=1), machine(tmp_path, busy=True))
    assert not (tmp_path / "down").exists()
    assert ends_within(tmp_path, 6)


def test_a_deadline_that_is_moved_is_heeded(tmp_path: Path):
    needs_no_systemd()
    boot(script(tmp_path, 3, tick_s=1, least_s=1), machine(tmp_path, busy=True))
    (tmp_path / "timer").write_text(str(round(time.time()) + 3600))
    assert not ends_within(tmp_path, 5)
    (tmp_path / "timer").write_text(str(round(time.time())))
    assert ends_within(tmp_path, 4)


def test_a_machine_that_boots_after_its_deadline_ends_soon(tmp_path: Path):
    needs_no_systemd()
    boot(script(tmp_path, -3600, tick_s=60, least_s=1), machine(tmp_path, busy=True))
    assert ends_within(tmp_path, 5)


def test_a_machine_without_work_ends(tmp_path: Path):
    needs_no_systemd()
    text = script(tmp_path, 3600, tick_s=1).replace('"$idle" -ge 30', '"$idle" -ge 2')
    boot(text, machine(tmp_path))
    assert ends_within(tmp_path, 8)


def test_a_machine_that_works_does_not_end(tmp_path: Path):
    needs_no_systemd()
    text = script(tmp_path, 3600, tick_s=1).replace('"$idle" -ge 30', '"$idle" -ge 1')
    boot(text, machine(tmp_path, busy=True))
    assert not ends_within(tmp_path, 3)


def test_user_data_is_a_boot_command_of_cloud_init():
    text = guards.cloud_init(tools.choices())
    assert text.startswith("#cloud-config\n")
    ((shell, flag, text),) = yaml.safe_load(text)["bootcmd"]
    assert (shell, flag) == ("/bin/bash", "-c")
    assert subprocess.run(["/bin/bash", "-n", "-c", text], check=False).returncode == 0
    assert str(round(tools.choices().deadline.timestamp())) in text
    assert len(text.encode()) < 16_384  # EC2's limit of user data


def test_labels_hold_only_what_google_and_kubernetes_allow():
    choices = tools.choices(owner="Ada Lovelace <ada@example.org>" + "x" * 30)
    labels = guards.label_tags(cluster_of(tools.plan(), choices, "aws"), choices)
    assert labels["plan-owner"] == "ada-lovelace--ada-example-org-" + "x" * 30
    assert all(len(v) <= 63 and v.lower() == v for v in labels.values())
