"""Every option of the command line, once: its flag, what it takes, and what it means.

All take text (or are flags): ``request`` parses it, so that every error has one form.
"""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import complete

Text = str | None
PLAN_HELP = "A row of the last suggest, the id of a saved plan, or a plan's file."

# the model
Params = Annotated[
    Text,
    typer.Option("--params", metavar="1B", help="Parameters, 1M to 1T; a documented rule gives the shape."),
]
Model = Annotated[
    Text,
    typer.Option(
        "--model",
        autocompletion=complete.model_names,
        metavar="NAME|DIR|FILE",
        help="A preset, or a Hugging Face config.json.",
    ),
]
Spec = Annotated[
    Text,
    typer.Option("--spec", metavar="FILE", help="YAML with the model's fields, and 'training:' if wanted."),
]

# what is asked of the training
Tokens = Annotated[
    Text,
    typer.Option(
        "--tokens", metavar="20B", help="Tokens to train on. Pretraining: 20 per parameter by default."
    ),
]
SeqLen = Annotated[
    Text,
    typer.Option(
        "--seq-len", metavar="2048", help="Tokens in a sequence (2048, or less if the model's limit is)."
    ),
]
GlobalBatch = Annotated[
    Text,
    typer.Option("--global-batch", metavar="262k", help="Tokens in a global batch; by rule if not given."),
]
Method = Annotated[
    Text, typer.Option("--method", metavar="NAME", help="pretrain (default), full, lora or qlora.")
]
Precision = Annotated[
    Text,
    typer.Option("--precision", metavar="NAME", help="bf16 (default), fp32, tf32, bf16-pure, fp16 or fp8."),
]
Optimizer = Annotated[
    Text,
    typer.Option(
        "--optimizer",
        metavar="NAME",
        help="adamw (default), adamw-8bit, adamw-paged, adamw-paged-8bit, adafactor, sgd, lion or muon.",
    ),
]
Framework = Annotated[
    Text,
    typer.Option(
        "--framework", metavar="NAME", help="Whose defaults to take, such as torchtitan or megatron."
    ),
]
Loss = Annotated[
    Text, typer.Option("--loss", metavar="NAME", help="plain, compiled, chunked, fused or fused-linear.")
]
Attention = Annotated[Text, typer.Option("--attention", metavar="NAME", help="flash, sdpa or eager.")]
Compile = Annotated[
    bool | None, typer.Option("--compile/--no-compile", help="Whether torch.compile is used.")
]
Numerics = Annotated[
    Text,
    typer.Option(
        "--numerics",
        metavar="NAME",
        help="fp32, fp32-weights-amp, fsdp-mixed, 16bit-weights-fp32-master or bf16-all; by framework.",
    ),
]
OptimizerImpl = Annotated[
    Text,
    typer.Option(
        "--optimizer-impl",
        metavar="NAME",
        help="fused, foreach, for-loop, in-backward or paged; by framework.",
    ),
]
FrozenLayers = Annotated[
    Text, typer.Option("--frozen-layers", metavar="N", help="Layers that are not trained, from the first on.")
]
LoraRank = Annotated[Text, typer.Option("--lora-rank", metavar="16", help="Rank of the adapters.")]
LoraTargets = Annotated[
    Text,
    typer.Option(
        "--lora-targets", metavar="LIST", help="all-linear (default), or some of q,k,v,o,gate,up,down."
    ),
]
LoraDropout = Annotated[Text, typer.Option("--lora-dropout", metavar="0.05", help="Dropout of the adapters.")]
Quant = Annotated[
    Text, typer.Option("--quant", metavar="NAME", help="Frozen base of qlora: nf4 (default), nf4-dq or gptq.")
]

