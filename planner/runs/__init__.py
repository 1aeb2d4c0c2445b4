"""One line of ``plan estimate --runs``: a run description, parsed.

Two kinds of line are read: descriptions in the words of the cases' schema (``layers``, ``bf16-mixed``,
``zero3``, batches in sequences), and candidates that ``plan suggest --json`` prints. ``null`` means absent.
Degrees that are given stay; what is missing is left to the search. Unknown fields, and fields that cannot be
honored, are errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Literal

from planner.checks import check_shape, check_training
from planner.errors import UserError, did_you_mean
from planner.hardware.gpus import gpu
from planner.hardware.link_names import unread
from planner.hardware.links import links_for
from planner.records import build
from planner.runs.models import read_model
from planner.runs.parts import Line, read_layout, read_training
from planner.types import Layout, LayoutPins, ModelSpec, Record, Shape, TrainingSpec

LABELS = (
    "id", "source", "note", "group", "trust", "fits_only", "flops_convention", "measured",
)  # fmt: skip
INPUTS = (
    "kind", "model", "gpu", "gpus", "gpus_per_node", "interconnect", "layout", "micro_batch", "grad_accum",
    "global_batch", "seq_len", "precision", "optimizer", "recompute", "recompute_fraction", "attention",
    "compile", "offload", "activation_offload", "lora", "framework", "loss", "numerics", "optimizer_impl",
    "fp8_recipe", "fused_kernels", "moe_token_drop", "dropout", "frozen_layers", "tokens", "usd_per_gpu_hour",
)  # fmt: skip
# What a candidate of ``plan suggest --json`` carries: questions, and answers that are not read here.
CANDIDATE_INPUTS = ("offer", "shape", "model", "training", "layout", "id")
CANDIDATE_ANSWERS = (
    "rank", "verdict", "why", "num_nodes", "memory", "speed", "hours", "cost_usd", "cost_is_complete",
    "cost_lines", "warnings", "measured",
)  # fmt: skip
MOST_GPUS = 2**20


class RunRequest(Record):
    """A run that is asked about. ``layout`` is whole where every part is given; ``pins`` hold what is given.

    ``shape`` is known only where the line is a candidate; ``shape_of`` makes it otherwise. ``assumed`` says
    what was taken for granted. ``named``: what a run description, of what somebody ran or runs, says of its
    software; ``None`` for a plan of ours.
    """

    id: str | None
    model: ModelSpec
    training: TrainingSpec
    layout: Layout | None
    pins: LayoutPins
    gpu: str
    num_gpus: int
    gpus_per_node: int
    interconnect: str | None
    shape: Shape | None = None
    usd_per_gpu_hour: Decimal | None = None
    assumed: tuple[str, ...] = ()
    named: Literal["framework", "nothing"] | None = None


def line_id(text: str) -> object:
    """``id`` of a line for its answer, as far as the line can be read at all."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value.get("id") if isinstance(value, dict) else None


