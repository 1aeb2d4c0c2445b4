"""A cloud's REST interface: a bearer token that is never written anywhere, bounded calls, sorted errors."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import requests
import requests.auth

from clusters.faults import CloudFault, is_absent, is_conflict
from planner.types import Record

_TIMEOUT_S = (10.0, 30.0)
_COMMAND_S = 30.0
_KEEP_TOKEN_S = 300.0
Document = dict[str, Any]  # what the cloud sends
Sorter = Callable[[str, int, Document], CloudFault]


class Tool(Record):
    """The cloud's own command that knows who the user is, and the variable that may hold a token instead."""

    variable: str
    command: tuple[str, ...]
    install: str
    login: str


class Token:
    """A token, asked of the tool when it is needed and kept for minutes in memory alone."""

    def __init__(self, tool: Tool, environment: Mapping[str, str] = os.environ) -> None:
        self._tool = tool
        self._environment = environment
        self._kept: tuple[float, str] | None = None

    def __repr__(self) -> str:
        return f"Token({self._tool.command[0]})"

    def text(self) -> str:
        """The token. Raises ``CloudFault`` ``credentials``."""
        given = self._environment.get(self._tool.variable, "").strip()
        if given:
            return given
        if self._kept is None or time.monotonic() > self._kept[0]:
            said = said_by(self._tool, self._tool.command)
            if not said:
                raise CloudFault("credentials", f"{self._tool.command[0]} gave no token", self._tool.login)
            self._kept = (time.monotonic() + _KEEP_TOKEN_S, said)
        return self._kept[1]

    def forget(self) -> None:
        """Ask anew next time: the cloud did not take it."""
        self._kept = None


def said_by(tool: Tool, command: Sequence[str]) -> str:
    """What a command of the tool prints, stripped. Raises ``CloudFault`` ``credentials``."""
    name = command[0]
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, errors="replace", timeout=_COMMAND_S,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except OSError:
        message = f"{name} was not found on this machine, and {tool.variable} is not set"
        raise CloudFault("credentials", message, tool.install) from None
    except subprocess.TimeoutExpired:
        message = f"{name} did not answer within {_COMMAND_S:.0f} s"
        raise CloudFault("credentials", message, tool.login) from None
    if done.returncode:  # its output may hold a token: only what it says of the error is shown
        why = " ".join(done.stderr.split())[:200]
        raise CloudFault("credentials", f"{name} gave no answer: {why}", tool.login)
    return done.stdout.strip()


class _Bearer(requests.auth.AuthBase):
    """Puts the token into a request; as ``auth`` it also keeps out what a ``.netrc`` says."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class Rest:
    """One host of a cloud. Every method may raise ``CloudFault``."""

    def __init__(self, base: str, token: Token, sort: Sorter) -> None:
        self.base = base.rstrip("/")
        self._token = token
        self._sort = sort

    def ask(
        self, method: str, path: str, parameters: Mapping[str, str] | None = None, body: object = None
    ) -> Document:
        """Make one call; returns what was answered, ``{}`` where that is nothing.

        Args:
            method: of HTTP.
            path: below the host; a whole address is taken only where it is the host's own.
            parameters: of the query.
            body: sent as JSON.

        """
        url = path if path.startswith(f"{self.base}/") else f"{self.base}/{path.lstrip('/')}"
        doing = f"{method} {url.removeprefix(self.base).partition('?')[0]}"
        answer = self._send(method, url, doing, parameters, body)
        if answer.status_code == 401:
            self._token.forget()
            answer = self._send(method, url, doing, parameters, body)
        return self._read(answer, doing)

    def found(self, path: str, parameters: Mapping[str, str] | None = None) -> Document | None:
        """Read one thing, ``None`` where there is none."""
        try:
            return self.ask("GET", path, parameters)
        except CloudFault as fault:
            if is_absent(fault):
                return None
            raise

    def _send(
        self, method: str, url: str, doing: str, parameters: Mapping[str, str] | None, body: object
    ) -> requests.Response:
        try:
            return requests.request(
                method, url, params=parameters, json=body, auth=_Bearer(self._token.text()),
                timeout=_TIMEOUT_S, allow_redirects=False,
            )  # fmt: skip
        except requests.Timeout:
            raise CloudFault("timeout", f"{doing}: no answer in time") from None
        except requests.RequestException as error:
            why = f"{doing}: {type(error).__name__}"
            raise CloudFault("connection", why, f"can this machine reach {self.base}?") from None

    def _read(self, answer: requests.Response, doing: str) -> Document:
        try:
            document = answer.json() if answer.content else {}
        except ValueError:
            document = None
        if answer.status_code >= 300:
            body = document if isinstance(document, dict) else {}
            raise self._sort(doing, answer.status_code, body)
        if isinstance(document, list):  # a few lists of Azure come bare
            return {"value": document}
        if not isinstance(document, dict):
            raise CloudFault("connection", f"{doing}: half an answer")
        return document


@contextmanager
def deleting(by_hand: str) -> Iterator[None]:
    """What is gone already is no error; what something is in the way of is a ``timeout``: ask again later.

    ``by_hand``: command that deletes the thing without us.
    """
    try:
        yield
    except CloudFault as fault:
        if is_absent(fault):
            return
        if is_conflict(fault) or fault.kind == "timeout":
            raise CloudFault("timeout", f"still in use: {fault}", by_hand, status=fault.status) from None
        raise
