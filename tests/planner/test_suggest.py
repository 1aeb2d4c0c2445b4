"""The search end to end: what is ok, what lost and why, and that every printed rescue works."""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.api import suggest
from planner.errors import UserError
from planner.hardware.gpus import gpu
from planner.model.presets import preset
from planner.model.shapes import shape_for
from planner.results import Candidate, Suggestion
from planner.search.nothing_fits import flags_of
from planner.search.question import Question, outcome
from planner.search.ranking import best_verdict
from planner.search.rescue import apply_flags
from planner.search.suggest import suggest as answer
from planner.types import Goal, LayoutPins, Links, LoraSpec, ModelSpec, Offer, TrainingSpec
from planner.units import gib, gib_number

Offers = tuple[Offer, ...]
NVLINK = Links(intra="nvlink4-nvswitch", inter="ib-ndr", inter_gbit_per_s=3200.0)
ONE_B = shape_for(1e9)
SEVEN_B = shape_for(7e9)
FREE = LayoutPins()


def training(**changed: Any) -> TrainingSpec:
    return TrainingSpec(**{"seq_len": 2048, **changed})


def goal(**changed: Any) -> Goal:
    if "budget" in changed:
        changed["budget_usd"] = Decimal(str(changed.pop("budget")))
    return Goal(**changed)


def ask(
    offers: Offers,
    model: ModelSpec = ONE_B,
    how: TrainingSpec | None = None,
    bounds: Goal | None = None,
    pins: LayoutPins = FREE,
    top: int = 5,
) -> Suggestion:
    return suggest(model, how or training(), bounds or goal(budget=400), offers, pins=pins, top=top)


def reason(found: Suggestion, name: str) -> Any:
    return next(r for r in found.rejections if r.reason == name)


def compute_usd(candidate: Candidate) -> float:
    return next(li.usd.mid for li in candidate.cost_lines if li.name == "compute" and li.usd is not None)


# ---------------------------------------------------------------------------------- verdicts


def check_limits(found: Suggestion) -> None:
    """The rules of verdicts, on every candidate."""
    bounds = found.goal
    budget = math.inf if bounds.budget_usd is None else float(bounds.budget_usd)
    deadline_h = math.inf if bounds.deadline_s is None else bounds.deadline_s / 3600
    for c in found.candidates:
        usable = c.memory.usable_bytes
        assert usable is not None
        roomy = c.memory.device_bytes.high <= usable * 1.0000001
        free = c.memory.reserved_bytes.mid <= usable * (1 - bounds.headroom) * 1.0000001
        high = c.cost_usd.high <= budget and c.hours.high <= deadline_h
        stated = (
            c.offer.host_memory_bytes is not None or c.memory.host_bytes <= 4 * 2**30 * c.offer.gpus_per_node
        )
        mid = c.cost_usd.mid <= budget and c.hours.mid <= deadline_h
        if c.verdict == "ok":
            assert roomy
            assert free
            assert high
            assert stated
            assert c.memory.safe
            assert c.why == ""
        elif c.verdict == "tight":
            assert mid
            assert c.memory.device_bytes.mid <= usable
            assert not (roomy and free and high and stated)
            assert c.why
        else:
            assert c.why


def test_the_flagship_question_has_ok_choices_in_order(offers: Offers) -> None:
    found = ask(offers)
    assert found.candidates[0].verdict == "ok"
    check_limits(found)
    keys = [(c.verdict != "ok", c.cost_usd.high) for c in found.candidates]
    assert keys == sorted(keys)
    assert [c.rank for c in found.candidates] == list(range(1, len(keys) + 1))


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_what_loads_into_host_memory_that_nobody_states_is_never_ok(
    make_offer: Callable[..., Offer], method: str
) -> None:
    silent = make_offer("H100-SXM5-80GB", 8, "22.00", links=NVLINK, host_memory_bytes=None)
    stated = make_offer("H100-SXM5-80GB", 8, "22.00", links=NVLINK)
    lora = LoraSpec(base_bits=4, quant="nf4") if method == "qlora" else LoraSpec()
    how = training(method=method, num_tokens=1e7, lora=None if method == "full" else lora)
    (known, *_), (unknown, *_) = (ask((o,), SEVEN_B, how).candidates for o in (stated, silent))
    assert known.verdict == "ok"
    assert unknown.verdict == "tight"
    assert "of host memory per node; the offer does not say what it has" in unknown.why


