"""The README shows the accuracy of today."""

import re

import pytest
import readme_tables

NUMBER = re.compile(r"\d+(?:\.\d+)?")
STALE = "stale: run PYTHONPATH=.:tests/accuracy python tests/accuracy/readme_tables.py"


@pytest.fixture(scope="module")
def lines() -> list[tuple[str, str]]:
    """Lines of the README beside those of today."""
    shown = readme_tables.parts(readme_tables.README.read_text(encoding="utf-8"))[1].strip().splitlines()
    today = readme_tables.section().strip().splitlines()
    assert len(shown) == len(today), STALE
    return list(zip(shown, today, strict=True))


def test_the_section_has_the_words_of_today(lines):
    for shown, today in lines:
        assert NUMBER.sub("#", shown) == NUMBER.sub("#", today), STALE


def test_the_section_has_the_figures_of_today(lines):
    for shown, today in lines:
        for then, now in zip(NUMBER.findall(shown), NUMBER.findall(today), strict=True):
            assert float(then) == pytest.approx(float(now), rel=0.05, abs=1.0), f"{STALE}\n{shown}\n{today}"


def test_bad_rows_are_shown_too(lines):
    text = "\n".join(shown for shown, _ in lines)
    groups = {each.row.source for quantity in ("memory", "time") for each in readme_tables.judged(quantity)}
    assert sum(group in text for group in groups) > 25
    assert text.count("<details>") == len(readme_tables.TITLES)