def parse_line(text: str) -> RunRequest:
    """Run of one line. Raises ``UserError``: what is wrong, with which field, and a hint."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"not valid JSON: {error.msg}, column {error.colno}", "one JSON object a line"
        ) from None
    except (ValueError, RecursionError):
        raise UserError(
            "not valid JSON: a number too long, or nested too deeply", "one JSON object a line"
        ) from None
    return parse_run(value)


def parse_run(value: object) -> RunRequest:
    """Run of a parsed line. Raises ``UserError`` as ``parse_line`` does."""
    if not isinstance(value, Mapping):
        raise UserError(
            f"a run description is an object, not {type(value).__name__}", "one JSON object a line"
        )
    given = {str(key): item for key, item in value.items() if item is not None}
    return _candidate(given) if is_candidate(given) else _description(given)


def is_candidate(given: Mapping[str, object]) -> bool:
    """Whether a line is a candidate of ``plan suggest --json`` rather than a run description."""
    return all(isinstance(given.get(key), Mapping) for key in ("shape", "model", "training", "layout"))


def _known(given: Mapping[str, object], known: tuple[str, ...]) -> None:
    for key in given:
        if key not in known:
            raise UserError(
                f"unknown field {key!r:.80}{did_you_mean(key, known)}", "remove it, or correct its name"
            )


# ------------------------------------------------------------------------------------ run descriptions


def _description(given: Mapping[str, object]) -> RunRequest:
    """Run in the words of the schema."""
    _known(given, (*INPUTS, *LABELS))
    line = Line(given)
    training, sequences, said = read_training(line)
    model, assumed = read_model(given.get("model"), training.seq_len, training.method == "pretrain")
    check_training(model, training)
    num_gpus, per_node, said_of_nodes = _gpus(line)
    layout, pins, batch, said_of_layout = read_layout(line, num_gpus, per_node, sequences)
    if batch is not None:
        training = training.model_copy(update={"global_batch_tokens": batch * training.seq_len})
    return RunRequest(
        id=_label(given.get("id")),
        model=model,
        training=training,
        layout=layout,
        pins=pins,
        gpu=line.required_text("gpu"),
        num_gpus=num_gpus,
        gpus_per_node=per_node,
        interconnect=line.text("interconnect"),
        usd_per_gpu_hour=_price(given.get("usd_per_gpu_hour"), "usd_per_gpu_hour"),
        assumed=(*said, *assumed, *said_of_nodes, *said_of_layout, *unread(line.text("interconnect"))),
        named="nothing" if line.text("framework") is None else "framework",
    )


def _label(value: object) -> str | None:
    return None if value is None else str(value)[:200]


def _gpus(line: Line) -> tuple[int, int, tuple[str, ...]]:
    """GPUs in all and in a node; degrees of the layout say how many where the line does not."""
    total = line.count("gpus", MOST_GPUS)
    degrees = line.part("layout")
    if total is None:
        total = degrees.product(("dp", "tp", "pp", "cp"), MOST_GPUS)
        if total is None:
            raise UserError("gpus is missing, and the layout does not say how many", '"gpus": 8')
    per_node = line.count("gpus_per_node", MOST_GPUS)
    said: tuple[str, ...] = ()
    if per_node is None and total > 1:
        said = (f"gpus_per_node not given: {min(total, 8)} assumed",)
    per_node = min(total, per_node or 8)
    if total % per_node:
        raise UserError(
            f"{total} GPUs are not a whole number of nodes of {per_node}",
            f'"gpus": {total // per_node * per_node}',
        )
    return total, per_node, said


def _price(value: object, what: str) -> Decimal | None:
    """Price in US dollars, from a number or a text of digits."""
    if value is None:
        return None
    try:
        price = Decimal(str(value)) if not isinstance(value, bool) else Decimal("NaN")
    except InvalidOperation:
        price = Decimal("NaN")
    if not price.is_finite() or not 0 <= price < 10**6:
        raise UserError(f"{what} is {value!r:.60}, not a price in US dollars", f'"{what}": "2.49"')
    return price


# ------------------------------------------------------------------------------------ candidates


def _candidate(given: Mapping[str, object]) -> RunRequest:
    """Run of a candidate that ``plan suggest --json`` printed; its answers are not read."""
    _known(given, (*CANDIDATE_INPUTS, *CANDIDATE_ANSWERS))
    line = Line(given)
    training = build(TrainingSpec, line.part("training").values, "training")
    given_layout = line.part("layout").values
    build(LayoutPins, given_layout, "layout")  # pins have bounds on every degree
    layout = build(Layout, given_layout, "layout")
    where = line.part("shape")
    shape = build(Shape, where.values, "shape") if "links" in where.values else None
    if shape is not None:
        check_shape(shape)
    per_node, nodes = where.count("gpus_per_node", MOST_GPUS) or 1, where.count("num_nodes", MOST_GPUS) or 1
    model, assumed = read_model(given.get("model"), training.seq_len, training.method == "pretrain")
    check_training(model, training)
    offer = line.part("offer").values
    node_price = _price(offer.get("usd_per_hour"), "offer.usd_per_hour")
    return RunRequest(
        id=_label(given.get("id")),
        model=model,
        training=training,
        layout=layout,
        pins=pins_of(layout),
        gpu=where.required_text("gpu"),
        num_gpus=per_node * nodes,
        gpus_per_node=per_node,
        interconnect=None,
        shape=shape,
        usd_per_gpu_hour=None if node_price is None else node_price / per_node,
        assumed=assumed,
    )


def pins_of(layout: Layout) -> LayoutPins:
    """Every part of ``layout``, pinned."""
    parts = layout.model_dump()
    return LayoutPins.model_validate({**parts, "shard_group": layout.shard_group or layout.dp * layout.cp})


def shape_of(request: RunRequest) -> Shape:
    """Machines of the run. Raises ``UserError`` for a GPU that is unknown or could be several."""
    if request.shape is not None:
        return request.shape
    card = gpu(request.gpu)
    nodes = request.num_gpus // request.gpus_per_node
    links = links_for(card, request.gpus_per_node, request.interconnect, num_nodes=nodes)
    return Shape(gpu=card.id, gpus_per_node=request.gpus_per_node, num_nodes=nodes, links=links)
