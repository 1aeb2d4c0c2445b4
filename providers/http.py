"""HTTP for price adapters: time-outs, retries with backoff, and JSON or an error, never a half answer.

``requests`` is imported on first use. No message names a URL's query, a header or a key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from providers.base import AnswerError

if TYPE_CHECKING:
    import requests

Json = Mapping[str, object]

CONNECT_S = 5.0
READ_S = 30.0
ATTEMPTS = 4
BACKOFF_S = 0.5
LONGEST_WAIT_S = 20.0
MOST_PAGES = 500
AGAIN = (429, 500, 502, 503, 504)
_SHORTEST_SECRET = 6


def session() -> requests.Session:
    """Build a session that asks again after 429 and 5xx: with backoff, or when Retry-After says.

    Every request of an adapter only reads, so a POST may be sent again too.
    """
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.response import BaseHTTPResponse
    from urllib3.util.retry import Retry

    class Impatient(Retry):
        """Waits for no server longer than ``LONGEST_WAIT_S``, whatever it says."""

        def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
            told = super().get_retry_after(response)
            return None if told is None else min(told, LONGEST_WAIT_S)

    retry = Impatient(
        total=ATTEMPTS,
        connect=1,
        read=1,
        status=ATTEMPTS,
        status_forcelist=AGAIN,
        allowed_methods=None,
        backoff_factor=BACKOFF_S,
        backoff_max=LONGEST_WAIT_S,
        respect_retry_after_header=True,
        raise_on_status=False,
    )
    made = requests.Session()
    made.mount("https://", HTTPAdapter(max_retries=retry))
    made.mount("http://", HTTPAdapter(max_retries=retry))
    made.headers["User-Agent"] = "plan (GPU price look-up)"
    return made


def ask(
    using: requests.Session,
    url: str,
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    body: Json | None = None,
) -> bytes:
    """GET ``url``, or POST ``body`` as JSON to it; returns the JSON text as received.

    Raises ``AnswerError`` for anything else than a JSON object or list that reports no error.
    """
    import requests

    host = urlsplit(url).hostname or url
    secrets = [*(headers or {}).values()]
    try:
        answer = using.request(
            "GET" if body is None else "POST",
            url,
            params=params,
            headers=headers,
            json=body,
            timeout=(CONNECT_S, READ_S),
        )
        raw = answer.content
    except requests.Timeout:
        raise AnswerError(f"{host}: no answer within {READ_S:.0f} s") from None
    except requests.ConnectionError:
        raise AnswerError(f"{host}: cannot connect") from None
    except requests.RequestException as error:
        raise AnswerError(f"{host}: {type(error).__name__}") from None
    if not answer.ok:
        said = _said(raw)
        raise AnswerError(clean(f"{host}: HTTP {answer.status_code}{said and f' ({said})'}", secrets))
    try:
        load(raw)
    except AnswerError as error:
        raise AnswerError(clean(f"{host}: {error}", secrets)) from None
    return raw


def lines(using: requests.Session, url: str) -> Iterator[str]:
    """Lines of a text file that is too large to hold. Raises ``AnswerError`` as ``ask`` does."""
    import requests

    host = urlsplit(url).hostname or url
    try:
        with using.get(url, stream=True, timeout=(CONNECT_S, READ_S)) as answer:
            if not answer.ok:
                raise AnswerError(f"{host}: HTTP {answer.status_code}")
            answer.encoding = "utf-8"
            yield from answer.iter_lines(chunk_size=1 << 16, decode_unicode=True)
    except requests.RequestException as error:
        raise AnswerError(f"{host}: {type(error).__name__} within the file") from None


def document(raw: bytes) -> Json:
    """Read a JSON object. Raises ``AnswerError`` for a list, and for what ``load`` refuses."""
    read = load(raw)
    if not isinstance(read, dict):
        raise AnswerError("the answer is not a JSON object")
    return read


def load(raw: bytes) -> object:
    """Read a JSON answer. Raises ``AnswerError`` for HTML, broken JSON and a body that reports an error."""
    if raw.lstrip()[:1] == b"<":
        raise AnswerError("HTML instead of JSON")
    try:
        read = json.loads(raw)
    except ValueError:
        raise AnswerError("the answer is not JSON") from None
    if not isinstance(read, dict | list):
        raise AnswerError("the answer is neither a JSON object nor a list")
    said = error_of(read)
    if said is not None:
        raise AnswerError(f"the answer reports an error: {said}")
    return read


def error_of(read: object) -> str | None:
    """Return the message of an error that a body reports, whatever the status; ``None`` if it reports none.

    Known forms: ``error`` (Lambda, Google), ``Error`` (Azure), ``errors`` (GraphQL), ``success: false``.
    """
    if not isinstance(read, dict):
        return None
    for name in ("error", "Error", "errors"):
        if read.get(name):
            return _message(read[name])
    if read.get("success") is False:
        return _message(read.get("msg") or read.get("message") or "success is false")
    return None


def _message(found: object) -> str:
    """Short text of an error object, list or string."""
    if isinstance(found, list):
        found = found[0] if found else ""
    if isinstance(found, dict):
        parts = [found.get(k) for k in ("code", "Code", "status", "message", "Message")]
        found = " ".join(str(p) for p in parts if p) or "no message"
    return " ".join(str(found).split())[:160]


def _said(raw: bytes) -> str:
    """Return the message of an error body, empty where it has none that can be read."""
    try:
        return error_of(json.loads(raw)) or ""
    except ValueError:
        return ""


def clean(message: str, secrets: list[str]) -> str:
    """``message`` without any of ``secrets``, nor their words: a server may echo a key."""
    words = {w for s in secrets for w in (s, *s.split()) if len(w) >= _SHORTEST_SECRET}
    for word in sorted(words, key=len, reverse=True):
        message = message.replace(word, "***")
    return message


def follow(
    get: Callable[[str], bytes],
    first: str,
    next_of: Callable[[str, Json], str | None],
    most: int = MOST_PAGES,
) -> list[bytes]:
    """Every page from ``first`` on: ``next_of`` (this name, this page) is the next name, ``None`` at the end.

    Raises ``AnswerError`` where a page leads back to one before, or there are more than ``most``.
    """
    pages: list[bytes] = []
    here: str | None = first
    been: set[str] = set()
    while here is not None:
        if here in been or len(pages) >= most:
            raise AnswerError(f"paging does not end (page {len(pages) + 1})")
        been.add(here)
        pages.append(get(here))
        here = next_of(here, document(pages[-1]))
    return pages
