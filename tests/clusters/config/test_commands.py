"""The setup commands really run, as often as Ray likes, on a pretended host."""

import os
import subprocess
from pathlib import Path

import pytest

from clusters.config import emit
from clusters.config.nodes import cluster_of
from tests.clusters import tools

STUBS = {
    "sudo": 'while [[ "$1" == -* || "$1" == *=* ]]; do shift; done; exec "$@"',
    "apt-get": 'echo "apt-get $* proxy=$https_proxy" >> $HOME/log; [[ -z "$NO_APT" || "$1" != install ]]',
    "python3": 'echo "python3 $*" >> $HOME/log; [[ "$2" != uv ]] || python3.12 -m venv "${@: -1}"',
    "python3.12": 'echo venv >> $HOME/log; mkdir -p "$3/bin"; cp $HOME/bin/pip "$3/bin/pip"',
    "pip": 'echo "pip $* proxy=$https_proxy" >> $HOME/log',
    "tee": "cat > $HOME/tinyproxy.conf",
    "systemctl": 'echo "systemctl $*" >> $HOME/log',
    "cloud-init": "true",
    "nvidia-smi": 'case "$1" in -L) seq ${GPUS:-8};; *) echo ${DRIVER:-595}.91;; esac',
}


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for name, body in STUBS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / ".bashrc").write_text("case $- in *i*) ;; *) return;; esac\n")
    return tmp_path


def run(host: Path, commands: list[str], **env: str) -> list[int]:
    every = {"HOME": str(host), "PATH": f"{host}/bin:{os.environ['PATH']}", **env}
    return [subprocess.run(["/bin/bash", "-c", c], env=every, check=False).returncode for c in commands]


def efa() -> dict:
    choices = tools.choices()
    (document,) = emit.documents(cluster_of(tools.big(2), choices, "aws"), choices, "aws").values()
    return document


def test_setup_run_twice_leaves_one_environment(host: Path):
    setup = efa()["setup_commands"]
    assert run(host, setup * 2) == [0] * 2 * len(setup)
    log = (host / "log").read_text().splitlines()
    assert log.count("venv") == 1
    lines = (host / ".bashrc").read_text().splitlines()
    assert lines[0] == "export PATH=$HOME/plan-env/bin:$PATH"  # before Ubuntu's .bashrc returns
    assert sum("plan-env" in line for line in lines) == 1


def test_a_host_with_another_python_gets_the_pinned_one(host: Path):
    assert set(run(host, efa()["setup_commands"], NO_APT="1")) == {0}
    assert "python3 -m uv venv --quiet --seed --python 3.12" in (host / "log").read_text()


def test_workers_without_an_address_install_through_the_head(host: Path):
    run(host, efa()["setup_commands"], RAY_HEAD_IP="10.0.0.5")
    log = (host / "log").read_text()
    assert log.count("proxy=http://10.0.0.5:8888") == 3  # apt-get twice, pip
    assert "proxy=\n" not in log


def test_the_head_serves_its_own_network_only(host: Path):
    document = efa()
    assert set(run(host, [*document["setup_commands"], *document["head_setup_commands"]])) == {0}
    lines = (host / "tinyproxy.conf").read_text().splitlines()
    allowed = [line for line in lines if line.startswith("Allow")]
    assert allowed == ["Allow 10.0.0.0/8", "Allow 172.16.0.0/12", "Allow 192.168.0.0/16"]


@pytest.mark.parametrize(("env", "right"), [({}, True), ({"GPUS": "7"}, False), ({"DRIVER": "570"}, False)])
def test_a_host_with_other_gpus_or_an_old_driver_is_refused(host: Path, env: dict[str, str], right: bool):
    assert (set(run(host, efa()["worker_setup_commands"], **env)) == {0}) is right


def test_every_command_of_every_document_is_bash():
    for name, (plan, choices, kind) in tools.CASES.items():
        for document in emit.documents(cluster_of(plan, choices, kind), choices, kind).values():
            for key, commands in document.items():
                if key.endswith("_commands"):
                    for command in commands:
                        done = subprocess.run(["/bin/bash", "-n", "-c", command], check=False)
                        assert done.returncode == 0, (name, key, command)
