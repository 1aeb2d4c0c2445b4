"""Machines of the user as offers."""

import json
import logging
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from planner.errors import UserError
from planner.ownership import OwnedMachine
from providers import owned
from providers.base import violations

SEEN = datetime(2026, 11, 30, tzinfo=UTC)
GIB = 2**30


def node(gpu: str | None = "RTX-A6000", count: float = 4.0, **more: object) -> dict[str, object]:
    """A node as ``ray.nodes()`` describes it."""
    resources = {"CPU": 32.0, "memory": 70.0 * GIB, "object_store_memory": 30.0 * GIB, "node:10.0.0.1": 1.0}
    if gpu is not None:
        resources |= {"GPU": count, f"accelerator_type:{gpu}": 1.0}
    return {
        "NodeID": "3f2a",
        "Alive": True,
        "NodeManagerHostname": "left",
        "Resources": resources,
        "Labels": {"ray.io/node-id": "3f2a"},
        **more,
    }


# ---------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("text", "gpu", "gpus"),
    [
        ("2x rtx-4090", "RTX 4090", 2),
        ("RTX A6000", "RTX A6000", 1),
        ("8 × h100-sxm5-80gb", "H100-SXM5-80GB", 8),
        ("4*L40S", "L40S", 4),
    ],
)
def test_machines_are_read_from_words(text: str, gpu: str, gpus: int):
    (found,) = owned.machines_of(text)
    assert (found.gpu, found.gpus, found.machines) == (gpu, gpus, 1)


def test_further_fields_follow_by_name():
    (found,) = owned.machines_of("2x rtx-4090, machines=3, purchase_usd=5200, name=left, memory_gib=128")
    assert (found.machines, found.purchase_usd, found.name, found.memory_gib) == (3, 5200, "left", 128)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no GPU"),
        ("2x", "unknown GPU"),
        ("2x rtx-4900", "did you mean"),
        ("2x h100", "can mean several"),
        ("2x rtx-4090, price=3", "unknown key 'price'"),
        ("2x rtx-4090, purchase_usd", "not key=value"),
        ("2x rtx-4090, purchase_usd=", "not key=value"),
        ("2x rtx-4090, purchase_usd=cheap", "purchase_usd is 'cheap'"),
        ("2x rtx-4090, purchase_usd=-5", "greater than or equal to 0"),
        ("2x rtx-4090, purchase_usd=nan", "finite"),
        ("0x rtx-4090", "gpus is 0"),
        ("2x rtx-4090, purchase_usd=10, resale_usd=20", "resale_usd is more"),
        ("2x rtx-4090, hours_used_per_month=800", "less than or equal to 730"),
        ("nosuch.yaml", "cannot read"),
    ],
)
def test_what_cannot_be_read_is_one_error_with_a_hint(text: str, said: str):
    with pytest.raises(UserError, match=said) as caught:
        owned.machines_of(text)
    assert caught.value.hint


@given(st.text(max_size=60))
@example("2x rtx-4090, gpu=l4")
@example("2x rtx-4090, name=\n")
@example("99999999999999999x rtx-4090")
def test_whatever_is_typed_is_a_machine_or_one_error(text: str):
    assume(not text.strip().lower().endswith((".yaml", ".yml")))
    try:
        found = owned.offers(owned.machines_of(text), SEEN)
    except UserError:
        return
    assert violations(found) == ()


# ---------------------------------------------------------------------------------- files


