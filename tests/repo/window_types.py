"""A window type is two files and a kernel, listed in two registries; nothing else in the sources names one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.repo.tree import Source, Violation, nodes, sources

MODEL, ENGINE = "src/hotspare/model/windows/", "src/hotspare/engine/operators/"
REGISTRIES = (f"{MODEL}registry.py", f"{ENGINE}registry.py")


def window_types() -> frozenset[str]:
    """The stems of the files that stand in both folders, but for what types share."""
    stems = [{PurePosixPath(s.path).stem for s in sources("src") if s.path.startswith(folder)} for folder in (MODEL, ENGINE)]
    return frozenset(stems[0] & stems[1]) - {"__init__", "contract", "registry"}


def class_stem(stem: str) -> str:
    """How the names of its classes begin."""
    return "".join(part.capitalize() for part in stem.split("_"))


def type_name(stem: str) -> str:
    """What projects call it."""
    return stem.replace("_", "-")


def naming(source: Source, types: frozenset[str]) -> Iterator[Violation]:
    """A class or module of a window type, `type: NAME` of YAML or `window-NAME` of XML, outside its own files.

    The example of a type may use others: somebody has to feed it.
    """
    own = PurePosixPath(source.path).stem if source.path.startswith((MODEL, ENGINE)) else ""
    if own == "registry":
        return
    for name in sorted(types - {own}):
        classes = {f"{class_stem(name)}{suffix}" for suffix in ("Window", "Operator", "Type")}
        modules = {f"hotspare.model.windows.{name}", f"hotspare.engine.operators.{name}"}
        for node in nodes(source, ast.Name, ast.Attribute, ast.ImportFrom, ast.Import, ast.Constant):
            is_example = isinstance(node, ast.Constant) and source.path.startswith(MODEL)
            if not is_example and any(_names(node, classes, modules, name)):
                yield source.violation(node, f"names the window type {name}")


def _names(node: ast.AST, classes: set[str], modules: set[str], name: str) -> Iterator[bool]:
    if isinstance(node, ast.Name):
        yield node.id in classes
    elif isinstance(node, ast.Attribute):
        yield node.attr in classes
    elif isinstance(node, ast.ImportFrom):
        yield node.module in modules or any(alias.name in classes for alias in node.names)
    elif isinstance(node, ast.Import):
        yield any(alias.name in modules for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield re.search(rf"\btype: {type_name(name)}\b|\bwindow-{type_name(name)}\b", node.value) is not None
