"""Sizes have hard limits, so that growth becomes a decision.

Files, functions and classes are measured from first to last line, docstrings included. ``self`` and ``cls`` are no
parameters here, and properties no methods: they are values.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

FILE_LINES = 400
FUNCTION_LINES = 60
CLASS_LINES = 250
PUBLIC_METHODS = 12
POSITIONAL_PARAMETERS = 5

ROOT = Path(__file__).parents[1]

Function = ast.FunctionDef | ast.AsyncFunctionDef


def oversized(path: Path) -> list[str]:
    """One line for each limit that the file, or something in it, exceeds."""
    source = path.read_text(encoding="utf-8")
    found = list(_too_many(str(path), "lines", source.count("\n"), FILE_LINES))
    for scope, node in _definitions(ast.parse(source), ()):
        where = f"{path}:{node.lineno} {'.'.join((*scope, node.name))}"
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if isinstance(node, ast.ClassDef):
            found += _too_many(where, "lines", lines, CLASS_LINES)
            found += _too_many(where, "public methods", len(_public_methods(node)), PUBLIC_METHODS)
        else:
            found += _too_many(where, "lines", lines, FUNCTION_LINES)
            found += _too_many(where, "positional parameters", _num_positional(node), POSITIONAL_PARAMETERS)
    return found


def _too_many(where: str, what: str, count: int, limit: int) -> Iterator[str]:
    if count > limit:
        yield f"{where}: {count} {what}, at most {limit}"


def _definitions(node: ast.AST, scope: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Function | ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield scope, child
            yield from _definitions(child, (*scope, child.name))
        else:
            yield from _definitions(child, scope)


def _public_methods(node: ast.ClassDef) -> set[str]:
    functions = [child for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {f.name for f in functions if not f.name.startswith("_") and not _is_property(f)}


def _is_property(node: Function) -> bool:
    names = {ast.unparse(decorator) for decorator in node.decorator_list}
    return bool(names & {"property", "cached_property", "functools.cached_property", f"{node.name}.setter"})


def _num_positional(node: Function) -> int:
    parameters = [*node.args.posonlyargs, *node.args.args]
    return len([p for i, p in enumerate(parameters) if i > 0 or p.arg not in {"self", "cls"}])


def test_source_keeps_to_the_limits() -> None:
    found = [line for path in sorted((ROOT / "src").rglob("*.py")) for line in oversized(path)]

    assert not found, "\n" + "\n".join(found)


def _function(lines: int, parameters: str = "") -> str:
    return f"def planted({parameters}):\n" + "    x = 1\n" * (lines - 1)


def _class(methods: int, lines: int = 0) -> str:
    body = "".join(f"    def m{i}(self): ...\n" for i in range(methods))
    return "class Planted:\n" + body + "    x = 1\n" * (lines - methods - 1)


PLANTED = {
    "file": ("x = 1\n" * 401, "401 lines, at most 400"),
    "function": (_function(61), ":1 planted: 61 lines, at most 60"),
    "method": ("class A:\n    async def f(self):\n" + "        x = 1\n" * 60, ":2 A.f: 61 lines"),
    "nested": ("if x:\n    def f():\n" + "        x = 1\n" * 60, ":2 f: 61 lines"),
    "class": (_class(1, lines=251), ":1 Planted: 251 lines, at most 250"),
    "methods": (_class(13), "Planted: 13 public methods, at most 12"),
    "parameters": (_function(2, "a, b, /, c, d, e, f"), "planted: 6 positional parameters, at most 5"),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_offender_is_named(kind: str, tmp_path: Path) -> None:
    source, message = PLANTED[kind]
    planted = tmp_path / "planted.py"
    planted.write_text(source)

    (found,) = oversized(planted)

    assert found.startswith(str(planted))
    assert message in found


def test_the_limit_itself_is_allowed(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    keyword_only = "class A:\n    def f(self, a, b, c, d, e, *, g, h): ...\n    @property\n    def p(self): ...\n"
    planted.write_text(_function(60) + _class(12, lines=250) + keyword_only)

    assert oversized(planted) == []
