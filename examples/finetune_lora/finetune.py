"""Fine-tunes with low-rank adapters as a plan says: ``examples/train_gpt`` with a frozen base.

    python finetune.py --base ~/plan_runs/train_gpt --text proverbs.txt --steps 40

``--base``: a run of ``train_gpt`` (its last checkpoint is taken) or one checkpoint of it. The adapters alone
are written at the end, as ``adapters.pt`` in the storage of the run.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "train_gpt"))

import train  # before Ray: it sets how Ray starts, and Ray reads that when it is imported

ADAPTERS = "adapters.pt"

import ray.cloudpickle
import ray.train
import torch
from ray.train.torch import get_device
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_shards

from clusters.probe import step
from clusters.probe.lora import is_adapter
from clusters.probe.parallel import unwrap
from clusters.probe.spec import RefusedError, read_plan

ray.cloudpickle.register_pickle_by_value(train)  # workers of another machine do not have the file


def main(words: list[str]) -> int:
    """Parse, check plan and base, train the adapters, print where it got to."""
    args = parse(words)
    plan = json.loads(args.plan.read_text(encoding="utf-8"))
    text = args.text.read_bytes()
    try:
        if read_plan(plan).lora is None:
            raise RefusedError("the plan's method is not lora: train_gpt runs it")
        base = last_checkpoint(args.base)
        train.check(plan, text, "cuda" if train.scaling_config(plan).use_gpu else "cpu")
    except RefusedError as error:
        print(f"cannot run {args.plan}: {error}", file=sys.stderr)
        return train.REFUSED
    train.start_ray(args.address, train.scaling_config(plan).num_workers)
    try:
        print(json.dumps(finetune(args, plan, text, base)))
    finally:
        ray.shutdown()
    return 0


def finetune(args: argparse.Namespace, plan: dict[str, Any], text: bytes, base: Path) -> dict[str, Any]:
    """Train the adapters on the cluster that Ray is connected to."""
    out = Path(args.storage or plan.get("storage_path") or train.STORAGE.expanduser()) / args.name / ADAPTERS
    return train.train(args, plan, text, loop=loop, more={"base": str(base), "out": str(out)})


def last_checkpoint(base: Path) -> Path:
    """Checkpoint to start from: ``base`` itself, or the last of the run that it is the storage of."""
    within = sorted(each.parent for each in base.glob("checkpoint_*/.metadata"))
    found = [base] if (base / ".metadata").exists() else within
    if not found:
        raise RefusedError(f"no checkpoint in {base}: train one with train_gpt")
    return found[-1]


def loop(config: dict[str, Any]) -> dict[str, Any]:
    """What each worker runs: the plan's model with the weights of the base, then only its adapters learn."""
    run = read_plan(config["plan"])
    trainer = step.build(run, get_device(), seed=config["seed"], learning_rate=config["learning_rate"])
    load_base(trainer, Path(config["base"]))
    told = train.steps(trainer, config)
    trained = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    whole = sum(p.numel() for p in trainer.model.parameters())
    save_adapters(trainer, Path(config["out"]))
    return {**told, "trained_params": trained, "params": whole}


def load_base(trainer: step.Trainer, directory: Path) -> None:
    """Read the weights of a full training into the frozen part; a wrapped linear has the name that it had."""
    model = get_model_state_dict(unwrap(trainer.model))
    base = {name.replace(".base.", "."): value for name, value in model.items() if not is_adapter(name)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that one process reads alone is meant
        load_shards({"model": base}, checkpoint_id=directory, no_dist=not torch.distributed.is_initialized())


def save_adapters(trainer: step.Trainer, path: Path) -> None:
    """Write the adapters alone, whole; every rank takes part, rank 0 writes."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model: dict[str, Tensor] = get_model_state_dict(unwrap(trainer.model), options=options)
    if ray.train.get_context().get_world_rank() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({name: value for name, value in model.items() if is_adapter(name)}, path)


def parse(words: list[str]) -> argparse.Namespace:
    """Options of ``train_gpt``, with a plan and a text of this example, and the base."""
    parser = train.parser(__doc__ or "")
    parser.set_defaults(plan=HERE / "plan.json", text=HERE / "proverbs.txt", name="finetune_lora")
    parser.add_argument(
        "--base", type=Path, required=True, help="run or checkpoint of train_gpt to start from"
    )
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
