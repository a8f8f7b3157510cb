"""The public modules of a package: those that `__all__` of its `__init__.py` names; the others are private.

`__all__` lists modules instead of importing names from them: importing a package loads nothing, so `validate` needs no numba.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.repo.imports import imported
from tests.repo.tree import Source, Violation

ROOT = "hotspare"


def shown(files: Iterable[Source]) -> dict[str, frozenset[str]]:
    """Returns `__all__` of every package, by its module name."""
    faces = {}
    for source in files:
        if source.path.endswith("/__init__.py"):
            found = [node.value for node in source.syntax.body if isinstance(node, ast.Assign) and _is_all(node)]
            faces[source.module] = frozenset(ast.literal_eval(found[0])) if found else frozenset[str]()
    return faces


def _is_all(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)


def crossings(files: Iterable[Source]) -> Iterator[tuple[Source, ast.AST, str]]:
    """Yields each import of a module of another package of hotspare, with the module's name."""
    files = tuple(files)
    modules = {source.module for source in files}
    for source in files:
        for node, name in imported(source):
            target = name if name in modules else name.rpartition(".")[0]
            parts = target.split(".")
            if target in modules and parts[0] == ROOT and len(parts) > 2 and parts[1] != source.module.split(".")[1]:
                yield source, node, target


def steps(module: str) -> Iterator[tuple[str, str]]:
    """Yields each folder on the path to a module, from its package on, with the name that the folder has to show."""
    parts = module.split(".")
    return ((".".join(parts[:at]), parts[at]) for at in range(2, len(parts)))


def hidden(files: Iterable[Source]) -> Iterator[Violation]:
    """Yields imports of modules that another package does not show."""
    files = tuple(files)
    faces = shown(files)
    for source, node, module in crossings(files):
        for folder, name in steps(module):
            if name not in faces.get(folder, ()):
                yield source.violation(node, f"{folder} does not show {name} (`__all__`)")


def needless(files: Iterable[Source]) -> list[str]:
    """Returns names that are shown, though no other package imports a module of that name and the package itself defines none."""
    files = tuple(files)
    used = {step for _, _, module in crossings(files) for step in steps(module)}
    defined = {(source.module, name) for source in files if source.path.endswith("/__init__.py") for name in _defined(source)}
    return sorted(
        f"{folder}.{name}"
        for folder, names in shown(files).items()
        for name in names
        if folder != ROOT and (folder, name) not in used | defined
    )


def _defined(source: Source) -> Iterator[str]:
    for node in source.syntax.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
