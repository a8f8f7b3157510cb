"""Finds errors in the syntax of user code: code that would differ between engines, or would store values that are never saved.

This protects determinism and is not a defence against malicious code. Code in a project is trusted as the project is.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from hotspare.scripting.python.allowed_attributes import is_unrestricted
from hotspare.scripting.python.name_lists import split_names
from hotspare.scripting.python.rewriting import imported_modules, is_column_comprehension


class SourceError(NamedTuple):
    """An error in user code: the line, a message, and a hint what to write instead."""

    line: int
    message: str
    hint: str


Importable: TypeAlias = Callable[[str, str], str | None]
"""A function of (module, name of a member or ""). It returns the reason why user code cannot import that, or None if it can."""

SYNTAX_NODES_MAX = 100_000
"""The maximum number of nodes in a program's syntax tree, which bounds the time of checking."""

REFUSED_NAMES: Mapping[str, tuple[str, str]] = {
    "hash": ("its values for texts differ between processes", "use hashlib or zlib.crc32"),
    "id": ("addresses differ between processes", "compare with `is`, or give objects numbers of your own"),
    "open": ("an engine's code reads no files", "bring the data in as events, or write it into the code"),
    "input": ("an engine has no terminal", "bring the data in as events"),
    "eval": ("code that is generated at run time cannot be checked", "write it out"),
    "exec": ("code that is generated at run time cannot be checked", "write it out"),
    "compile": ("code that is generated at run time cannot be checked", "write it out"),
    "globals": ("variables are known by name", "use a dict of your own"),
    "locals": ("variables are known by name", "use a dict of your own"),
    "vars": ("variables are known by name", "use a dict of your own"),
    "dir": ("what it shows differs between versions", "write the names down"),
    "delattr": ("attributes are known by name", "use a dict of your own"),
    "memoryview": ("it shows what other objects hold", "use bytes"),
    "breakpoint": ("an engine cannot be stopped", "return what you want to see"),
    "help": ("an engine has no terminal", "leave it out"),
    "exit": ("an engine does not end because of an event", "use return, or raise an error"),
    "quit": ("an engine does not end because of an event", "use return, or raise an error"),
    "BaseException": ("it would catch the engine's own limits", "use Exception"),
    "BaseExceptionGroup": ("it would catch the engine's own limits", "use Exception"),
    "GeneratorExit": ("when a generator ends depends on the engine", "use Exception"),
    "KeyboardInterrupt": ("it is the engine's own", "use Exception"),
    "SystemExit": ("an engine does not end because of an event", "use Exception"),
    "MemoryError": ("when memory ends depends on the engine", "use Exception"),
    "RecursionError": ("how deep calls go is limited by the engine", "use Exception"),
    "__import__": ("modules are known by name", "use import"),
    "__builtins__": ("modules are known by name", "use import"),
}
ALLOWED_DUNDER_METHODS = frozenset(
    split_names(
        """
        __init__ __repr__ __str__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __bool__ __len__ __iter__ __next__
        __contains__ __getitem__ __setitem__ __delitem__ __call__ __enter__ __exit__ __add__ __sub__ __mul__ __truediv__
        __floordiv__ __mod__ __pow__ __neg__ __pos__ __abs__ __radd__ __rsub__ __rmul__ __rtruediv__ __and__ __or__
        __xor__ __iadd__ __isub__ __imul__ __int__ __float__ __index__ __format__ __reversed__ __post_init__ __missing__
        __round__
        """
    )
)
"""The methods with two leading and trailing underscores that a class may define. Code calls most of them by operators."""
READABLE_DUNDERS = frozenset({"__init__", "__name__", "__post_init__"})
"""The attributes with two leading and trailing underscores that code may read by name."""
_GLOBAL_NAMES = frozenset({"__name__", "__doc__"})


