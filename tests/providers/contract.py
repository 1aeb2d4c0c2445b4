"""What every adapter's tests inherit: good answers keep the contract, broken ones never become a price.

A test class names the adapter's module; its answers lie in ``tests/payloads/<provider>``.
"""

import importlib
import json
import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import pytest
import requests
import responses

from planner.types import Offer
from providers import http
from providers.base import AnswerError, Parsed, PriceAdapter, key, violations

PAYLOADS = Path(__file__).parents[1] / "payloads"
BROKEN = ("missing_key", "empty_page", "string_price", "second_page", "error_body")
SEEN = datetime(2026, 11, 30, 12, tzinfo=UTC)
HTML = b"<!DOCTYPE html><html><body>Maintenance</body></html>"
SECRET = "secret-key-4711"


def prices(parsed: Parsed) -> dict[tuple[str, ...], object]:
    return {key(o): o.usd_per_hour for o in parsed.offers}


DAMAGES = (None, "x", "", -1, 0, 1e400, True, [], {}, [None], {"a": None})
Place = tuple[str | int, ...]


def paths(found: object, here: Place = ()) -> Iterator[Place]:
    """Places of all values in a JSON document."""
    inner = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for name, value in inner:
        yield (*here, name)
        yield from paths(value, (*here, name))


def damage(page: object, path: Place, value: object) -> object:
    """A copy of ``page`` with another value at ``path``."""
    damaged = json.loads(json.dumps(page))
    inside = damaged
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = value
    return damaged


class AdapterContract:
    module: ClassVar[str]

    @property
    def adapter(self) -> PriceAdapter:
        return importlib.import_module(f"providers.{self.module}").ADAPTER

    def payload(self, name: str) -> bytes:
        return (PAYLOADS / self.adapter.provider / f"{name}.json").read_bytes()

    def recorded(self) -> list[bytes]:
        return [p.read_bytes() for p in sorted((PAYLOADS / self.adapter.provider).glob("recorded-*.json"))]

    def parsed(self, *more: bytes) -> Parsed:
        return self.adapter.parse([*self.recorded(), *more], SEEN)

    def offer(self, instance_type: str, market: str = "on-demand", **where: str) -> Offer:
        (found,) = [
            o
            for o in self.parsed().offers
            if (o.instance_type, o.market) == (instance_type, market)
            and all(getattr(o, name) == value for name, value in where.items())
        ]
        return found

    def test_good_answers_keep_the_contract(self):
        parsed = self.parsed()
        assert parsed.offers
        assert violations(parsed.offers) == ()
        assert parsed.num_unread == 0

    def test_every_offer_says_whose_it_is_when_it_was_seen_and_that_it_is_live(self):
        for offer in self.parsed().offers:
            assert (offer.provider, offer.price_seen, offer.origin) == (self.adapter.provider, SEEN, "live")
            assert offer.price_seen is not None
            assert offer.price_seen.tzinfo is UTC

    def test_prices_have_no_exponent_and_come_out_the_same_each_time(self):
        assert self.parsed() == self.parsed()
        assert not [o for o in self.parsed().offers if "E" in str(o.usd_per_hour)]

    def test_a_gpu_that_is_not_in_the_table_is_counted(self):
        assert [u for u in self.parsed().unknown_gpus if "zeus" in u.name.lower() and u.count == 1]

    def test_a_row_without_a_documented_key_is_counted_and_gives_no_price(self):
        broken = self.with_broken("missing_key")
        assert broken.num_unread >= 1
        assert [n for n in broken.notes if "not read" in n]
        self.assert_no_new_price(broken)
        assert len(broken.offers) < len(self.parsed().offers)

    def test_an_empty_page_is_an_error_not_an_empty_offer_list(self):
        with pytest.raises(AnswerError, match="no GPU offer"):
            self.adapter.parse([self.payload("empty_page")], SEEN)

    def test_a_price_in_letters_is_unknown_and_one_in_digits_is_read(self):
        broken = self.with_broken("string_price")
        self.assert_no_new_price(broken)
        before, after = prices(self.parsed()), prices(broken)
        assert [k for k, price in before.items() if price is not None and after.get(k) is None]
        assert [k for k, price in before.items() if price is not None and after.get(k) == price]
        assert violations(broken.offers) == ()

    def test_a_second_page_adds_its_offers(self):
        first, both = prices(self.parsed()), prices(self.parsed(self.payload("second_page")))
        assert first.items() < both.items()

    @pytest.mark.parametrize("content", [HTML, b"", b'{"data": ', b"[]", b"null", b'"text"', b"{}"])
    def test_what_is_not_the_documented_answer_is_an_error(self, content: bytes):
        with pytest.raises(AnswerError):
            self.adapter.parse([content], SEEN)

    def test_an_error_in_the_body_is_an_error_whatever_the_status_was(self):
        with pytest.raises(AnswerError):
            self.adapter.parse([self.payload("error_body")], SEEN)

    @pytest.mark.parametrize("seed", range(6))
    def test_damage_anywhere_is_an_error_or_loses_rows_and_never_breaks_the_contract(self, seed: int):
        pages = [json.loads(p) for p in self.recorded()]
        places = [(i, path) for i, page in enumerate(pages) for path in paths(page)]
        chance = random.Random(seed)
        for i, path in chance.sample(places, min(len(places), 40)):
            damaged = damage(pages[i], path, chance.choice(DAMAGES))
            raw = [json.dumps(damaged if n == i else page).encode() for n, page in enumerate(pages)]
            try:
                parsed = self.adapter.parse(raw, SEEN)
            except AnswerError:
                continue
            assert violations(parsed.offers) == (), (path, damaged)

    def with_broken(self, name: str) -> Parsed:
        """What is made of a broken answer in the place of the good one."""
        return self.adapter.parse([self.payload(name)], SEEN)

    def assert_no_new_price(self, broken: Parsed) -> None:
        """A broken answer may lose prices, never change one."""
        good = prices(self.parsed())
        assert not [k for k, p in prices(broken).items() if p is not None and good.get(k) != p]


