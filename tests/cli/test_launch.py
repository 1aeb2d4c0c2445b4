"""``plan launch``, ``down``, ``ls``, ``extend``, ``doctor`` as the user runs them, over a cloud in a file."""

import io
import json
import re
import sys
from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest

from clusters.faults import CloudFault
from clusters.launch.interrupts import Interrupted
from clusters.ledger.store import Ledger
from clusters.scrub import scrubber
from planner.cli import main, store
from planner.cli.launch import hands as launch_hands
from planner.cli.launch import next_plans as launch_next
from planner.cli.schema import document_of
from tests.clusters import tools
from tests.clusters.launch.cloud import FileCloud
from tests.clusters.launch.hands import Proving

PLAN = "p-0123456789ab"


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileCloud:
    """A saved plan, and a cloud in a file in place of the real one; nobody is at the terminal."""
    data = tmp_path / "data"
    monkeypatch.setenv("PLAN_DATA_DIR", str(data))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    store.save_shown([tools.plan().candidate], "plan suggest", tools.NOW)
    made = FileCloud(tmp_path)
    monkeypatch.setattr(launch_hands, "cloud_of", lambda request: made)
    monkeypatch.setattr(launch_hands, "price_now", lambda offer: offer.usd_per_hour)
    monkeypatch.setattr(launch_next, "next_plans", lambda plan: iter(()))
    monkeypatch.setattr(launch_hands.time, "sleep", lambda seconds: None)
    return made


@pytest.fixture
def proving(monkeypatch: pytest.MonkeyPatch, cloud: FileCloud) -> Proving:
    made = Proving()
    monkeypatch.setattr(launch_hands, "RealProving", lambda known, quiet: made)
    return made


def launch(*more: str, yes: bool = True) -> int:
    return main.run(["launch", PLAN, "--budget", "1000", *(["--yes"] if yes else []), *more])


def launches():
    return Ledger(store.data_dir(), scrubber({})).launches()


