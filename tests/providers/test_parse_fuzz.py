"""Whatever a provider answers, ``parse`` gives offers that keep the contract, or one ``AnswerError``."""

import copy
import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.adapters import adapters
from providers.base import AnswerError, key, violations
from tests.providers.contract import PAYLOADS

SEEN = datetime(2026, 11, 30, 12, tzinfo=UTC)
DROPPED = object()
ODD = st.one_of(
    st.just(DROPPED),
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["0", "-1", "1e400", "NaN", "∞", "700.0", "0.00001", [], {}, [[]], [{}], {"a": {}}]),
)
Path = tuple[str | int, ...]


def paths(value: object, here: Path = ()) -> Iterator[Path]:
    """Every place inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inside:
        yield (*here, name)
        yield from paths(part, (*here, name))


def changed(value: object, path: Path, odd: object) -> object:
    """``value`` with something odd at ``path``."""
    copied = copy.deepcopy(value)
    *way, last = path
    inner = copied
    for name in way:
        inner = inner[name]
    if odd is DROPPED:
        del inner[last]
    else:
        inner[last] = odd
    return copied


def recorded(provider: str) -> list[bytes]:
    return [p.read_bytes() for p in sorted((PAYLOADS / provider).glob("recorded-*.json"))]


@pytest.mark.parametrize("provider", sorted(adapters()))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_an_odd_answer_never_breaks_the_contract(provider: str, data: st.DataObject):
    pages = recorded(provider)
    which = data.draw(st.integers(0, len(pages) - 1))
    page = json.loads(pages[which])
    for _ in range(data.draw(st.integers(1, 3))):
        page = changed(page, data.draw(st.sampled_from(sorted(paths(page), key=str))), data.draw(ODD))
        if not page:
            break
    pages[which] = json.dumps(page).encode()
    try:
        parsed = adapters()[provider].parse(pages, SEEN)
    except AnswerError:
        return
    assert violations(parsed.offers) == ()
    assert {o.provider for o in parsed.offers} <= {provider}
    assert all(str(part) == part for offer in parsed.offers for part in key(offer))
