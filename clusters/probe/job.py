"""The probe as a job on a Ray cluster: ``python -m clusters.probe.job request.json``.

Joins the cluster of ``RAY_ADDRESS`` and prints progress and at last the result, each on one line
(``progress.py``). Exits with 0 when a result was printed, with 1 otherwise: whether it is good is for the
reader to say. It always ends: at ``probe_timeout_s`` with what was measured until then.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from .progress import result_line, say
from .request import ProbeRequest, from_json
from .results import ProbeResult
from .spec import read_plan

LEAVING_S = 60.0  # that leaving Ray may take after the deadline


def main(words: list[str]) -> int:
    """Run the probe of one request file."""
    began = time.monotonic()
    try:
        request = from_json(Path(words[0]).read_text(encoding="utf-8"))
        read_plan(request.plan)  # a plan that cannot be read is a bad request, not a result
    except (OSError, ValueError, IndexError) as error:
        sys.stderr.write(f"probe: {error}\n")
        return 1
    signal.signal(signal.SIGTERM, _leave)
    from . import fit  # Ray and torch: late, so that a bad request is told at once

    fit.set_limits(request)
    faulthandler.dump_traceback_later(request.probe_timeout_s + LEAVING_S, exit=True)  # whatever hangs
    with fit.joined():
        say(result_line(run(request, began)))
    return 0


def _leave(number: int, frame: FrameType | None) -> None:
    """End on SIGTERM as on an error: what was started is ended on the way out."""
    raise SystemExit(128 + number)


def run(request: ProbeRequest, began: float | None = None) -> ProbeResult:
    """Run the probe on the Ray that this process has joined.

    ``began``: monotonic time at which its clock started. A worker group that hangs ends with Ray's job:
    leave Ray soon after.
    """
    from . import fit
    from .board import read_board
    from .outcome import result_of
    from .watch import Watch

    started = datetime.now(UTC).isoformat()
    watch = Watch(request, time.monotonic() if began is None else began)
    lacking = fit.lacking(request)
    if lacking is None:
        with TemporaryDirectory(prefix="plan-probe-", ignore_cleanup_errors=True) as scratch:
            board = fit.start_board()
            group = fit.in_background(lambda: fit.fit(request, board, Path(scratch)))
            failures = watch.until_done(group, lambda: read_board(board))
    else:
        failures = (lacking,)
    return result_of(
        watch.parts,
        failures,
        whole=(read_plan(request.plan).model.num_layers, request.num_workers),
        started=started,
        phase_s=watch.phase_s,
        wall_s=watch.spent_s,
        versions=fit.versions(),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
