"""The fine-tuning example on real Ray: a base is trained, then adapters on it; one CPU worker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "finetune_lora"

# one process: importing torch and starting Ray take longer than the trainings
SCRIPT = """
import json, sys
from pathlib import Path
import finetune
import torch
from clusters.probe import checkpoint
train = finetune.train
storage = sys.argv[1]
full = json.loads((train.HERE / "plan.json").read_text())
full["run"]["layout"] |= {"dp": 1, "zero_stage": 0}
full["scaling_config"]["num_workers"] = 1
plan = json.loads((finetune.HERE / "plan.json").read_text())
sonnets = (train.HERE / "sonnets.txt").read_bytes()
proverbs = (finetune.HERE / "proverbs.txt").read_bytes()
nothing, full_plan = Path(storage) / "nothing", Path(storage) / "full.json"
nothing.mkdir(parents=True)
full_plan.write_text(json.dumps(full))
start = ["--base", str(nothing)]
codes = [finetune.main(start), finetune.main([*start, "--plan", str(full_plan)])]
same = []
full_step = finetune.step.build(finetune.read_plan(full), torch.device("cpu"), seed=3)
saved = Path(storage) / "saved"
checkpoint.save(full_step, saved, 0)
adapted = finetune.step.build(finetune.read_plan(plan), torch.device("cpu"), seed=4)
tokens = torch.arange(4 * 129).remainder(256).view(4, 129)
for read in (False, True):
    if read:
        finetune.load_base(adapted, saved)
    batch = finetune.step.as_batch(tokens, adapted)
    same.append([float(finetune.step.evaluate(t, [batch])) for t in (full_step, adapted)])
train.start_ray(None, 1)
try:
    words = ["--checkpoint-every", "100", "--storage", storage]
    base = train.train(train.parse([*words, "--steps", "20", "--name", "base"]), full, sonnets)
    words += ["--base", f"{storage}/base", "--learning-rate", "5e-3"]
    args = finetune.parse([*words, "--steps", "30"])
    first = finetune.finetune(args, plan, proverbs, finetune.last_checkpoint(args.base))
    args = finetune.parse([*words, "--steps", "33"])
    more = finetune.finetune(args, plan, proverbs, finetune.last_checkpoint(args.base))
finally:
    train.ray.shutdown()
print(json.dumps({"codes": codes, "same": same, "base": base, "first": first, "more": more}))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def told(home: Path) -> dict:
    environment = {
        **os.environ,
        "HOME": str(home),
        "PYTHONPATH": f"{EXAMPLE}:{ROOT}",
        "GLOO_SOCKET_IFNAME": "lo",
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "120",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(home / "runs")],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
        cwd=home,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1]) | {"stderr": done.stderr}


def test_before_its_first_step_an_adapted_model_says_what_its_base_says(told: dict):
    (base, without), (again, with_base) = told["same"]
    assert base == again == pytest.approx(with_base, rel=1e-6)
    assert abs(base - without) > 1e-3


def test_adapters_learn_a_text_that_the_base_has_not_seen(told: dict):
    losses = told["first"]["losses"]
    assert losses[0] < 4.0  # without the weights of the base it would be at ln 256 = 5.5
    assert losses[-1] < losses[0] - 0.15


def test_only_the_adapters_are_trained(told: dict):
    assert 0 < told["first"]["trained_params"] < 0.1 * told["first"]["params"]


def test_the_adapters_alone_are_written(told: dict, home: Path):
    adapters = torch.load(home / "runs" / "finetune_lora" / "adapters.pt", weights_only=True)
    assert adapters
    assert all(".adapter_" in name for name in adapters)
    assert sum(t.numel() for t in adapters.values()) == told["first"]["trained_params"]
    assert any(t.abs().sum() > 0 for name, t in adapters.items() if "adapter_up" in name)


def test_a_second_run_of_the_same_name_goes_on_with_its_adapters(told: dict):
    assert told["more"]["first_step"] == 30
    assert told["more"]["losses"][0] < told["first"]["losses"][0] - 0.1


def test_no_base_and_a_plan_that_is_not_lora_are_refused_in_words_before_ray_starts(told: dict):
    assert told["codes"] == [2, 2]
    before_ray = told["stderr"].partition("local Ray instance")[0]
    assert "no checkpoint in" in before_ray
    assert "the plan's method is not lora" in before_ray


def test_its_readme_names_every_file_of_the_example():
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    names = [p.name for p in EXAMPLE.iterdir() if p.name not in ("README.md", "__pycache__")]
    assert len(names) == 3
    assert all(f"`{name}`" in readme for name in names)
