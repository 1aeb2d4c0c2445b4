"""Bad input: one clear error, a hint, exit 2, and nothing on stdout. Never a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.main import get_command

from planner.cli import main, text

GOOD = ["suggest", "--params", "1B"]
BAD_OPTIONS = [
    # zero, negative, not a number, absurd
    "--params 0",
    "--params -1B",
    "--params nan",
    "--params inf",
    "--params 1e30",
    "--params 999",
    "--params 1.5X",
    "--params 1e9e9",
    "--params ''",
    "--params 1B --tokens 0",
    "--params 1B --tokens -5",
    "--params 1B --tokens nan",
    "--params 1B --tokens 1e40",
    "--params 1B --budget 0",
    "--params 1B --budget -200",
    "--params 1B --budget nan",
    "--params 1B --budget inf",
    "--params 1B --budget 1e99",
    "--params 1B --budget 200EUR",
    "--params 1B --deadline 48",
    "--params 1B --deadline 0h",
    "--params 1B --deadline -2d",
    "--params 1B --deadline 'soon'",
    "--params 1B --deadline 1e9d",
    "--params 1B --out ''",
    "--params 1B --out /",
    "--params 1B --out /no/such/folder/plan.yaml",
    "--params 1B --seq-len 0",
    "--params 1B --seq-len 1.5",
    "--params 1B --seq-len 1e12",
    "--params 1B --global-batch 0",
    "--params 1B --headroom 1",
    "--params 1B --headroom -0.1",
    "--params 1B --headroom 120%",
    "--params 1B --headroom nan",
    "--params 1B --max-gpus 0",
    "--params 1B --max-gpus 1e9",
    "--params 1B --top 0",
    "--params 1B --top none",
    "--params 1B --tp 0",
    "--params 1B --tp -2",
    "--params 1B --pp 1.5",
    "--params 1B --micro-batch 0",
    "--params 1B --grad-accum 1e12",
    "--params 1B --zero 4",
    "--params 1B --zero -1",
    "--params 1B --shard-group 0",
    # unknown names
    "--model lama-3-8b",
    "--model t5-base",
    "--model ''",
    "--params 1B --gpu H1000",
    "--params 1B --gpu TPU-v5e",
    "--params 1B --gpu trn1.32xlarge",
    "--params 1B --gpu Gaudi2",
    "--params 1B --gpu 1g.10gb",
    "--params 1B --gpu ''",
    "--params 1B --provider amazonn",
    "--params 1B --region mars-1",
    "--params 1B --market futures",
    "--params 1B --method finetune",
    "--params 1B --precision bf17",
    "--params 1B --optimizer adamx",
    "--params 1B --loss huge",
    "--params 1B --recompute some",
    "--params 1B --offload disk",
    "--params 1B --framework zzz",
    "--params 1B --stage prod",
    "--params 1B --sort price",
    "--params 1B --not nowhere:x",
    "--params 1B --not aws:p99.huge",
    "--parms 1B",
    "--params",
    "extra --params 1B",
    # contradictions
    "",
    "--params 1B --model llama-3-8b",
    "--params 1B --spot --market on-demand",
    "--params 1B --lora-rank 8",
    "--params 1B --method full --tokens 1B --quant nf4",
    "--params 1B --method lora --tokens 1M --quant nf4",
    "--params 1B --method lora --tokens 1M --lora-rank 0",
    "--params 1B --method lora --tokens 1M --lora-dropout 1.5",
    "--params 1B --method lora --tokens 1M --lora-targets everything",
    "--params 1B --method full",
    "--params 1B --global-batch 8192 --micro-batch 8",
    "--params 1B --global-batch 1k",
    "--model gpt2 --seq-len 4096",
    "--params 1B --tp 3",
    "--params 1B --tp 8 --max-gpus 4",
    "--params 1B --ep 2",
    # files
    "--model /no/such/config.json",
    "--model ./nowhere",
    "--spec /no/such/file.yaml",
]


def split(text: str) -> list[str]:
    import shlex

    return shlex.split(text)


def assert_one_error(code: int, captured: tuple[str, str]) -> None:
    out, err = captured
    assert code == 2
    assert out == ""
    said, *hints = err.partition("\n\n")  # the error may take several lines, each at most a screen wide
    assert max(map(len, said.splitlines()), default=0) <= 100 or " " not in said[100:]
    lines = [" ".join(said.split()), *"".join(hints)[1:].splitlines()]
    assert lines[0].startswith("error: ")
    assert len(lines[0]) > len("error: ") + 5
    assert sum(line.startswith("error:") for line in lines) == 1
    assert lines[1] == ""
    assert lines[2].startswith("hint: ")
    assert len(lines) == 3
    assert "Traceback" not in err


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path / "data"))
    return tmp_path


@pytest.mark.parametrize("options", BAD_OPTIONS)
def test_suggest_refuses_bad_options(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main.run(["suggest", *split(options)])
    assert_one_error(code, capsys.readouterr())


@pytest.mark.parametrize(
    "arguments",
    [
        "estimate",
        "estimate 7",
        "estimate p-nothing",
        "estimate --params 1B",
        "estimate --params 1B --gpu H100 --gpus 0",
        "estimate --params 1B --gpu H100 --gpus -8",
        "estimate --params 1B --gpu H1000 --gpus 8",
        "estimate --params 1B --gpu A100 --gpus 8",
        "estimate --params 1B --gpu 'RTX 4090' --gpus 3 --tp 2",
        "estimate --params 1B --gpu T4 --precision bf16",
        "estimate --params 1B --gpu A100-SXM4-80GB --precision fp8",
        "estimate --params 1B --gpu 'RTX 4090' --gpus 12 --gpus-per-node 8",
        "estimate 1 --runs -",
        "estimate 1 --params 1B",
        "estimate --runs /no/such/file.jsonl",
        "gpus H1000",
        "gpus TPU-v5p",
        "rm",
        "rm p-nothing",
        "rm ../x",
        "ls --nope",
        "sugest",
        "--nope",
    ],
)
def test_other_commands_refuse_bad_arguments(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main.run(split(arguments))
    assert_one_error(code, capsys.readouterr())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("truncated", '{"model_type": "llama", "hidden_size": 40'),
        ("empty", ""),
        ("list", "[1, 2]"),
        ("no type", '{"hidden_size": 4096}'),
        ("encoder-decoder", '{"model_type": "t5", "is_encoder_decoder": true}'),
        ("vision", '{"model_type": "vit"}'),
        ("words for a size", '{"model_type": "llama", "hidden_size": "big"}'),
        (
            "negative",
            '{"model_type": "llama", "hidden_size": -4096, "num_hidden_layers": 2, "num_attention_heads": 2}',
        ),
        ("binary", "\x00\x01"),
        ("nan", '{"model_type": "llama", "hidden_size": NaN}'),
    ],
)
def test_broken_config_is_refused(
    name: str, content: str, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data_dir / "config.json").write_text(content)
    code = main.run(["suggest", "--model", str(data_dir / "config.json")])
    assert_one_error(code, capsys.readouterr())


def test_directory_without_config_is_refused(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main.run(["suggest", "--model", str(data_dir)])
    captured = capsys.readouterr()
    assert_one_error(code, captured)
    assert "directory without config.json" in " ".join(captured.err.split())


@pytest.mark.parametrize(
    "content",
    [
        "",
        "just words",
        "- 1\n- 2",
        "num_layers: [",
        "num_layers: 16\nhidden_sizes: 2048",
        "num_layers: 0\nhidden_size: 2048\nnum_heads: 16\nvocab_size: 32000\nffn_size: 8192",
        "num_layers: yes\nhidden_size: 2048\nnum_heads: 16\nvocab_size: 32000\nffn_size: 8192",
        "num_layers: 2\nhidden_size: 2048\nnum_heads: 17\nvocab_size: 32000\nffn_size: 8192",
        "params: 1B\npreset: gpt2",
        "params: -1",
        "preset: gtp2",
        "model: 5",
        "model: {params: 1B}\ntraining: {sequence: 5}",
        "model: {params: 1B}\ntraining: {seq_len: -5}",
        "model: {params: 1B}\ntraning: {seq_len: 5}",
        "params: 1B\nmoe: 8",
        "params: 1B\nmoe: {experts: 8}",
        "!!python/object/apply:os.system ['true']",
        "params: 1B\nparams: 2B",
        "params: 1B\ntraining: 7",
        "params: 1B\ntraining: {num_tokens: -5}",
        "params: 1B\ntraining: {num_tokens: .inf}",
        "params: 1B\ntraining: {dropout: 2}",
        "params: 1B\ntraining: {frozen_layers: 100}",
        "[" * 5000,
        "{a: " * 5000,
    ],
)
def test_broken_spec_is_refused(content: str, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = data_dir / "spec.yaml"
    spec.write_text(content)
    code = main.run(["suggest", "--spec", str(spec)])
    assert_one_error(code, capsys.readouterr())


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["suggest", "--params", "1B", "--gpu", "H10"], "H100"),
        (["suggest", "--params", "1B", "--provider", "lamda"], "lambda"),
        (["suggest", "--params", "1B", "--region", "us-eest-1"], "us-east-1"),
        (["suggest", "--model", "llama3-8"], "llama"),
        (["suggest", "--params", "1B", "--optimizer", "adam"], "adamw"),
        (["suggest", "--parms", "1B"], "--params"),
        (["sugest"], "suggest"),
    ],
)
def test_near_names_are_offered(
    arguments: list[str], wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main.run(arguments)
    captured = capsys.readouterr()
    assert_one_error(code, captured)
    assert wanted in " ".join(captured.err.partition("\n\n")[0].split())


WORDS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["0", "-1", "nan", "inf", "1e400", "1B", "48h", "adamw", "none", "8", "'", "--", "🦙", "1,0"]
    ),
)


FLAGS = sorted(
    option.opts[0]
    for option in get_command(main.app).commands["suggest"].params
    if option.param_type_name == "option" and not option.is_flag
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(flag=st.sampled_from(FLAGS), word=WORDS)
def test_no_word_after_any_option_makes_a_traceback(
    flag: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is searched: a deadline that cannot be read ends every command that gets so far."""
    code = main.run(["suggest", "--params", "1B", flag, word, "--deadline", "never"])
    assert_one_error(code, capsys.readouterr())


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["probe", "--repeat", "-1"], "--repeat 3"),
        (["probe", "--scale", "foo"], "--scale auto"),
        (["probe", "--address", "http://"], "--address auto"),
        (["probe", "--address", "http://[::1"], "--address auto"),
        (["budget", "set", "project=a", "5", "--webhook", "https://"], "--webhook https://HOST/PATH"),
        (["budget", "set", "project=a", "5", "--webhook", "http:///x"], "--webhook https://HOST/PATH"),
    ],
)
def test_a_hint_is_of_the_option_that_was_wrong(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path))
    assert main.run(words) == 2
    said = capsys.readouterr().err.split("hint: ")[1]
    assert said.startswith(hint)


def test_broken_budgets_are_not_hidden_by_a_broken_ledger(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path))
    (tmp_path / "budgets.json").write_text("{")
    (tmp_path / "launches.sqlite3").write_text("no database")
    assert main.run(["budget", "ls"]) == 2
    assert "budgets.json" in capsys.readouterr().err


def test_a_long_error_is_wrapped_and_a_command_to_paste_is_not():
    command = "plan launch p-0123456789ab --hosts " + ",".join(f"10.0.0.{i}" for i in range(20))
    said = text.complaint("word " * 60, f"{command}   over SSH; plan ls").splitlines()
    assert all(len(line) <= 100 for line in said if command not in line)
    assert f"hint: {command}" in said
    assert "      plan ls" in said


def test_an_answer_that_cannot_be_written_is_said_in_words():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from planner.cli.main import main; main()", "table"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "error: the answer was not written: No space left on device" in done.stderr