# what bounds the search
Budget = Annotated[
    Text, typer.Option("--budget", metavar="USD", help="Most the whole run may cost, such as $200.")
]
Project = Annotated[
    Text,
    typer.Option("--project", metavar="NAME", help="Spend no more than this project's budget has left."),
]
Deadline = Annotated[
    Text, typer.Option("--deadline", metavar="48h", help="Longest the run may take: 48h, 2d.")
]
Gpus = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu",
        autocompletion=complete.gpu_names,
        metavar="NAME",
        help="Only these GPUs; repeat, or separate by commas.",
    ),
]
Providers = Annotated[
    list[str] | None,
    typer.Option(
        "--provider", autocompletion=complete.provider_names, metavar="NAME", help="Only these providers."
    ),
]
Regions = Annotated[
    list[str] | None,
    typer.Option(
        "--region", autocompletion=complete.region_names, metavar="NAME", help="Only these regions."
    ),
]
Excluded = Annotated[
    list[str] | None,
    typer.Option("--not", metavar="PROVIDER:TYPE", help="Leave this offer, or this provider, out."),
]
Market = Annotated[Text, typer.Option("--market", metavar="NAME", help="any (default), on-demand or spot.")]
Spot = Annotated[bool, typer.Option("--spot", help="The same as --market spot.")]
MaxGpus = Annotated[Text, typer.Option("--max-gpus", metavar="64", help="Most GPUs of one run.")]
Stage = Annotated[
    Text,
    typer.Option(
        "--stage",
        metavar="NAME",
        help="experiment (default), or production: no spot without checkpoints, ECC for runs over a day.",
    ),
]
Headroom = Annotated[
    Text,
    typer.Option("--headroom", metavar="0.2", help="Share of GPU memory that an 'ok' choice leaves free."),
]
NoCheckpoints = Annotated[
    bool, typer.Option("--no-checkpoints", help="The run writes none: production then takes no spot.")
]
SlowLink = Annotated[bool, typer.Option("--allow-slow-link", help="Also layouts that wait for a slow link.")]

# what the user brings
OwnMachines = Annotated[
    list[str] | None,
    typer.Option(
        "--own", metavar="MACHINE|FILE", help="Your machines: '2x rtx-4090, purchase_usd=5200', or YAML."
    ),
]
OwnRay = Annotated[
    Text, typer.Option("--own-ray", metavar="ADDRESS", help="Your machines: those of a running Ray cluster.")
]
PriceList = Annotated[
    Text, typer.Option("--price-list", metavar="FILE", help="Your prices and discounts, CSV or YAML.")
]

# a layout that is pinned
MicroBatch = Annotated[
    Text, typer.Option("--micro-batch", "--mbs", metavar="N", help="Sequences per GPU and micro-batch.")
]
GradAccum = Annotated[
    Text, typer.Option("--grad-accum", "--acc", metavar="N", help="Micro-batches per step.")
]
Recompute = Annotated[Text, typer.Option("--recompute", metavar="NAME", help="none, selective or full.")]
Zero = Annotated[Text, typer.Option("--zero", metavar="STAGE", help="0 (DDP), 1, 2 or 3 (FSDP).")]
ShardGroup = Annotated[
    Text, typer.Option("--shard-group", metavar="N", help="Ranks that ZeRO shards over (hybrid).")
]
Dp = Annotated[Text, typer.Option("--dp", metavar="N", help="Data-parallel degree.")]
Tp = Annotated[Text, typer.Option("--tp", metavar="N", help="Tensor-parallel degree.")]
Pp = Annotated[Text, typer.Option("--pp", metavar="N", help="Pipeline stages.")]
Cp = Annotated[Text, typer.Option("--cp", metavar="N", help="Context-parallel degree.")]
Ep = Annotated[Text, typer.Option("--ep", metavar="N", help="Expert-parallel degree.")]
Etp = Annotated[Text, typer.Option("--etp", metavar="N", help="Tensor-parallel degree of the experts.")]
Interleave = Annotated[
    Text, typer.Option("--interleave", metavar="N", help="Model chunks on a pipeline stage.")
]
SequenceParallel = Annotated[
    bool | None,
    typer.Option(
        "--sequence-parallel/--no-sequence-parallel", help="Split norms over tensor-parallel ranks."
    ),
]
Offload = Annotated[
    Text, typer.Option("--offload", metavar="NAME", help="none, optimizer, params+optimizer or activations.")
]

