"""The shape that ``--params 1B`` stands for: a dense decoder of today's kind, 1 M to 1 T parameters.

The rule, in full:

* Sizes stand on a ladder of 128 rungs a decade (1.8 % apart), so 1B, 10B, ... are rungs. The asked count
  takes the nearest rung; each rung's shape counts to within 1 % of it. A larger count never gives a smaller
  model.
* Llama family: RMS norm, SwiGLU, rotary positions, no biases.
* Vocabulary 4,096 below 10 M, 8,192 below 30 M, 16,384 below 100 M, 32,768 below 3 B, 65,536 below 8 B,
  131,072 above; the token table is also the output projection below 1 B.
* Heads of 64 below hidden size 1,024, of 128 from there on; 8 key-value heads (GQA) from 4,096 on.
* Hidden size: a multiple of 64 below 256, of 128 below 1,024, of 512 below 4,096, of 1,024 above.
* hidden / layers is near 32 at 1 M, grows as params^0.163 to 128 at 5 B and is constant above (as in GPT-3).
* Feed-forward near 8/3 hidden, a multiple of 16, 32 or 256 (hidden below 256, below 1,024, above).
* A depth that is a multiple of four is preferred: it splits over pipeline stages.
* Among the shapes within 0.8 % of the rung, the one nearest to these ratios is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from planner.errors import UserError
from planner.types import ModelSpec

LEAST_PARAMS, MOST_PARAMS = 1e6, 1e12
RUNGS_PER_DECADE = 128
CLOSE_ENOUGH = 0.008
_LAST_RUNG = round(RUNGS_PER_DECADE * math.log10(MOST_PARAMS / LEAST_PARAMS))


@dataclass(frozen=True, slots=True)
class _Shape:
    """Width, depth and feed-forward; ``params`` is its count, ``strain`` its distance from the ratios."""

    hidden: int
    layers: int
    ffn: int
    vocab: int
    tied: bool
    params: int
    strain: float


def shape_for(num_params: float) -> ModelSpec:
    """Dense decoder of about ``num_params`` parameters, within 3 %. ``UserError`` outside 1 M to 1 T."""
    if not LEAST_PARAMS <= num_params <= MOST_PARAMS:  # false for NaN too
        raise UserError(f"{num_params:g} parameters: the shape rule covers 1M to 1T", "--params 1B")
    near = round(RUNGS_PER_DECADE * math.log10(num_params / LEAST_PARAMS))
    rungs = range(max(0, near - 1), min(_LAST_RUNG, near + 1) + 1)
    best = min((_rung(k) for k in rungs), key=lambda s: abs(math.log(s.params / num_params)))
    return _spec(best)


@cache
def _rung(index: int) -> _Shape:
    """Shape nearest to the ratios among those that count close enough to the rung, else the closest."""
    target = LEAST_PARAMS * 10 ** (index / RUNGS_PER_DECADE)
    shapes = list(_shapes_near(target))
    close = [s for s in shapes if abs(s.params / target - 1) <= CLOSE_ENOUGH]
    if close:
        return min(close, key=lambda s: (s.strain, s.hidden))
    return min(shapes, key=lambda s: (abs(s.params / target - 1), s.strain))


def _shapes_near(target: float) -> Iterator[_Shape]:
    """Shapes around the ideal width and depth, each with the feed-forward that counts closest."""
    aspect = min(128.0, 32 * (target / 1e6) ** 0.163)
    vocab, tied = _vocab_and_tying(target)
    ideal = (target * aspect / 12) ** (1 / 3)
    for hidden in _hidden_sizes(0.5 * ideal, 1.6 * ideal):
        head_dim, kv_heads, multiple = _heads(hidden)
        attention = 2 * hidden * hidden + 2 * hidden * kv_heads * head_dim + 2 * hidden
        root = vocab * hidden * (1 if tied else 2) + hidden
        most = max(2, round(3 * hidden / aspect))
        for layers in range(max(1, round(hidden / aspect / 3)), most + 1):
            room = (target - root) / layers - attention
            ffn = round(room / (3 * hidden) / multiple) * multiple
            if 2 * hidden <= ffn <= 4 * hidden:
                params = root + layers * (attention + 3 * hidden * ffn)
                yield _Shape(hidden, layers, ffn, vocab, tied, params, _strain(hidden, layers, ffn, aspect))


def _strain(hidden: int, layers: int, ffn: int, aspect: float) -> float:
    """How far a shape is from the ratios: in logarithms, the feed-forward's counting twice."""
    uneven = 0.1 if layers % 4 else 0.0
    return abs(math.log(hidden / layers / aspect)) + 2 * abs(math.log(ffn / hidden * 3 / 8)) + uneven


def _hidden_sizes(low: float, high: float) -> Iterator[int]:
    """Legal hidden sizes from ``low`` to ``high``."""
    for first, last, step in ((64, 256, 64), (256, 1024, 128), (1024, 4096, 512), (4096, 65536, 1024)):
        start = max(first, math.ceil(low / step) * step)
        yield from range(start, min(last, math.floor(high) + 1), step)


def _heads(hidden: int) -> tuple[int, int, int]:
    """Size of a head, key-value heads, and what the feed-forward is a multiple of."""
    head_dim = 64 if hidden < 1024 else 128
    kv_heads = 8 if hidden >= 4096 else hidden // head_dim
    return head_dim, kv_heads, 16 if hidden < 256 else 32 if hidden < 1024 else 256


def _vocab_and_tying(num_params: float) -> tuple[int, bool]:
    """Vocabulary, and whether the token table is the output projection too."""
    steps = (
        (1e7, 4096),
        (3e7, 8192),
        (1e8, 16384),
        (3e9, 32768),
        (8e9, 65536),
        (math.inf, 131072),
    )
    return next(vocab for below, vocab in steps if num_params < below), num_params < 1e9


def _spec(shape: _Shape) -> ModelSpec:
    head_dim, kv_heads, _ = _heads(shape.hidden)
    return ModelSpec(
        name=f"dense-{shape.layers}x{shape.hidden}",
        num_layers=shape.layers,
        hidden_size=shape.hidden,
        num_heads=shape.hidden // head_dim,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        ffn_size=shape.ffn,
        vocab_size=shape.vocab,
        tied_embeddings=shape.tied,
        source="shape rule of --params",
    )
