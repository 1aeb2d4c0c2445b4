"""What holds for all tests: nothing of the user's own directories or credentials is read."""

from itertools import count

import pytest

_numbers = count()


@pytest.fixture(autouse=True)
def _no_prices_of_the_user(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point to a cache directory of this test's own, which is made only where something is kept in it."""
    monkeypatch.setenv("PLAN_CACHE_DIR", str(tmp_path_factory.getbasetemp() / f"cache-{next(_numbers)}"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
