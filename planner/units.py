"""Quantities as people type them and as we print them. Nothing else in the project prints a quantity.

Parsers raise ``UserError`` and nothing else. They take the option's name, for the message.
An unknown quantity prints as ``unknown``: never zero, never blank.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

from planner.errors import UserError
from planner.types import Band

UNKNOWN = "unknown"
GIB = 2**30
_COUNT_SUFFIX = {
    "": 1.0,
    "k": 1e3,
    "m": 1e6,
    "b": 1e9,
    "g": 1e9,
    "t": 1e12,
    "thousand": 1e3,
    "million": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
}
_SECONDS = {
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hr": 3600.0,
    "hour": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "w": 604800.0,
    "week": 604800.0,
}
_BYTES = {
    "b": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "tb": 1e12,
    "kib": 2.0**10,
    "mib": 2.0**20,
    "gib": 2.0**30,
    "tib": 2.0**40,
}
_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
_QUANTITY = re.compile(rf"({_NUMBER})\s*([a-zA-Z]*)", re.ASCII)
_NUMBER_ONLY = re.compile(_NUMBER, re.ASCII)
_MAX_TEXT = 64

# ------------------------------------------------------------------------------------- parsing


def parse_count(text: str, option: str, low: float = 1.0, high: float = 1e18) -> float:
    """Parse a number of things: ``1B``, ``1.3b``, ``350M``, ``2e9``, ``1,000``, ``262k``."""
    number, suffix = _split(text, option, "a number such as 350M, 1.3B or 2e9")
    if suffix not in _COUNT_SUFFIX:
        raise UserError(
            f"{option}: unknown suffix '{suffix}' in {_shown(text)}", f"{option} 1.3B  (k, M, B or T)"
        )
    return _in_range(number * _COUNT_SUFFIX[suffix], text, option, low, high)


def parse_int(text: str, option: str, low: int = 1, high: int = 10**9) -> int:
    """Parse a whole number of things; ``4k`` is 4000."""
    value = parse_count(text, option, low, high)
    if value != int(value):
        raise UserError(
            f"{option}: {_shown(text)} is not a whole number", f"{option} {max(low, round(value))}"
        )
    return int(value)


def parse_fraction(text: str, option: str) -> float:
    """Parse a share in [0, 1): ``0.2`` or ``20%``."""
    body = text.strip()
    scale = 0.01 if body.endswith("%") else 1.0
    number, suffix = _split(body.removesuffix("%"), option, "a fraction such as 0.2 or 20%")
    value = number * scale
    if suffix or not 0 <= value < 1:
        raise UserError(
            f"{option}: {_shown(text)} is not a fraction from 0 to below 1", f"{option} 0.2  (or 20%)"
        )
    return value


def parse_usd(text: str, option: str, high: float = 1e12) -> Decimal:
    """Parse an amount of US dollars: ``$200``, ``1.5k``, ``200 USD``."""
    body = text.strip().removeprefix("$").strip()
    body = re.sub(r"\s*(usd|dollars?)$", "", body, flags=re.IGNORECASE)
    number, suffix = _split(body, option, "an amount of US dollars such as $200")
    if suffix not in _COUNT_SUFFIX:
        raise UserError(f"{option}: only US dollars are understood, not {_shown(text)}", f"{option} 200")
    _in_range(number * _COUNT_SUFFIX[suffix], text, option, 0.01, high)
    try:
        return _plain(Decimal(_NUMBER_ONLY.match(body)[0].replace(",", ""))) * int(_COUNT_SUFFIX[suffix])  # type: ignore[index]
    except InvalidOperation:
        raise UserError(f"{option}: {_shown(text)} is not an amount of money", f"{option} 200") from None


def parse_duration(text: str, option: str, high_s: float = 3.2e9) -> float:
    """Parse a length of time into seconds: ``48h``, ``2d``, ``90m``, ``1d12h``. A bare number is refused."""
    hint = f"{option} 48h  (s, m, h, d or w)"
    body = text.strip().lower()
    parts = list(_QUANTITY.finditer(body)) if len(body) <= _MAX_TEXT else []
    if not parts or "".join(p[0] for p in parts) != re.sub(r"(?<=[a-z])\s+", "", body):
        raise UserError(f"{option}: {_shown(text)} is not a length of time", hint)
    total = 0.0
    for part in parts:
        unit = part[2] if part[2] in _SECONDS else part[2].removesuffix("s")
        if unit not in _SECONDS:
            said = f"has unknown unit '{part[2]}'" if part[2] else "has no unit"
            raise UserError(f"{option}: {_shown(text)} {said}", hint)
        total += float(part[1].replace(",", "")) * _SECONDS[unit]
    if not 0 < total <= high_s:
        raise UserError(f"{option}: {_shown(text)} is out of range (up to 100 years)", hint)
    return total


def parse_bytes(text: str, option: str, high: float = 2.0**60) -> float:
    """Parse an amount of memory into bytes: ``80GiB``, ``80GB`` (10^9). ``80G`` is refused as ambiguous."""
    number, suffix = _split(text, option, "an amount of memory such as 80GiB")
    if suffix not in _BYTES:
        raise UserError(
            f"{option}: {_shown(text)} needs a unit of memory", f"{option} 80GiB  (or 80GB for 80e9 bytes)"
        )
    return _in_range(number * _BYTES[suffix], text, option, 1.0, high)


def _split(text: str, option: str, wanted: str) -> tuple[float, str]:
    """Return number and lower-case suffix of a quantity."""
    body = text.strip()
    match = _QUANTITY.fullmatch(body) if len(body) <= _MAX_TEXT else None
    if match is None:
        why = "is negative" if re.match(r"-\s*\d", body) else f"is not {wanted}"
        raise UserError(f"{option}: {_shown(text)} {why}", f"{option} takes {wanted}")
    return float(match[1].replace(",", "")), match[2].lower()


def _in_range(value: float, text: str, option: str, low: float, high: float) -> float:
    """Return ``value`` where it lies within the limits, which are what the option can sensibly mean."""
    if not (math.isfinite(value) and low <= value <= high):
        side = "small" if value < low else "large"
        limits = f"from {_limit(low)} to {_limit(high)}"
        raise UserError(f"{option}: {_shown(text)} is too {side}", f"{option} takes {limits}")
    return value


def _limit(value: float) -> str:
    return f"{value:g}" if value < 10_000 else count(value).replace(" ", "")


def _shown(text: str) -> str:
    """Put the user's text in quotes, safe for one line of a terminal."""
    clean = "".join(c if c.isprintable() else "?" for c in text)
    return f"'{clean[:40]}…'" if len(clean) > 40 else f"'{clean}'"


