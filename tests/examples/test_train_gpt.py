"""The training example on real Ray: two CPU workers over gloo, stopped and resumed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "train_gpt"
STOPS_AT, ENDS_AT = 6, 12

# one process: importing torch and starting Ray take longer than the trainings
SCRIPT = """
import json, sys
import train
storage, *refused = sys.argv[1:]
plan = json.loads((train.HERE / "plan.json").read_text())
text = (train.HERE / "sonnets.txt").read_bytes()
codes = [train.main(["--plan", path]) for path in refused]
told = []
train.start_ray(None, 2)
try:
    for steps in STEPS:
        words = ["--steps", str(steps), "--checkpoint-every", "100", "--storage", storage]
        told.append(train.train(train.parse(words), plan, text))
finally:
    train.ray.shutdown()
print(json.dumps({"codes": codes, "trainings": told}))
"""
REFUSED = {
    "context parallel (2) is not in this step": {"layout": {"dp": 1, "cp": 2}},
    "the layout takes 4 ranks, there are 2": {"layout": {"dp": 4}},
    "a vocabulary of 100 is less than 256": {"model": {"vocab_size": 100}},
}


def refused_plans(home: Path) -> list[str]:
    """Files of plans that the step cannot run."""
    paths = [home / f"refused_{i}.json" for i in range(len(REFUSED))]
    for path, change in zip(paths, REFUSED.values(), strict=True):
        plan = json.loads((EXAMPLE / "plan.json").read_text())
        for part, fields in change.items():
            plan["run"][part] |= fields
        path.write_text(json.dumps(plan))
    return [str(path) for path in paths]


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> dict:
    home = tmp_path_factory.mktemp("home")
    environment = {
        **os.environ,
        "HOME": str(home),
        "PYTHONPATH": f"{EXAMPLE}:{ROOT}",
        "GLOO_SOCKET_IFNAME": "lo",
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "120",
    }
    script = SCRIPT.replace("STEPS", repr((STOPS_AT, ENDS_AT)))
    done = subprocess.run(
        [sys.executable, "-c", script, str(home / "runs"), *refused_plans(home)],
        capture_output=True,
        text=True,
        timeout=400,
        env=environment,
        cwd=home,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1]) | {"stderr": done.stderr}


@pytest.fixture(scope="module")
def trainings(told) -> list[dict]:
    return told["trainings"]


def test_two_workers_train_and_the_loss_falls(trainings):
    losses = trainings[0]["losses"]
    assert trainings[0]["first_step"] == 0
    assert len(losses) == STOPS_AT
    assert losses[-1] < losses[0] - 0.5


def test_a_second_run_of_the_same_name_goes_on_from_the_step_where_the_first_ended(trainings):
    first, second = trainings
    assert second["first_step"] == STOPS_AT
    assert len(second["losses"]) == ENDS_AT - STOPS_AT
    assert second["losses"][0] < first["losses"][-1] + 0.2
    assert second["losses"][-1] < first["losses"][-1]


def test_a_plan_that_cannot_be_run_is_refused_in_words_before_ray_starts(told):
    assert told["codes"] == [2] * len(REFUSED)
    before_ray = told["stderr"].partition("local Ray instance")[0]
    assert [words for words in REFUSED if words not in before_ray] == []