def test_a_process_alone_needs_no_statement_of_the_host(make_offer: Callable[..., Offer]) -> None:
    silent = make_offer("H100-SXM5-80GB", 8, "22.00", links=NVLINK, host_memory_bytes=None)
    (first, *_) = ask((silent,), bounds=goal()).candidates
    assert first.verdict == "ok"
    assert any("of host memory per node" in said for said in first.warnings)


def test_where_all_choices_are_spot_each_has_its_price_on_demand_beside_it(offers: Offers) -> None:
    found = ask(offers, bounds=goal(market="spot"))
    (first, *_) = found.on_demand
    listed = next(
        o for o in offers if o.gpu == "H100-SXM5-80GB" and o.gpus_per_node == 8 and o.market != "spot"
    )
    assert len(found.on_demand) == len(found.candidates)
    assert first.id == found.candidates[0].id
    assert first.usd_per_hour == listed.usd_per_hour
    assert first.cost_usd is not None
    assert first.cost_usd.mid > found.candidates[0].cost_usd.mid


def test_a_spot_machine_that_is_not_listed_on_demand_has_no_price_there(
    make_offer: Callable[..., Offer],
) -> None:
    only, *_ = ask((make_offer("L40S", 1, "0.60", market="spot"),), bounds=goal()).on_demand
    assert only.cost_usd is None
    assert only.usd_per_hour is None


def test_with_a_choice_on_demand_nothing_stands_beside(offers: Offers) -> None:
    found = ask(offers)
    assert any(c.offer.market == "on-demand" for c in found.candidates)
    assert found.on_demand == ()


def test_sorted_by_time_the_fastest_ok_choice_comes_first(offers: Offers) -> None:
    found = ask(offers, bounds=goal(budget=400, sort="time"))
    hours = [c.hours.high for c in found.candidates if c.verdict == "ok"]
    assert len(hours) > 1
    assert hours == sorted(hours)


def test_choices_are_distinct(offers: Offers) -> None:
    found = ask(offers, top=10)
    keys = [
        (c.run.shape.gpu, c.run.shape.gpus_per_node * c.num_nodes, c.offer.provider, c.offer.market)
        for c in found.candidates
    ]
    assert len(set(keys)) == len(keys) > 3


def test_everything_is_counted(offers: Offers) -> None:
    found = ask(offers, top=1000)
    listed = sum(_listings(o, found.goal.max_gpus) for o in offers)
    assert found.num_fitting + sum(r.count for r in found.rejections) == listed
    assert found.num_layouts == sum(found.layouts_by_family.values()) > 1000


