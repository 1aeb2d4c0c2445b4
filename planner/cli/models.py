"""The model that the user names: a count of parameters, a preset, a Hugging Face config, or a YAML file."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from planner import units
from planner.errors import UserError
from planner.model.huggingface import from_config
from planner.model.presets import find_preset, preset
from planner.model.shapes import shape_for
from planner.model.spec import from_spec
from planner.records import check_keys
from planner.types import ModelSpec, Record, TrainingSpec


class SpecFile(Record):
    """What a ``--spec`` file says: fields of the model, and of the training."""

    path: str = ""
    model: Mapping[str, object] = {}
    training: Mapping[str, object] = {}


def read_model(params: str | None, name: str | None, file: SpecFile) -> ModelSpec:
    """Build the model from exactly one of its three ways. Raises ``UserError`` otherwise."""
    given = [
        flag for flag, value in (("--params", params), ("--model", name), ("--spec", file.model)) if value
    ]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} both say what the model is", f"keep {given[0]} only")
    if params is not None:
        return shape_for(units.parse_count(params, "--params", low=1e6, high=1e12))
    if name is not None:
        return _named(name)
    if file.model:
        return from_spec(file.model, f"--spec {file.path}")
    raise UserError("say which model: --params, --model or --spec", "plan suggest --params 1B")


def read_spec(path: str) -> SpecFile:
    """Read a YAML file: a mapping of model fields, or a ``model:`` mapping; and ``training:`` if wanted."""
    import yaml  # only where a file is read

    text = read_text(path, "--spec")
    try:
        content = _load(text)
    except RecursionError:
        raise UserError(f"--spec {path}: nested too deeply", "see README, 'Model specs'") from None
    except yaml.YAMLError as error:
        raise UserError(
            f"--spec {path}: not YAML ({_first_line(error)})", "see README, 'Model specs'"
        ) from None
    if not isinstance(content, dict) or not content:
        raise UserError(f"--spec {path}: not a mapping of fields", "num_layers: 16, hidden_size: 2048, …")
    if "model" in content:
        check_keys(content, ("model", "training"), f"--spec {path}")
    fields = {key: value for key, value in content.items() if key != "training"}
    parts = {"model": content.get("model", fields) or {}, "training": content.get("training") or {}}
    for key, value in parts.items():
        if not isinstance(value, dict):
            raise UserError(f"--spec {path}: {key} is not a mapping of fields", f"{key}: {{…}}")
    check_keys(parts["training"], TrainingSpec.model_fields, f"--spec {path}, training")
    return SpecFile(path=path, model=parts["model"], training=parts["training"])


def _load(text: str) -> object:
    """Load YAML without tags, with keys that stand once: YAML itself would let the last one win."""
    import yaml

    class Loader(yaml.SafeLoader):
        """A loader of its own: constructors are kept by class."""

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[object, object]:
        counts = Counter(key.value for key, _ in node.value if key.tag.endswith(":str"))
        twice = next((key for key, count in counts.items() if count > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(problem=f"{twice!r:.60} stands there twice")
        return loader.construct_mapping(node, deep=True)

    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    return yaml.load(text, Loader)


def read_text(path: str, option: str) -> str:
    """Read a text file of the user; ``-`` is standard input. Raises ``UserError`` where that fails."""
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return content.decode("utf-8-sig")  # editors of one system put a mark in front
    except FileNotFoundError:
        raise UserError(f"{option}: no such file: {path}", "check the path") from None
    except IsADirectoryError:
        raise UserError(f"{option}: {path} is a directory", "name a file in it") from None
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL in the path
        raise UserError(
            f"{option}: cannot read {path!r:.200} ({_first_line(error)})", "check the file"
        ) from None


def _named(name: str) -> ModelSpec:
    """Read a path where one exists or is meant, else find a preset."""
    is_path = name.startswith((".", "/", "~")) or name.endswith(".json")
    found = None if is_path else find_preset(name)
    if found is not None:
        return found
    path = Path(name.replace("\0", "?")).expanduser()
    if path.is_dir() and not (path / "config.json").exists():
        raise UserError(f"--model: {name} is a directory without config.json", "--model DIR/config.json")
    if is_path or path.exists():
        file = path / "config.json" if path.is_dir() else path
        return from_config(read_text(str(file), "--model"), str(file))
    return preset(name)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
