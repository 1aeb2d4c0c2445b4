"""The sizes that we hold ourselves to; see README, 'Contributing'."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(p for top in ("planner", "providers", "clusters") for p in (ROOT / top).rglob("*.py"))
MOST_LINES_OF_A_MODULE = 400
MOST_LINES_OF_A_FUNCTION = 60


def functions(module: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("module", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_does_one_thing(module: Path):
    assert len(module.read_text().splitlines()) <= MOST_LINES_OF_A_MODULE


@pytest.mark.parametrize("module", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_function_fits_on_a_screen(module: Path):
    # without the signature: a command of the CLI lists an option a line there
    long = [f.name for f in functions(module) if f.end_lineno - f.body[0].lineno >= MOST_LINES_OF_A_FUNCTION]
    assert not long


def test_every_exception_that_is_caught_is_named():
    bare = [
        f"{module.name}:{node.lineno}"
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
    ]
    assert not bare
