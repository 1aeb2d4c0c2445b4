"""``plan prices``, ``refresh`` and ``diff``: what is shown, what scripts get, and exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import responses

from planner.cli import main
from planner.cli.prices import refresh as prices_refresh
from planner.types import Offer
from providers import http, snapshot
from providers.catalog import shipped
from providers.lambda_cloud import ADAPTER as LAMBDA
from providers.refresh import ProviderRow
from providers.runpod import ADAPTER as RUNPOD
from providers.snapshot import Failure, Snapshot

PAYLOADS = Path(__file__).parents[1] / "payloads"
Run = Callable[..., str]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAMBDA_API_KEY", "RUNPOD_API_KEY", "VAST_API_KEY", "GCP_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(http, "BACKOFF_S", 0)


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str, code: int = 0) -> str:
        assert main.run(["prices", *arguments]) == code
        return capsys.readouterr().out

    return run


def keep(hours_ago: float, prices: dict[str, str | None], provider: str = "lambda") -> None:
    """A snapshot with the offers of the catalog of these types, at these prices."""
    seen = datetime.now(UTC) - timedelta(hours=hours_ago)
    first = {o.instance_type: o for o in reversed(shipped()) if o.provider == provider}
    offers = tuple(
        first[name].model_copy(
            update={
                "usd_per_hour": None if price is None else Decimal(price),
                "unknown_why": None if price else "no price stated",
                "price_seen": seen,
                "origin": "live",
            }
        )
        for name, price in sorted(prices.items())
    )
    assert snapshot.save(Snapshot(provider, seen, True, offers), snapshot.directory())


def rows(printed: str) -> list[str]:
    """Lines of the first table."""
    return printed.split("\n\n")[0].splitlines()


def test_every_price_carries_its_age_and_old_ones_are_loud(plan: Run):
    keep(3, {"gpu_8x_h100_sxm5": "31.92"})
    keep(30, {"1x NVIDIA L4": "0.5"}, "runpod")
    assert "3 h " in plan("--provider", "lambda")
    marked = plan("--provider", "runpod")
    assert "30 h *" in marked
    assert "* older than 24 hours." in marked
    old = plan("--provider", "gcp", "--gpu", "H100")
    assert " OLD" in rows(old)[1]
    assert "older than 30 days" in old
    assert "plan prices refresh" in old


def test_the_cheapest_gpu_hour_comes_first_and_max_rows_are_shown(plan: Run):
    printed = plan("--gpu", "H100", "--provider", "lambda", "--max", "2")
    assert len([line for line in rows(printed) if line.startswith("lambda")]) == 2
    assert "Shown 2 of 5 (--all)" in printed
    assert "Shown 5 of 5." in plan("--gpu", "H100", "--provider", "lambda", "--all")


def test_spot_is_counted_until_it_is_asked_for(plan: Run):
    assert "(--spot)" in plan("--provider", "gcp", "--gpu", "H100")
    spot = plan("--provider", "gcp", "--gpu", "H100", "--spot")
    assert all(" spot" in line for line in rows(spot) if line.startswith("gcp"))


def test_unknown_prices_are_counted_and_shown_with_their_reason(plan: Run):
    keep(1, {"gpu_8x_h100_sxm5": None, "gpu_1x_a10": "1.29"})
    assert "Price unknown: 1 (--missing)" in plan("--provider", "lambda")
    assert "no price stated" in plan("--provider", "lambda", "--missing")


def test_the_document_is_the_contract(plan: Run):
    keep(2, {"gpu_8x_h100_sxm5": "31.92", "gpu_1x_a10": None})
    document = json.loads(plan("--provider", "lambda", "--json"))
    assert set(document) == {"schema_version", "offers", "providers"}
    by_type = {o["instance_type"]: o for o in document["offers"]}
    first = by_type["gpu_8x_h100_sxm5"]
    assert first["usd_per_hour"] == "31.92"
    assert set(first) >= {
        *("provider", "instance_type", "region", "zone", "market", "gpu", "gpus_per_node"),
        *("usd_per_hour", "unknown_why", "price_seen", "source"),
    }
    assert (by_type["gpu_1x_a10"]["usd_per_hour"], by_type["gpu_1x_a10"]["unknown_why"]) == (
        None,
        "no price stated",
    )
    (state,) = document["providers"]
    assert (state["provider"], state["num_offers"], state["state"]) == ("lambda", 2, "ok")
    assert 7000 < state["age_s"] < 7500


def test_the_document_has_every_market_unless_one_is_asked_for(plan: Run):
    markets = {o["market"] for o in json.loads(plan("--provider", "gcp", "--json"))["offers"]}
    assert markets == {"on-demand", "spot"}
    spot = json.loads(plan("--provider", "gcp", "--json", "--market", "spot"))["offers"]
    assert {o["market"] for o in spot} == {"spot"}


def test_states_say_why_a_provider_was_not_refreshed(plan: Run):
    document = json.loads(plan("--json", "--gpu", "H100"))
    states = {p["provider"]: p for p in document["providers"]}
    assert (states["lambda"]["state"], states["azure"]["state"]) == ("skipped", "shipped")
    assert "export LAMBDA_API_KEY" in states["lambda"]["hint"]
    assert states["azure"]["hint"] == "plan prices refresh azure"
    assert states["coreweave"]["reason"] == "no live adapter"


def test_a_failed_refresh_is_shown_with_the_last_good_prices(plan: Run):
    keep(48, {"gpu_8x_h100_sxm5": "31.92"})
    snapshot.record_failure(Failure("lambda", datetime.now(UTC), "HTTP 503"), snapshot.directory())
    printed = plan("--provider", "lambda")
    assert "failed: HTTP 503; last good prices still in use" in " ".join(printed.split())
    assert "2 d" in printed


def seconds(seen: str | None) -> float:
    return datetime.fromisoformat(seen).timestamp() if seen else 0.0


@pytest.mark.parametrize("sort", ["price", "node", "age", "provider"])
def test_every_order_sorts(plan: Run, sort: str):
    offers = json.loads(plan("--gpu", "H100", "--json", "--sort", sort))["offers"]
    values = {
        "price": [float(o["usd_per_hour"] or "inf") / o["gpus_per_node"] for o in offers],
        "node": [float(o["usd_per_hour"] or "inf") for o in offers],
        "age": [-seconds(o["price_seen"]) for o in offers],
        "provider": [o["provider"] for o in offers],
    }[sort]
    assert values == sorted(values)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--market", "futures"],
        ["--sort", "luck"],
        ["--max", "0"],
        ["--all", "--max", "3"],
        ["--spot", "--market", "on-demand"],
        ["--max", "many"],
        ["--gpu", "RTX 9090"],
        ["--provider", "nobody"],
        ["--region", "moon-1"],
        ["refresh", "nobody"],
        ["diff", "nobody"],
        ["diff"],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_message_and_a_hint(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert main.run(["prices", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert "\nhint: " in said.err


# ---------------------------------------------------------------------------------- refresh


@responses.activate
def test_a_refresh_asks_keeps_and_closes_with_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LAMBDA_API_KEY", "key-of-a-test")
    responses.get(LAMBDA.url, body=(PAYLOADS / "lambda/recorded-1.json").read_bytes())
    responses.post(RUNPOD.url, status=503)
    assert main.run(["prices", "refresh", "lambda", "runpod", "vast"]) == 0
    said = capsys.readouterr()
    table = " ".join(said.out.split())
    assert "lambda 5 0 min ok" in table
    assert "runpod 0 – failed: api.runpod.io: HTTP 503; the shipped catalog serves" in table
    assert "vast 0 – not refreshed: no credentials (VAST_API_KEY)" in table
    assert "lambda: not in our GPU table: Zeus 9 (1)" in said.out
    assert "lambda: 5 offers" in said.err
    assert "key-of-a-test" not in said.out + said.err
    assert main.run(["prices", "--provider", "lambda", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["offers"]) == 5
    assert main.run(["prices", "--provider", "lambda"]) == 0
    assert "lambda: not in our GPU table: Zeus 9 (1)" in capsys.readouterr().out


@responses.activate
def test_the_document_of_a_refresh_names_every_provider_asked(plan: Run):
    responses.post(RUNPOD.url, body=(PAYLOADS / "runpod/recorded-1.json").read_bytes())
    document = json.loads(plan("refresh", "runpod", "vast", "--json"))
    states = {p["provider"]: p["state"] for p in document["providers"]}
    assert states == {"runpod": "ok", "vast": "skipped"}


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (["ok", "failed", "skipped"], 0),
        (["failed", "skipped"], 1),
        (["failed"], 1),
        (["skipped"], 4),
    ],
)
def test_the_exit_code_tells_good_prices_from_none_and_from_missing_credentials(states: list[str], code: int):
    assert prices_refresh.exit_code([ProviderRow("p", 0, None, state) for state in states]) == code


# ---------------------------------------------------------------------------------- over time


def test_history_shows_the_catalog_then_every_change(plan: Run):
    keep(50, {"gpu_8x_h100_sxm5": "32"})
    keep(26, {"gpu_8x_h100_sxm5": "32"})
    keep(2, {"gpu_8x_h100_sxm5": "24"})
    (series,) = json.loads(plan("--history", "--provider", "lambda", "--json"))["history"]
    assert [p["usd_per_hour"] for p in series["prices"]] == ["31.92", "32", "24"]
    printed = plan("--history", "--provider", "lambda")
    assert "−25 %" in printed
    first = next(o for o in shipped() if (o.provider, o.instance_type) == ("lambda", "gpu_8x_h100_sxm5"))
    assert f"{first.price_seen:%Y-%m-%d}" in printed


def test_diff_shows_what_moved_most_first(plan: Run):
    keep(26, {"gpu_8x_h100_sxm5": "32", "gpu_1x_a10": "1.2", "gpu_1x_a6000": "1", "gpu_4x_a6000": "4"})
    keep(2, {"gpu_8x_h100_sxm5": "24", "gpu_1x_a10": "1.32", "gpu_1x_a6000": "1", "gpu_1x_h100_pcie": "3"})
    found = json.loads(plan("diff", "--json"))
    assert [
        (m["offer"]["instance_type"], m["before_usd_per_hour"], m["offer"]["usd_per_hour"])
        for m in found["moved"]
    ] == [
        ("gpu_8x_h100_sxm5", "32", "24"),
        ("gpu_1x_a10", "1.2", "1.32"),
    ]
    assert [o["instance_type"] for o in found["new"]] == ["gpu_1x_h100_pcie"]
    assert [o["instance_type"] for o in found["gone"]] == ["gpu_4x_a6000"]
    printed = plan("diff", "lambda")
    assert "−25 %" in printed
    assert "New offers: 1. Gone: 1." in printed


def test_the_first_refresh_is_compared_with_the_catalog(plan: Run):
    keep(2, {"gpu_8x_h100_sxm5": "24"})
    (move,) = json.loads(plan("diff", "--json"))["moved"]
    assert (move["before_usd_per_hour"], move["offer"]["usd_per_hour"]) == ("31.92", "24")


def test_a_damaged_file_is_warned_of_once_on_stderr(capsys: pytest.CaptureFixture[str]):
    keep(2, {"gpu_8x_h100_sxm5": "24"})
    snapshot.path_of("lambda", snapshot.directory()).write_text("damaged")
    assert main.run(["prices", "--provider", "lambda"]) == 0
    said = capsys.readouterr()
    assert said.err.count("set aside as lambda.bad") == 1
    assert "catalog" in said.out


def test_offers_of_one_price_in_many_regions_are_one_row(plan: Run):
    of = [o for o in shipped() if o.provider == "lambda" and o.instance_type == "gpu_8x_h100_sxm5"]
    printed = plan("--provider", "lambda", "--gpu", "H100", "--all")
    assert f"{of[0].region} +{len(of) - 1}" in printed


def offers_of(provider: str) -> list[Offer]:
    return [o for o in shipped() if o.provider == provider]


def test_quiet_prints_one_offer_a_line(plan: Run):
    lines = plan("--provider", "lambda", "--quiet", "--all").splitlines()
    assert len(lines) == len(offers_of("lambda"))
    assert all(line.startswith("lambda ") for line in lines)


HANGING = """
import signal, socket, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
from planner.cli import main
from planner.cli.prices import refresh as prices_refresh
from providers.runpod import Runpod
server = socket.create_server(("127.0.0.1", 0))
url = f"http://127.0.0.1:{server.getsockname()[1]}/"
prices_refresh.chosen = lambda names: (Runpod(url=url),)
sys.exit(main.run(["prices", "refresh"]))
"""


def test_an_interrupt_ends_at_once_though_a_server_does_not_answer(tmp_path: Path):
    environment = {**os.environ, "PLAN_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", HANGING]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "asking runpod\n"
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=10) == 130
        assert running.stderr.read() == "interrupted\n"


HEAVY = ("boto3", "botocore", "requests", "urllib3", "rich", "ray")


@pytest.mark.parametrize("arguments", [["--json"], ["--gpu", "H100"], ["--history", "--provider", "lambda"]])
def test_no_sdk_is_imported_to_show_prices(arguments: list[str]):
    program = (
        "import sys; from planner.cli.main import run; run(['prices', *sys.argv[1:]]); "
        f"print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == "[]"
