"""``plan``: the Typer app and its exit codes. Nothing heavy is imported before a command runs.

Exit codes: 0 done, 1 failed, 2 bad input or usage, 3 nothing fits, 4 credentials missing, 130 interrupted.
The answer goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from planner.cli import cluster_options as c
from planner.cli import options as o
from planner.errors import MissingCredentialsError, UserError

FAILED, BAD_INPUT, NO_CREDENTIALS, INTERRUPTED = 1, 2, 4, 130

app = typer.Typer(
    name="plan",
    help="Which GPUs, how many, laid out how, for how long, at what cost: and will it really fit?",
    rich_markup_mode=None,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point of the console script: a short process that has no use for two things that take time."""
    gc.disable()  # what imports and a search leave behind is less than the collector takes
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # searched for in every installed package
    _open_streams()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code. Every error of the user is one message and a hint."""
    try:
        code = app(list(arguments) or ["--help"], prog_name="plan", standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:  # Typer turns the interrupt into this exit code
            raise KeyboardInterrupt
    except MissingCredentialsError as error:
        _complain(str(error), error.hint)
        return NO_CREDENTIALS
    except UserError as error:
        return _complain(str(error), error.hint or _help_of(arguments))
    except typer.TyperException as error:
        return _complain(error.format_message(), _help_of(arguments))
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return FAILED
    except OSError as error:  # a full disk under stdout; files that the user names have their own messages
        _drop_output()
        sys.stderr.write(f"error: {error}\n")
        return FAILED
    return code if isinstance(code, int) else 0


def _open_streams() -> None:
    """Put an empty file where a stream was closed before we started, so that nothing need ask for it."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY), "r")
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _drop_output() -> None:
    """Send what is still buffered nowhere, or Python complains about it when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, hint: str) -> int:
    """Say what happened, and what to do, on stderr."""
    said = " ".join(message.split())
    sys.stderr.write(f"error: {said}\n\nhint: {' '.join(hint.split())}\n")
    return BAD_INPUT


def _help_of(arguments: Sequence[str]) -> str:
    """Name the help page that knows the options of this command line."""
    known = {c.name or getattr(c.callback, "__name__", "") for c in app.registered_commands}
    known |= {str(g.name) for g in app.registered_groups}
    named = [a for a in arguments[:1] if a in known]
    return " ".join(["plan", *named, "--help"])


def _command(module: str, context: typer.Context) -> None:
    """Import the module of a command and run it with the options."""
    code = importlib.import_module(f"planner.cli.{module}").run(context.params)
    raise typer.Exit(code)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("plan"))
        raise typer.Exit


@app.command()
def suggest(
    context: typer.Context,
    params: o.Params = None,
    model: o.Model = None,
    spec: o.Spec = None,
    tokens: o.Tokens = None,
    seq_len: o.SeqLen = None,
    global_batch: o.GlobalBatch = None,
    method: o.Method = None,
    precision: o.Precision = None,
    optimizer: o.Optimizer = None,
    framework: o.Framework = None,
    loss: o.Loss = None,
    attention: o.Attention = None,
    compile: o.Compile = None,
    numerics: o.Numerics = None,
    optimizer_impl: o.OptimizerImpl = None,
    frozen_layers: o.FrozenLayers = None,
    lora_rank: o.LoraRank = None,
    lora_targets: o.LoraTargets = None,
    lora_dropout: o.LoraDropout = None,
    quant: o.Quant = None,
    budget: o.Budget = None,
    deadline: o.Deadline = None,
    gpu: o.Gpus = None,
    provider: o.Providers = None,
    region: o.Regions = None,
    excluded: o.Excluded = None,
    market: o.Market = None,
    spot: o.Spot = False,
    own: o.OwnMachines = None,
    own_ray: o.OwnRay = None,
    price_list: o.PriceList = None,
    max_gpus: o.MaxGpus = None,
    stage: o.Stage = None,
    headroom: o.Headroom = None,
    no_checkpoints: o.NoCheckpoints = False,
    allow_slow_link: o.SlowLink = False,
    micro_batch: o.MicroBatch = None,
    grad_accum: o.GradAccum = None,
    recompute: o.Recompute = None,
    zero: o.Zero = None,
    shard_group: o.ShardGroup = None,
    dp: o.Dp = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    cp: o.Cp = None,
    ep: o.Ep = None,
    etp: o.Etp = None,
    interleave: o.Interleave = None,
    sequence_parallel: o.SequenceParallel = None,
    offload: o.Offload = None,
    no_calibration: o.NoCalibration = False,
    sort: o.Sort = None,
    top: o.Top = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    out: o.Out = None,
) -> None:
    """Rank GPUs, counts and layouts that train a model within a budget."""
    _command("suggest", context)


@app.command()
def estimate(
    context: typer.Context,
    plan_id: o.PlanId = None,
    runs: o.Runs = None,
    params: o.Params = None,
    model: o.Model = None,
    spec: o.Spec = None,
    gpu: o.OneGpu = None,
    gpus: o.NumGpus = None,
    gpus_per_node: o.GpusPerNode = None,
    interconnect: o.Link = None,
    tokens: o.Tokens = None,
    seq_len: o.SeqLen = None,
    global_batch: o.GlobalBatch = None,
    method: o.Method = None,
    precision: o.Precision = None,
    optimizer: o.Optimizer = None,
    framework: o.Framework = None,
    loss: o.Loss = None,
    attention: o.Attention = None,
    compile: o.Compile = None,
    numerics: o.Numerics = None,
    optimizer_impl: o.OptimizerImpl = None,
    frozen_layers: o.FrozenLayers = None,
    lora_rank: o.LoraRank = None,
    lora_targets: o.LoraTargets = None,
    lora_dropout: o.LoraDropout = None,
    quant: o.Quant = None,
    headroom: o.Headroom = None,
    micro_batch: o.MicroBatch = None,
    grad_accum: o.GradAccum = None,
    recompute: o.Recompute = None,
    zero: o.Zero = None,
    shard_group: o.ShardGroup = None,
    dp: o.Dp = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    cp: o.Cp = None,
    ep: o.Ep = None,
    etp: o.Etp = None,
    interleave: o.Interleave = None,
    sequence_parallel: o.SequenceParallel = None,
    offload: o.Offload = None,
    no_calibration: o.NoCalibration = False,
    explain: o.Explain = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Show where memory and time go, for a plan, for one run, or for a file of runs."""
    _command("estimate", context)