def check_syntax(syntax: ast.Module, importable: Importable) -> Iterator[SourceError]:
    """Yields every error, in the order of lines. A name that the program binds itself is not checked as a builtin."""
    found: list[SourceError] = []
    own = set(_bound(syntax))
    for count, node in enumerate(ast.walk(syntax)):
        if count > SYNTAX_NODES_MAX:
            found.append(SourceError(0, "the code is too long", f"use at most {SYNTAX_NODES_MAX} names, values and operators"))
            break
        rule = _RULES.get(type(node))
        if isinstance(node, ast.Name) and node.id in REFUSED_NAMES and node.id not in own:
            why, hint = REFUSED_NAMES[node.id]
            found.append(_refused(node, f"{node.id} cannot be used: {why}", hint))
        elif rule is not None:
            found += rule(node)
        found += _names(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            found += _imports(node, importable)
    found += _members(syntax, importable)
    return iter(sorted(set(found)))


def check_column_syntax(syntax: ast.Module) -> Iterator[SourceError]:
    """Yields the additional errors of code over columns: bindings by which one row could affect the next one."""
    for node in filter(is_column_comprehension, ast.walk(syntax)):
        for each in ast.walk(node):
            if isinstance(each, ast.NamedExpr):
                yield _refused(each, "a comprehension binds a name with :=", "make the value in a function that it calls")


def _refused(node: ast.AST, message: str, hint: str) -> SourceError:
    return SourceError(getattr(node, "lineno", 0), message, hint)


def _imports(node: ast.Import | ast.ImportFrom, importable: Importable) -> Iterator[SourceError]:
    if isinstance(node, ast.Import):
        wanted = [(alias.name, "") for alias in node.names]
    elif node.level:
        yield _refused(node, "an import from a relative place", "name the module")
        return
    else:
        wanted = [(node.module or "", alias.name) for alias in node.names]
    for module, name in wanted:
        if name == "*":
            yield _refused(node, f"everything of module {module} is imported", "import what you use by name")
        elif why := importable(module, name):
            yield _refused(node, f"{f'{module}.{name}' if name else module} cannot be imported", why)


def _members(syntax: ast.Module, importable: Importable) -> Iterator[SourceError]:
    """Yields an error for each attribute of an imported module that the module does not have or that code may not use. Checks only
    attributes that are read by the module's own name.
    """
    modules = imported_modules(syntax)
    for node in ast.walk(syntax):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and isinstance(node.ctx, ast.Load):
            module = modules.get(node.value.id)
            if module is None or importable(module, ""):
                continue
            if why := importable(module, node.attr):
                yield _refused(node, f"{module}.{node.attr} does not exist", why)


def _bound(syntax: ast.Module) -> Iterator[str]:
    """Yields the names of all variables and arguments that the program binds. `check_syntax` does not check these as builtins.

    Builtins in `REFUSED_NAMES` do not exist at run time, so an unset variable with such a name finds no value.
    """
    for node in ast.walk(syntax):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


_NAME_FIELDS = ("id", "name", "arg", "asname", "rest", "names", "kwd_attrs")


def _names(node: ast.AST) -> Iterator[SourceError]:
    """Yields an error for each name with two leading underscores that the node binds or reads, because those names belong to Python
    or to the engine. Names that code may read, imported modules and names of functions are not checked here."""
    if isinstance(node, ast.FunctionDef):
        return
    for field in _NAME_FIELDS:
        value: Any = getattr(node, field, None)
        for name in value if isinstance(value, list) else [value]:
            if isinstance(name, str) and name.startswith("__") and not _may_have(node, field, name):
                yield _refused(node, f"the name {name} begins with two underscores", "give it another name")


def _may_have(node: ast.AST, field: str, name: str) -> bool:
    if isinstance(node, ast.Name):
        return name in _GLOBAL_NAMES and isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.alias) and field == "name"


def _attribute(node: ast.Attribute) -> Iterator[SourceError]:
    if node.attr.startswith("__") and node.attr.endswith("__") and node.attr not in READABLE_DUNDERS:
        yield _refused(node, f"the attribute {node.attr} is Python's own", "leave it out")


def _class_pattern(node: ast.MatchClass) -> Iterator[SourceError]:
    for name in node.kwd_attrs:
        if not is_unrestricted(name):
            yield _refused(node, f"the attribute {name} cannot be used in a pattern", "read it in the code of the case")


def _comparison(node: ast.Compare) -> Iterator[SourceError]:
    if len(node.ops) > 1 and any(isinstance(each, ast.Is | ast.IsNot) for each in node.ops):
        yield _refused(node, "`is` is used in a chain of comparisons", "write two comparisons, with `and` between them")


def _function(node: ast.FunctionDef) -> Iterator[SourceError]:
    if node.name in REFUSED_NAMES:
        yield _refused(node, f"a function has the name {node.name}, which Python uses", "give it another name")
    elif node.name.startswith("__") and node.name.endswith("__") and node.name not in ALLOWED_DUNDER_METHODS:
        yield _refused(node, f"a method {node.name} runs without being called", "give it another name")
    for default in (*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)):
        if isinstance(default, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp | ast.GeneratorExp):
            yield _refused(
                default,
                f"an argument of function {node.name} has a default that can change, which would be kept and never saved",
                "use None as the default, and make the value in the function; what is to be kept is a module variable",
            )


def _try(node: ast.Try) -> Iterator[SourceError]:
    if node.finalbody and _yields(node):
        yield _refused(
            node, "a generator has a finally, which runs at an unknown time", "do what comes last after the loop over the generator"
        )


def _with(node: ast.With) -> Iterator[SourceError]:
    if _yields(node):
        yield _refused(node, "a generator has a with, which ends at an unknown time", "make a list instead of a generator")


def _yields(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(node))


def _asynchronous(node: ast.AST) -> Iterator[SourceError]:
    yield _refused(node, "asynchronous code has no event loop", "write plain functions")


def _grouped(node: ast.AST) -> Iterator[SourceError]:
    yield _refused(node, "except* is not supported", "use except")


def _unknown(node: ast.AST) -> Iterator[SourceError]:
    yield _refused(node, "type parameters are not supported", "leave them out")


_NEW_SYNTAX = ("TypeAlias", "TypeVar", "ParamSpec", "TypeVarTuple", "TemplateStr")
_RULES: Mapping[type[ast.AST], Callable[..., Iterator[SourceError]]] = {
    ast.Attribute: _attribute,
    ast.FunctionDef: _function,
    ast.Try: _try,
    ast.With: _with,
    ast.AsyncFunctionDef: _asynchronous,
    ast.AsyncFor: _asynchronous,
    ast.AsyncWith: _asynchronous,
    ast.Await: _asynchronous,
    ast.TryStar: _grouped,
    ast.Compare: _comparison,
    ast.MatchClass: _class_pattern,
    **{kind: _unknown for name in _NEW_SYNTAX if (kind := getattr(ast, name, None)) is not None},
}
