"""GPU names and facts: ``data/gpus.csv`` as ``Gpu`` records.

A name is looked up without regard to case, blanks, dashes and underscores. A name that fits several GPUs
("A100") is never guessed: ``gpu`` refuses it with the candidates, ``match`` returns all of them.
What cannot be planned for (TPU, Trainium, Gaudi, MIG slices) is refused by name.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files

from planner.errors import UserError, did_you_mean
from planner.types import Gpu, Precision

GIB = 2**30

_REFUSED: tuple[tuple[str, str], ...] = (
    (r"\bmig\b|^mig|\b\d+g\.?\d+gb\b", "MIG slices share one GPU; a plan needs whole GPUs"),
    (
        r"tpu|trillium|ironwood|^v[2-6][ep]?[- ]\d+$",
        "TPUs run XLA, not CUDA or ROCm; memory and speed of them are not modelled",
    ),
    (
        r"trainium|inferentia|^trn\d|^inf[12]\b|neuron",
        "AWS Trainium and Inferentia run Neuron; memory and speed of them are not modelled",
    ),
    (
        r"gaudi|habana|^hl-?\d{3}|\bhpu\b",
        "Intel Gaudi runs its own stack; memory and speed of it are not modelled",
    ),
    (
        r"^apple\b|^m[1-5]( (pro|max|ultra))?$|\bmps\b",
        "Apple GPUs cannot be rented in clusters; they are not modelled",
    ),
    (r"^cpu$", "training on CPUs is not modelled"),
)
_UNKNOWN = re.compile(r"^(unknown|null|none|n/?a)\b|^$", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\s_/\-]+")
_VENDOR_PREFIX = re.compile(r"^(nvidia|amd|geforce|tesla|instinct|radeon)+")


def _key(name: str) -> str:
    """``name`` without case, blanks, dashes and underscores."""
    return _SEPARATORS.sub("", name.strip()).lower()


def _tokens(name: str) -> frozenset[str]:
    """Words of a name, lower case: ``"A100-SXM4-80GB"`` -> a100, sxm4, 80gb."""
    return frozenset(t for t in _SEPARATORS.split(name.strip().lower()) if t)


def _tflops(text: str) -> float | None:
    """TFLOPS of a cell as FLOPS, ``None`` where the cell is empty."""
    return float(text) * 1e12 if text else None


def _record(row: dict[str, str]) -> Gpu:
    """Turn a row of ``data/gpus.csv`` into a record. Units: see the names of the columns."""
    return Gpu.model_construct(
        id=row["id"],
        aliases=tuple(a for a in row["aliases"].split("|") if a),
        ray_accelerator_type=row["ray_accelerator_type"],
        gpu_class=row["gpu_class"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        form_factor=row["form_factor"],
        marketing_memory_gb=int(row["marketing_memory_gb"]),
        usable_memory_bytes=int(float(row["usable_memory_gib"]) * GIB),
        usable_memory_basis=row["usable_memory_basis"],
        memory_bandwidth_bytes_per_s=float(row["memory_bandwidth_gb_per_s"]) * 1e9,
        fp32_flops_per_s=float(row["fp32_tflops"]) * 1e12,
        tf32_flops_per_s=_tflops(row["tf32_tflops"]),
        fp16_flops_per_s=_tflops(row["fp16_tflops"]),
        bf16_flops_per_s=_tflops(row["bf16_tflops"]),
        fp8_flops_per_s=_tflops(row["fp8_tflops"]),
        nvlink_bytes_per_s=float(row["nvlink_gb_per_s"]) * 1e9,
        link_kind=row["link_kind"],
        pcie_gen=float(row["pcie_gen"]),
        pcie_lanes=int(row["pcie_lanes"]),
        ecc=row["ecc"] == "true",
        pcie_peer=row["pcie_peer"] == "true",
        tdp_w=int(row["tdp_w"]),
        compute_capability=row["compute_capability"],
        source=row["source"],
        source_date=row["source_date"],
        crosscheck=row["crosscheck"],
        note=row["note"],
    )


@lru_cache(maxsize=1)
def gpus() -> tuple[Gpu, ...]:
    """All GPUs in the order of ``data/gpus.csv``. Not validated here, for speed: a test does that."""
    text = files("planner").joinpath("data/gpus.csv").read_text(encoding="utf-8")
    return tuple(_record(row) for row in csv.DictReader(text.splitlines()))


@lru_cache(maxsize=1)
def _by_id() -> dict[str, int]:
    """Row number of each id."""
    return {g.id: i for i, g in enumerate(gpus())}


@lru_cache(maxsize=1)
def _by_key() -> dict[str, tuple[Gpu, ...]]:
    """GPUs of each normalised id and alias; an alias that several GPUs share names all of them."""
    found: dict[str, tuple[Gpu, ...]] = {}
    for each in gpus():
        for name in {_key(n) for n in (each.id, *each.aliases)}:
            found[name] = (*found.get(name, ()), each)
    for each in gpus():
        found[_key(each.id)] = (each,)
    return found


def _refuse(name: str) -> None:
    """Raise for what is refused by name: the reason is part of the message."""
    text = _SEPARATORS.sub(" ", name.strip().lower())
    if _UNKNOWN.match(text):
        raise UserError(f"GPU {name!r} names no GPU", "say which GPU: --gpu NAME (plan gpus lists them)")
    for pattern, reason in _REFUSED:
        if re.search(pattern, text) or re.search(pattern, name.strip().lower()):
            raise UserError(f"GPU {name!r} is not supported: {reason}", "plan gpus lists what is")


def _exact(name: str) -> tuple[Gpu, ...]:
    """GPUs that have ``name`` as id or alias, with or without the vendor in front."""
    key = _key(name)
    return _by_key().get(key) or _by_key().get(_VENDOR_PREFIX.sub("", key), ())


def match(name: str) -> tuple[Gpu, ...]:
    """Every GPU that ``name`` may mean: an id only itself; else aliases, and ids that hold all its words.

    Raises ``UserError`` for an unknown name (with near ones) and for what is refused by name.
    """
    _refuse(name)
    exact = _exact(name)
    if len(exact) == 1 and _key(exact[0].id) == _key(name):
        return exact
    words = _tokens(name)
    found = tuple(g for g in gpus() if g in exact or words <= _tokens(g.id))
    if found:
        return found
    known = [n for g in gpus() for n in (g.id, *g.aliases)]
    raise UserError(f"unknown GPU {name!r}{did_you_mean(name, known)}", "plan gpus lists all GPUs")


@lru_cache(maxsize=4096)
def gpu(name: str) -> Gpu:
    """Find the one GPU that ``name`` means: an id, an alias of one GPU only, or words that fit one id.

    Raises ``UserError`` if the name is unknown, refused, or fits several GPUs.
    """
    _refuse(name)
    exact = _exact(name)
    found = exact if len(exact) == 1 else match(name)
    if len(found) > 1:
        ids = ", ".join(g.id for g in found)
        # the plainest name: the card that most who say "H100" mean is the board's own form
        plainest = next((g for g in found if g.form_factor.startswith("sxm")), found[0])
        raise UserError(
            f"GPU {name!r} can mean several: {ids}", f"say which, for example --gpu '{plainest.id}'"
        )
    return found[0]


def gpu_index(gpu_id: str) -> int:
    """Row of an exact id in ``data/gpus.csv``, as ``MachineColumns.gpu_index`` holds it."""
    return _by_id()[gpu_id]


def _flops_or_none(gpu: Gpu, precision: Precision) -> float | None:
    """Dense FLOPS of the matrix units in ``precision``, ``None`` where the GPU has none."""
    return {
        "fp32": gpu.fp32_flops_per_s,
        "tf32": gpu.tf32_flops_per_s,
        "bf16": gpu.bf16_flops_per_s,
        "bf16-pure": gpu.bf16_flops_per_s,
        "fp16": gpu.fp16_flops_per_s,
        "fp8": gpu.fp8_flops_per_s,
    }[precision]


_SINCE: dict[Precision, str] = {
    "tf32": "needs Ampere or later (compute capability 8.0) or MI300",
    "bf16": "needs Ampere or later (compute capability 8.0) or AMD CDNA",
    "bf16-pure": "needs Ampere or later (compute capability 8.0) or AMD CDNA",
    "fp16": "needs Pascal P100, or Volta or later (compute capability 7.0)",
    "fp8": "needs Ada or Hopper or later (compute capability 8.9) or MI300",
}


def supports(gpu: Gpu, precision: Precision) -> str | None:
    """``None`` if ``gpu`` can train in ``precision``, else the reason why not, as one phrase."""
    if _flops_or_none(gpu, precision) is not None:
        return None
    return f"{precision} {_SINCE[precision]}; {gpu.id} is {gpu.architecture}"


def flops_per_s(gpu: Gpu, precision: Precision) -> float:
    """Dense peak FLOPS of ``gpu`` in ``precision``, FP32 accumulation. ``UserError`` where it has none."""
    value = _flops_or_none(gpu, precision)
    if value is None:
        raise UserError(
            f"{gpu.id} cannot train in {precision}: {supports(gpu, precision)}", "--precision fp32"
        )
    return value


def supported_precisions(gpu: Gpu) -> tuple[Precision, ...]:
    """Precisions that ``gpu`` can train in, widest first."""
    order: tuple[Precision, ...] = ("fp32", "tf32", "bf16", "bf16-pure", "fp16", "fp8")
    return tuple(p for p in order if supports(gpu, p) is None)


def matching_ids(names: Iterable[str]) -> frozenset[str]:
    """Ids of all GPUs that any of ``names`` may mean: what ``--gpu A100 --gpu H100`` selects."""
    return frozenset(g.id for name in names for g in match(name))
