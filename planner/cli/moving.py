"""``plan suggest --from "1x rtx-4090"``: where the user comes from, and what changes on the way."""

from __future__ import annotations

import re
from typing import get_args

from planner import api, types, units
from planner.cli.request import Options, choice
from planner.errors import UserError
from planner.guide.moving import Moving, Start, moving, precision_before
from planner.hardware.gpus import gpu, supports
from planner.results import Candidate, Estimate
from planner.runs import RunRequest
from planner.trust.nearness import Residuals
from planner.types import LayoutPins

EXAMPLE = '--from "1x rtx-4090"'
MOST_GPUS = 100_000
GPUS_PER_NODE = 8
_WORDS = re.compile(r"\s*(?:(\d+)\s*[x×]\s*)?([^,]+?)\s*(?:,\s*(?:precision\s*=\s*)?([^,]+?)\s*)?")


def start_of(options: Options) -> Start | None:
    """Machine of ``--from``: how many of which GPU, and the precision used there."""
    text = options.get("start")
    if text is None:
        if options.get("upload_mbit") is not None:
            raise UserError("--upload-mbit is for what --from has to send", f"{EXAMPLE} --upload-mbit 100")
        return None
    found = _WORDS.fullmatch(text)
    if found is None:
        raise UserError(f"--from {text!r:.60}: not a number of GPUs and their name", EXAMPLE)
    count, name, precision = found.groups()
    card = gpu(name)
    used = choice(precision, get_args(types.Precision), "--from")
    if used is not None and (reason := supports(card, used)):  # type: ignore[arg-type]  # choice() checked it
        raise UserError(f"--from: {reason}", f'--from "{count or 1}x {name}, fp32"')
    num_gpus = units.parse_int(count or "1", "--from", high=MOST_GPUS)
    if num_gpus > GPUS_PER_NODE and num_gpus % GPUS_PER_NODE:
        raise UserError(f"--from: {num_gpus} GPUs are not whole machines of {GPUS_PER_NODE}", EXAMPLE)
    return Start.model_validate({"gpu": card.id, "num_gpus": num_gpus, "precision": used})


def way(start: Start, chosen: Candidate, options: Options, known: Residuals | None) -> Moving:
    """What changes on the way from ``start`` to a plan."""
    mbit = options["upload_mbit"]
    rate = None if mbit is None else units.parse_count(mbit, "--upload-mbit", low=0.01, high=1e7) * 1e6 / 8
    return moving(start, _before(start, chosen, known), chosen, rate)


def _before(start: Start, chosen: Candidate, known: Residuals | None) -> Estimate | None:
    """Estimate the same training on the machine that the user has; ``None`` where it cannot be laid out."""
    run = chosen.run
    precision = precision_before(start, run.training.precision)
    training = run.training.model_copy(update={"precision": precision})
    request = RunRequest(
        id=None,
        model=run.model,
        training=training,
        layout=None,
        pins=LayoutPins(),
        gpu=start.gpu,
        num_gpus=start.num_gpus,
        gpus_per_node=min(start.num_gpus, GPUS_PER_NODE),
        interconnect=None,
    )
    try:
        return api.estimate([request], known=known)[0]
    except UserError:
        return None
