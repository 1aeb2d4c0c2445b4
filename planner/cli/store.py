"""Plans on disk: one JSON file each in the user's data directory, named by the candidate's hash.

``PLAN_DATA_DIR`` puts them elsewhere. Files are written whole or not at all. A file that cannot be read is
set aside with a warning, never a reason to stop.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from planner.cli.text import paragraph, terminal
from planner.errors import UserError, did_you_mean
from planner.results import Candidate, Dot, Plan

_LAST = "last_suggest.json"
_FIELDS = "fields"
_MOST_FIELDS = 20
_LONGEST_ROW = 3


def data_dir() -> Path:
    """Directory of the user's data."""
    told = os.environ.get("PLAN_DATA_DIR")
    if told:
        return Path(told)
    from platformdirs import user_data_dir  # only where nothing was told

    return Path(user_data_dir("plan"))


def save_shown(candidates: Iterable[Candidate], command: str, now: datetime) -> list[Plan]:
    """Save what a suggest showed, and which row each plan was. A plan that is there unchanged is kept."""
    plans = [Plan(id=c.id, created=now, command=command, candidate=c) for c in candidates]
    try:
        for plan in plans:
            old = _read(_path(plan.id))
            if old is None or _content(old) != _content(plan):
                write(_path(plan.id), plan.model_dump_json())
        write(data_dir() / _LAST, json.dumps({str(p.candidate.rank): p.id for p in plans}))
    except OSError as error:
        warn(f"plans not saved: {error}")
    return plans


def last_shown() -> list[Plan]:
    """Plans of the last suggest that are still there, in its order; all plans where nothing was suggested."""
    try:
        rows = json.loads((data_dir() / _LAST).read_text(encoding="utf-8"))
        ids = [str(i) for _, i in sorted(rows.items(), key=lambda row: int(row[0]))]
    except (OSError, ValueError, AttributeError):
        return all_plans()
    return [plan for i in ids if (plan := _read(_path(i))) is not None]


def save_field(plans: Iterable[Plan], field: Iterable[Dot]) -> None:
    """Save the whole field of a suggestion beside its plans; only the newest few are kept."""
    ids = [p.id for p in plans]
    if not ids:
        return
    content = {"plans": ids, "dots": [[d.hours, d.usd, d.name, d.verdict, d.reason] for d in field]}
    try:
        write(data_dir() / _FIELDS / f"{ids[0]}.json", json.dumps(content))
        for old in _fields()[_MOST_FIELDS:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        warn(f"the other candidates are not saved: {error}")


def field_of(plan_id: str) -> tuple[Dot, ...]:
    """Field of the newest suggestion that showed a plan; empty where none was kept, or it cannot be read."""
    for path in _fields():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if plan_id in found["plans"]:
                names = list(Dot.model_fields)
                return tuple(Dot.model_validate(dict(zip(names, row, strict=True))) for row in found["dots"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return ()


def _fields() -> list[Path]:
    """Files of fields, newest first."""
    found = [(path.stat().st_mtime, path) for path in (data_dir() / _FIELDS).glob("p-*.json")]
    return [path for _, path in sorted(found, reverse=True)]


def _content(plan: Plan) -> str:
    """Write out what makes a plan; the row that it stood in does not count."""
    return plan.candidate.model_dump_json(exclude={"rank"})


def find(name: str) -> Plan:
    """Return the plan that ``name`` means: a row of the last suggest, an id or its beginning, or a file."""
    if name.lower().endswith((".yaml", ".yml", ".json")):
        return _of_file(Path(name))
    full = _full_id(name)
    plan = _read(_path(full))
    if plan is None:
        raise UserError(f"plan {full} is gone or cannot be read", "plan ls --plans")
    return plan


def _of_file(path: Path) -> Plan:
    """Plan of a file that ``plan suggest --out`` wrote, or of one out of the store."""
    import yaml

    try:
        return Plan.model_validate_json(
            json.dumps(yaml.safe_load(path.read_text(encoding="utf-8")), default=str)
        )
    except OSError as error:
        raise UserError(f"cannot read {str(path)!r:.200}: {error.strerror}", "plan ls --plans") from None
    except (ValueError, yaml.YAMLError, RecursionError):
        raise UserError(
            f"{str(path)!r:.200} holds no plan", "plan suggest … --out plan.yaml writes one"
        ) from None


def all_plans() -> list[Plan]:
    """All saved plans, newest first."""
    found = [plan for path in _files() if (plan := _read(path)) is not None]
    return sorted(found, key=lambda p: (p.created, p.id), reverse=True)


def remove(name: str) -> str:
    """Delete a plan; returns its id."""
    full = _full_id(name)
    try:
        _path(full).unlink()
    except FileNotFoundError:
        raise UserError(f"plan {full} is gone already", "plan ls --plans") from None
    return full


def saved_ids() -> list[str]:
    """Ids of all saved plans, without reading them."""
    return sorted(path.stem for path in _files())


def _files() -> list[Path]:
    return sorted((data_dir() / "plans").glob("p-*.json"))


def _path(full_id: str) -> Path:
    return data_dir() / "plans" / f"{full_id}.json"


def _full_id(name: str) -> str:
    """Id that a row number, an id or the beginning of one stands for."""
    is_row = name.isascii() and name.isdecimal() and len(name) <= _LONGEST_ROW
    return _row_id(name) if is_row else _by_prefix(name)


def _row_id(row: str) -> str:
    """Id of a row of the last suggest."""
    try:
        rows = json.loads((data_dir() / _LAST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"row {row}: nothing was suggested yet", "plan suggest --params 1B --budget 200"
        ) from None
    except (OSError, ValueError):
        raise UserError(f"row {row}: the last suggest cannot be read", "plan ls --plans") from None
    if not isinstance(rows, dict) or not isinstance(rows.get(str(int(row))), str):
        shown = ", ".join(rows) if isinstance(rows, dict) else ""
        raise UserError(f"row {row}: the last suggest showed rows {shown or 'none'}", "plan ls --plans")
    return str(rows[str(int(row))])


def _by_prefix(name: str) -> str:
    """Find the one id that begins with ``name``, with or without its ``p-``."""
    wanted = name.strip().lower()
    known = saved_ids()
    found = (
        [i for i in known if i.startswith((wanted, f"p-{wanted}"))] if wanted not in ("", "p", "p-") else []
    )
    if len(found) > 1 and wanted not in (*found, *(i.removeprefix("p-") for i in found)):
        raise UserError(
            f"plan {name!r:.60} can mean several: {', '.join(found)}", f"plan estimate {found[0]}"
        )
    if not found:
        raise UserError(f"no plan {name!r:.60}{did_you_mean(wanted, known)}", "plan ls --plans")
    return found[0]


def _read(path: Path) -> Plan | None:
    """Read a plan; one that cannot be read is renamed to ``….corrupt`` with a warning."""
    try:
        return Plan.model_validate_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValidationError, UnicodeDecodeError):
        aside = path.with_suffix(".corrupt")
        os.replace(path, aside)
        warn(f"{path.name} cannot be read; set aside as {aside.name}")
        return None


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all. A device or pipe is written into: a file must not take its place."""
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text, encoding="utf-8")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def warn(text: str) -> None:
    """Say on stderr what was not as it should be."""
    sys.stderr.write("\n".join(paragraph(f"warning: {text}", terminal())) + "\n")
