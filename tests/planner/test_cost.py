"""What a run costs: hours, parts, bands; unknown is never summed."""

import csv
from dataclasses import fields
from decimal import Decimal
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import cost
from planner.cost import PartColumns, Work, cost_columns, interval_s, offer_columns, take_offers
from planner.cost.lines import Cost, cost_lines, spread_of, whole_run
from planner.cost.tables import interruptions_per_hour, overheads, price_factor, rates
from planner.types import Band, Links, LoraSpec, Offer, TrainingSpec

STEP = Band(low=3.6, mid=4.0, high=4.6)
NODE_LINES = ("compute", "writing checkpoints", "work done again", "set-up", "probe")


def an_offer(**changed: Any) -> Offer:
    plain: dict[str, Any] = {
        "provider": "aws",
        "instance_type": "c99.8x",
        "region": "north-1",
        "market": "on-demand",
        "gpu": "H100-SXM5-80GB",
        "gpus_per_node": 8,
        "links": Links(intra="nvlink4-nvswitch", inter="ib-ndr"),
        "usd_per_hour": Decimal("24"),
        "source": "a price list",
    }
    return Offer(**{**plain, **changed})


def some_work(**changed: float) -> Work:
    plain = {
        "num_steps": 80_000,
        "num_nodes": 1,
        "gpus_per_node": 8,
        "checkpoint_bytes": 12e9,
        "result_bytes": 2e9,
        "data_bytes": 40e9,
    }
    return Work(**{name: np.asarray(float(value)) for name, value in {**plain, **changed}.items()})


def priced(offer: Offer | None = None, work: Work | None = None, step: Band = STEP) -> Cost:
    return cost_lines(step, work or some_work(), offer or an_offer())


def line(found: Cost, name: str) -> float:
    return next(li.usd.mid for li in found.lines if li.name == name and li.usd is not None)


def total(found: Cost) -> float:
    assert found.usd is not None
    return found.usd.mid


# ------------------------------------------------------------------------------- lines and totals


def test_compute_is_hours_times_nodes_times_price():
    found = priced(work=some_work(num_nodes=2))
    assert line(found, "compute") == pytest.approx(80_000 * 4.0 / 3600 * 2 * 24)


def test_the_lines_add_up_to_the_total():
    found = priced()
    assert sum(li.usd.mid for li in found.lines if li.usd) == pytest.approx(total(found))


def test_each_line_is_quantity_times_unit_price():
    for each in priced(an_offer(market="spot")).lines:
        assert each.usd is not None
        assert each.usd.mid == pytest.approx(each.quantity * float(each.usd_per_unit))


@given(price=st.decimals("0.01", "500", places=4))
def test_doubling_a_price_doubles_its_node_lines_and_no_other(price: Decimal):
    once, twice = priced(an_offer(usd_per_hour=price)), priced(an_offer(usd_per_hour=2 * price))
    for a, b in zip(once.lines, twice.lines, strict=True):
        assert a.usd is not None
        assert b.usd is not None
        factor = 2 if a.name in NODE_LINES else 1
        assert b.usd.mid == pytest.approx(factor * a.usd.mid)


def test_money_per_unit_is_decimal():
    assert {type(li.usd_per_unit) for li in priced().lines} == {Decimal}


def test_a_rate_that_nobody_states_is_named_and_not_summed():
    known, vague = priced(), priced(an_offer(provider="a provider without rates"))
    unknown = [li.name for li in vague.lines if li.usd is None]
    assert unknown == ["disk", "checkpoint storage", "data upload", "download of the result"]
    assert not vague.is_complete
    assert known.is_complete
    assert total(vague) == pytest.approx(sum(line(known, name) for name in NODE_LINES))


def test_a_node_without_a_price_has_no_cost_but_hours():
    found = priced(an_offer(usd_per_hour=None, unknown_why="sold by contract"))
    assert found.usd is None
    assert not found.is_complete
    assert found.hours.mid > 0
    assert next(li for li in found.lines if li.name == "compute").usd is None


def test_a_free_rate_is_a_line_of_zero_not_an_unknown_one():
    assert line(priced(an_offer(provider="runpod")), "download of the result") == 0


# ------------------------------------------------------------------------------- hours


def test_hours_are_steps_and_a_little_more():
    assert 1.0 < priced().hours.mid / (80_000 * 4.0 / 3600) < 1.02


@given(steps=st.integers(1, 10**6), more=st.integers(1, 10**6))
def test_more_steps_never_cost_less(steps: int, more: int):
    assert total(priced(work=some_work(num_steps=steps + more))) >= total(
        priced(work=some_work(num_steps=steps))
    )


@given(factor=st.floats(1.0, 50.0))
def test_a_slower_step_never_costs_less(factor: float):
    slow = Band(low=STEP.low * factor, mid=STEP.mid * factor, high=STEP.high * factor)
    assert total(priced(step=slow)) >= total(priced()) * (1 - 1e-9)


