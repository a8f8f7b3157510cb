"""Which modules of a project its Python code imports: who writes `import` does not have to name them once more."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence

from hotspare.model.code import Language, Module


def imported(language: Language, text: str, modules: Sequence[Module]) -> Iterator[str]:
    """Names of those of `modules` that a text in `language` imports, and that these import, each once, in order."""
    known = {module.name: module.code.text for module in modules if module.language is language}
    waiting, met = list(_named(text)), set[str]()
    if language is not Language.PYTHON:
        return
    while waiting:
        name = waiting.pop(0)
        if name in known and name not in met:
            met.add(name)
            yield name
            waiting += _named(known[name])


def _named(text: str) -> Iterator[str]:
    """What a text imports; nothing where it is no Python, which is told when it is compiled."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            syntax = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(syntax):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
