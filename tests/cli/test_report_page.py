"""The HTML report in a real Chromium: no error, no request, no overflow, and no serious fault for axe-core.

Chromium is Debian's; axe-core (MPL-2.0) comes from npm into the test's own directory. Where one of them is
missing the tests that need it skip, and say so. ``PLAN_SCREENSHOTS`` keeps pictures of the page.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from planner.cli.report import html
from planner.results import Dot
from tests.cli.test_report import launches, made

CHROMIUM = shutil.which("chromium")
AXE = "axe-core@4.10.3"
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.enable_socket,
]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    field = tuple(
        Dot(
            hours=2.0 + i,
            usd=40.0 + (i * 37) % 400,
            name=f"{i}x GPU, provider type-{i}",
            verdict=("ok", "tight", "over")[i % 3],  # type: ignore[arg-type]
            reason=("", "", "budget")[i % 3],
        )
        for i in range(60)
    )
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html.page(made(*launches(), field=field)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(color_scheme=request.param)
    yield context.new_page()
    context.close()


def test_page_opens_without_an_error_or_a_request(page: Page, page_file: Path) -> None:
    said: list[str] = []
    asked: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        said.append(message.text)

    def see(request: Request) -> None:
        asked.append(request.url)

    page.on("console", hear)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", see)
    page.goto(page_file.as_uri())
    assert page.locator("figure svg").count() == 6
    assert said == []
    assert asked == [page_file.as_uri()]


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_overflows(page: Page, page_file: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(page_file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beyond = page.evaluate(
        """() => [...document.querySelectorAll('main *')]
            .filter(e => !e.closest('.wide') && !e.closest('svg'))
            .filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
            .map(e => e.tagName)"""
    )
    assert beyond == []
    _keep_picture(page, f"report-{width}")


def test_the_page_is_readable_without_script(browser: Browser, page_file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_file.as_uri())
    assert page.locator("h2").count() >= 9
    assert page.locator("h2").first.is_visible()
    context.close()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed: axe-core cannot be fetched")
    directory = tmp_path_factory.mktemp("axe")
    done = subprocess.run(
        [npm, "pack", "--silent", AXE],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"axe-core cannot be fetched: {done.stderr[-200:]}")
    archive = next(directory.glob("*.tgz"))
    shutil.unpack_archive(archive, directory, "gztar", filter="data")
    return (directory / "package" / "axe.min.js").read_text(encoding="utf-8")


def test_axe_finds_no_serious_fault(page: Page, page_file: Path, axe: str) -> None:
    page.goto(page_file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    page.evaluate(axe)
    found = page.evaluate("axe.run()")
    serious = [
        (v["id"], v["nodes"][0]["html"][:120])
        for v in found["violations"]
        if v["impact"] in ("serious", "critical")
    ]
    assert found["passes"]
    assert serious == []


def _keep_picture(page: Page, name: str) -> None:
    """Keep a picture where somebody asked for one."""
    directory = os.environ.get("PLAN_SCREENSHOTS")
    if directory:
        page.screenshot(path=str(Path(directory) / f"{name}.png"), full_page=True)
