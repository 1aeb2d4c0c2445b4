"""``--explain``: no term without formula, source and basis."""

from planner.cli.screens.explain import confidence, explain
from planner.cli.text import Terminal
from planner.results import Estimate, MemoryParts, SpeedParts
from planner.trust.terms import terms


def test_every_term_of_memory_and_time_is_explained() -> None:
    wanted = {("memory", name) for name in MemoryParts.model_fields}
    wanted |= {("time", name) for name in SpeedParts.model_fields}
    assert set(terms()) == wanted
    for term in terms().values():
        assert term.formula
        assert term.source
        assert term.basis in ("exact", "measured", "modelled", "fitted", "assumed")


def test_explanation_names_every_term_with_its_value(estimate: Estimate) -> None:
    screen = explain(estimate, Terminal(80))
    assert max(map(len, screen.splitlines())) <= 80
    for name in (*MemoryParts.model_fields, *SpeedParts.model_fields):
        assert f"  {name.replace('_', ' ')} " in screen
    assert screen.count("source: ") == len(terms())
    assert "9.77 GiB" in screen


def test_confidence_counts_measured_runs(estimate: Estimate) -> None:
    said = confidence(estimate)
    assert said.startswith("Confidence: memory ")
    assert said.count("measured runs") == 2
