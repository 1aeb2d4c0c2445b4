"""Records from what users write: a mapping with unknown shape in, a record or one clear error out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError

from planner.errors import UserError, did_you_mean
from planner.types import Record

R = TypeVar("R", bound=Record)


def build(record: type[R], values: Mapping[str, object], what: str) -> R:
    """``record`` from ``values``. Raises ``UserError`` that names ``what`` and the first field at fault."""
    check_keys(values, record.model_fields, what)
    for key, value in values.items():
        if isinstance(value, bool) and "bool" not in str(record.model_fields[key].annotation):
            raise UserError(f"{what}: {key} is {str(value).lower()}, not a number or a word")
    try:
        return record.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "value"
        shown = "missing" if first["type"] == "missing" else f"{first['input']!r:.60}: {first['msg'].lower()}"
        raise UserError(f"{what}: {field} is {shown}", f"set {field}") from None


def check_keys(
    values: Mapping[str, object], known: Mapping[str, object] | tuple[str, ...], what: str
) -> None:
    """Raise ``UserError`` for the first key of ``values`` that is not ``known``."""
    for key in values:
        if key not in known:
            near = did_you_mean(str(key), known)
            raise UserError(f"{what}: unknown key {str(key)!r:.80}{near}", f"keys: {', '.join(known)}")


def whole_number(value: object) -> int | None:
    """Return the number that ``value`` is if it is whole (4096 or 4096.0), else ``None``."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None