def test_a_yaml_file_holds_one_machine_or_several(tmp_path: Path):
    one, two = tmp_path / "one.yaml", tmp_path / "two.yml"
    one.write_text("gpu: rtx-4090\ngpus: 2\npurchase_usd: 5200\nelectricity_usd_per_kwh: 0.31\n")
    two.write_text("- {gpu: l4, name: old}\n- {gpu: l40s, gpus: 4, network_gbit_per_s: 100}\n")
    (found,) = owned.machines_of(str(one))
    assert (found.gpus, found.electricity_usd_per_kwh) == (2, Decimal("0.31"))
    assert [m.gpu for m in owned.machines_of(str(two))] == ["L4", "L40S"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "neither a machine"),
        ("[]", "neither a machine"),
        ("3", "neither a machine"),
        ("- 3", "neither a machine"),
        ("gpu: [", "not YAML"),
        ("- {gpu: l4}\n- {gpu: l4, watts: 3}", "machine 2: unknown key 'watts'"),
        ("{gpus: 2}", "gpu is missing"),
        ("{gpu: l4, gpus: yes}", "gpus is true"),
    ],
)
def test_a_bad_file_names_the_machine_and_the_field(tmp_path: Path, content: str, said: str):
    path = tmp_path / "mine.yaml"
    path.write_text(content)
    with pytest.raises(UserError, match=said):
        owned.machines_of(str(path))


# ---------------------------------------------------------------------------------- a cluster


def test_nodes_of_a_cluster_become_machines_equal_ones_together():
    found = owned.from_ray_nodes([node(), node(NodeManagerHostname="right"), node(count=2.0)])
    assert [(m.gpu, m.gpus, m.machines) for m in found] == [("RTX A6000", 2, 1), ("RTX A6000", 4, 2)]
    assert (found[0].vcpus, found[0].memory_gib) == (32, 100)


def test_dead_nodes_and_nodes_without_a_gpu_are_left_out():
    (found,) = owned.from_ray_nodes([node(), node(Alive=False), node(gpu=None)])
    assert found.machines == 1


def test_memory_in_the_name_tells_cards_apart():
    both = node("A100")
    both["Resources"]["accelerator_type:A100-80G"] = 1.0
    (found,) = owned.from_ray_nodes([both], ["A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIE-40GB"])
    assert found.gpu == "A100-SXM4-80GB"


