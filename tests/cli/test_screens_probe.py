"""The screens of a probe, line by line, and its document against its schema.

Screens are drawn from documents that lie in ``probes/``, so that they change with the drawing alone, not with
each better prediction.
"""

import json
from pathlib import Path

import jsonschema
import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from planner.cli import schema
from planner.cli.probe.documents import ProbeDocument, document
from planner.cli.screens import probe as screens_probe
from planner.cli.text import Terminal
from planner.probed import Depth, ProbeResult, Reading, SkippedCollective
from planner.verdict import Subject, judge
from planner.verdict.subject import cut_run, estimate, num_params, predicted_part
from tests.planner import probe_tools as t

WIDTHS = pytest.mark.parametrize("width", [80, 100])


class Screen(SingleFileSnapshotExtension):
    """One text file a screen."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.fixture
def golden(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(Screen)


def made(subject: Subject, result: ProbeResult) -> ProbeDocument:
    verdict = judge(subject, result)
    return document(subject, predicted_part(subject, result), result, verdict, "p-7c1e")


def slow() -> ProbeDocument:
    speed = t.subject().predicted.speed
    assert speed is not None
    bad = Reading(name="P2P matrix", value=None, passed=False, why="off between 0-1 and 2-3")
    return made(
        t.subject(),
        t.result(
            hardware=t.hardware(readings=(bad,)),
            collectives=t.timings(t.subject(), 0.2),
            steps=t.steps(speed.step_s.mid * 1.8),
        ),
    )


def scaled() -> ProbeDocument:
    part = estimate(cut_run(t.run(), 4))
    assert part.memory is not None
    assert part.speed is not None
    depths = tuple(Depth(num_layers=n, memory=t.memory(2e9 + n * 1e9), steps=None) for n in (2, 4))
    return made(
        t.subject(),
        t.result(
            num_layers=4,
            num_params=num_params(t.run(), 4),
            memory=t.memory(part.memory.reserved_bytes.mid),
            steps=t.steps(part.speed.step_s.mid),
            depths=depths,
        ),
    )


def on_cpu() -> ProbeDocument:
    asked = t.cpu_subject()
    lacking = SkippedCollective(op="reduce_scatter", scope="all", bytes=2**20, why="gloo has none of its own")
    return made(asked, t.cpu_result(asked, skipped=(lacking,)))


def out_of_memory() -> ProbeDocument:
    return made(t.subject(), t.result(failures=(t.oom(),), memory=(), steps=None))


def hardware_only() -> ProbeDocument:
    asked = t.subject().model_copy(update={"phases": ("hardware",)})
    return made(asked, t.result(collectives=(), memory=(), steps=None, num_params=None))


CASES = {
    "healthy": lambda: made(t.subject(), t.result()),
    "slow": slow,
    "scaled": scaled,
    "cpu": on_cpu,
    "out-of-memory": out_of_memory,
    "hardware-only": hardware_only,
}


def kept(case: str) -> ProbeDocument:
    text = (Path(__file__).parent / "probes" / f"{case}.json").read_text(encoding="utf-8")
    return ProbeDocument.model_validate_json(text)


@WIDTHS
@pytest.mark.parametrize("case", CASES)
def test_the_screen_of_a_probe(case: str, width: int, golden: SnapshotAssertion) -> None:
    found = kept(case)
    screen = screens_probe.probe(found, ".plan/probes/2026-12-01t1402z-l40s-1x4.json", Terminal(width))
    assert max(map(len, screen.splitlines())) <= width
    assert screen == golden


@pytest.mark.parametrize("case", CASES)
def test_every_failed_check_says_why_below_the_table(case: str) -> None:
    found = CASES[case]()
    screen = " ".join(screens_probe.probe(found, None, Terminal(100)).split())
    for check in found.checks:
        if check.passed is False and check.why:
            assert " ".join(f"{check.name}: {check.why}".split()) in screen


@pytest.mark.parametrize("case", CASES)
def test_the_document_keeps_to_its_schema(case: str) -> None:
    written = json.loads(CASES[case]().model_dump_json())
    contract = schema.document_of("probe").model_json_schema(mode="serialization")
    jsonschema.validate(written, contract)
    assert ProbeDocument.model_validate(written).verdict in ("pass", "fail")


def test_the_document_has_what_scripts_rely_on() -> None:
    written = json.loads(CASES["healthy"]().model_dump_json())
    assert written["schema_version"] == 1
    assert set(written["checks"][0]) >= {"name", "predicted", "measured", "limit", "unit", "passed", "why"}
    assert set(written["collectives"][0]) >= {
        "op",
        "backend",
        "bytes",
        "time_s",
        "algbw_bytes_per_s",
        "busbw_bytes_per_s",
        "expected_busbw_bytes_per_s",
        "correct",
    }
    assert set(written["memory"][0]) == {
        "rank",
        "allocated_bytes",
        "reserved_bytes",
        "device_bytes",
        "num_alloc_retries",
        "num_ooms",
    }
    assert set(written["steps"]) >= {"seconds", "tokens_per_s", "mfu"}
    assert isinstance(written["repriced"]["budget_usd"], str)


def test_a_verdict_is_coloured_and_its_words_stay() -> None:
    found = CASES["slow"]()
    plain = screens_probe.probe(found, None, Terminal(100))
    painted = screens_probe.probe(found, None, Terminal(100, color=True))
    assert "\x1b[31mFAIL\x1b[0m" in painted
    assert painted.replace("\x1b[31m", "").replace("\x1b[32m", "").replace("\x1b[0m", "") == plain