def test_the_band_holds_the_middle_and_follows_the_step_time():
    found = priced()
    assert found.hours.low < found.hours.mid < found.hours.high
    assert found.hours.high / found.hours.mid == pytest.approx(STEP.high / STEP.mid, rel=0.02)


def test_without_a_start_a_run_of_no_length_would_be_free():
    short = priced(work=some_work(num_steps=1))
    assert short.hours.mid > overheads()["startup_s"].mid / 3600


@pytest.mark.parametrize(
    ("rule", "hours"), [({"min_billing_s": 36000}, 10.0), ({"billing_increment_s": 7200}, 2.0)]
)
def test_a_minimum_and_an_increment_are_billed_in_full(rule: dict[str, int], hours: float):
    found = priced(an_offer(**rule), some_work(num_steps=100))
    on_nodes = sum(li.usd.mid for li in found.lines if li.usd and li.unit == "node-hour")
    assert on_nodes == pytest.approx(24 * hours)
    assert line(found, "set-up") > 0.5 * on_nodes


# ------------------------------------------------------------------------------- interruptions


def test_spot_carries_work_done_again_and_a_head_node_that_stays():
    spot, on_demand = priced(an_offer(market="spot")), priced()
    assert line(spot, "work done again") > 2 * line(on_demand, "work done again")
    assert line(spot, "head node, on demand") > 0
    assert "head node, on demand" not in [li.name for li in on_demand.lines]


def test_only_spot_is_taken_away():
    assert interruptions_per_hour(an_offer()).high == 0
    assert interruptions_per_hour(an_offer(market="community")).high == 0
    spot = interruptions_per_hour(an_offer(market="spot"))
    assert 0 < spot.low < spot.mid < spot.high


def test_a_gpu_with_its_own_record_of_interruptions_uses_it():
    old = an_offer(market="spot", gpu="V100-SXM2-16GB")
    assert interruptions_per_hour(old).mid > interruptions_per_hour(an_offer(market="spot")).high


@given(nodes=st.integers(1, 500))
def test_more_nodes_are_interrupted_more_often(nodes: int):
    def redone(n: int) -> float:
        found = priced(an_offer(market="spot"), some_work(num_nodes=n))
        return next(li.quantity for li in found.lines if li.name == "work done again") / n

    assert redone(nodes + 1) >= redone(nodes)


def test_rare_interruptions_cost_half_an_interval_and_a_restart_each():
    """Daly's cost function against its first order, W (1 + d/t + (t/2 + R)/M)."""
    work, offer = some_work(num_steps=800_000), an_offer(market="spot")
    found = priced(offer, work)
    every = float(interval_s(np.asarray(STEP.mid), work, offer_columns([offer])))
    write = 12e9 / overheads()["checkpoint_write_bytes_per_s"].mid
    per_s = (interruptions_per_hour(offer).mid + 8 * overheads()["failures_per_gpu_hour"].mid) / 3600
    first_order = 800_000 * STEP.mid * per_s * (every / 2 + overheads()["restart_s"].mid + 1.5 * write)
    redone = next(li.quantity for li in found.lines if li.name == "work done again") * 3600
    assert redone == pytest.approx(first_order, rel=0.02)


@given(
    checkpoint=st.floats(0, 1e13),
    nodes=st.integers(1, 2000),
    market=st.sampled_from(["on-demand", "spot"]),
    gpu=st.sampled_from(["V100-SXM2-16GB", "H100-SXM5-80GB"]),
)
def test_a_cost_is_a_finite_number_above_zero_for_any_run(
    checkpoint: float, nodes: int, market: str, gpu: str
):
    found = priced(an_offer(market=market, gpu=gpu), some_work(checkpoint_bytes=checkpoint, num_nodes=nodes))
    assert found.usd is not None
    assert 0 < found.usd.low <= found.usd.mid <= found.usd.high < float("inf")
    assert 0 < found.hours.low <= found.hours.mid <= found.hours.high < float("inf")


def test_checkpoints_are_rarer_where_writing_takes_longer_within_bounds():
    def every(gigabytes: float) -> float:
        work = some_work(checkpoint_bytes=gigabytes * 1e9)
        return float(interval_s(np.asarray(4.0), work, offer_columns([an_offer(market="spot")])))

    bounds = overheads()["checkpoint_interval_s"]
    assert every(0.001) == bounds.low
    assert bounds.low < every(1) < every(4) < bounds.high
    assert every(1e4) == bounds.high


def test_a_checkpoint_interval_is_never_longer_than_the_run():
    work = some_work(num_steps=10)
    assert float(interval_s(np.asarray(4.0), work, offer_columns([an_offer()]))) == 40.0


# ------------------------------------------------------------------------------- columns


