"""What tests of clouds share."""

import contextlib
from collections.abc import Iterator

import pytest


@pytest.fixture
def tunnels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses to which tunnels were opened; SSH itself is tried in the labs."""
    opened: list[str] = []

    @contextlib.contextmanager
    def tunnel(way: object, host: str, port: int) -> Iterator[int]:
        opened.append(host)
        yield 1234

    monkeypatch.setattr("clusters.clouds.behind_ray.ssh.tunnel", tunnel)
    return opened
