"""The transcripts in the READMEs are what the commands print today; ``cog -r`` writes them anew."""

from pathlib import Path

import pytest
from cogapp import Cog

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_transcripts_are_what_the_commands_print(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = Cog().main(["cog", "--check", "-I", str(ROOT), str(ROOT / name)])
    assert (code or 0) == 0, capsys.readouterr().out
