"""What holds for all tests: nothing of the user's own directories, credentials or terminal is read."""

from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes depends on who else computes.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

_numbers = count()
# Modules that start Ray, network namespaces or a browser: with ``-n`` one after another, and first.
ON_THE_MACHINE = (
    "cli/test_probe.py",
    "cli/test_report_page.py",
    "clusters/clouds/test_local_cap.py",
    "clusters/clouds/test_local_launch.py",
    "clusters/probe/test_job.py",
    "clusters/probing/test_following.py",
    "clusters/test_aws_lab.py",
    "clusters/test_aws_launch_lab.py",
    "clusters/test_links_lab.py",
    "clusters/test_local_lab.py",
    "examples/test_finetune_lora.py",
    "examples/test_train_gpt.py",
)


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that need the machine first, into one group that one worker runs."""
    root = Path(__file__).parent
    names = {root / name for name in ON_THE_MACHINE}
    for item in items:
        if item.path in names:
            item.add_marker(pytest.mark.xdist_group("machine"))
    items.sort(key=lambda item: item.path not in names)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run where the group has no effect: those tests would meet on one machine and fail."""
    if not session.config.getoption("loadgroup", False):
        return
    loose = [i for i in session.items if i.get_closest_marker("xdist_group") and "@" not in i.nodeid]
    if loose:
        raise pytest.UsageError(f"pytest-xdist does not group {loose[0].nodeid}: pip install 'pytest<9.2'")


@pytest.fixture(autouse=True)
def _no_prices_of_the_user(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point to a cache directory of this test's own, which is made only where something is kept in it."""
    monkeypatch.setenv("PLAN_CACHE_DIR", str(tmp_path_factory.getbasetemp() / f"cache-{next(_numbers)}"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(autouse=True)
def _no_terminal_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw every screen alike, whatever terminal the tests were started from."""
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERMINAL_WIDTH"):
        monkeypatch.delenv(name, raising=False)
