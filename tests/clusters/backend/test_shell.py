"""Commands of others end in time with everything that they started, and their logs hold no secret."""

import os
import sys
import time
from pathlib import Path

from clusters import watchdog
from clusters.backend import shell
from clusters.scrub import scrubber

SECRET = "planted/secret+of+somebody/0123456789abcd"


def run(tmp_path: Path, code: str, timeout_s: float = 20.0, **more: str) -> shell.Finished:
    environment = {**os.environ, **more}
    return shell.run(
        [sys.executable, "-c", code], timeout_s, environment, tmp_path / "log", scrubber(environment)
    )


def test_code_and_words_of_a_command_are_returned_and_logged(tmp_path: Path):
    done = run(tmp_path, "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)")
    assert (done.code, done.ok) == (3, False)
    assert sorted(done.said.splitlines()) == ["one", "two"]
    assert sorted((tmp_path / "log").read_text().splitlines()) == ["one", "two"]


def test_a_command_that_hangs_is_ended_with_what_it_started(tmp_path: Path):
    mark = f"l-shell-{os.getpid()}"
    code = (
        "import subprocess, sys, time; print('begun', flush=True);"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"
    )
    began = time.monotonic()
    done = run(tmp_path, code, timeout_s=3.0, **{watchdog.MARK: mark})
    assert time.monotonic() - began < 40
    assert done.code is None
    assert done.said.splitlines() == ["begun", "(ended after 3 s)"]
    assert watchdog.marked(mark) == []


def test_secrets_of_the_environment_reach_neither_log_nor_answer(tmp_path: Path):
    done = run(tmp_path, f"print('key: {SECRET}, and AKIAABCDEFGHIJKLMNOP')", AWS_SECRET_ACCESS_KEY=SECRET)
    for text in (done.said, (tmp_path / "log").read_text()):
        assert text.strip() == "key: ***, and ***"


def test_the_log_can_be_read_by_nobody_else_and_goes_on(tmp_path: Path):
    run(tmp_path, "print(1)")
    run(tmp_path, "print(2)")
    assert (tmp_path / "log").read_text() == "1\n2\n"
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0
