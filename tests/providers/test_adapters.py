"""That no adapter is forgotten: tests, recorded and broken answers, a row about its payload."""

import ast
import csv
import importlib
from importlib.resources import files
from pathlib import Path

import pytest

from planner.errors import UserError
from providers.adapters import adapters, chosen
from providers.catalog import provider_rules
from tests.providers.contract import BROKEN, PAYLOADS

ROOT = Path(__file__).parents[2]
NAMES = sorted(adapters())
MODULES = {
    path.stem: importlib.import_module(f"providers.{path.stem}")
    for path in sorted((ROOT / "providers").glob("*.py"))
}
ADAPTER_MODULES = {name: module for name, module in MODULES.items() if hasattr(module, "ADAPTER")}


def test_every_module_with_an_adapter_is_found():
    assert sorted(m.ADAPTER.provider for m in ADAPTER_MODULES.values()) == NAMES
    assert {"aws", "azure", "gcp", "lambda", "runpod", "vast"} <= set(NAMES)


@pytest.mark.parametrize("name", sorted(ADAPTER_MODULES))
def test_every_adapter_has_a_test_class_that_inherits_the_contract(name: str):
    tests = ast.parse((ROOT / "tests" / "providers" / f"test_{name}.py").read_text())
    classes = [n for n in ast.walk(tests) if isinstance(n, ast.ClassDef)]
    bases = {ast.unparse(base) for c in classes for base in c.bases}
    assert bases & {"AdapterContract", "HttpAdapterContract"}
    assert f"module = '{name}'" in {ast.unparse(s) for c in classes for s in c.body}


@pytest.mark.parametrize("provider", NAMES)
def test_every_adapter_has_recorded_and_broken_answers(provider: str):
    there = {p.stem for p in (PAYLOADS / provider).iterdir()}
    assert there >= {"recorded-1", *BROKEN}


@pytest.mark.parametrize("provider", NAMES)
def test_every_adapter_says_where_the_form_of_its_answers_is_documented(provider: str):
    text = files("providers").joinpath("data/payloads.csv").read_text(encoding="utf-8")
    rows = [r for r in csv.DictReader(text.splitlines()) if r["provider"] == provider]
    assert rows
    for row in rows:
        assert row["basis"] in ("documented", "code", "recalled")
        assert row["call"]
        assert row["source"]


@pytest.mark.parametrize("provider", NAMES)
def test_every_provider_with_live_prices_has_billing_rules(provider: str):
    assert provider in provider_rules()


@pytest.mark.parametrize("name", sorted(ADAPTER_MODULES))
def test_no_adapter_imports_another_nor_an_sdk_at_the_top(name: str):
    module = ast.parse((ROOT / "providers" / f"{name}.py").read_text())
    top = [ast.unparse(n) for n in module.body if isinstance(n, ast.Import | ast.ImportFrom)]
    everywhere = [ast.unparse(n) for n in ast.walk(module) if isinstance(n, ast.Import | ast.ImportFrom)]
    assert not [
        line for line in top for sdk in ("boto", "requests", "google", "nebius") if f"import {sdk}" in line
    ]
    others = [other for other in ADAPTER_MODULES if other != name]
    assert not [
        line
        for line in everywhere
        for other in others
        if line.startswith(f"from providers.{other} ")
        or (line.startswith("from providers import ") and other in line.split(" import ")[1].split(", "))
    ]


def test_providers_are_chosen_by_name_in_any_spelling():
    assert [a.provider for a in chosen(["Vast", "aws"])] == ["aws", "vast"]
    assert [a.provider for a in chosen([])] == NAMES


def test_a_provider_without_an_adapter_is_refused_with_near_names():
    with pytest.raises(UserError, match="did you mean vast"):
        chosen(["vasst"])
