"""Jobs of a Ray cluster: submit, look, follow, stop. Bounded in time; the token goes by the path of its file.

Ray's own client (``ray.job_submission``) waits without end for an answer and lets ``RAY_ADDRESS`` override
the address that it is given; here every request has a time limit, and only ``auto`` asks the environment.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import requests
from pydantic import Field

from planner.types import Record

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

AUTO = "auto"
REQUEST_TIMEOUT_S = 30.0
_CONNECT_S = 5.0
_LOOK_EVERY_S = 0.25
_TALKATIVE = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
JobStatus = Literal["pending", "running", "stopped", "succeeded", "failed"]
_STATUS: dict[str, JobStatus] = {name.upper(): name for name in get_args(JobStatus)}
JobsErrorKind = Literal["unreachable", "forbidden", "refused"]


class JobsError(Exception):
    """The cluster was not reached, did not let us in, or said no. The message never holds the token."""

    def __init__(self, kind: JobsErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Job(Record):
    """What is to run. ``working_dir``: a local directory that goes along, but for what ``excludes`` names."""

    entrypoint: str
    submission_id: str
    working_dir: str | None = None
    excludes: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    metadata: dict[str, str] = Field(default_factory=dict)
    num_cpus: float = 0.0
    num_gpus: float = 0.0


class JobState(Record):
    """Where a job stands. ``exit_code``: of its process, ``None`` = not known."""

    status: JobStatus
    message: str = ""
    exit_code: int | None = None

    @property
    def ended(self) -> bool:
        """Whether the job will never run again."""
        return self.status not in ("pending", "running")


class Jobs:
    """The jobs of one cluster. Every method may raise ``JobsError``."""

    def __init__(self, client: JobSubmissionClient, address: str) -> None:
        self._client = client
        self.address = address

    def submit(self, job: Job) -> str:
        """Start a job; returns its id. A job runs once, and ends with its cluster."""
        environment: dict[str, Any] = {"env_vars": job.env} if job.env else {}
        if job.working_dir is not None:
            environment |= {"working_dir": job.working_dir, "excludes": list(job.excludes)}
        with _errors(self.address):
            return self._client.submit_job(
                entrypoint=job.entrypoint,
                submission_id=job.submission_id,
                runtime_env=environment,
                metadata=job.metadata,
                entrypoint_num_cpus=job.num_cpus or None,
                entrypoint_num_gpus=job.num_gpus or None,
            )

    def state(self, job_id: str) -> JobState:
        """Where a job stands now."""
        with _errors(self.address):
            info = self._client.get_job_info(job_id)
        return JobState(
            status=_STATUS[info.status.value],
            message=info.message or "",
            exit_code=info.driver_exit_code,
        )

    def logs(self, job_id: str) -> str:
        """Everything that a job has written so far."""
        with _errors(self.address):
            return str(self._client.get_job_logs(job_id))

    def follow(self, job_id: str, tick_s: float = 1.0) -> Iterator[str | None]:
        """Lines of a job from its first one on, until it ends; ``None`` where ``tick_s`` went by without one.

        The caller decides at each of them whether to wait on. Raises ``JobsError`` where the cluster is gone.
        """
        rest, heard = "", time.monotonic()
        for chunk in self._chunks(job_id, tick_s):
            if chunk is None:
                if time.monotonic() - heard >= REQUEST_TIMEOUT_S:  # a cluster that is gone is quiet too
                    self.state(job_id)
                    heard = time.monotonic()
                yield None
                continue
            heard = time.monotonic()
            *lines, rest = (rest + chunk).split("\n")
            yield from lines
        if rest:
            yield rest

    def nodes(self) -> list[dict[str, object]]:
        """Nodes of the cluster, dead ones too, in the words of ``ray.nodes()``: ``Alive``, address, name."""
        with _errors(self.address):
            answer = self._client._do_request("GET", "/api/v0/nodes?detail=1&limit=10000")
            answer.raise_for_status()
            listed = answer.json()["data"]["result"]["result"]
        return [
            {
                "NodeID": each["node_id"],
                "NodeManagerAddress": each.get("node_ip"),
                "NodeManagerHostname": each.get("node_name") or each.get("node_ip"),
                "Alive": each["state"] == "ALIVE",
                "Resources": each.get("resources_total") or {},
            }
            for each in listed
        ]

    def stop(self, job_id: str, timeout_s: float = REQUEST_TIMEOUT_S) -> JobState:
        """Ask a job to end, and wait until it has, or ``timeout_s`` are over: the state says which."""
        with _errors(self.address):
            self._client.stop_job(job_id)
        until = time.monotonic() + timeout_s
        state = self.state(job_id)
        while not state.ended and time.monotonic() < until:
            time.sleep(_LOOK_EVERY_S)
            state = self.state(job_id)
        return state

    def _chunks(self, job_id: str, tick_s: float) -> Iterator[str | None]:
        """Pieces of the log as they come in. One loop, turned only while somebody waits for a piece."""
        loop = asyncio.new_event_loop()
        tail = self._tail(job_id)
        coming: asyncio.Task[str] | None = None
        try:
            while True:
                coming = coming or loop.create_task(_next(tail))
                done, _ = loop.run_until_complete(asyncio.wait({coming}, timeout=tick_s))
                if not done:
                    yield None
                    continue
                with _errors(self.address):
                    piece = coming.result()
                coming = None
                if not piece:
                    return
                yield piece
        finally:
            if coming is not None and not coming.done():
                coming.cancel()
                loop.run_until_complete(asyncio.wait({coming}, timeout=_CONNECT_S))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    async def _tail(self, job_id: str) -> AsyncIterator[str]:
        """Pieces of the log until the job ends. Ray's own reader leaves its connection open when given up.

        Ray's head answers no ping while a log is quiet: a heartbeat would end every log that is for 45 s.
        """
        import aiohttp

        url = f"{self._client._address}/api/jobs/{job_id}/logs/tail"
        async with (
            aiohttp.ClientSession(headers=self._client._headers) as session,
            session.ws_connect(url, max_msg_size=0) as stream,
        ):
            async for message in stream:
                if message.type == aiohttp.WSMsgType.TEXT:
                    yield message.data
            if stream.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE:
                raise ConnectionError("the log broke off")


async def _next(tail: AsyncIterator[str]) -> str:
    """Take the next piece, ``""`` after the last one."""
    async for piece in tail:
        if piece:
            return piece
    return ""


def connect(address: str, auth_token_path: str | None = None, timeout_s: float = REQUEST_TIMEOUT_S) -> Jobs:
    """Reach job submission at ``http://HEAD:8265``, or at the cluster that Ray finds by itself (``auto``).

    ``auth_token_path``: file with the cluster's token; without one Ray's own rules hold. Each request takes
    at most ``timeout_s``. Raises ``JobsError``.
    """
    from ray.dashboard.modules.dashboard_sdk import SubmissionClient
    from ray.job_submission import JobSubmissionClient

    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)

    class Client(JobSubmissionClient):
        def __init__(self, url: str, headers: dict[str, str]) -> None:
            self._client_ray_version = "2.60"
            SubmissionClient.__init__(self, address=url, headers=headers)
            self._check_connection_and_version(min_version="2.9")

        def _do_request(  # type: ignore[override]
            self,
            method: str,
            endpoint: str,
            *,
            data: bytes | None = None,
            json_data: dict[str, Any] | None = None,
        ) -> requests.Response:
            found: requests.Response = super()._do_request(
                method, endpoint, data=data, json_data=json_data, timeout=timeout_s
            )
            return found

    headers = {} if auth_token_path is None else _authorization(auth_token_path)
    with _errors(address):
        url = _found() if address == AUTO else address
        return Jobs(Client(url, headers), url)


def _authorization(path: str) -> dict[str, str]:
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise JobsError("forbidden", f"cannot read the token in {path}: {error.strerror}") from None
    return {"Authorization": f"Bearer {token}"}


def _found() -> str:
    """Address of job submission of the Ray that runs here, or that ``RAY_ADDRESS`` names."""
    from ray._private.services import canonicalize_bootstrap_address_or_die
    from ray.dashboard.utils import get_address_for_submission_client

    if not any("://" in os.environ.get(name, "") for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")):
        host, _, port = canonicalize_bootstrap_address_or_die(AUTO).rpartition(":")
        # Ray would wait for minutes where a cluster that is gone left its address behind
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    return str(get_address_for_submission_client(AUTO))


class _errors:  # noqa: N801 (used as a function)
    """Sort what Ray's client raises into ``JobsError``."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        import aiohttp
        from ray.exceptions import AuthenticationError

        if error is None or isinstance(error, JobsError):
            return
        if isinstance(error, AuthenticationError):
            raise JobsError("forbidden", f"{self._address} asks for another token") from None
        if isinstance(error, OSError | asyncio.TimeoutError | aiohttp.ClientError):  # requests': OSErrors
            raise JobsError("unreachable", f"no answer from {self._address}: {_said(error)}") from None
        if isinstance(error, RuntimeError | ValueError | KeyError):
            raise JobsError("refused", f"{self._address} refused: {_said(error)}") from None


def _said(error: BaseException) -> str:
    """First line of an error, of bounded length."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