From = Annotated[
    Text,
    typer.Option(
        "--from",
        metavar="MACHINE",
        help="What you train on now, '1x rtx-4090' or '1x rtx-4090, fp32': lists what changes on the way.",
    ),
]
UploadMbit = Annotated[
    Text, typer.Option("--upload-mbit", metavar="100", help="Your line to the cloud, Mbit/s, for --from.")
]

# the answer
Sort = Annotated[Text, typer.Option("--sort", metavar="KEY", help="cost (default) or time.")]
Top = Annotated[Text, typer.Option("--top", metavar="N", help="How many choices to show.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Ids only.")]
Out = Annotated[Text, typer.Option("--out", metavar="FILE", help="Write the best choice as YAML.")]

# estimate
PlanId = Annotated[
    Text,
    typer.Argument(
        metavar="[ID]",
        autocompletion=complete.plan_ids,
        help=PLAN_HELP,
        show_default=False,
    ),
]
Runs = Annotated[
    Text,
    typer.Option("--runs", metavar="FILE", help="Run descriptions, one JSON object a line; - reads stdin."),
]
OneGpu = Annotated[
    Text, typer.Option("--gpu", autocompletion=complete.gpu_names, metavar="NAME", help="The GPU to run on.")
]
NumGpus = Annotated[Text, typer.Option("--gpus", metavar="N", help="How many GPUs (1).")]
GpusPerNode = Annotated[
    Text, typer.Option("--gpus-per-node", metavar="N", help="GPUs in a machine (at most 8).")
]
Link = Annotated[
    Text, typer.Option("--interconnect", metavar="WORDS", help="Links, such as 'NVLink + 8x400Gb IB'.")
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Each term of memory and time: formula, inputs, source and basis.")
]
NoCalibration = Annotated[
    bool, typer.Option("--no-calibration", help="Leave your own measured runs (plan calibrate) out.")
]
Measured = Annotated[
    Text,
    typer.Argument(
        metavar="[FILE]",
        help="Run descriptions with what you measured, one JSON object a line; - reads stdin.",
        show_default=False,
    ),
]
Reset = Annotated[bool, typer.Option("--reset", help="Forget the runs of an earlier plan calibrate.")]
By = Annotated[
    Text,
    typer.Option(
        "--by",
        metavar="GROUP",
        help="source, gpu, class, method, layout, precision, size, scale, framework, figure; else a summary.",
    ),
]
Command = Annotated[
    list[str],
    typer.Argument(
        metavar="COMMAND...", autocompletion=complete.documented, help="A command that has --json."
    ),
]
ListPlans = Annotated[bool, typer.Option("--plans", help="List saved plans instead of launches.")]
PlanIds = Annotated[
    list[str],
    typer.Argument(metavar="ID...", autocompletion=complete.plan_ids, help="Ids, or beginnings of ids."),
]
GpuNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]...", autocompletion=complete.gpu_names, help="Only these GPUs.", show_default=False
    ),
]

# prices
PriceMarket = Annotated[
    Text,
    typer.Option(
        "--market",
        metavar="NAME",
        help="any, on-demand (default), spot, capacity-block, community, reserved.",
    ),
]
PriceSort = Annotated[
    Text, typer.Option("--sort", metavar="KEY", help="price (of one GPU, default), node, age or provider.")
]
Most = Annotated[Text, typer.Option("--max", metavar="N", help="How many rows to show (20).")]
All = Annotated[bool, typer.Option("--all", help="Show all rows.")]
Missing = Annotated[bool, typer.Option("--missing", help="Only offers without a price, and why.")]
History = Annotated[bool, typer.Option("--history", help="Prices over time, from past refreshes.")]
ProviderNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PROVIDER]...", help="Only these providers.", show_default=False),
]

# launch and probe
ProbeTimeout = Annotated[
    Text, typer.Option("--probe-timeout", metavar="10m", help="Longest that the probe may take (10 min).")
]