class HttpAdapterContract(AdapterContract):
    """For adapters that ask over HTTP by themselves. ``environment``: what the adapter needs to run."""

    environment: ClassVar[dict[str, str]] = {}
    pages_of_a_fetch: ClassVar[int] = 1

    def asking(self) -> PriceAdapter:
        """Adapter as it is asked in tests."""
        return self.adapter

    def serve(self, content: bytes = b"", *, status: int = 200, **more: object) -> None:
        """Answer every request to the adapter's address."""
        anything = re.compile(re.escape(self.adapter.url) + ".*")
        for method in (responses.GET, responses.POST):
            responses.add(method, anything, body=more.pop("body", content), status=status, **more)

    @pytest.fixture(autouse=True)
    def _at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http, "BACKOFF_S", 0)

    @responses.activate
    def test_pages_come_as_they_were_received(self):
        content = self.recorded()[0]
        self.serve(content)
        assert self.asking().fetch(self.environment) == [content] * self.pages_of_a_fetch

    @responses.activate
    def test_a_busy_server_is_asked_again(self):
        content = self.recorded()[0]
        self.serve(b"slow down", status=429, headers={"Retry-After": "0"})
        self.serve(content)
        assert content in self.asking().fetch(self.environment)

    @responses.activate
    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_a_server_that_stays_busy_or_broken_is_given_up(self, status: int):
        self.serve(b"", status=status)
        with pytest.raises(AnswerError, match=f"HTTP {status}"):
            self.asking().fetch(self.environment)
        assert len(responses.calls) >= http.ATTEMPTS

    @responses.activate
    @pytest.mark.parametrize(
        ("raised", "said"),
        [
            (requests.ReadTimeout(SECRET), "no answer within"),
            (requests.ConnectionError(SECRET), "cannot connect"),
        ],
    )
    def test_silence_is_an_error_that_names_the_host_only(self, raised: Exception, said: str):
        anything = re.compile(re.escape(self.adapter.url) + ".*")
        responses.add(responses.GET, anything, body=raised)
        responses.add(responses.POST, anything, body=raised)
        with pytest.raises(AnswerError, match=said) as caught:
            self.asking().fetch(self.environment)
        assert SECRET not in str(caught.value)

    @responses.activate
    def test_html_instead_of_json_is_an_error(self):
        self.serve(HTML)
        with pytest.raises(AnswerError, match="HTML instead of JSON"):
            self.asking().fetch(self.environment)

    @responses.activate
    def test_a_body_that_reports_an_error_is_an_error_at_status_200(self):
        self.serve(self.payload("error_body"))
        with pytest.raises(AnswerError, match="reports an error"):
            self.asking().fetch(self.environment)

    @responses.activate
    def test_a_key_that_a_server_repeats_is_not_repeated(self):
        self.serve(json.dumps({"error": {"message": f"bad key {SECRET}"}}).encode(), status=401)
        with pytest.raises(AnswerError, match="HTTP 401") as caught:
            self.asking().fetch(self.environment)
        assert not self.environment or SECRET not in str(caught.value)

    def test_missing_credentials_are_named_with_a_hint(self):
        missing = self.adapter.unavailable({})
        assert (missing is not None) == bool(self.environment)
        assert self.adapter.unavailable(self.environment) is None
        for name in self.environment:
            assert missing is not None
            assert name in missing.reason
            assert f"export {name}=" in missing.hint