def answer(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{line}\n" for line in lines)))


def test_the_price_and_what_ctrl_c_does_stand_before_the_question(
    proving: Proving, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    answer(monkeypatch, "")
    assert launch(yes=False) == 1
    out, err = capsys.readouterr()
    assert "Start the cluster and the probe for at most $9.20? [y/N]" in err
    for said in (
        "1 × g6e.12xlarge (4× L40S), aws us-east-1, on-demand   $10.00 / h",
        "at most $9.20",
        "never past $1,000",
        "Ctrl-C tears everything down (exit 130, or 6 if unconfirmed)",
        "ends itself at",
        "never been started on the real provider",
    ):
        assert said in " ".join(out.split()).replace("on-demand $", "on-demand   $"), said
    assert max(map(len, out.splitlines())) <= 100
    assert "declined; nothing was started" in out


def test_yes_starts_it_and_the_verdict_is_shown(proving: Proving, capsys: pytest.CaptureFixture[str]):
    assert launch("--then", "python train.py") == 0
    out, err = capsys.readouterr()
    assert "step time" in out
    assert "Verdict: pass" in out
    assert "committed" in out
    assert f"hint: plan down {launches()[0].id}" in err
    assert "step 1" in err
    assert proving.jobs == [launches()[0].id]


def test_both_questions_are_asked(
    proving: Proving, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    answer(monkeypatch, "y", "n")
    assert launch("--then", "python train.py", yes=False) == 1
    assert "Commit the full run?" in capsys.readouterr().err
    assert proving.jobs == []
    assert launches()[0].state == "gone"


def test_nobody_to_answer_is_bad_usage_and_starts_nothing(
    proving: Proving, cloud: FileCloud, capsys: pytest.CaptureFixture[str]
):
    assert launch(yes=False) == 2
    assert "hint: add --yes to the same command" in capsys.readouterr().err
    assert cloud.calls == []
    assert launches() == ()


def test_a_verdict_that_fails_exits_with_five_and_with_keep_with_seven(
    proving: Proving, cloud: FileCloud, capsys: pytest.CaptureFixture[str]
):
    proving.passes = False
    assert launch() == 5
    assert not cloud.resources()
    assert launch("--keep") == 7
    assert cloud.resources()
    assert "left running on purpose at $10.03 / h" in " ".join(capsys.readouterr().out.split())


def test_what_may_still_bill_exits_with_six_and_says_how_to_delete_it(
    proving: Proving, cloud: FileCloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    proving.passes = False
    cloud.stuck = ("vol-0",)
    monkeypatch.setattr("clusters.launch.teardown.timedelta", lambda seconds: tools.timedelta(seconds=0.05))
    assert launch() == 6
    out, err = capsys.readouterr()
    assert "THIS MAY STILL COST MONEY." in out
    assert "aws ec2 delete-volume --id vol-0" in err
    assert f"plan down {launches()[0].id}" in err


def test_missing_credentials_exit_with_four(
    proving: Proving, cloud: FileCloud, capsys: pytest.CaptureFixture[str]
):
    cloud.faults["preflight"] = [CloudFault("credentials", "none found", "aws configure")]
    assert launch() == 4
    out = capsys.readouterr().out
    assert "nothing was created. none found" in out
    assert "torn down" not in out


def test_ctrl_c_before_commit_exits_with_130_and_leaves_nothing(proving: Proving, cloud: FileCloud):
    proving.probe_faults = [Interrupted("SIGINT")]  # type: ignore[list-item]
    assert launch() == 130
    assert not cloud.resources()


def test_ctrl_c_after_commit_only_detaches(
    proving: Proving, cloud: FileCloud, capsys: pytest.CaptureFixture[str]
):
    proving.follow_raises = Interrupted("SIGINT")
    assert launch("--then", "python train.py") == 0
    assert cloud.resources()
    assert "detached" in capsys.readouterr().out


def test_json_is_one_event_a_line_with_the_outcome_last(proving: Proving, capsys: pytest.CaptureFixture[str]):
    assert launch("--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line in lines:
        jsonschema.validate(line, document_of("launch").model_json_schema(mode="serialization"))
        assert {"time", "launch_id", "state", "detail", "spent_usd"} <= set(line)
    assert [line["state"] for line in lines][:3] == ["planned", "preflight", "confirmed"]
    assert lines[-1]["outcome"] == "committed"
    assert lines[-1]["resources_left"] == []
    assert all(line["outcome"] is None for line in lines[:-1])


def test_quiet_prints_the_id_alone(proving: Proving, capsys: pytest.CaptureFixture[str]):
    assert launch("--quiet") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == launches()[0].id


def test_ls_shows_state_spend_forecast_and_deadline(proving: Proving, capsys: pytest.CaptureFixture[str]):
    assert main.run(["ls"]) == 0
    assert "No launches. 1 saved plans: plan ls --plans" in capsys.readouterr().out
    assert launch() == 0
    capsys.readouterr()
    assert main.run(["ls"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    assert re.search(r"l-[0-9a-f]{8} +p-0123456789ab .*committed +10\.03 +\S+ +\$10\d \(", out)
    assert main.run(["ls", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    row = json.loads(line)
    jsonschema.validate(row, document_of("ls").model_json_schema(mode="serialization"))
    assert (row["state"], row["usd_per_hour"][:5], row["budget_usd"]) == ("committed", "10.03", "1000")
    assert main.run(["ls", "--quiet"]) == 0
    assert capsys.readouterr().out.strip() == row["launch_id"]


def test_down_takes_the_launch_or_its_plan(
    proving: Proving, cloud: FileCloud, capsys: pytest.CaptureFixture[str]
):
    launch()
    capsys.readouterr()
    assert main.run(["down", PLAN, "--json"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["state"], last["outcome"]) == ("gone", "torn_down")
    assert not cloud.resources()
    assert main.run(["down", launches()[0].id]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["down"], "which launch?"),
        (["down", "l-nothing"], "no launch 'l-nothing'"),
        (["down", "l-1", "--all"], "--all takes every launch"),
        (["launch"], "which plan?"),
        (["launch", PLAN, "--resume", "l-1"], "no plan beside it"),
        (["launch", "--resume", "l-1"], "no launch 'l-1'"),
        (["launch", PLAN, "--provider", "lambda"], "is on aws"),
        (["launch", PLAN, "--provider", "local", "--hosts", "a"], "leave one of them out"),
        (["launch", PLAN, "--budget", "-5"], "--budget"),
        (["launch", PLAN, "--expire", "12"], "--expire"),
        (["launch", PLAN, "--then", "python x", "--working-dir", "nowhere"], "no directory"),
        (["launch", PLAN, "--project", "alpha"], "no budget of project 'alpha'"),
        (["extend", "l-1", "12h"], "no launch 'l-1'"),
        (["doctor", "p-777"], "no plan 'p-777'"),
    ],
)
def test_bad_input_is_one_message_with_a_hint(
    proving: Proving, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    assert main.run(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "hint: " in err
    assert "Traceback" not in err


def test_a_project_pays_no_more_than_it_has_left(
    proving: Proving, cloud: FileCloud, capsys: pytest.CaptureFixture[str]
):
    assert main.run(["budget", "set", "project=alpha", "12", "--per", "month"]) == 0
    assert launch("--project", "alpha") == 1
    assert "budget: $12" in capsys.readouterr().out
    assert cloud.creates == []


def test_a_full_run_on_spot_needs_a_place_for_its_checkpoints(
    proving: Proving, cloud: FileCloud, capsys: pytest.CaptureFixture[str]
):
    store.save_shown([tools.plan(market="spot").candidate], "plan suggest", tools.NOW)
    assert launch("--then", "python train.py") == 2
    err = capsys.readouterr().err
    assert f"{PLAN} is on spot" in err
    assert "--storage s3://BUCKET/runs" in err
    assert (cloud.calls, launches()) == ([], ())
    assert launch("--then", "python train.py", "--storage", "s3://lab/runs") == 0
    assert launches()[0].checkpoint_path == "s3://lab/runs"
    main.run(["down", PLAN])
    assert launch() == 0  # only the cluster: nothing of ours is lost


@pytest.mark.parametrize(
    ("market", "named", "said"),
    [
        ("capacity-block", [], "start only inside what was bought"),
        ("reserved", [], "start only inside what was bought"),
        ("spot", ["--reservation", "cr-1"], "on spot, which holds no reservation"),
        ("on-demand", ["--provider", "local", "--reservation", "cr-1"], "--reservation is for aws and gcp"),
    ],
)
def test_what_was_bought_is_launched_by_its_id_alone(
    proving: Proving,
    cloud: FileCloud,
    market: str,
    named: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
):
    store.save_shown([tools.plan(market=market).candidate], "plan suggest", tools.NOW)
    assert launch(*named) == 2
    assert said in capsys.readouterr().err
    assert cloud.calls == []


def test_extend_moves_the_deadline_on_the_nodes_first(
    proving: Proving, cloud: FileCloud, capsys: pytest.CaptureFixture[str]
):
    launch()
    before = launches()[0].deadline
    assert main.run(["extend", launches()[0].id, "12h"]) == 0
    after = launches()[0].deadline
    assert (after - before).total_seconds() == 12 * 3600
    assert cloud.extended == [after]
    assert "12 h more cost at most $120" in capsys.readouterr().out
    cloud.faults["extend"] = [CloudFault("unreachable", "no answer")]
    assert main.run(["extend", launches()[0].id, "12h"]) == 2
    assert launches()[0].deadline == after
    main.run(["down", launches()[0].id])
    assert main.run(["extend", launches()[0].id, "12h"]) == 2


def test_doctor_looks_and_starts_nothing(
    proving: Proving, cloud: FileCloud, capsys: pytest.CaptureFixture[str]
):
    assert main.run(["doctor", PLAN, "--budget", "1000"]) == 0
    out = capsys.readouterr().out
    assert "✔ credentials" in out
    assert "✔ budget" in out
    assert cloud.calls == ["preflight"]
    assert launches() == ()
    assert main.run(["doctor", PLAN, "--budget", "5", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, document_of("doctor").model_json_schema(mode="serialization"))
    assert [c["name"] for c in document["checks"] if not c["passed"]] == ["budget"]


def test_doctor_alone_looks_at_this_machine(
    cloud: FileCloud, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("LAMBDA_API_KEY", "a-planted-key")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_PROFILE", "ada")
    monkeypatch.delenv("AZURE_ACCESS_TOKEN", raising=False)
    monkeypatch.setenv("HOME", "/nowhere")
    assert main.run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert all(len(line) <= 100 for line in out.splitlines() if str(store.data_dir()) not in line)
    words = " ".join(out.split())
    for said in (
        "✔ ray ok",
        "✔ ledger ok 0 launches",
        "– ssh not set",
        "– rsync not set",
        "✔ prices of lambda ok",
        "✔ launches on aws ok credentials found (AWS_PROFILE), not tried",
        "– launches on azure not set no credentials found hint: az login",
        "– calibration not set",
        "hint: plan prices refresh",
    ):
        assert said in words
    assert "a-planted-key" not in out
    assert main.run(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, document_of("doctor").model_json_schema(mode="serialization"))
    assert {look["state"] for look in document["here"]} == {"ok", "not set"}


def test_doctor_alone_says_that_the_ledger_cannot_be_read(
    cloud: FileCloud, capsys: pytest.CaptureFixture[str]
):
    (store.data_dir() / "launches.sqlite3").write_text("no database")
    assert main.run(["doctor"]) == 1
    assert "✘ ledger" in capsys.readouterr().out


def test_doctor_alone_names_launches_that_were_left_half_way(
    proving: Proving, cloud: FileCloud, capsys: pytest.CaptureFixture[str]
):
    assert main.run(["doctor"]) == 0
    cloud.stuck = ("i-0",)
    proving.passes = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clusters.launch.teardown.timedelta", lambda seconds: tools.timedelta(seconds=0.05))
        assert launch() == 6
    capsys.readouterr()
    assert main.run(["doctor"]) == 1
    assert f"plan launch --resume {launches()[0].id}" in " ".join(capsys.readouterr().out.split())


def test_planted_secrets_stand_nowhere(
    proving: Proving,
    cloud: FileCloud,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    planted = {
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIsecret",
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "HF_TOKEN": "hf_planted_token_value",
        "WANDB_API_KEY": "planted-wandb-value",
    }
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    said = " ".join(planted.values())
    cloud.faults["create"] = [CloudFault("setup", f"refused: {said}", f"try {said}", log=f"log: {said}")]
    assert launch("--then", "python train.py") == 1
    proving.probe_faults = [CloudFault("setup", said)]
    assert launch("--json") == 5
    assert main.run(["ls"]) == main.run(["ls", "--json"]) == main.run(["doctor"]) == 0
    assert main.run(["launch", PLAN, "--yes", "--then", f"HF_TOKEN={planted['HF_TOKEN']} python x"]) == 2
    out, err = capsys.readouterr()
    files = [p for p in tmp_path.rglob("*") if p.is_file() and p.name not in ("cloud.json",)]
    assert any(p.name.startswith("launches.sqlite3") for p in files)
    for secret in planted.values():
        assert secret not in out + err
        for path in files:
            assert secret.encode() not in path.read_bytes(), path


def test_a_plan_moved_to_another_region_has_its_price(proving: Proving):
    plan = tools.plan()
    dearer = plan.candidate.offer.model_copy(update={"region": "eu-west-1", "usd_per_hour": Decimal("20.00")})
    moved = launch_next.moved(plan, dearer)
    assert moved.id != plan.id
    assert moved.candidate.offer.region == "eu-west-1"
    assert moved.candidate.run == plan.candidate.run


class Gone(io.StringIO):
    """A terminal that has hung up."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_terminal_that_hangs_up_does_not_keep_the_cluster_alive(
    proving: Proving, cloud: FileCloud, monkeypatch: pytest.MonkeyPatch
):
    proving.passes = False
    monkeypatch.setattr(sys, "stderr", Gone())
    monkeypatch.setattr(sys, "stdout", Gone())
    assert launch("--quiet") in (1, 5)
    assert cloud.creates
    assert not cloud.resources()
    assert launch() in (1, 5)
    assert not cloud.resources()


@pytest.mark.parametrize("hosts", ["", ",,", " , "])
def test_hosts_that_name_nobody_start_nothing_elsewhere(
    proving: Proving, capsys: pytest.CaptureFixture[str], hosts: str
):
    assert launch("--hosts", hosts) == 2
    assert "names no host" in capsys.readouterr().err
    assert launches() == ()


def test_a_plan_that_lost_is_not_its_own_permission(
    cloud: FileCloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    lost = tools.plan().candidate.model_copy(update={"verdict": "over", "why": "costs $300, $100 over"})
    store.save_shown([lost], "plan suggest", tools.NOW)
    assert main.run(["launch", PLAN, "--yes"]) == 2
    assert "lost in its suggest: costs $300, $100 over" in capsys.readouterr().err
    assert launches() == ()


KEY = "-----BEGIN OPENSSH PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--hosts", "a", "--ssh-key", "nowhere"], "--ssh-key 'nowhere': No such file"),
        (["--hosts", "a", "--ssh-key", "."], "--ssh-key '.': Is a directory"),
        (["--hosts", "a", "--ssh-key", "public"], "is no private key"),
        (["--hosts", "a", "--ssh-key", "bytes"], "--ssh-key 'bytes': not text"),
        (["--hosts", "a,b", "--ssh-key", "key"], "--hosts names 2 hosts"),
        (["--storage", "bucket/runs"], "--storage 'bucket/runs' is neither an address nor an absolute path"),
        (["--storage", "s3://"], "--storage 's3://'"),
        (["--provider", "kuberay", "--kubeconfig", "nowhere"], "--kubeconfig 'nowhere': No such file"),
        (["--provider", "kuberay", "--kubeconfig", "public"], "is no kubeconfig"),
        (["--provider", "kuberay", "--kubeconfig", "kube", "--kube-context", "b"], "no context 'b'"),
    ],
)
def test_an_input_that_cannot_be_read_is_refused_before_a_row_is_written(
    proving: Proving, cloud: FileCloud, capsys: pytest.CaptureFixture[str], more: list[str], said: str
):
    Path("public").write_text("ssh-ed25519 AAAA ada")
    Path("bytes").write_bytes(b"\xff\xfe\xff")
    Path("key").write_text(KEY)
    Path("kube").write_text("contexts: [{name: a}]")
    assert launch(*more) == 2
    assert said in capsys.readouterr().err
    assert launches() == ()
    assert cloud.calls == []
