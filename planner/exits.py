"""Exit codes of the command line and what they mean: the one place that says so."""

from __future__ import annotations

DONE = 0
FAILED = 1
BAD_INPUT = 2
NOTHING_FITS = 3
NO_CREDENTIALS = 4
PROBE_FAILED = 5
MAY_STILL_BILL = 6
LEFT_RUNNING = 7
INTERRUPTED = 130

MEANINGS: dict[int, str] = {
    DONE: "done; also: detached from a committed run with Ctrl-C",
    FAILED: "failed, or the prompt was declined",
    BAD_INPUT: "bad input or usage; nothing was started",
    NOTHING_FITS: "nothing fits; the nearest choices and what would make them fit are shown",
    NO_CREDENTIALS: "credentials missing",
    PROBE_FAILED: "the probe's verdict is fail; a cluster that we made is gone",
    MAY_STILL_BILL: "teardown not confirmed: something may still bill; how to delete it is shown",
    LEFT_RUNNING: "left running on purpose (--keep)",
    INTERRUPTED: "interrupted before the commit; teardown done",
}
