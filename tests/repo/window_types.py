"""A window type is a folder and a line in the registry; nothing else in the sources names one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from tests.repo.tree import Source, Violation, nodes, repository_files

WINDOWS = "src/hotspare/windows/"
REGISTRY = f"{WINDOWS}registry.py"
_OWN_FILES = ("declaration.py", "operator.py")


def window_types() -> frozenset[str]:
    """Returns the names of the folders that have a declaration and an operator."""
    paths = [PurePosixPath(path) for path in repository_files() if path.startswith(WINDOWS)]
    folders = [{path.parent.name for path in paths if path.name == name} for name in _OWN_FILES]
    return frozenset(folders[0] & folders[1])


def class_stem(stem: str) -> str:
    """Returns the beginning of its class names."""
    return "".join(part.capitalize() for part in stem.split("_"))


def type_name(stem: str) -> str:
    """Returns its name in projects."""
    return stem.replace("_", "-")


def naming(source: Source, types: frozenset[str]) -> Iterator[Violation]:
    """Yields uses outside its own folder of a window type's class or module, `type: NAME` of YAML or `window-NAME` of XML.

    The example of a type may use others, because it needs input.
    """
    if source.path == REGISTRY:
        return
    own = PurePosixPath(source.path).parent.name if source.path.startswith(WINDOWS) else ""
    others = sorted(types - {own})
    classes = {f"{class_stem(name)}{suffix}": name for name in others for suffix in ("Window", "Operator", "Type")}
    modules = {f"hotspare.windows.{name}{file}": name for name in others for file in ("", ".declaration", ".operator", ".loops")}
    texts = re.compile(rf"\b(?:type: |window-)({'|'.join(map(type_name, others))})\b")
    stems = {type_name(name): name for name in others}
    for node in nodes(source, ast.Name, ast.Attribute, ast.ImportFrom, ast.Import, ast.Constant):
        if isinstance(node, ast.Constant):
            is_text = isinstance(node.value, str) and not (own and source.path.endswith("/declaration.py"))
            found = {stems[each] for each in texts.findall(node.value)} if is_text else set()
        else:
            found = set(_names(node, classes, modules))
        for name in sorted(found):
            yield source.violation(node, f"names the window type {name}")


def _names(node: ast.AST, classes: Mapping[str, str], modules: Mapping[str, str]) -> Iterator[str]:
    """Yields the window types whose classes or modules a node names."""
    if isinstance(node, ast.Name):
        named = [classes.get(node.id)]
    elif isinstance(node, ast.Attribute):
        named = [classes.get(node.attr)]
    elif isinstance(node, ast.ImportFrom):
        named = [modules.get(node.module or ""), *(classes.get(alias.name) for alias in node.names)]
    elif isinstance(node, ast.Import):
        named = [modules.get(alias.name) for alias in node.names]
    else:
        named = []
    yield from filter(None, named)
