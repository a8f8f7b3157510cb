"""A test patches no constant of the sources: sizes and times are arguments of what it constructs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.repo.testing_rules import MOCKS
from tests.repo.tree import Source, Violation, dotted, nodes

_A_NEWER_HOTSPARE = "plays a newer hotspare, whose snapshots this one has to refuse"
PATCHED: dict[tuple[str, str], str] = {
    ("tests/contract/test_store_changelog.py", "FORMAT"): _A_NEWER_HOTSPARE,
    ("tests/contract/test_store_directory.py", "FORMAT"): _A_NEWER_HOTSPARE,
    ("tests/contract/test_store_objects.py", "FORMAT"): _A_NEWER_HOTSPARE,
    ("tests/rows/test_machine_code.py", "KERNELS"): "kernels of the test are to be none of the program's",
}
"""(Path of a test file, constant) -> why it patches this one."""

_CONSTANT = re.compile(r"(?:.*\.)?(_?[A-Z][A-Z0-9_]+)")


def patched(source: Source) -> Iterator[Violation]:
    """Yields constants of the sources that a test patches. Sizes and times belong in what it constructs: a keyword, a field of
    settings, or a `Tuning`. A patched constant changes every object of the process, and the call does not show which of them read
    it, nor when."""
    for node, name in _bound(source):
        if (found := _CONSTANT.fullmatch(name)) is None or (source.path, found[1]) in PATCHED or source.path in MOCKS:
            continue
        yield source.violation(node, f"patches the constant {found[1]}; give the value to what is constructed")


def _bound(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Yields the names of the attributes that a test binds to objects of the sources, each with its node."""
    ours = {alias.asname or alias.name for node in nodes(source, ast.ImportFrom) for alias in node.names if _is_ours(node)}
    for call in nodes(source, ast.Call):
        if dotted(call.func).rpartition(".")[2] == "setattr" and len(call.args) >= 2:
            name = call.args[1] if len(call.args) > 2 or dotted(call.func) == "setattr" else call.args[0]
            yield from ((call, each) for each in _texts_of(source, name))
    for assignment in nodes(source, ast.Assign, ast.AugAssign, ast.AnnAssign):
        for target in assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]:
            if isinstance(target, ast.Attribute) and dotted(target).partition(".")[0] in ours:
                yield assignment, target.attr


def _is_ours(node: ast.ImportFrom) -> bool:
    return (node.module or "").partition(".")[0] == "hotspare"


def _texts_of(source: Source, name: ast.expr) -> Iterator[str]:
    """Yields the text itself, or each text that the variable of a loop takes."""
    if isinstance(name, ast.Constant):
        yield str(name.value)
    elif isinstance(name, ast.Name):
        for loop in nodes(source, ast.For, ast.comprehension):
            if any(isinstance(each, ast.Name) and each.id == name.id for each in ast.walk(loop.target)):
                yield from (str(each.value) for each in ast.walk(_literal(source, loop.iter)) if isinstance(each, ast.Constant))


def _literal(source: Source, walked: ast.expr) -> ast.AST:
    """Returns the expression that a loop iterates; for a name of the file the expression bound to it."""
    for each in nodes(source, ast.Assign):
        if isinstance(walked, ast.Name) and any(isinstance(target, ast.Name) and target.id == walked.id for target in each.targets):
            return each.value
    return walked
