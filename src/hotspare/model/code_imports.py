"""The modules of a project that its code imports, so that Python code with an `import` need not name them again; and whether code
may call snippets, or share properties with other code.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence

from hotspare.model.code import Language, Module, ModuleUse

_ESP = "esp"
"""The module that Python code imports to call snippets."""
_SHARING = re.compile(r"\besp_(?:call|getProperty|setProperty|addPropertyListener)\b")
"""The names in Lua code that calls snippets, or shares properties."""


def may_share_state(text: str) -> bool:
    """Whether Lua code may call snippets, or share properties with other code of its project."""
    return _SHARING.search(text) is not None


def needed_modules(language: Language, text: str, modules: Sequence[Module]) -> Iterator[Module]:
    """Yields those of `modules` that code in `language` needs besides the modules that its window names.

    Python: the imported modules and their imports, each once, in the order in which they are found; with `import esp` also all
    snippets and their imports. Lua: all snippets if the code may call them.
    """
    snippets = [module for module in modules if module.use is ModuleUse.SNIPPET and module.language is language]
    if language is not Language.PYTHON:
        yield from snippets if may_share_state(text) else ()
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
    """Yields the names of the modules that a Python text imports; nothing for invalid Python, which its compilation reports."""
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