def _plain(value: Decimal) -> Decimal:
    """Write without exponent: ``2E+2`` becomes ``200``."""
    return value.quantize(Decimal(1)) if value == value.to_integral_value() else value


# ------------------------------------------------------------------------------------- printing


def count(value: float | None) -> str:
    """Print a large number in three digits: ``1.00 B``, ``262 k``, ``512``."""
    if value is None:
        return UNKNOWN
    for limit, scale, suffix in (
        (999.5e9, 1e12, " T"),
        (999.5e6, 1e9, " B"),
        (999.5e3, 1e6, " M"),
        (9999.5, 1e3, " k"),
    ):
        if abs(value) >= limit:
            return f"{value / scale:.{_digits(value / scale)}f}{suffix}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"


def whole(value: float | None) -> str:
    """Print a number in full: ``32,000``."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def counted(number: int, noun: str) -> str:
    """Print a number of things: ``1 offer``, ``1,417 offers``."""
    return f"{whole(number)} {noun}{'s' * (number != 1)}"


def percent(share: float | None, decimals: int = 0) -> str:
    """Print a share of one: ``49 %``."""
    return UNKNOWN if share is None else f"{100 * share:.{decimals}f} %"


def signed_percent(share: float) -> str:
    """Print a change: ``+29 %``, ``−3 %``, ``±0 %``."""
    rounded = round(100 * share)
    sign = "±" if rounded == 0 else "+" if rounded > 0 else "−"
    return f"{sign}{abs(rounded)} %"


def gib(value_bytes: float | None) -> str:
    """Print memory: ``39.0 GiB``."""
    return UNKNOWN if value_bytes is None else f"{gib_number(value_bytes)} GiB"


def gib_number(value_bytes: float | None) -> str:
    """Print memory in GiB without the unit, for a column that is headed by it."""
    if value_bytes is None:
        return UNKNOWN
    value = value_bytes / GIB
    return f"{value:,.{2 if abs(value) < 9.995 else 1}f}"


def gib_band(band_bytes: Band | None) -> str:
    """Print memory with its spread: ``39.0 GiB (37.5–40.6)``."""
    if band_bytes is None:
        return UNKNOWN
    return _band(band_bytes, 1 / GIB, 2 if band_bytes.mid < 9.995 * GIB else 1, " GiB")


def gib_band_number(band_gib: Band) -> str:
    """Print GiB with their spread, for a column that is headed by the unit: ``39.0 (37.5–40.6)``."""
    return _band(band_gib, 1.0, 2 if band_gib.mid < 9.995 else 1, "")


def buffer_size(value_bytes: float) -> str:
    """Print the size of a message, exact where it is a whole unit: ``1 KiB``, ``25 MiB``, ``6.76 MiB``."""
    for scale, unit in ((GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value_bytes >= scale:
            value = value_bytes / scale
            return f"{value:,.{0 if value == int(value) else _digits(value)}f} {unit}"
    return f"{value_bytes:,.0f} B"


def ratio(value: float | None) -> str:
    """Print a ratio near one, or another plain figure: ``1.03``."""
    return UNKNOWN if value is None else f"{value:.{2 if abs(value) < 9.995 else 1}f}"


def usd(value: float | Decimal | None) -> str:
    """Print money: ``$189``, ``$8.40``."""
    return UNKNOWN if value is None else f"${usd_number(value)}"


def usd_number(value: float | Decimal | None) -> str:
    """Print money without the sign, for a column that is headed by USD: two decimals under 10, else none."""
    return UNKNOWN if value is None else f"{float(value):,.{_usd_decimals(float(value))}f}"


def usd_cents(value: float | Decimal | None) -> str:
    """Print money that was spent, to the cent, without the sign: ``1,168.47``."""
    return UNKNOWN if value is None else f"{float(value):,.2f}"


def usd_band(band: Band | None, sign: str = "$") -> str:
    """Print money with its spread: ``$189 (166–212)``."""
    return UNKNOWN if band is None else sign + _band(band, 1.0, _usd_decimals(band.mid), "")


def usd_total(known: Band | None, unknown_parts: Iterable[str]) -> str:
    """Print a sum that names what it leaves out: ``≥ $182 + unknown egress``."""
    parts = list(unknown_parts)
    if known is None:
        return " + ".join(f"{UNKNOWN} {p}" for p in parts) or UNKNOWN
    if not parts:
        return usd_band(known)
    return f"≥ {usd(known.mid)} + {UNKNOWN} {', '.join(parts)}"


def usd_exact(value: float | Decimal | None) -> str:
    """Print money in dollars and cents, for a limit, which must not be rounded down: ``$14.04``."""
    return UNKNOWN if value is None else f"${usd_cents(value)}"


def usd_per_hour(value: float | Decimal | None) -> str:
    """Print a price in dollars and cents: ``$10.49 / h``. Per hour, cents matter above 10 dollars too."""
    return UNKNOWN if value is None else f"${float(value):,.2f} / h"


def hours(value_h: float | None) -> str:
    """Print a length of time: ``95 h``, ``4.2 h``, ``45 min``, ``12 s``."""
    if value_h is None:
        return UNKNOWN
    scale, decimals, unit = _time_unit(value_h)
    return f"{value_h * scale:,.{decimals}f} {unit}"


def hours_band(band_h: Band | None) -> str:
    """Print a length of time with its spread: ``95 h (84–108)``."""
    if band_h is None:
        return UNKNOWN
    scale, decimals, unit = _time_unit(band_h.mid)
    return _band(band_h, scale, decimals, f" {unit}")


def gpu_hours(value_h: float) -> str:
    """Print GPU hours without the unit: whole ones from 10 on, ``0.11`` below."""
    return whole(value_h) if value_h >= 9.95 else f"{value_h:.2g}"


def duration(value_s: float | None) -> str:
    """Print seconds as a length of time, as ``hours``."""
    return UNKNOWN if value_s is None else hours(value_s / 3600)


def seconds(value_s: float | None) -> str:
    """Print a step time: ``3.86 s``, ``310 ms``."""
    if value_s is None:
        return UNKNOWN
    if value_s == 0:
        return "0 s"
    scale, unit = _second_unit(value_s)
    return f"{value_s * scale:,.{_digits(value_s * scale)}f} {unit}"


def seconds_band(band_s: Band | None) -> str:
    """Print a step time with its spread: ``3.86 s (3.40–4.32)``."""
    if band_s is None:
        return UNKNOWN
    scale, unit = _second_unit(band_s.mid)
    return _band(band_s, scale, _digits(band_s.mid * scale), f" {unit}")


def age(value_s: float | None) -> str:
    """Print how old a fact is: ``12 min``, ``3 h``, ``8 d``."""
    if value_s is None:
        return UNKNOWN
    past_s = max(0.0, value_s)
    if past_s < 3600:
        return f"{past_s / 60:.0f} min"
    return f"{past_s / 3600:.0f} h" if past_s < 2 * 86400 else f"{past_s / 86400:.0f} d"


def tokens_per_s(value: float | None) -> str:
    """Print a speed: ``64.7 k tok/s``."""
    return UNKNOWN if value is None else f"{count(value)} tok/s"


def gb_per_s(bytes_per_s: float | None) -> str:
    """Print a bandwidth: ``3,350 GB/s``, ``25 MB/s``."""
    if bytes_per_s is None:
        return UNKNOWN
    value = bytes_per_s / 1e9
    if 0 < value < 0.0995:
        return f"{value * 1e3:.{0 if value >= 0.00995 else 2}f} MB/s"
    return f"{value:,.{0 if value >= 99.5 else 1}f} GB/s"


def tflops(flops_per_s: float | None) -> str:
    """Print dense TFLOPS without the unit: ``989``, ``12.7``."""
    if flops_per_s is None:
        return "–"
    value = flops_per_s / 1e12
    return f"{value:,.{0 if value >= 99.5 else 1}f}"


def _band(band: Band, scale: float, decimals: int, unit: str) -> str:
    low, mid, high = (f"{v * scale:,.{decimals}f}" for v in (band.low, band.mid, band.high))
    return f"{mid}{unit}" if low == mid == high else f"{mid}{unit} ({low}–{high})"


def _digits(value: float) -> int:
    """Count the decimals that make three significant digits."""
    return 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0


def _usd_decimals(value: float) -> int:
    return 2 if abs(value) < 9.995 else 0


def _time_unit(value_h: float) -> tuple[float, int, str]:
    """Choose scale from hours, decimals and name of the unit that reads best."""
    if value_h >= 9.95:
        return 1.0, 0, "h"
    if value_h >= 1:
        return 1.0, 1, "h"
    return (60.0, 0, "min") if value_h >= 1 / 60 else (3600.0, 0, "s")


def _second_unit(value_s: float) -> tuple[float, str]:
    return (1.0, "s") if value_s >= 1 else (1e3, "ms")
