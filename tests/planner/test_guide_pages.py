"""``plan explain``: every figure is computed for the run that is asked about, every formula has a source."""

from decimal import Decimal

import pytest

from planner import api
from planner.errors import UserError
from planner.guide import pages
from planner.guide.pages import Grid, Page, Subject
from planner.guide.topics import TOPICS, check_topic, explain
from planner.hardware.gpus import gpu
from planner.memory import device
from planner.runs import parse_run
from planner.types import Links, Offer

GPUS = 8


def offer(card: str, market: str, price: str, per_node: int = GPUS) -> Offer:
    return Offer(
        provider="acme",
        instance_type=f"{per_node}x",
        region="north",
        market=market,
        gpu=card,
        gpus_per_node=per_node,
        links=Links(intra="nvlink4-nvswitch", inter="ethernet"),
        usd_per_hour=Decimal(price),
        source="a price list",
    )


def subject(card: str = "H100-SXM5-80GB", params: float = 1e9, gpus: int = GPUS, **more: object) -> Subject:
    line = {"model": {"params": params}, "gpu": card, "gpus": gpus, "seq_len": 2048, "tokens": 2e10, **more}
    (answer,) = api.estimate([parse_run(line)])
    known = [offer(c, m, p) for c in ("H100-SXM5-80GB", "A100-SXM4-80GB")
             for m, p in (("on-demand", "20"), ("spot", "9"))]  # fmt: skip
    return Subject(answer=answer, gpu=gpu(card), offers=known)


@pytest.fixture(scope="module")
def asked() -> Subject:
    return subject()


def column(grid: Grid, title: str) -> dict[str, float | None]:
    at = [c.title for c in grid.columns].index(title)
    return {line.label: line.figures[at] for line in grid.lines}


@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_has_figures_advice_and_formulas_with_sources_and_no_brace_is_left(topic: str, asked: Subject):
    page = explain(topic, asked)
    assert page.topic == topic
    assert page.text
    assert page.advice
    assert page.formulas
    assert all(f.text and f.source for f in page.formulas)
    assert not any(brace in sentence for sentence in (*page.text, *page.advice) for brace in "{}")
    figures = [f for g in page.grids for line in g.lines for f in line.figures]
    assert figures
    assert all(f is None or abs(f) < float("inf") for f in figures)
    assert all(len(line.figures) == len(g.columns) for g in page.grids for line in g.lines)


@pytest.mark.parametrize("topic", TOPICS)
def test_another_gpu_and_model_give_other_figures(topic: str, asked: Subject):
    other = subject("A100-SXM4-80GB", 3e9)
    assert explain(topic, other).grids != explain(topic, asked).grids


@pytest.mark.parametrize("topic", ["memory", "precision", "zero", "headroom"])
def test_a_coefficient_of_memory_changes_the_pages_about_it(
    topic: str, asked: Subject, monkeypatch: pytest.MonkeyPatch
):
    before = explain(topic, asked).grids
    monkeypatch.setattr(device, "EXPANDABLE_BASE", 2 * device.EXPANDABLE_BASE)
    assert explain(topic, subject()).grids != before


def test_topics_are_those_that_have_words_in_the_same_order():
    assert list(TOPICS) == list(pages.texts())
    assert all(words.about and words.title for words in pages.texts().values())


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("Zero", "zero"),
        ("rent vs buy", "rent-vs-buy"),
        ("consumer_vs_datacenter", "consumer-vs-datacenter"),
    ],
)
def test_a_topic_is_found_in_any_spelling(said: str, meant: str):
    assert check_topic(said) == meant


def test_an_unknown_topic_names_near_ones():
    with pytest.raises(UserError, match="did you mean collectives") as caught:
        check_topic("colectives")
    assert caught.value.hint.startswith("plan explain")


# ------------------------------------------------------------------------------------- memory


def test_the_parts_of_memory_add_up_to_the_device(asked: Subject):
    parts = explain("memory", asked).grids[0]
    assert sum(column(parts, "SIZE").values()) == pytest.approx(asked.answer.memory.device_bytes.mid)
    assert sum(column(parts, "SHARE").values()) == pytest.approx(1)


def test_the_levers_of_memory_save_what_they_say(asked: Subject):
    levers = explain("memory", asked).grids[2]
    peaks, saves = column(levers, "PEAK"), column(levers, "SAVES")
    mid = asked.answer.memory.device_bytes.mid
    assert all(peaks[name] + saves[name] == pytest.approx(mid) for name in peaks)
    assert column(levers, "TIME")["recompute full"] > 0


def test_autocast_has_the_states_of_fp32_and_only_precisions_of_the_gpu_stand_there(asked: Subject):
    states = column(explain("precision", asked).grids[0], "STATES")
    assert states["fp32"] == states["bf16"] == pytest.approx(2 * states["bf16-pure"])
    old = subject("V100-SXM2-32GB", precision="fp16-mixed")
    assert set(column(explain("precision", old).grids[0], "STATES")) == {"fp32", "fp16"}


def test_each_stage_of_zero_keeps_one_share_more(asked: Subject):
    table = explain("zero", asked).grids[0]
    weights, gradients, optimizer = (column(table, t) for t in ("WEIGHTS", "GRADIENTS", "OPTIMIZER"))
    ddp, one, two, three = weights
    assert optimizer[one] == pytest.approx(optimizer[ddp] / GPUS)
    assert gradients[one] == gradients[ddp]
    assert gradients[two] == pytest.approx(gradients[ddp] / GPUS)
    assert weights[two] == weights[ddp]
    assert weights[three] == pytest.approx(weights[ddp] / GPUS)