def _listings(offer: Offer, max_gpus: int) -> int:
    joined = 8 if offer.gpus_per_node <= 2 else max_gpus
    most = min(max_gpus // offer.gpus_per_node, offer.max_nodes or joined)
    return len({1 << k for k in range(most.bit_length())} | {most})


def test_an_unknown_price_is_not_ranked_and_is_counted(offers: Offers) -> None:
    found = ask(offers)
    assert "silent" in reason(found, "price").nearest
    assert reason(found, "price").rescue is None
    assert all(c.offer.usd_per_hour is not None for c in found.candidates)


def test_what_is_sold_out_is_not_ranked_and_is_counted(make_offer: Callable[..., Offer]) -> None:
    both = [make_offer("L40S", 1, "1.10", available=free, max_nodes=1) for free in (False, None)]
    found = ask((both[0], both[1].model_copy(update={"provider": "south"})))
    assert {c.offer.provider for c in found.candidates} == {"south"}
    assert "north 1" in reason(found, "availability").nearest


def test_gpus_without_bf16_are_never_proposed_and_fp16_would_save_them(offers: Offers) -> None:
    found = ask(offers)
    illegal = reason(found, "illegal")
    assert illegal.count == _listings(offers[0], 64) + _listings(offers[1], 64)
    assert illegal.rescue == "--precision fp16" or "--precision fp16 --budget" in illegal.rescue


def test_a_slow_link_is_rejected_unless_it_is_allowed(make_offer: Callable[..., Offer]) -> None:
    link = Links(intra="none", inter="ethernet", inter_gbit_per_s=1.0)
    slow = (make_offer("L40S", 1, "1.10", links=link),)
    bounds = goal(max_gpus=8)
    refused = reason(ask(slow, bounds=bounds), "link")
    assert refused.rescue == "--allow-slow-link"
    assert "waits for ethernet" in refused.nearest
    allowed = ask(slow, bounds=bounds.model_copy(update={"allow_slow_link": True}))
    assert not [r for r in allowed.rejections if r.reason == "link"]


def test_production_takes_no_gpu_without_ecc_for_a_long_run(offers: Offers) -> None:
    cards = offers[2:4]
    bounds = goal(budget=1000, stage="production")
    found = ask(cards, bounds=bounds)
    assert "ECC" in reason(found, "stage").nearest
    assert reason(found, "stage").rescue == "--stage experiment"
    assert any("production" in said for said in found.assumptions)
    short = ask(cards, how=training(num_tokens=1e8), bounds=bounds)
    assert short.candidates[0].verdict == "ok"


def test_production_takes_no_spot_without_checkpoints(offers: Offers) -> None:
    bounds = goal(stage="production", market="spot")
    assert ask(offers, bounds=bounds).candidates[0].verdict == "ok"
    bare = ask(offers, bounds=bounds.model_copy(update={"checkpoints": False}))
    assert "spot without checkpoints" in reason(bare, "stage").nearest


def test_the_market_is_respected(offers: Offers) -> None:
    for market, allowed in (("spot", {"spot"}), ("on-demand", {"on-demand"})):
        found = ask(offers, bounds=goal(market=market))
        assert {c.offer.market for c in found.candidates} == allowed


def test_spot_pays_for_work_done_again(make_offer: Callable[..., Offer]) -> None:
    same = [make_offer("H100-SXM5-80GB", 1, "2.00", market=m, max_nodes=1) for m in ("spot", "on-demand")]
    spot, demand = (ask((o,), bounds=goal()).candidates[0] for o in same)
    assert spot.hours.mid > demand.hours.mid


# ---------------------------------------------------------------------------------- nothing fits


def test_nothing_fits_shows_the_nearest_and_what_would_help(offers: Offers) -> None:
    found = ask(offers, bounds=goal(budget=20, providers=("east",), market="on-demand"))
    assert {c.verdict for c in found.candidates} == {"over"}
    assert all("over" in c.why for c in found.candidates)
    flags = [flags_of(line).split()[0] for line in found.rescues]
    assert "--tokens" in flags
    assert "--budget" in flags
    assert "--params" in flags


def test_what_fits_no_memory_shows_what_it_needs(make_offer: Callable[..., Offer]) -> None:
    small = (make_offer("RTX 4090", 1, "0.45", max_nodes=1, host_memory_bytes=8 * 2**30),)
    found = ask(small, preset("llama-3-70b"), training(method="full", num_tokens=1e7), goal())
    assert found.candidates[0].verdict == "over"
    assert found.rejections[0].reason in ("memory", "host-memory")


def test_no_offer_at_all_is_an_answer_too() -> None:
    found = ask(())
    assert found.candidates == ()
    assert found.num_offers == 0


QUESTIONS: dict[str, tuple[ModelSpec, TrainingSpec, Goal, LayoutPins]] = {
    "budget": (ONE_B, training(), goal(budget=200), FREE),
    "tiny budget": (ONE_B, training(), goal(budget=20), FREE),
    "deadline": (SEVEN_B, training(), goal(deadline_s=3 * 86400.0), FREE),
    "both": (ONE_B, training(), goal(budget=100, deadline_s=20 * 3600.0), FREE),
    "production": (ONE_B, training(), goal(budget=500, stage="production"), FREE),
    "one provider": (ONE_B, training(), goal(budget=100, providers=("market",)), FREE),
    "on demand": (ONE_B, training(), goal(budget=100, market="on-demand"), FREE),
    "one GPU": (SEVEN_B, training(method="full", num_tokens=1e7), goal(gpus=("RTX 4090",), max_gpus=1), FREE),
    "pinned": (
        ONE_B,
        training(global_batch_tokens=2**20),
        goal(gpus=("RTX 4090",), max_gpus=1),
        LayoutPins(micro_batch=64, recompute="none", offload="none"),
    ),
    "pinned optimizer": (
        ONE_B, training(optimizer="adamw"), goal(gpus=("A10G",), max_gpus=4),
        LayoutPins(zero_stage=0, offload="none"),
    ),
    "odd batch": (ONE_B, training(global_batch_tokens=2048 * 101), goal(budget=300), FREE),
    "old GPU": (ONE_B, training(), goal(gpus=("T4",)), FREE),
    "large": (preset("llama-3-70b"), training(num_tokens=1e9, method="full"), goal(budget=500), FREE),
    "lora": (SEVEN_B, training(method="lora", num_tokens=1e8, lora=LoraSpec()), goal(budget=5), FREE),
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_printed_rescue_works(name: str, offers: Offers) -> None:
    model, how, bounds, pins = QUESTIONS[name]
    question = Question(model, how, bounds, pins)
    found = answer(question, offers)
    check_limits(found)
    printed = [r.rescue for r in found.rejections if r.rescue] + [flags_of(line) for line in found.rescues]
    for flags in printed:
        saved = answer(apply_flags(question, flags), offers)
        assert any(c.verdict in ("ok", "tight") for c in saved.candidates), flags


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_rescue_says_the_verdict_that_it_leads_to(name: str, offers: Offers) -> None:
    question = Question(*QUESTIONS[name])
    found = answer(question, offers)
    for r in found.rejections:
        assert (r.rescue is None) == (r.rescue_verdict is None)
        if r.rescue is not None and r.miss is not None:
            same = [
                o for o in offers if (o.provider, o.instance_type) == (r.miss.provider, r.miss.instance_type)
            ]
            same = [o for o in same if o.market == r.miss.market]
            assert (
                best_verdict(outcome(apply_flags(question, r.rescue), same, r.miss.num_nodes))
                == r.rescue_verdict
            )
    for line in found.rescues:
        said = line.removeprefix(flags_of(line)).strip()
        assert said.startswith(("ok: ", "tight: "))


def test_what_only_money_or_time_breaks_always_has_a_rescue(offers: Offers) -> None:
    for model, how, bounds, pins in QUESTIONS.values():
        found = answer(Question(model, how, bounds, pins), offers)
        assert all(r.rescue for r in found.rejections if r.reason in ("budget", "deadline"))


def test_a_pinned_layout_that_does_not_fit_is_rescued_by_what_would(offers: Offers) -> None:
    model, how, bounds, pins = QUESTIONS["pinned"]
    found = answer(Question(model, how, bounds, pins), offers)
    assert "--micro-batch" in str(reason(found, "memory").rescue)


# ---------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("model", "pins", "says"),
    [
        (ONE_B, LayoutPins(tp=3), "attention heads are not divisible"),
        (ONE_B, LayoutPins(pp=99), "fewer than the stages"),
        (ONE_B, LayoutPins(ep=2), "no experts"),
        (preset("mixtral-8x7b"), LayoutPins(ep=3), "experts are not divisible"),
        (ONE_B, LayoutPins(offload="params+optimizer", zero_stage=1), "--zero 3"),
    ],
)
def test_a_pinned_degree_that_cannot_be_is_refused(
    model: ModelSpec, pins: LayoutPins, says: str, offers: Offers
) -> None:
    with pytest.raises(UserError, match=says):
        ask(offers, model, pins=pins)


def test_fine_tuning_without_tokens_is_refused(offers: Offers) -> None:
    with pytest.raises(UserError, match="number of tokens") as error:
        ask(offers, how=training(method="full"))
    assert "--tokens" in error.value.hint


@pytest.mark.parametrize(
    "bounds", [goal(providers=("nroth",)), goal(regions=("mars",)), goal(gpus=("H1000",))]
)
def test_an_unknown_name_is_refused(bounds: Goal, offers: Offers) -> None:
    with pytest.raises(UserError):
        ask(offers, bounds=bounds)


# ---------------------------------------------------------------------------------- properties


def test_the_same_question_has_the_same_answer(offers: Offers) -> None:
    assert ask(offers).model_dump_json() == ask(offers).model_dump_json()


@given(left_out=st.integers(0, 12))
@settings(max_examples=13, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_more_offer_never_makes_the_best_plan_dearer(left_out: int, offers: Offers) -> None:
    fewer = offers[:left_out] + offers[left_out + 1 :]
    most, least = ask(offers).candidates[0], ask(fewer).candidates[0]
    assert (most.verdict != "ok", most.cost_usd.high) <= (least.verdict != "ok", least.cost_usd.high)


@given(factor=st.sampled_from([2, 3, 10]))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_price_that_doubles_doubles_its_compute_line(factor: int, offers: Offers) -> None:
    one = (offers[8],)
    dear = tuple(o.model_copy(update={"usd_per_hour": (o.usd_per_hour or Decimal(0)) * factor}) for o in one)
    cheap, dearer = ask(one, bounds=goal()).candidates[0], ask(dear, bounds=goal()).candidates[0]
    assert compute_usd(dearer) == pytest.approx(factor * compute_usd(cheap), rel=1e-9)


@given(
    model=st.floats(1e6, 1e11).map(shape_for)
    | st.sampled_from(["mixtral-8x7b", "gpt2", "bert-base"]).map(preset),
    seq_len=st.sampled_from([1, 128, 2048, 4096, 65536, 1_000_000]),
    tokens=st.none() | st.floats(1, 1e16),
    batch=st.none() | st.integers(1, 10**9),
    budget=st.none() | st.floats(0.01, 1e9),
    deadline=st.none() | st.floats(1, 1e9),
    headroom=st.floats(0, 0.99),
    max_gpus=st.integers(1, 300),
    method=st.sampled_from(["pretrain", "full", "lora", "qlora"]),
    precision=st.sampled_from(["fp32", "tf32", "bf16", "bf16-pure", "fp16", "fp8"]),
    optimizer=st.none() | st.sampled_from(["adamw", "adamw-8bit", "adafactor", "sgd", "lion", "muon"]),
    pins=st.builds(
        LayoutPins,
        tp=st.none() | st.integers(1, 9),
        pp=st.none() | st.integers(1, 9),
        dp=st.none() | st.none() | st.integers(1, 20),
        cp=st.none() | st.sampled_from([1, 2, 3, 4]),
        ep=st.none() | st.sampled_from([1, 2, 3, 8]),
        etp=st.none() | st.none() | st.sampled_from([1, 2]),
        shard_group=st.none() | st.none() | st.sampled_from([1, 2, 8]),
        interleave=st.none() | st.sampled_from([1, 2, 5]),
        grad_accum=st.none() | st.none() | st.integers(1, 100),
        sequence_parallel=st.none() | st.booleans(),
        micro_batch=st.none() | st.integers(1, 1000),
        zero_stage=st.none() | st.integers(0, 3),
        recompute=st.sampled_from([None, "none", "selective", "full"]),
        offload=st.sampled_from([None, None, "none", "optimizer", "activations"]),
    ),
)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_question_is_answered_or_refused_in_words(
    model: ModelSpec,
    seq_len: int,
    tokens: float | None,
    batch: int | None,
    budget: float | None,
    deadline: float | None,
    headroom: float,
    max_gpus: int,
    method: str,
    precision: str,
    optimizer: str | None,
    pins: LayoutPins,
    offers: Offers,
) -> None:
    asked: dict[str, Any] = {
        "seq_len": seq_len, "num_tokens": tokens, "global_batch_tokens": batch, "method": method,
        "precision": precision,
    }  # fmt: skip
    if optimizer:
        asked["optimizer"] = optimizer
    if method in ("lora", "qlora"):
        asked["lora"] = LoraSpec(base_bits=4 if method == "qlora" else 16)
    bounds = Goal(
        budget_usd=None if budget is None else Decimal(str(round(budget, 2))),
        deadline_s=deadline,
        headroom=headroom,
        max_gpus=max_gpus,
    )
    try:
        found = suggest(model, TrainingSpec(**asked), bounds, offers, pins=pins)
    except UserError:
        return
    check_limits(found)
    for c in found.candidates:
        for value in (
            *_band(c.hours),
            *_band(c.cost_usd),
            *_band(c.speed.step_s),
            *_band(c.memory.device_bytes),
        ):
            assert math.isfinite(value)
            assert value >= 0
        assert c.hours.low <= c.hours.mid <= c.hours.high
        assert c.cost_usd.low <= c.cost_usd.mid <= c.cost_usd.high


def _band(band: Any) -> tuple[float, float, float]:
    return band.low, band.mid, band.high


def test_a_split_model_names_the_frameworks_that_can(offers: Offers) -> None:
    found = ask(offers, preset("llama-3-70b"), bounds=goal(), pins=LayoutPins(pp=4))
    assert found.candidates
    for candidate in found.candidates:
        layout = candidate.run.layout
        refused = layout.zero_stage < 3 and (layout.dp > 1 or layout.zero_stage > 0)
        assert refused == any("own training step refuses" in w for w in candidate.warnings)
    plain = ask(offers)
    assert not any("Megatron" in w for c in plain.candidates for w in c.warnings)


def test_where_no_layout_keeps_the_headroom_a_safe_one_is_shown_before_a_faster_unsafe_one(
    make_offer: Callable[..., Offer],
) -> None:
    card = make_offer("RTX 4090", 1, "0.45", max_nodes=1)
    asked = TrainingSpec(method="lora", seq_len=2048, num_tokens=2e7, lora=LoraSpec())
    question = Question(preset("mistral-7b"), asked, Goal(max_gpus=1, headroom=0.35), LayoutPins())
    best = answer(question, (card,)).candidates[0]
    assert best.verdict == "tight"
    assert best.memory.safe


def test_the_nearest_miss_of_a_budget_is_in_figures_too(offers: Offers) -> None:
    lost = reason(ask(offers, bounds=goal(budget=1)), "budget")
    assert lost.miss.cost_usd.high > 1
    machine = f"{lost.miss.num_gpus}× {lost.miss.gpu}, {lost.miss.provider} {lost.miss.instance_type}"
    assert machine in lost.nearest
    assert lost.miss.layout.dp >= 1
    assert (lost.miss.needed_bytes, lost.miss.usable_bytes) == (None, None)


def test_the_nearest_miss_of_memory_says_what_it_needs_and_what_there_is(
    make_offer: Callable[..., Offer],
) -> None:
    small = make_offer("L4", 1, "0.70", max_nodes=1)
    lost = reason(ask((small,), shape_for(30e9)), "memory")
    assert lost.miss.needed_bytes > lost.miss.usable_bytes == gpu("L4").usable_memory_bytes
    assert f"needs {gib_number(lost.miss.needed_bytes)} of {gib(lost.miss.usable_bytes)}" in lost.nearest
    assert (lost.miss.hours, lost.miss.cost_usd) == (None, None)


def test_the_nearest_miss_without_a_price_has_no_cost(offers: Offers) -> None:
    assert reason(ask(offers), "price").miss.cost_usd is None


def test_a_gpu_that_cannot_run_it_at_all_has_no_layout(offers: Offers) -> None:
    miss = reason(ask(offers), "illegal").miss
    assert miss.layout is None
    assert miss.gpu == "T4"
