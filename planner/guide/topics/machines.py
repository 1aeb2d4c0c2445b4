"""The page ``consumer-vs-datacenter``: two cards side by side on the user's own run."""

from __future__ import annotations

from planner import api, units
from planner.cost.tables import overheads
from planner.guide.pages import Columns, Line, Page, Subject, grid, page
from planner.guide.variants import both, machine_of
from planner.hardware.gpus import gpu, supports
from planner.hardware.links import link, links_for
from planner.results import Estimate
from planner.runs import RunRequest
from planner.types import Band, Gpu, LayoutPins, Run

CONSUMER, DATACENTER = "RTX 4090", "H100-SXM5-80GB"


def consumer_vs_datacenter(subject: Subject) -> Page:
    """The user's card against one of the other class, with as many GPUs, data parallel."""
    asked = subject.gpu
    consumer = asked if asked.gpu_class == "consumer" else gpu(CONSUMER)
    datacenter = gpu(DATACENTER) if asked.gpu_class == "consumer" else asked
    cards = (consumer, datacenter)
    found = [_on(subject.answer.run, card) for card in cards]
    lines = [_line(card, answer) for card, answer in zip(cards, found, strict=True)]
    columns: Columns = (
        ("MEMORY", "bytes"),
        ("BANDWIDTH", "bytes/s"),
        ("DENSE BF16", "FLOPs/s"),
        ("LINK", "bytes/s"),
        ("PEAK", "bytes"),
        ("A GPU", "tokens/s"),
        ("WAITS", "share"),
    )
    gpus = subject.answer.run.shape.num_gpus
    hours = [_hours(answer) for answer in found]
    rate = overheads()["failures_per_gpu_hour"].mid
    failures = None if hours[1] is None else rate * gpus * hours[1].mid
    slots = [units.gb_per_s(_link_rate(card, subject.answer.run)) for card in cards]
    return page(
        "consumer-vs-datacenter",
        (grid("CARD", f"{gpus} GPU{'s' * (gpus > 1)} each, the fastest layout that fits", columns, lines),),
        {
            "link_of_consumer": slots[0],
            "link_of_datacenter": slots[1],
            "hours_consumer": _said(found[0], hours[0]),
            "hours_datacenter": _said(found[1], hours[1]),
            "failures": _few(failures),
        },
    )


def _few(number: float | None) -> str:
    """A number of interruptions; one that is next to nothing is said to be."""
    if number is None:
        return units.UNKNOWN
    return "fewer than 0.01" if number < 0.01 else units.count(number)


def _on(run: Run, card: Gpu) -> Estimate:
    """Estimate the training on as many cards of another kind, laid out as the search would."""
    able = run.training.precision if supports(card, run.training.precision) is None else "fp32"
    request = RunRequest(
        id=None,
        model=run.model,
        training=run.training.model_copy(update={"precision": able}),
        layout=None,
        pins=LayoutPins(),
        gpu=card.id,
        num_gpus=run.shape.num_gpus,
        gpus_per_node=run.shape.gpus_per_node,
        interconnect=None,
    )
    (answer,) = api.estimate([request])
    return answer


def _link_rate(card: Gpu, run: Run) -> float:
    """Bus bandwidth in a machine with several such cards, bytes/s."""
    per_node = machine_of(run).gpus_per_node
    return link(links_for(card, per_node).intra).rate()


def _hours(answer: Estimate) -> Band | None:
    """Hours of the whole training; ``None`` where it does not fit, or no number of tokens is known."""
    fits = answer.memory is not None and answer.memory.fits
    return answer.whole.hours if fits and answer.whole is not None else None


def _said(answer: Estimate, hours: Band | None) -> str:
    if hours is not None:
        return units.hours_band(hours)
    return "an unknown time" if both(answer)[0].fits else "no time (it does not fit)"


def _line(card: Gpu, answer: Estimate) -> Line:
    """Facts of a card and what the run would do on it."""
    memory, speed = both(answer)
    waits = speed.parts_s.exposed_communication / speed.step_s.mid
    said = ["ECC" if card.ecc else "no ECC", "P2P" if card.pcie_peer or card.nvlink_bytes_per_s else "no P2P"]
    said.append("fits" if memory.safe else "fits, not safe" if memory.fits else "does not fit")
    rates = (speed.tokens_per_s_per_gpu.mid, waits) if memory.fits else (None, None)
    return Line(
        label=card.id,
        figures=(
            float(card.usable_memory_bytes),
            card.memory_bandwidth_bytes_per_s,
            card.bf16_flops_per_s,
            _link_rate(card, answer.run),
            memory.device_bytes.mid,
            *rates,
        ),
        note=", ".join(said),
    )
