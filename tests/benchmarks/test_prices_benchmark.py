"""Speed of prices: snapshots and catalog to offers in a fresh process; a refresh of local fake servers."""

import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from providers import azure, gcp, lambda_cloud, runpod, snapshot, vast
from providers.catalog import shipped
from providers.refresh import refresh
from providers.snapshot import Snapshot

PAYLOADS = Path(__file__).parents[1] / "payloads"
DELAY_S = 0.5
ENVIRONMENT = {"LAMBDA_API_KEY": "test", "VAST_API_KEY": "test", "GCP_API_KEY": "test"}
SCRIPT = """
import time
import planner.hardware.links, planner.types
start = time.perf_counter()
from providers import registry
found = registry.offers()
print((time.perf_counter() - start) * 1000, len(found.offers), sum(o.origin == "live" for o in found.offers))
"""


@pytest.mark.benchmark
def test_snapshots_over_the_catalog_to_offers(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    where, seen = tmp_path / "prices", datetime.now(UTC)
    for provider in {o.provider for o in shipped()}:
        live = {"origin": "live", "price_seen": seen}
        offers = tuple(o.model_copy(update=live) for o in shipped() if o.provider == provider)
        snapshot.save(Snapshot(provider, seen, False, offers), where)
    environment = {**os.environ, "PLAN_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=environment
        ).stdout.split()
        for _ in range(5)
    ]
    with capsys.disabled():
        best = min(float(r[0]) for r in runs)
        live, total = runs[0][2], runs[0][1]
        print(f"\n{live} live offers over the catalog to {total} offers: {best:.0f} ms (allowed: 100 ms)")
    assert all(int(r[2]) > 1000 for r in runs)


@contextmanager
def slow_server(provider: str) -> Iterator[str]:
    """Address of a local server that gives a provider's recorded answer after a fixed delay."""
    content = (PAYLOADS / provider / "recorded-1.json").read_bytes()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            time.sleep(DELAY_S)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.benchmark
@pytest.mark.enable_socket
def test_a_refresh_takes_as_long_as_the_slowest(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    import requests  # noqa: F401 (its import is not what is measured)

    real = (azure.Azure(regions=("eastus",)), gcp.ADAPTER, lambda_cloud.ADAPTER, runpod.ADAPTER, vast.ADAPTER)
    requests_of = {"vast": len(vast.COUNTS)}
    with ExitStack() as stack:
        adapters = [
            dataclasses.replace(each, url=stack.enter_context(slow_server(each.provider))) for each in real
        ]
        start = time.perf_counter()
        rows = refresh(adapters, ENVIRONMENT, lambda: datetime.now(UTC), tmp_path)
        taken = time.perf_counter() - start
    waits = [DELAY_S * requests_of.get(each.provider, 1) for each in adapters]
    with capsys.disabled():
        print(
            f"\nrefresh of {len(rows)} providers: {taken:.2f} s; the slowest alone waits {max(waits):.2f} s, "
            f"all after each other {sum(waits):.2f} s"
        )
    assert {row.state for row in rows} == {"ok"}
