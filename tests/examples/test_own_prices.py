"""The examples of owned machines and price lists."""

import json
from pathlib import Path

import pytest

from planner.cli import main
from planner.ownership import ownership
from providers.owned import from_file
from providers.price_list import read

EXAMPLES = Path(__file__).parents[2] / "examples" / "own_prices"


def test_both_forms_of_the_price_list_say_the_same():
    as_csv, as_yaml = read(str(EXAMPLES / "prices.csv")), read(str(EXAMPLES / "prices.yaml"))
    unlike = {"source": ""}
    assert [o.model_copy(update=unlike) for o in as_csv.offers] == [
        o.model_copy(update=unlike) for o in as_yaml.offers
    ]
    assert [(d.provider, d.market, d.factor) for d in as_csv.discounts] == [
        (d.provider, d.market, d.factor) for d in as_yaml.discounts
    ]


def test_the_machines_leave_nothing_unknown():
    machines = from_file(str(EXAMPLES / "machines.yaml"))
    assert [m.name for m in machines] == ["workstation", "rack"]
    assert [ownership(m).unknown for m in machines] == [(), ()]


def test_they_can_be_compared_with_the_prices_of_the_list(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PLAN_CACHE_DIR", str(tmp_path))
    files = ("--own", str(EXAMPLES / "machines.yaml"), "--price-list", str(EXAMPLES / "prices.csv"))
    assert main.run(["compare", *files, "--json", "--top", "100"]) == 0
    rack = json.loads(capsys.readouterr().out)["comparisons"][1]
    assert {r["provider"] for r in rack["rents"]} >= {"regio", "aws"}