@app.command()
def gpus(
    context: typer.Context, names: o.GpuNames = None, json: o.Json = False, quiet: o.Quiet = False
) -> None:
    """List GPUs: class, memory, bandwidth, dense FLOPS, link, ECC, cheapest offer."""
    _command("gpu_table", context)


@app.command()
def accuracy(context: typer.Context, by: o.By = None, json: o.Json = False) -> None:
    """Show how far predictions were from measured runs."""
    _command("accuracy", context)


@app.command()
def calibrate(
    context: typer.Context, file: o.Measured = None, reset: o.Reset = False, json: o.Json = False
) -> None:
    """Correct predictions by runs that you measured."""
    _command("calibrate", context)


@app.command()
def compare(
    context: typer.Context,
    own: o.OwnMachines = None,
    own_ray: o.OwnRay = None,
    gpu: o.Gpus = None,
    price_list: o.PriceList = None,
    provider: o.Providers = None,
    region: o.Regions = None,
    excluded: o.Excluded = None,
    market: o.Market = None,
    spot: o.Spot = False,
    top: o.Top = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Rent or buy: your machines against the offers of their GPU, with the hours where both cost the same."""
    _command("compare", context)


@app.command()
def schema(context: typer.Context, command: o.Command) -> None:
    """Print the JSON schema of what a command prints with --json."""
    _command("schema", context)


@app.command("ls")
def list_plans(
    context: typer.Context, plans: o.ListPlans = False, json: o.Json = False, quiet: o.Quiet = False
) -> None:
    """List what was saved."""
    _command("plans", context)


@app.command("rm")
def remove_plans(context: typer.Context, ids: o.PlanIds, quiet: o.Quiet = False) -> None:
    """Delete saved plans."""
    _command("plans_rm", context)


@app.command()
def cluster(
    context: typer.Context,
    plan: c.PlanId,
    out: c.OutDir = None,
    format: c.Format = None,  # the option's name
    cpu_head: c.CpuHead = False,
    iam: c.Iam = False,
    prepare: c.Prepare = False,
    ssh_from: c.SshFrom = None,
    session_manager: c.SessionManager = False,
    zone: c.Zone = None,
    subnet: c.Subnet = None,
    security_group: c.SecurityGroup = None,
    max_spot_price: c.MaxSpotPrice = None,
    reservation: c.Reservation = None,
    image: c.Image = None,
    project: c.Project = None,
    subscription: c.Subscription = None,
    hosts: c.Hosts = None,
    ssh_user: c.SshUser = None,
    ssh_key: c.SshKey = None,
    preinstalled: c.Preinstalled = False,
    storage: c.Storage = None,
    deadline: c.Deadline = None,
    owner: c.Owner = None,
) -> None:
    """Write the Ray cluster files of a plan: checked, tagged, least rights, ending by themselves."""
    _command("cluster", context)


prices = typer.Typer(rich_markup_mode=None)
app.add_typer(prices, name="prices")


@prices.callback(invoke_without_command=True)
def _prices(
    context: typer.Context,
    gpu: o.Gpus = None,
    provider: o.Providers = None,
    region: o.Regions = None,
    market: o.PriceMarket = None,
    spot: o.Spot = False,
    max: o.Most = None,  # the option's name
    all: o.All = False,
    sort: o.PriceSort = None,
    price_list: o.PriceList = None,
    own: o.OwnMachines = None,
    missing: o.Missing = False,
    history: o.History = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """List offers with price, age and source; 'refresh' asks the providers, 'diff' shows what moved."""
    if context.invoked_subcommand is None:
        _command("prices", context)


@prices.command("refresh")
def refresh_prices(
    context: typer.Context, names: o.ProviderNames = None, json: o.Json = False, quiet: o.Quiet = False
) -> None:
    """Ask providers for their prices, all at once; what fails leaves the last good prices in use."""
    _command("prices_refresh", context)


@prices.command("diff")
def diff_prices(context: typer.Context, names: o.ProviderNames = None, json: o.Json = False) -> None:
    """Show which prices moved between the last two refreshes."""
    _command("prices_diff", context)