def test_a_name_that_may_be_several_gpus_asks_which():
    with pytest.raises(UserError, match="left: H100 can mean H100-NVL-94GB, H100-PCIE-80GB") as caught:
        owned.from_ray_nodes([node("H100", 8.0)])
    assert caught.value.hint.startswith("--gpu")
    (found,) = owned.from_ray_nodes([node("H100", 8.0)], ["H100-SXM5-80GB", "L4"])
    assert found.gpu == "H100-SXM5-80GB"


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([], "no machine with a GPU"),
        ([{}], "no machine with a GPU"),
        ([node(gpu=None)], "no machine with a GPU"),
        ([node("Zeus-9")], "not in the table"),
        ([{"Alive": True, "Resources": {"GPU": 1.0}}], "does not say which GPU"),
    ],
)
def test_a_cluster_that_says_too_little_is_an_error(nodes: list[dict[str, object]], said: str):
    with pytest.raises(UserError, match=said):
        owned.from_ray_nodes(nodes)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stand-in for Ray: notes how it was called."""
    calls: dict[str, object] = {}
    fake = SimpleNamespace(
        calls=calls,
        init=lambda **given: calls.update(given),
        nodes=lambda: [node()],
        shutdown=lambda: calls.update(down=True),
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    return fake


def test_a_live_cluster_is_asked_without_usage_statistics(ray: SimpleNamespace):
    found = owned.ray_nodes("auto")
    assert owned.from_ray_nodes(found)[0].gpu == "RTX A6000"
    assert ray.calls["address"] == "auto"
    assert ray.calls["logging_level"] == logging.ERROR
    assert ray.calls["down"]
    assert owned.os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_a_cluster_that_does_not_answer_is_one_error(ray: SimpleNamespace):
    def refuse(**_: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nlong story")

    ray.init = refuse
    with pytest.raises(UserError, match="no cluster answers") as caught:
        owned.ray_nodes("auto")
    assert "long story" not in str(caught.value)


def test_an_address_that_nobody_listens_at_is_not_waited_for(
    ray: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    """Ray itself was seen to try for minutes."""

    def refuse(place: tuple[str, int], timeout: float) -> None:
        assert place == ("10.0.0.9", 6379)
        assert timeout <= 10
        raise ConnectionRefusedError("Connection refused")

    monkeypatch.setattr(owned.socket, "create_connection", refuse)
    for address in ("10.0.0.9:6379", "ray://10.0.0.9:6379"):
        with pytest.raises(UserError, match="no cluster answers"):
            owned.ray_nodes(address)
    assert ray.calls == {}


@pytest.mark.parametrize("address", ["", "local", "10.0.0.9", "10.0.0.9:70000", "ray://", "[::1"])
def test_what_names_no_cluster_never_starts_one(ray: SimpleNamespace, address: str):
    with pytest.raises(UserError, match=r"is no HOST:PORT|no cluster answers"):
        owned.ray_nodes(address)
    assert ray.calls == {}


# ---------------------------------------------------------------------------------- offers


def test_offers_of_owned_machines_keep_the_contract_of_all_offers():
    machines = [*owned.machines_of("2x rtx-4090, machines=3"), *owned.machines_of("8x h100-sxm5-80gb")]
    found = owned.offers(machines, SEEN)
    assert violations(found) == ()
    assert {(o.provider, o.market, o.origin, o.price_age_months) for o in found} == {
        ("own", "owned", "own", 0)
    }
    assert [(o.instance_type, o.max_nodes) for o in found] == [("2x RTX 4090", 3), ("8x H100-SXM5-80GB", 1)]


def test_the_price_is_of_an_hour_of_use_and_names_what_it_holds():
    (offer,) = owned.offers(owned.machines_of("2x rtx-4090, purchase_usd=4800"), SEEN)
    assert offer.usd_per_hour == (Decimal(100) / 365 + Decimal("1.26") * Decimal("0.16")).quantize(
        Decimal("0.000001")
    )
    assert "a life of 4 years" in offer.note
    assert offer.not_included == ("power when idle", "hosting")


def test_dearer_electricity_is_a_dearer_offer():
    cheap, dear = (
        owned.offer(OwnedMachine(gpu="L4", electricity_usd_per_kwh=Decimal(usd)), SEEN).usd_per_hour
        for usd in ("0.2", "0.4")
    )
    assert dear == 2 * cheap


def test_a_machine_of_which_no_cost_is_known_has_no_price():
    offer = owned.offer(OwnedMachine(gpu="L4", electricity_usd_per_kwh=Decimal(0)), SEEN)
    assert offer.usd_per_hour is None
    assert offer.unknown_why


def test_links_are_those_that_were_said_and_careful_where_nothing_was():
    said = owned.links_of(OwnedMachine(gpu="RTX A6000", gpus=2, intra_node="NVLink bridge", machines=2))
    assert "nvlink" in said.intra
    silent = owned.links_of(OwnedMachine(gpu="RTX A6000", gpus=2))
    assert "nvlink" not in silent.intra
    assert silent.inter == "one-node"
    wired = owned.links_of(OwnedMachine(gpu="RTX A6000", gpus=2, network_gbit_per_s=100))
    assert wired.inter_gbit_per_s == 100


def test_two_machines_of_one_name_are_refused():
    machines = owned.machines_of("2x rtx-4090") * 2
    with pytest.raises(UserError, match="2 machines are called"):
        owned.offers(machines, SEEN)


def test_an_offer_of_an_owned_machine_survives_json():
    offer = owned.offer(OwnedMachine(gpu="L4"), SEEN)
    assert type(offer).model_validate(json.loads(offer.model_dump_json())) == offer


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("64x H100-SXM5-80GB", "in one machine: 16 at most"),
        ("8x H100-SXM5-80GB, machines=8, inter_node=bogus123", "names no network"),
        ("8x H100-SXM5-80GB, machines=8, network_gbit_per_s=3200", "does not say which network"),
    ],
)
def test_what_would_silently_be_taken_for_something_else_is_refused(text: str, says: str):
    with pytest.raises(UserError, match=says) as caught:
        owned.offers(owned.machines_of(text), SEEN)
    assert "--own" in caught.value.hint or "inter_node" in caught.value.hint