def test_zero_on_one_gpu_is_shown_on_a_machine_of_eight():
    page = explain("zero", subject(gpus=1))
    assert "8× H100" in page.grids[0].of
    assert "each of 8 GPUs" in page.text[0]


def test_micro_batches_are_judged_up_to_the_first_that_does_not_fit(asked: Subject):
    lines = explain("headroom", asked).grids[0].lines
    notes = [line.note for line in lines]
    assert notes[0] == "ok"
    assert notes[-1] == "does not fit"
    assert notes.count("does not fit") == 1
    none = Subject(answer=asked.answer, gpu=asked.gpu, headroom=0.0)
    most = Subject(answer=asked.answer, gpu=asked.gpu, headroom=0.6)
    oks = [sum(line.note == "ok" for line in explain("headroom", s).grids[0].lines) for s in (most, none)]
    assert oks[0] < oks[1]


# ------------------------------------------------------------------------------------- links


def test_each_collective_sends_its_share_and_slower_links_take_longer(asked: Subject):
    table = explain("collectives", asked).grids[0]
    buffers, sent = column(table, "BUFFER"), column(table, "A GPU SENDS")
    assert sent["AllReduce"] == pytest.approx(buffers["AllReduce"] * 2 * (GPUS - 1) / GPUS)
    assert sent["AllGather"] == pytest.approx(buffers["AllGather"] * (GPUS - 1) / GPUS)
    assert sent["Broadcast"] == buffers["Broadcast"]
    inside, nodes, ethernet = (column(table, t) for t in ("IN NODE", "2 NODES", "ETHERNET"))
    assert all(inside[name] < nodes[name] < ethernet[name] for name in inside)


def test_the_gradients_of_the_model_are_what_is_reduced(asked: Subject):
    buffers = column(explain("collectives", asked).grids[0], "BUFFER")
    assert buffers["AllReduce"] == pytest.approx(4 * 1.006e9, rel=0.03)
    assert buffers["AllGather"] == pytest.approx(buffers["AllReduce"] / 2)


def test_experts_send_a_copy_of_a_token_to_each_of_its_experts():
    plain = column(explain("collectives", subject()).grids[0], "BUFFER")
    mixtral = subject(params=1e9, gpus=64)
    line = {"model": {"name": "mixtral-8x7b"}, "gpu": "H100-SXM5-80GB", "gpus": 64, "seq_len": 2048}
    (answer,) = api.estimate([parse_run(line)])
    routed = column(explain("collectives", Subject(answer=answer, gpu=mixtral.gpu)).grids[0], "BUFFER")
    assert plain["All-to-all"] == plain["Send/receive"]
    assert routed["All-to-all"] == 2 * routed["Send/receive"]


def test_rates_of_layers_fall_from_the_gpu_to_the_network_without_rdma(asked: Subject):
    rates = list(column(explain("layers", asked).grids[0], "RATE").values())
    assert rates[0] == max(rates)
    assert rates[-1] == min(rates)


def test_the_same_run_waits_longer_over_slower_links(asked: Subject):
    inside, between = explain("interconnect", asked).grids
    waits = list(column(inside, "WAITS").values())
    assert waits == sorted(waits)
    assert column(between, "WAITS")["Ethernet, TCP sockets"] == max(column(between, "WAITS").values())


# ------------------------------------------------------------------------------------- machines and money


def test_a_consumer_card_is_compared_with_a_datacenter_card_and_the_other_way_round(asked: Subject):
    for card in ("H100-SXM5-80GB", "RTX 3090"):
        table = explain("consumer-vs-datacenter", subject(card, gpus=1)).grids[0]
        first, second = table.lines
        assert card in (first.label, second.label)
        assert "no ECC" in first.note
        assert "no ECC" not in second.note


def test_a_run_that_does_not_fit_on_a_card_has_no_time_there():
    page = explain("consumer-vs-datacenter", subject(params=300e9))
    consumer = page.grids[0].lines[0]
    assert "does not fit" in consumer.note
    assert "no time (it does not fit)" in page.text[2]
    assert consumer.figures[-2:] == (None, None)


def test_what_a_gpu_may_cost_grows_with_its_use(asked: Subject):
    table = explain("rent-vs-buy", asked).grids[0]
    worth = list(column(table, "BREAK-EVEN").values())
    assert worth == sorted(worth)
    assert column(table, "RENT")["100 h"] == pytest.approx(100 * 20 / GPUS)


def test_without_a_price_nothing_is_worth_anything_known():
    bare = Subject(answer=subject().answer, gpu=gpu("H100-SXM5-80GB"))
    rent = explain("rent-vs-buy", bare)
    assert set(column(rent.grids[0], "BREAK-EVEN").values()) == {None}
    assert "rented for unknown a GPU (no price known)" in rent.text[1]
    market = explain("spot", bare)
    assert set(column(market.grids[0], "COST").values()) == {None}
    assert market.grids[1].lines == ()
    assert "unknown between checkpoints" in market.text[1]


def test_spot_is_cheaper_and_may_be_taken_away(asked: Subject):
    table, rates = explain("spot", asked).grids
    cost, taken = column(table, "COST"), column(table, "TAKEN AWAY")
    assert cost["spot"] < cost["on demand"]
    assert taken["on demand"] == 0 < taken["spot"]
    times = list(column(rates, "TAKEN IN THE RUN").values())
    assert times == sorted(times)


def test_offers_of_other_machines_do_not_price_the_run(asked: Subject):
    cheap = offer("H100-SXM5-80GB", "on-demand", "0.10", per_node=1)
    other = Subject(answer=asked.answer, gpu=asked.gpu, offers=[*asked.offers, cheap])
    assert explain("spot", other) == explain("spot", asked)
    assert isinstance(explain("spot", other), Page)
