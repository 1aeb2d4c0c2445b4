"""Closed shapes of documents: which keys may be there, and of what type. What is not said is a mistake.

A shape is JSON: ``{"key": shape}`` for an object whose keys are all named (``key?`` may be missing, ``*``
at the end of a key stands for any ending), ``[shape]`` for a list, ``"str"``, ``"int"``, ``"number"``,
``"bool"``, ``"null"`` or several of them joined by ``|`` for a value, ``"any"`` for whatever, ``"$name"`` for
another shape of the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files

from planner.errors import did_you_mean

_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "number": (int, float),
    "bool": (bool,),
    "null": (type(None),),
}


@lru_cache(maxsize=4)
def shapes(name: str) -> dict[str, object]:
    """Read a file of shapes of ``data/``."""
    text = files("clusters.config").joinpath(f"data/{name}").read_text(encoding="utf-8")
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def problems(document: object, shape: object, path: str = "", named: Mapping[str, object] = {}) -> list[str]:
    """All places where a document leaves its shape, as ``path: what is wrong``.

    Args:
        document: what was read of YAML or JSON.
        shape: see the module.
        path: where the document stands, for the messages.
        named: shapes that ``$name`` means.

    """
    return list(_walk(document, shape, path, named))


def _walk(value: object, shape: object, path: str, named: Mapping[str, object]) -> Iterator[str]:
    if isinstance(shape, str) and shape.startswith("$"):
        shape = named[shape[1:]]
    if isinstance(shape, dict):
        yield from _object(value, shape, path, named)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{path}: a list is expected"
            return
        for index, item in enumerate(value):
            yield from _walk(item, shape[0], f"{path}[{index}]", named)
    elif shape != "any" and not _fits(value, str(shape)):
        yield f"{path}: {shape} is expected, not {type(value).__name__}"


def _object(
    value: object, shape: Mapping[str, object], path: str, named: Mapping[str, object]
) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: an object is expected"
        return
    known = {key.removesuffix("?"): inner for key, inner in shape.items()}
    for key, item in value.items():
        inner = _shape_of(str(key), known)
        if inner is None:
            yield f"{path}.{key}: unknown key{did_you_mean(str(key), known, 1)}"
        else:
            yield from _walk(item, inner, f"{path}.{key}", named)
    for key in shape:
        if not key.endswith("?") and not _present(key, value):
            yield f"{path}.{key}: missing"


def _shape_of(key: str, known: Mapping[str, object]) -> object | None:
    """Shape of a key: by its name, else by the beginning that a ``*`` shape gives."""
    if key in known:
        return known[key]
    for name, inner in known.items():
        if name.endswith("*") and key.startswith(name[:-1]) and len(key) >= len(name):
            return inner
    return None


def _present(key: str, value: Mapping[str, object]) -> bool:
    return any(str(k).startswith(key[:-1]) for k in value) if key.endswith("*") else key in value


def _fits(value: object, kinds: str) -> bool:
    """Say whether a value is of one of the kinds; ``True`` is no number."""
    for kind in kinds.split("|"):
        if isinstance(value, bool) and kind != "bool":
            continue
        if isinstance(value, _TYPES[kind]):
            return True
    return False
