"""House style that a machine can check: sizes, opening docstrings, file names, parameters with a clear meaning."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.repo.tree import Source, Violation, dotted, nodes

FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 60
TEST_FUNCTION_LINES_MAX = 80
"""A scenario may be a little longer than code that others build upon; this applies to tests and benchmarks."""

EMPTY_NAMES = frozenset({"helper", "helpers", "util", "utils", "misc", "common", "tools", "stuff"})

BOOLEAN_PARAMETERS: dict[tuple[str, str], str] = {
    ("src/hotspare/cli/main.py", "_print_version.is_asked"): "typer calls it with the value of the option",
}
"""(path, `function.parameter`) -> why this one has to be a bare boolean."""


def file_size(source: Source) -> Iterator[Violation]:
    lines = source.text.count("\n")
    if lines > FILE_LINES_MAX:
        yield Violation(source.path, FILE_LINES_MAX, f"{lines} lines, more than {FILE_LINES_MAX}")


def function_size(source: Source) -> Iterator[Violation]:
    limit = FUNCTION_LINES_MAX if source.path.startswith("src/") else TEST_FUNCTION_LINES_MAX
    for node in nodes(source, ast.FunctionDef, ast.AsyncFunctionDef):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > limit:
            yield source.violation(node, f"{node.name} has {lines} lines, more than {limit}")


def opening_docstring(source: Source) -> Iterator[Violation]:
    """Yields files that do not open with a docstring; an empty `__init__.py` needs none."""
    if source.text.strip() and not ast.get_docstring(source.syntax):
        yield source.violation(source.syntax, "does not open with a docstring")


def file_name(source: Source) -> Iterator[Violation]:
    """Yields file names that do not describe the content."""
    if PurePosixPath(source.path).stem in EMPTY_NAMES:
        yield source.violation(source.syntax, "a file name that says nothing")


def boolean_parameters(source: Source) -> Iterator[Violation]:
    """Yields parameters that are bare booleans, keyword-only or not: an enum shows its meaning at the call.

    A flag of the command line (`Annotated[bool, typer.Option(...)]`) is named where it is typed, so it is allowed.
    """
    for node in nodes(source, ast.FunctionDef, ast.AsyncFunctionDef):
        for parameter, default in _parameters(node):
            if not (_is_bool(parameter.annotation) or (parameter.annotation is None and _is_truth(default))):
                continue
            name = f"{node.name}.{parameter.arg}"
            if (source.path, name) not in BOOLEAN_PARAMETERS:
                yield source.violation(parameter, f"{name} is a bare boolean")


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    positional = [*node.args.posonlyargs, *node.args.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(node.args.defaults))
    yield from zip(positional, missing + list(node.args.defaults), strict=True)
    yield from zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)


def _is_bool(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        return _is_bool(annotation.left) or _is_bool(annotation.right)
    if isinstance(annotation, ast.Subscript):
        return dotted(annotation.value).endswith("Optional") and _is_bool(annotation.slice)
    return isinstance(annotation, ast.Name) and annotation.id == "bool"


def _is_truth(default: ast.expr | None) -> bool:
    return isinstance(default, ast.Constant) and isinstance(default.value, bool)
