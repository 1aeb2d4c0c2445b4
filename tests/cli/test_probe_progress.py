"""Progress of a probe on stderr: a line that is drawn again on a terminal, one for each phase elsewhere."""

import io

import pytest

from clusters.probe.progress import Progress
from planner.cli.probe.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("sys.stderr", stream)
    line = ProgressLine()
    line.phase("starting Ray on this machine")
    for done in (1, 2):
        line.tell(Progress(phase="steps", rank=1, done=done, of=8, seconds_left=540.0))
    line.tell(Progress(phase="memory", rank=None, done=0, of=1, seconds_left=480.0))
    line.close()
    return stream.getvalue()


def test_a_terminal_shows_phase_rank_and_time_left_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = told(Terminal(), monkeypatch)
    assert "\n" not in drawn
    frames = [frame.strip() for frame in drawn.split("\r")]
    assert "steps rank 1 2 of 8, at most 9 min left" in {f.partition(" ")[2] for f in frames}
    assert frames[-1] == ""  # the line is cleared for the answer


def test_elsewhere_each_phase_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(io.StringIO(), monkeypatch).splitlines() == [
        "starting Ray on this machine",
        "steps, at most 9 min left",
        "memory, at most 8 min left",
    ]


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_progress_can_be_silenced(stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAN_NO_PROGRESS", "1")
    assert told(stream(), monkeypatch) == ""
