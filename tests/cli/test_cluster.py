"""``plan cluster`` as the user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from clusters.probe.spec import read_plan
from planner.cli import main, store
from planner.results import Plan
from planner.search.candidates import price_run
from tests.clusters import tools


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Save a plan where the command looks for it."""
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)

    def save(plan: Plan) -> str:
        store.save_shown([plan.candidate], "plan suggest", tools.NOW)
        return plan.id

    return save


def test_files_are_written_and_their_paths_printed(saved, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plan_id = saved(tools.plan(nodes=2))
    assert main.run(["cluster", plan_id, "--out", "here", "--ssh-from", "203.0.113.7"]) == 0
    assert capsys.readouterr().out.splitlines() == ["here/cluster.yaml", "here/plan.json", "here/README.txt"]
    document = yaml.safe_load((tmp_path / "here/cluster.yaml").read_text())
    assert document["max_workers"] == 1
    assert "203.0.113.7/32" in (tmp_path / "here/README.txt").read_text()


def test_the_layout_for_a_library_lies_beside_the_other_files(saved, tmp_path: Path, capsys):
    plan_id = saved(tools.plan(nodes=2))
    assert main.run(["cluster", plan_id, "--out", "here", "--train-config", "torchtitan"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "here/torchtitan.args"
    assert "--training.local_batch_size=" in (tmp_path / "here/torchtitan.args").read_text()


def test_a_layout_that_the_library_cannot_express_writes_nothing(saved, tmp_path: Path, capsys):
    plan = tools.plan(nodes=2)
    layout = plan.candidate.run.layout.model_copy(update={"recompute": "selective"})
    run = plan.candidate.run.model_copy(update={"layout": layout})
    plan = plan.model_copy(update={"candidate": plan.candidate.model_copy(update={"run": run})})
    assert main.run(["cluster", saved(plan), "--out", "here", "--train-config", "deepspeed"]) == 2
    assert "deepspeed cannot express" in (said := capsys.readouterr().err)
    assert "selective recompute" in said
    assert not (tmp_path / "here").exists()


def test_a_row_and_the_default_directory_will_do(saved, tmp_path: Path):
    plan_id = saved(tools.plan())
    assert main.run(["cluster", "1", "--format", "kuberay"]) == 0
    names = {p.name for p in (tmp_path / ".plan" / plan_id).iterdir()}
    assert names == {"raycluster.yaml", "rayjob.yaml", "plan.json", "README.txt"}


def test_the_training_script_reads_the_run_of_plan_json(saved, tmp_path: Path):
    plan = tools.plan(nodes=2)
    assert main.run(["cluster", saved(plan), "--out", "here"]) == 0
    run = read_plan(json.loads((tmp_path / "here/plan.json").read_text()))
    assert run.world_size == 8
    assert run.model.num_layers == plan.candidate.run.model.num_layers


def test_the_deadline_follows_the_plan_or_the_user(saved, tmp_path: Path):
    plan_id = saved(tools.plan())
    assert main.run(["cluster", plan_id, "--format", "kuberay", "--out", "a", "--deadline", "2h"]) == 0
    job = yaml.safe_load((tmp_path / "a/rayjob.yaml").read_text())
    assert job["spec"]["activeDeadlineSeconds"] == 7200
    assert main.run(["cluster", plan_id, "--format", "kuberay", "--out", "b"]) == 0
    job = yaml.safe_load((tmp_path / "b/rayjob.yaml").read_text())
    hours = tools.plan().candidate.hours.high
    assert job["spec"]["activeDeadlineSeconds"] == pytest.approx(hours * 3600 * 1.2 + 3600, abs=2)


def test_iam_prints_rights_and_writes_nothing(saved, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plan_id = saved(tools.plan(nodes=2))
    assert main.run(["cluster", plan_id, "--iam"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["head"][0]["Version"] == "2012-10-17"
    assert not (tmp_path / ".plan").exists()


@pytest.mark.parametrize("kind", [["kuberay"], ["local", "--hosts", "10.0.0.2,10.0.0.3"]])
def test_who_needs_no_rights_is_said_in_words(saved, kind: list[str], capsys: pytest.CaptureFixture[str]):
    assert main.run(["cluster", saved(tools.plan(nodes=2)), "--iam", "--format", *kind]) == 0
    said = capsys.readouterr().out
    assert "need no rights of a cloud" in said
    assert "[]" not in said


def test_a_machine_among_others_that_needs_no_rights_is_named(saved, capsys: pytest.CaptureFixture[str]):
    assert main.run(["cluster", saved(tools.plan(nodes=2)), "--iam"]) == 0
    assert "node: no rights are needed" in capsys.readouterr().err


@pytest.mark.parametrize("nodes", [1, 2])
def test_disks_are_as_large_as_the_cost_counts_them(saved, tmp_path: Path, nodes: int):
    plan = tools.plan(nodes=nodes)
    run = plan.candidate.run
    training = run.training.model_copy(
        update={"num_tokens": 3e11}
    )  # 600 GB of data: more than fits in 200 GiB
    run = run.model_copy(update={"training": training})
    lines = price_run(run, plan.candidate.speed, plan.candidate.offer).lines
    plan = plan.model_copy(update={"candidate": plan.candidate.model_copy(update={"run": run})})
    assert main.run(["cluster", saved(plan), "--out", "here"]) == 0
    document = yaml.safe_load((tmp_path / "here/cluster.yaml").read_text())
    types = document["available_node_types"].values()
    (size,) = {each["node_config"]["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] for each in types}
    hours = sum(line.quantity for line in lines if line.unit == "node-hour") / nodes
    (disk,) = (line for line in lines if line.name == "disk")
    assert size > 279 / nodes + 200  # 600 GB are 559 GiB
    assert disk.quantity == pytest.approx(size * nodes * hours / 730, rel=1e-3)


def test_every_kubectl_line_of_a_readme_names_the_namespace(saved, tmp_path: Path):
    plan = saved(tools.plan(nodes=2))
    assert main.run(["cluster", plan, "--format", "kuberay", "--namespace", "ml", "--out", "here"]) == 0
    text = (tmp_path / "here/README.txt").read_text()
    commands = [line for line in text.splitlines() if line.strip().startswith("kubectl ")]
    assert len(commands) == 5
    assert all(" -n ml " in f"{line} " for line in commands)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--format", "helm"], "--format 'helm'"),
        (["--ssh-from", "0.0.0.0/0"], "give your own IPv4 address"),
        (["--deadline", "soon"], "--deadline"),
        (["--max-spot-price", "3"], "--max-spot-price: p-0123456789ab is on-demand"),
        (["--format", "kuberay", "--reservation", "cr-1"], "--reservation is for aws, gcp"),
        (["--format", "local"], "--hosts names 0 hosts"),
        (
            ["--prepare", "--format", "local", "--hosts", "a"],
            "--prepare is for aws; p-0123456789ab is written for local",
        ),
        (["--zone", "eu-west-1a"], "is not in us-east-1"),
        (["--format", "local", "--hosts", "a;reboot"], "is no host name"),
        (["--out", "/proc/nowhere"], "--out /proc/nowhere"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_a_hint(
    saved, capsys: pytest.CaptureFixture[str], more: list[str], said: str
):
    assert main.run(["cluster", saved(tools.plan()), *more]) == main.BAD_INPUT
    error = capsys.readouterr().err
    assert said in error
    assert "hint: " in error
    assert "Traceback" not in error


def test_without_credentials_nothing_is_made(
    saved, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    assert main.run(["cluster", saved(tools.plan()), "--prepare", "--ssh-from", "203.0.113.7"]) == 4
    assert "no credentials of AWS" in capsys.readouterr().err
    assert not (tmp_path / ".plan").exists()


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from planner.cli import main; main.run(['cluster', '--help']);"
        " sys.exit(any(m in sys.modules for m in ('ray', 'torch', 'boto3', 'botocore', 'yaml')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
