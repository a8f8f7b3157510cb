"""Which modules of a project its Python code imports: who writes `import` does not have to name them once more; and whether code
may call snippets, or share properties with other code."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence

from hotspare.model.code import Language, Module, ModuleUse

_ESP = "esp"
"""What Python code imports that calls snippets."""
_SHARING = re.compile(r"\besp_(?:call|getProperty|setProperty|addPropertyListener)\b")
"""What Lua code names that calls snippets, or shares properties."""


def shares(text: str) -> bool:
    """Whether Lua code may call snippets, or share properties with other code of its project."""
    return _SHARING.search(text) is not None


def needed(language: Language, text: str, modules: Sequence[Module]) -> Iterator[Module]:
    """Those of `modules` that a text in `language` imports, and that these import, each once, in order; and all snippets in this
    language with what they import, if any of it may call them."""
    snippets = [module for module in modules if module.use is ModuleUse.SNIPPET and module.language is language]
    if language is not Language.PYTHON:
        yield from snippets if shares(text) else ()
        return
    known = {module.name: module for module in modules if module.language is language and module.use is ModuleUse.MODULE}
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
