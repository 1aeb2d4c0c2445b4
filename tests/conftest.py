"""What holds for all tests: nothing of the user's own directories or credentials is read."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_prices_of_the_user(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    cache: Path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("PLAN_CACHE_DIR", str(cache))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
