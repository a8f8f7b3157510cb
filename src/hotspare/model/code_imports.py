"""Which modules of a project its Python code imports: who writes `import` does not have to name them once more; and whether it may
call snippets."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence

from hotspare.model.code import Language, Module, ModuleUse

_ESP = "esp"
"""What code imports that calls snippets."""


def needed(language: Language, text: str, modules: Sequence[Module]) -> Iterator[Module]:
    """Those of `modules` that a text in `language` imports, and that these import, each once, in order; and all snippets with what
    they import, if any of it may call them."""
    if language is not Language.PYTHON:
        return
    known = {module.name: module for module in modules if module.language is language and module.use is ModuleUse.MODULE}
    snippets = [module for module in modules if module.use is ModuleUse.SNIPPET]
    waiting, met = list(_named(text)), set[str]()
    while waiting:
        name = waiting.pop(0)
        if name in met:
            continue
        met.add(name)
        if name == _ESP:
            yield from snippets
            waiting += [each for snippet in snippets for each in _named(snippet.code.text)]
        elif name in known:
            yield known[name]
            waiting += _named(known[name].code.text)


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
