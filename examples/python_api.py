"""The planner from Python: suggest, estimate, compare. Pure functions: prices and the time are handed in.

python examples/python_api.py
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

from planner import units
from planner.api import estimate, suggest, what_if
from planner.model.shapes import shape_for
from planner.ownership import OwnedMachine, break_even, ownership
from planner.results import Estimate, Suggestion
from planner.runs import parse_run
from planner.types import Goal, LayoutPins, Offer, TrainingSpec
from providers.registry import offers

GPU = "RTX 4090"


def ask_for_choices(priced: Sequence[Offer]) -> Suggestion:
    """Which GPUs, how many, laid out how: 350 M parameters for at most 50 dollars, on one machine."""
    return suggest(
        shape_for(350e6),
        TrainingSpec(seq_len=2048, precision="bf16"),
        Goal(budget_usd=Decimal(50), max_gpus=8, market="on-demand"),
        priced,
        pins=LayoutPins(tp=1, pp=1),
        top=3,
    )


def ask_about_runs() -> list[Estimate]:
    """Will it fit, and how fast: the same model on one card and on eight, all in one call."""
    model = {"params": 7e9}
    run = {"model": model, "gpu": "H100-SXM5-80GB", "seq_len": 4096, "tokens": 1e9}
    return estimate([parse_run({**run, "gpus": gpus}) for gpus in (1, 8)])


def ask_what_to_buy(priced: Sequence[Offer]) -> tuple[Decimal, Decimal | None]:
    """Rent or buy: the cheapest hour of a card, and the hours a month above which owning one is cheaper."""
    rented = [o.usd_per_hour / o.gpus_per_node for o in priced if o.gpu == GPU and o.usd_per_hour]
    machine = OwnedMachine(gpu=GPU, purchase_usd=Decimal(2600), electricity_usd_per_kwh=Decimal("0.30"))
    cheapest = min(rented)
    return cheapest, break_even(machine, ownership(machine), cheapest).hours_per_month


def main() -> None:
    """Ask all three and print the answers."""
    priced = offers(now=datetime.now(UTC)).offers
    for choice in ask_for_choices(priced).candidates:
        gpus = choice.num_nodes * choice.offer.gpus_per_node
        cost, hours = units.usd_band(choice.cost_usd), units.hours_band(choice.hours)
        print(f"{choice.verdict:6} {gpus}x {choice.offer.gpu:16} {choice.offer.provider:10} {cost}, {hours}")
    answers = ask_about_runs()
    for answer in answers:
        memory, shape = answer.memory, answer.run.shape
        assert memory is not None
        fits = "fits" if memory.safe else "fits, not safe" if memory.fits else "does not fit"
        gpus = shape.gpus_per_node * shape.num_nodes
        offload = answer.run.layout.offload
        print(f"7B on {gpus}x {shape.gpu}: {units.gib_band(memory.device_bytes)}, {fits}, offload {offload}")
    for change in what_if(answers[-1].run)[:3]:
        found = change.estimate.memory
        print(f"   with {change.name}: {units.gib(None if found is None else found.device_bytes.mid)}")
    price, hours_a_month = ask_what_to_buy(priced)
    above = "never" if hours_a_month is None else f"above {hours_a_month:.0f} h of use a month"
    print(f"{GPU}: rented from {units.usd_per_hour(price)}; owning is cheaper {above}")


if __name__ == "__main__":
    main()
