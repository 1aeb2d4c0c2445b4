"""The pictures of the HTML report, as SVG text. The same report gives the same bytes: no date, fixed ids.

Colours are those of Okabe and Ito (2008), told apart by people with any colour vision; what a colour says is
said by a mark, a hatch or a word too.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from planner.errors import UserError
from planner.report.nouns import BudgetPart, BurnPoint, MemoryBar, Placed, Prediction, Sensitivity
from planner.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE, GREY = (
    "#000000",
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#f0e442",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
    "#767676",
)
# one colour and one hatch per part of memory, everywhere
PARTS = {
    "parameters": (BLUE, ""),
    "gradients": (SKY, "//"),
    "optimizer": (GREEN, ""),
    "activations": (ORANGE, ""),
    "logits": (YELLOW, "\\\\"),
    "gathered": (PURPLE, ""),
    "communication": (VERMILION, "xx"),
    "context": ("#999999", ""),
    "allocator_slack": ("#dddddd", ".."),
}
_BUDGET = {
    "price x hours": (BLUE, ""),
    "probe and set-up": (GREEN, "//"),
    "storage and traffic": (ORANGE, "\\\\"),
    "spread of time and price": ("#dddddd", ".."),
}
_WIDTH_IN = 7.6


@contextmanager
def _axes(height_in: float, salt: str) -> Iterator[tuple[Axes, io.StringIO]]:
    """Axes of a picture, and the text that it becomes when the block ends."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            "the HTML report draws with matplotlib, which is not installed", "pip install 'plan[report]'"
        ) from None
    with mpl.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
        axes = figure.subplots()
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        out = io.StringIO()
        yield axes, out
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")


def _inline(out: io.StringIO, label: str) -> str:
    """Take the picture out of its file: scaled to the page, with words for those who hear it."""
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, count=1, flags=re.DOTALL)
    said = label.replace("&", "and").replace('"', "'").replace("<", "under ")
    return text.replace("<svg", f'<svg role="img" aria-label="{said}"', 1)


def budget(parts: Sequence[BudgetPart], budget_usd: float | None) -> str:
    """One bar: what the money goes to, and the budget as a line."""
    with _axes(1.6, "budget") as (axes, out):
        left = 0.0
        for part in parts:
            if part.usd is None:
                continue
            color, hatch = _BUDGET[part.name]
            axes.barh(
                [0], [part.usd], left=left, color=color, hatch=hatch, edgecolor="white", label=part.name
            )
            left += part.usd
        if budget_usd is not None:
            axes.axvline(budget_usd, color=BLACK, linestyle="--", label=f"budget ${budget_usd:,.0f}")
        axes.set_yticks([])
        axes.set_xlabel("USD")
        axes.set_xlim(0, 1.08 * max(left, budget_usd or 0.0, 0.01))
        _legend(axes, columns=3)
    return _inline(out, "Cost by part, against the budget")


def cost_and_time(dots: Sequence[Placed], budget_usd: float | None) -> str:
    """Draw one dot per candidate, both axes logarithmic: the front, the budget, the chosen one ringed."""
    with _axes(4.2, "dots") as (axes, out):
        axes.set_xscale("log")
        axes.set_yscale("log")
        lost = sorted({d.reason for d in dots if d.verdict == "over"})
        styles = [(reason, GREY, mark) for reason, mark in zip(lost, itertools.cycle("x+1234|_"))]
        for name, color, marker in (*styles, ("tight", ORANGE, "^"), ("ok", BLUE, "o")):
            of = [d for d in dots if name == (d.reason if d.verdict == "over" else d.verdict)]
            if of:
                x, y = [d.hours for d in of], [d.usd for d in of]
                label = f"lost: {name or 'not said'}" if color == GREY else name
                axes.scatter(x, y, s=22, c=color, marker=marker, label=label, linewidths=0.8)
        front = [d for d in dots if d.on_front]
        if len(front) > 1:
            axes.plot([d.hours for d in front], [d.usd for d in front], color=GREEN, label="front")
        for d in [d for d in dots if d.is_subject][:1]:
            axes.scatter(
                [d.hours],
                [d.usd],
                s=160,
                facecolors="none",
                edgecolors=VERMILION,
                linewidths=2,
                label="chosen",
            )
        if budget_usd is not None:
            axes.axhline(budget_usd, color=BLACK, linestyle="--", label=f"budget ${budget_usd:,.0f}")
        _plain_ticks(axes)
        axes.set_xlabel("hours")
        axes.set_ylabel("USD")
        _legend(axes, columns=6)
    return _inline(out, "Cost against time, one dot for each candidate")


