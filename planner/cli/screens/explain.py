"""``plan estimate --explain``: each term of memory and time with formula, inputs, source and basis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from planner import units
from planner.cli import describe, text
from planner.cli.text import Terminal
from planner.hardware.efficiency import bandwidth_bytes_per_s, basis
from planner.hardware.gpus import flops_per_s, gpu, gpu_index
from planner.hardware.links import link
from planner.results import Estimate
from planner.trust import explain as made
from planner.trust import nearness
from planner.trust.explain import Explained
from planner.trust.features import Features, features
from planner.trust.residuals import Quantity
from planner.trust.terms import terms
from planner.types import Band, Run

Kind = Literal["memory", "time"]


def explain(answer: Estimate, term: Terminal) -> str:
    """Draw every term: what it comes to, how, from which figures, by whom, and how sure that is."""
    made_of = {(found.kind, found.name): inputs(found) for found in made.explain(answer)}
    lines: list[str] = []
    if answer.memory is not None:
        lines += ["MEMORY, bytes on the fullest GPU at the peak", *text.paragraph(_sizes(answer.run), term)]
        for name, value in answer.memory.parts_bytes:
            lines += _term("memory", name, units.gib(value), made_of["memory", name], answer.run, term)
    if answer.speed is not None:
        lines += ["", "TIME, seconds of an optimizer step", *text.paragraph(_rates(answer.run), term)]
        for name, value in answer.speed.parts_s:
            lines += _term("time", name, units.seconds(value), made_of["time", name], answer.run, term)
    return "\n".join([*lines, "", *_confidence(answer, term)])


def confidence(answer: Estimate) -> str:
    """Say how wide the bands are, and on how many measured runs they rest."""
    run, found = features(answer.run), []
    if answer.memory is not None:
        found.append(_rests_on("memory", "device", answer.memory.device_bytes, run))
    if answer.speed is not None:
        found.append(_rests_on("time", "step", answer.speed.step_s, run))
    return f"Confidence: {'; '.join(found)}."


def _rests_on(name: str, quantity: Quantity, band: Band, run: Features) -> str:
    """Name the width of one band and the measured runs near it."""
    low, high = (units.signed_percent(end / band.mid - 1) for end in (band.low, band.high))
    near = nearness.support(quantity, run, nearness.shipped())
    runs = f"{near.num_runs} measured run{'s' * (near.num_runs != 1)}"
    sources = f"{near.num_sources} source{'s' * (near.num_sources != 1)}"
    rests = f"{runs} of {sources}" if near.num_runs else "no measured run"
    card = f"{near.on_gpu} on {run.gpu}" if near.on_gpu else f"none on {run.gpu}"
    return f"{name} {text.keep(f'{low} … {high}')} from {rests} near it ({card})"


def _confidence(answer: Estimate, term: Terminal) -> list[str]:
    return text.paragraph(confidence(answer), term)


def inputs(found: Explained) -> str:
    """Write a term as the product that it is."""
    if not found.factors:
        return "nothing"
    words = [f"{_number(f.value)} {f.unit} {f.what}".replace("  ", " ") for f in found.factors]
    signs = ["÷" if f.divides else "×" for f in found.factors[1:]]
    return words[0] + "".join(f" {sign} {word}" for sign, word in zip(signs, words[1:], strict=True))


def _number(value: float) -> str:
    """Three digits, with a suffix where large."""
    if value == round(value) and abs(value) < 1_000_000:
        return units.whole(value)
    return f"{value:.3g}" if abs(value) < 1000 else units.count(value)


def _term(kind: Kind, name: str, value: str, made_of: str, run: Run, term: Terminal) -> Iterator[str]:
    """Draw one term; of a matrix multiply the basis is that of this GPU's curve."""
    found = terms()[kind, name]
    how_sure = _gemm_basis(run) if name == "matmul" else found.basis
    yield f"  {name.replace('_', ' '):<22} {value:>10}   {how_sure}"
    yield from text.paragraph(f"= {found.formula}", term, indent="      ")
    yield from text.paragraph(f"inputs: {made_of}", term, indent="      ")
    yield from text.paragraph(f"source: {found.source}", term, indent="      ")


def _sizes(run: Run) -> str:
    """Figures that the terms of memory are made of."""
    layout, model = run.layout, run.model
    parts = [
        f"{units.count(describe.num_params(model))} parameters",
        f"{model.num_layers} layers",
        f"vocabulary {units.whole(model.vocab_size)}",
        f"{layout.micro_batch} × {run.training.seq_len} tokens a micro-batch",
        describe.layout(layout),
        f"profile {run.training.framework}",
    ]
    return f"  from {', '.join(parts)}"


def _rates(run: Run) -> str:
    """Figures that the terms of time are made of."""
    card = gpu(run.shape.gpu)
    peak = flops_per_s(card, run.training.precision)
    reached = float(bandwidth_bytes_per_s()[gpu_index(card.id)])
    parts = [
        f"{units.tflops(peak)} dense TFLOPS peak in {run.training.precision}",
        f"{units.gb_per_s(reached)} reached of {units.gb_per_s(card.memory_bandwidth_bytes_per_s)}",
    ]
    if run.shape.num_gpus > 1:
        parts.append(f"link in a node: {link(run.shape.links.intra).label}")
    if run.shape.num_nodes > 1:
        parts.append(f"between nodes: {link(run.shape.links.inter).label}")
    return f"  from {', '.join(parts)}"


def _gemm_basis(run: Run) -> str:
    """Whether this GPU's curve of matrix multiplies was measured."""
    precision = "bf16" if run.training.precision == "bf16-pure" else run.training.precision
    return f"{basis(gpu_index(run.shape.gpu), precision)} on {run.shape.gpu}"