@given(
    steps=st.integers(1, 10**6),
    nodes=st.integers(1, 64),
    step=st.floats(0.01, 100),
    price=st.decimals("0.1", "300", places=3),
    provider=st.sampled_from(["aws", "gcp", "runpod", "vast", "crusoe"]),
    market=st.sampled_from(["on-demand", "spot"]),
)
def test_a_row_among_many_costs_what_it_costs_alone(
    steps: int, nodes: int, step: float, price: Decimal, provider: str, market: str
):
    shown = an_offer(provider=provider, market=market, usd_per_hour=price)
    offers = [an_offer(), shown, an_offer(usd_per_hour=None, unknown_why="?")]
    band = Band(low=step * 0.9, mid=step, high=step * 1.2)
    many = Work(
        num_steps=np.array([7.0, steps, 9.0]),
        num_nodes=np.array([1.0, nodes, 2.0]),
        gpus_per_node=np.array([8.0, 8.0, 8.0]),
        checkpoint_bytes=np.asarray(12e9),
        result_bytes=np.asarray(2e9),
        data_bytes=np.asarray(40e9),
    )
    columns = cost_columns(spread_of(band), many, offer_columns(offers))
    alone = priced(offers[1], some_work(num_steps=steps, num_nodes=nodes), band)
    assert alone.usd is not None
    assert columns.usd.at(1).model_dump() == pytest.approx(alone.usd.model_dump())
    assert columns.hours.at(1).model_dump() == pytest.approx(alone.hours.model_dump())
    assert bool(columns.is_complete[1]) == alone.is_complete
    assert np.isnan(columns.usd.mid[2])
    assert not columns.is_complete[2]


def test_offers_are_picked_by_row():
    columns = offer_columns([an_offer(), an_offer(usd_per_hour=Decimal(7))])
    assert take_offers(columns, np.array([1, 0, 1])).usd_per_node_hour.tolist() == [7.0, 24.0, 7.0]


def test_no_offers_make_empty_columns():
    assert offer_columns([]).usd_per_node_hour.shape == (0,)


def test_every_part_of_the_cost_is_a_line():
    assert len(priced(an_offer(market="spot")).lines) == len(fields(PartColumns))


# ------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize(
    ("change", "bytes_per_param"),
    [
        ({}, 12.0),
        ({"optimizer": "adamw-8bit"}, 6.0),
        ({"optimizer": "sgd"}, 8.0),
        ({"precision": "bf16-pure"}, 6.0),
    ],
)
def test_a_checkpoint_holds_weights_and_states(change: dict[str, Any], bytes_per_param: float):
    training = TrainingSpec(seq_len=2048, **change)
    assert cost.checkpoint_bytes(1e9, training) == pytest.approx(bytes_per_param * 1e9, rel=1e-2)


def test_adapters_make_small_checkpoints():
    training = TrainingSpec(seq_len=2048, method="lora", lora=LoraSpec(rank=8))
    assert cost.checkpoint_bytes(20e6, training) < 1e9


@pytest.mark.parametrize(("vocab", "each"), [(32_000, 2), (65_535, 2), (65_536, 4), (128_256, 4)])
def test_token_ids_take_two_bytes_where_they_fit(vocab: int, each: int):
    assert cost.data_bytes(1e9, vocab) == each * 1e9


# ------------------------------------------------------------------------------- whole runs


def test_a_measured_run_has_no_start_no_probe_and_no_billing_rules():
    found = whole_run(STEP, some_work(num_steps=900), Decimal("2.5"))
    assert found.hours.mid == pytest.approx(1.0, rel=0.02)
    assert found.gpu_hours.mid == pytest.approx(8 * found.hours.mid)
    assert found.cost_usd is not None
    assert found.cost_usd.mid == pytest.approx(2.5 * found.gpu_hours.mid)


def test_a_whole_run_without_a_price_has_hours_and_no_cost():
    found = whole_run(STEP, some_work(), None)
    assert found.cost_usd is None
    assert found.hours.mid > 0


# ------------------------------------------------------------------------------- data


def table(name: str) -> list[dict[str, str]]:
    text = files("planner").joinpath(f"data/{name}").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.parametrize("name", ["costs.csv", "overheads.csv", "interruptions.csv"])
def test_every_row_of_the_tables_has_a_source_and_a_date(name: str):
    for row in table(name):
        assert row["source"]
        assert len(row["date"]) == 10


def test_no_rate_is_negative_and_each_is_decimal():
    assert all(isinstance(r.usd, Decimal) and r.usd >= 0 for r in rates().values())


def test_each_provider_states_an_item_once():
    keys = [(r["item"], r["provider"]) for r in table("costs.csv")]
    assert len(keys) == len(set(keys))


def test_every_overhead_is_ordered():
    assert all(o.low <= o.mid <= o.high for o in overheads().values())


def test_a_price_of_unknown_age_is_less_certain_than_one_of_today():
    assert price_factor("on-demand", 0) == 1
    assert 1 < price_factor("on-demand", 3) < price_factor("on-demand", 12) < price_factor("on-demand", None)
    assert price_factor("spot", 0) > 1
    assert price_factor("owned", None) == 1


def test_an_undated_price_widens_the_cost_and_leaves_its_middle():
    today = priced(an_offer(price_age_months=0)).usd
    undated = priced(an_offer(price_age_months=None)).usd
    assert today is not None
    assert undated is not None
    assert undated.mid == today.mid
    assert undated.low < today.low
    assert undated.high > today.high