def memory(bars: Sequence[MemoryBar]) -> str:
    """Draw stacked bars of memory by part, with the limit, and the measured peak as a tick."""
    with _axes(1.2 + 0.55 * len(bars), "memory") as (axes, out):
        for part, (color, hatch) in PARTS.items():
            left = [_before(bar, part) for bar in bars]
            sizes = [getattr(bar.parts_bytes, part) / GIB for bar in bars]
            axes.barh(
                range(len(bars)),
                sizes,
                left=left,
                color=color,
                hatch=hatch,
                edgecolor="white",
                label=part.replace("_", " "),
            )
        for i, bar in enumerate(bars):
            _mark(axes, i, bar.limit_bytes, "--", BLACK)
            _mark(axes, i, bar.usable_bytes, "-", BLACK)
            if bar.measured_bytes is not None:
                axes.plot([bar.measured_bytes / GIB], [i], marker="v", color=VERMILION, markersize=9)
        axes.set_yticks(range(len(bars)), [bar.plan_id for bar in bars])
        axes.invert_yaxis()
        axes.set_xlabel("GiB per GPU (dashed: limit with headroom; solid: what torch can use; ▼ measured)")
        _legend(axes, columns=5)
    return _inline(out, "Peak memory per GPU, by part")


def _before(bar: MemoryBar, part: str) -> float:
    """GiB of the parts that stand left of one."""
    names = list(PARTS)
    return float(sum(getattr(bar.parts_bytes, name) for name in names[: names.index(part)]) / GIB)


def _mark(axes: Axes, row: int, size_bytes: float | None, style: str, color: str) -> None:
    if size_bytes is not None:
        axes.plot([size_bytes / GIB] * 2, [row - 0.42, row + 0.42], linestyle=style, color=color)


def tornado(rows: Sequence[Sensitivity], mid_usd: float) -> str:
    """Draw what each cause does to the cost, the largest on top."""
    with _axes(1.0 + 0.5 * len(rows), "tornado") as (axes, out):
        for i, row in enumerate(rows):
            for usd, says, color, hatch in (
                (row.usd_at_low, row.low_says, SKY, ""),
                (row.usd_at_high, row.high_says, ORANGE, "//"),
            ):
                axes.barh([i], [usd - mid_usd], left=mid_usd, color=color, hatch=hatch, edgecolor="white")
                side = "left" if usd >= mid_usd else "right"
                axes.annotate(
                    says,
                    (usd, i),
                    ha=side,
                    va="center",
                    fontsize=8,
                    xytext=(4 if side == "left" else -4, 0),
                    textcoords="offset points",
                )
        axes.axvline(mid_usd, color=BLACK, linewidth=1)
        axes.set_yticks(range(len(rows)), [r.cause for r in rows])
        axes.invert_yaxis()
        ends = [u for r in rows for u in (r.usd_at_low, r.usd_at_high)]
        room = 0.35 * max(max(ends) - min(ends), 0.01)
        axes.set_xlim(min(ends) - room, max(ends) + room)
        axes.set_xlabel("USD of the whole run")
    return _inline(out, "What moves the cost most")


def burn_down(points: Sequence[BurnPoint], budget_usd: float | None) -> str:
    """Draw spent against foreseen, launch by launch, and the cap."""
    with _axes(3.2, "burn") as (axes, out):
        begun = min(p.at for p in points)
        colors = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)
        for i, name in enumerate(dict.fromkeys(p.launch_id for p in points)):
            of = [p for p in points if p.launch_id == name]
            hours = [(p.at - begun).total_seconds() / 3600 for p in of]
            color = colors[i % len(colors)]
            axes.plot(hours, [p.spent_usd for p in of], color=color, label=f"{name} spent")
            axes.plot(
                hours, [p.predicted_usd for p in of], color=color, linestyle=":", label=f"{name} foreseen"
            )
        if budget_usd is not None:
            axes.axhline(budget_usd, color=BLACK, linestyle="--", label=f"budget ${budget_usd:,.0f}")
        axes.set_xlabel(f"hours since {begun:%Y-%m-%d %H:%M} UTC")
        axes.set_ylabel("USD")
        _legend(axes, columns=3)
    return _inline(out, "Money spent against money foreseen")


def predicted_and_measured(rows: Sequence[Prediction]) -> str:
    """Draw measured over predicted, one bar per figure, with the band that was predicted."""
    with _axes(1.0 + 0.45 * len(rows), "predictions") as (axes, out):
        for i, row in enumerate(rows):
            mid = row.predicted.mid
            low, high = row.predicted.low / mid, row.predicted.high / mid
            axes.barh([i], [high - low], left=low, color="#dddddd", hatch="..", edgecolor="white")
            axes.plot([row.measured / mid], [i], marker="D", color=VERMILION)
        axes.axvline(1.0, color=BLACK, linewidth=1)
        axes.set_yticks(range(len(rows)), [f"{r.launch_id} {r.name}" for r in rows])
        axes.invert_yaxis()
        axes.set_xlabel("measured / predicted (grey: the predicted 80 % band)")
    return _inline(out, "Measured over predicted")


def _plain_ticks(axes: Axes) -> None:
    """Write 100 instead of 10^2."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    plain = FuncFormatter(_plain)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axis.set_major_formatter(plain)
        axis.set_minor_formatter(FuncFormatter(lambda _value, _position: ""))


def _plain(value: float, _position: Any) -> str:  # noqa: ANN401 (matplotlib's own)
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _legend(axes: Axes, columns: int) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, fontsize=8, frameon=False)
