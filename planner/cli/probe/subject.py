"""What ``plan probe`` probes: a saved plan, or a run that suits the machines that are found."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner import api, units
from planner.checks import check_training
from planner.cli import calibration_store, store
from planner.cli.models import read_spec
from planner.cli.request import Options, Request, choice, request, words
from planner.errors import UserError
from planner.hardware import gpus
from planner.hardware.links import links_for
from planner.probed import PHASES, ProbePhase
from planner.runs import RunRequest
from planner.types import Layout, ModelSpec, Run, Shape
from planner.verdict import Subject, cpu, of_plan
from planner.verdict.limits import loss_bound

CPU_WORKERS = 2
SMI_TIMEOUT_S = 15.0
_HEADROOM = 0.2
# options of other commands that the reader of models and layouts asks for
_ABSENT = (
    "tokens", "method", "framework", "loss", "attention", "compile", "numerics", "optimizer_impl",
    "frozen_layers", "lora_rank", "lora_targets", "lora_dropout", "quant", "shard_group", "cp", "ep", "etp",
    "interleave", "sequence_parallel", "offload",
)  # fmt: skip
_OF_A_RUN = (
    "params", "model", "spec", "gpu", "seq_len", "global_batch", "precision", "optimizer", "micro_batch",
    "grad_accum", "recompute", "zero", "dp", "tp", "pp",
)  # fmt: skip
# What is probed where nobody says what: small enough for two cores
SMALL = ModelSpec(
    name="small decoder",
    num_layers=4,
    hidden_size=384,
    num_heads=6,
    num_kv_heads=6,
    head_dim=64,
    ffn_size=1024,
    vocab_size=8192,
    source="plan probe",
)
SMALL_SEQ_LEN, SMALL_MICRO_BATCH = 128, 2
GPU_PARAMS = "125M"


@dataclass(frozen=True, slots=True)
class Found:
    """GPUs that are there: so many of one kind on each of so many nodes. ``gpu`` ``None``: no GPU."""

    gpu: str | None
    per_node: int
    nodes: int


def subject_of(options: Options, found: Found) -> Subject:
    """Put together what is probed. Raises ``UserError`` for what contradicts itself, or the machines."""
    phases = _phases(options)
    budget = None if options["budget"] is None else units.parse_usd(options["budget"], "--budget")
    asked = options["headroom"]
    headroom = _HEADROOM if asked is None else units.parse_fraction(asked, "--headroom")
    if options["plan"] is not None:
        subject = _of_plan(options, found)
    elif found.gpu is None:
        subject = Subject(predicted=cpu.estimate(_cpu_run(options)))
    else:
        known = calibration_store.known(options)
        subject = Subject(predicted=api.estimate([_gpu_request(options, found)], headroom, known)[0])
    if options["check_precision"]:
        _check_precision(subject)
    return subject.model_copy(
        update={
            "headroom": headroom,
            "budget_usd": budget,
            "phases": phases,
            "own_loop": options["entrypoint"] is not None,
            "check_precision": options["check_precision"],
        }
    )


def _check_precision(subject: Subject) -> None:
    """Refuse to compare fp32 with itself."""
    precision = subject.run.training.precision
    if loss_bound(precision) is None:
        raise UserError(f"--check-precision: the run is in {precision} already", "--precision bf16")


def _of_plan(options: Options, found: Found) -> Subject:
    """The saved plan; its machines must be the ones that are there."""
    given = [name for name in _OF_A_RUN if options[name]]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise UserError(
            f"--plan says what runs: {flag} contradicts it", f"plan probe --plan {options['plan']}"
        )
    plan = store.find(options["plan"])
    shape = plan.candidate.run.shape
    if options["address"] is None and (found.gpu is None or found.per_node < shape.gpus_per_node):
        here = "no GPU" if found.gpu is None else f"{found.per_node}× {found.gpu}"
        raise UserError(
            f"{plan.id} is for {shape.num_gpus}× {shape.gpu}, this machine has {here}",
            f"plan probe --plan {plan.id} --address http://HEAD:8265",
        )
    return of_plan(plan)


def _phases(options: Options) -> tuple[ProbePhase, ...]:
    """Phases of ``--only``, in the order in which they run."""
    named = words([options["only"]] if options["only"] else None, "--only")
    chosen = [choice(name, PHASES, "--only") for name in named]
    return tuple(phase for phase in PHASES if not chosen or phase in chosen)


# --------------------------------------------------------------------------------------- what is there


def found_here() -> Found:
    """GPUs of this machine, as its driver says. Raises ``UserError`` where the driver gives no answer."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=False)
    except FileNotFoundError:
        return Found(None, 0, 1)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"nvidia-smi gives no answer ({error})", "nvidia-smi") from None
    names = [line.rpartition(",")[0].strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode != 0 or not names:
        raise UserError(f"nvidia-smi failed: {(done.stdout + done.stderr).strip()[:200]}", "nvidia-smi")
    if len(set(names)) > 1:
        raise UserError(f"GPUs of different kinds: {', '.join(sorted(set(names)))}", "CUDA_VISIBLE_DEVICES=0")
    return Found(_gpu_id(names[0]), len(names), 1)


def _gpu_id(name: str) -> str:
    """Id of the GPU of that driver's name. Raises ``UserError`` for one that the table lacks."""
    return gpus.gpu(name).id


def found_on(nodes: Sequence[Mapping[str, Any]], wanted: Sequence[str] | None) -> Found:
    """GPUs of a cluster, by the resources that Ray lists for each node; all nodes with GPUs must be alike."""
    from providers import owned

    with_gpu = [n for n in nodes if n.get("Alive") and n.get("Resources", {}).get("GPU")]
    if not with_gpu:
        return Found(None, 0, 1)
    machines = owned.from_ray_nodes(with_gpu, gpus.matching_ids(words(wanted, "--gpu")))
    if len(machines) > 1:
        kinds = ", ".join(f"{m.machines} × {m.gpus}× {m.gpu}" for m in machines)
        raise UserError(f"the cluster has nodes of several kinds: {kinds}", "plan probe --plan ID")
    return Found(machines[0].gpu, machines[0].gpus, machines[0].machines)


# --------------------------------------------------------------------------------------- the run


def _asked(options: Options) -> Request:
    """Model, training and pins as they were given."""
    return request({**dict.fromkeys(_ABSENT), **options})


def _names_model(options: Options) -> bool:
    return any(options[name] is not None for name in ("params", "model", "spec"))


def _cpu_run(options: Options) -> Run:
    """Two workers over gloo: the small model, or the one asked for, in fp32 unless said otherwise."""
    if not _names_model(options):
        asked = _asked({**options, "params": GPU_PARAMS})  # for the training; the model is put in below
        model = SMALL
        seq_len = asked.training.seq_len if options["seq_len"] is not None else SMALL_SEQ_LEN
        micro_batch = asked.pins.micro_batch or SMALL_MICRO_BATCH
    else:
        asked = _asked(options)
        model, seq_len, micro_batch = asked.model, asked.training.seq_len, asked.pins.micro_batch or 1
    training = asked.training.model_copy(update={"seq_len": seq_len})
    if options["precision"] is None and not _precision_in_file(options):
        training = training.model_copy(update={"precision": "fp32"})
    pins = asked.pins
    split = (pins.tp or 1) * (pins.pp or 1)
    layout = Layout(
        dp=pins.dp or max(1, CPU_WORKERS // split),
        tp=pins.tp or 1,
        pp=pins.pp or 1,
        zero_stage=pins.zero_stage or 0,
        recompute=pins.recompute or "none",
        micro_batch=micro_batch,
        grad_accum=pins.grad_accum or 1,
    )
    check_training(model, training)
    return cpu.run(model, training, layout)


def _precision_in_file(options: Options) -> bool:
    """Whether the spec file says a precision: then it is not the default's."""
    return options["spec"] is not None and "precision" in read_spec(options["spec"]).training


def _gpu_request(options: Options, found: Found) -> RunRequest:
    """The run on the GPUs that were found, whose layout is searched as far as it is not pinned."""
    assert found.gpu is not None
    asked = _asked(options if _names_model(options) else {**options, "params": GPU_PARAMS})
    card = gpus.gpu(found.gpu)
    links = links_for(card, found.per_node, num_nodes=found.nodes)
    return RunRequest(
        id="found",
        model=asked.model,
        training=asked.training,
        layout=None,
        pins=asked.pins,
        gpu=card.id,
        num_gpus=found.per_node * found.nodes,
        gpus_per_node=found.per_node,
        interconnect=None,
        shape=Shape(gpu=card.id, gpus_per_node=found.per_node, num_nodes=found.nodes, links=links),
        assumed=asked.defaults,
    )
