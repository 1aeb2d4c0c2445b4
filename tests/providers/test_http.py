"""Asking over HTTP: JSON or an error."""

import json

import pytest
import requests
import responses
from urllib3.response import HTTPResponse

from providers import http
from providers.base import AnswerError

URL = "https://prices.example/api"
KEY = "secret-key-4711"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BACKOFF_S", 0)


@pytest.mark.parametrize(("told", "waited_s"), [("3600", http.LONGEST_WAIT_S), ("7", 7), (None, None)])
def test_a_server_is_waited_for_as_it_says_but_not_for_an_hour(told: str | None, waited_s: float | None):
    answer = HTTPResponse(status=429, headers={"Retry-After": told} if told else {})
    with http.session() as using:
        assert using.get_adapter(URL).max_retries.get_retry_after(answer) == waited_s


def test_waits_between_tries_grow_and_have_an_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "BACKOFF_S", 0.5)
    with http.session() as using:
        tries = using.get_adapter(URL).max_retries
    waits = []
    for _ in range(http.ATTEMPTS):
        tries = tries.increment("GET", URL, HTTPResponse(status=503))
        waits.append(tries.get_backoff_time())
    assert waits == sorted(waits)
    assert waits[-1] <= http.LONGEST_WAIT_S


@responses.activate
def test_a_post_is_sent_again_too():
    responses.post(URL, status=502)
    responses.post(URL, json={"fine": 1})
    with http.session() as using:
        assert http.ask(using, URL, body={"query": "prices"})
    assert [json.loads(c.request.body) for c in responses.calls] == [{"query": "prices"}] * 2


@responses.activate
@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refusal_is_not_asked_again(status: int):
    responses.get(URL, json={"error": {"code": "denied", "message": "no such key"}}, status=status)
    with http.session() as using, pytest.raises(AnswerError, match=rf"HTTP {status} \(denied no such key\)"):
        http.ask(using, URL)
    assert len(responses.calls) == 1


@responses.activate
def test_no_part_of_a_header_or_query_is_in_a_message():
    responses.get(URL, json={"error": f"the key {KEY} is wrong"}, status=401)
    with http.session() as using, pytest.raises(AnswerError) as caught:
        http.ask(using, URL, headers={"Authorization": f"Bearer {KEY}"}, params={"account": "4711"})
    assert str(caught.value) == "prices.example: HTTP 401 (the key *** is wrong)"


@responses.activate
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (requests.ConnectTimeout(KEY), "no answer within 30 s"),
        (requests.ConnectionError(KEY), "cannot connect"),
        (requests.TooManyRedirects(KEY), "TooManyRedirects"),
        (requests.exceptions.ChunkedEncodingError(KEY), "ChunkedEncodingError"),
    ],
)
def test_every_failure_is_one_error_without_details(error: Exception, said: str):
    responses.get(URL, body=error)
    with http.session() as using, pytest.raises(AnswerError) as caught:
        http.ask(using, URL)
    assert str(caught.value) == f"prices.example: {said}"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<html></html>", "HTML instead of JSON"),
        (b"\n  <!doctype html>", "HTML instead of JSON"),
        (b"", "not JSON"),
        (b'{"a": ', "not JSON"),
        (b"3", "neither a JSON object nor a list"),
        (b'{"error": {"code": "x", "message": "y"}}', "reports an error: x y"),
        (b'{"Error": {"Code": "x", "Message": "y"}}', "reports an error: x y"),
        (b'{"errors": [{"message": "y"}], "data": null}', "reports an error: y"),
        (b'{"success": false, "msg": "y"}', "reports an error: y"),
        (b'{"success": false}', "reports an error: success is false"),
    ],
)
def test_what_is_no_answer_is_an_error(content: bytes, said: str):
    with pytest.raises(AnswerError, match=said):
        http.load(content)


@pytest.mark.parametrize(
    "content", [b"{}", b"[]", b'{"error": null}', b'{"errors": []}', b'{"success": true}']
)
def test_an_answer_without_an_error_is_read(content: bytes):
    assert http.load(content) == json.loads(content)


def test_pages_are_followed_until_there_is_none():
    pages = {"a": {"next": "b"}, "b": {"next": "c"}, "c": {}}
    found = http.follow(
        lambda name: json.dumps(pages[name]).encode(),
        "a",
        lambda _, page: page.get("next") and str(page["next"]),
    )
    assert [json.loads(p) for p in found] == list(pages.values())


@pytest.mark.parametrize("most", [1, 2])
def test_pages_without_end_are_an_error(most: int):
    with pytest.raises(AnswerError, match="does not end"):
        http.follow(lambda _: b"{}", "0", lambda here, _: str(int(here) + 1), most=most)


@responses.activate
def test_lines_of_a_file_come_one_by_one_and_a_missing_file_is_an_error():
    responses.get(URL, body="a,b\n1,ü\n".encode())
    responses.get(f"{URL}/none", status=404)
    with http.session() as using:
        assert list(http.lines(using, URL)) == ["a,b", "1,ü"]
        with pytest.raises(AnswerError, match="HTTP 404"):
            list(http.lines(using, f"{URL}/none"))
