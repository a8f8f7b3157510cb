"""What people's Python code may not say, found in its syntax: what differs between engines, or would be kept where nobody sees it.

This guards determinism. It is no wall against people who mean harm: code in a project is trusted as the project is.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Set
from typing import NamedTuple, TypeAlias

from hotspare.engine.code.python.words import words


class Refused(NamedTuple):
    """A line of the code, what is wrong there, and what to do instead."""

    line: int
    message: str
    hint: str


Importable: TypeAlias = Callable[[str, str], str | None]
"""(module, name in it or "") -> why it cannot be imported; None: it can."""

NAMES_MAX = 100_000
"""Of the nodes of a program's syntax: what is looked at once must end."""

REFUSED_NAMES: Mapping[str, tuple[str, str]] = {
    "hash": ("its values for texts differ between processes", "use hashlib or zlib.crc32"),
    "id": ("addresses differ between processes", "compare with `is`, or give things numbers of your own"),
    "open": ("an engine's code reads no files", "bring the data in as events, or write it into the code"),
    "input": ("an engine has nobody to ask", "bring the data in as events"),
    "eval": ("code that is made while it runs cannot be checked", "write it out"),
    "exec": ("code that is made while it runs cannot be checked", "write it out"),
    "compile": ("code that is made while it runs cannot be checked", "write it out"),
    "globals": ("variables are known by name", "use a dict of your own"),
    "locals": ("variables are known by name", "use a dict of your own"),
    "vars": ("variables are known by name", "use a dict of your own"),
    "dir": ("what it shows differs between versions", "write the names down"),
    "delattr": ("attributes are known by name", "use a dict of your own"),
    "memoryview": ("it shows what other objects hold", "use bytes"),
    "breakpoint": ("an engine cannot be stopped", "return what you want to see"),
    "help": ("an engine has nobody to tell", "leave it out"),
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
METHODS_WITH_TWO_LINES = frozenset(
    words(
        """
        __init__ __repr__ __str__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __bool__ __len__ __iter__ __next__
        __contains__ __getitem__ __setitem__ __delitem__ __call__ __enter__ __exit__ __add__ __sub__ __mul__ __truediv__
        __floordiv__ __mod__ __pow__ __neg__ __pos__ __abs__ __radd__ __rsub__ __rmul__ __rtruediv__ __and__ __or__
        __xor__ __iadd__ __isub__ __imul__ __int__ __float__ __index__ __format__ __reversed__ __post_init__ __missing__
        __round__
        """
    )
)
"""Methods with such names that a class may have. A call of them is written with an operator."""
READABLE = frozenset({"__init__", "__name__", "__post_init__"})
"""Attributes with such names that may be read."""
HIDDEN_ATTRIBUTES = frozenset(
    words(
        """
        gi_frame gi_code cr_frame cr_code ag_frame f_back f_globals f_locals f_code f_builtins tb_frame tb_next
        func_globals mro
        """
    )
)
_GLOBAL_NAMES = frozenset({"__name__", "__doc__"})


def check(syntax: ast.Module, importable: Importable) -> Iterator[Refused]:
    """Every mistake, in the order of lines. A name that the program gives to something of its own means that."""
    found: list[Refused] = []
    own = set(_bound(syntax))
    defines_register = any(isinstance(node, ast.FunctionDef) and node.name == "register" for node in ast.walk(syntax))
    for count, node in enumerate(ast.walk(syntax)):
        if count > NAMES_MAX:
            found.append(Refused(0, "the code is too long", f"use at most {NAMES_MAX} names, values and operators"))
            break
        rule = _RULES.get(type(node))
        if isinstance(node, ast.Name):
            found += _name(node, own)
        elif rule is not None:
            found += rule(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            found += _imports(node, importable)
        if isinstance(node, ast.Attribute) and node.attr in _CHANGES and _is_type(node.value, own):
            found.append(
                _refused(node, f"{node.attr} is called of a type, and would change what is kept unseen", "call it of the object")
            )
        if isinstance(node, ast.Attribute) and node.attr == "register" and not defines_register:
            found.append(_refused(node, "a class that is registered would be kept and never saved", "let it inherit"))
    found += _members(syntax, importable)
    return iter(sorted(set(found)))


_CHANGES = frozenset(
    words(
        """
        append extend insert pop remove clear sort reverse update setdefault popitem fromlist frombytes fromunicode byteswap
        """
    )
)
"""Methods that change a list, dict or array."""
_KEPT_TYPES = frozenset({"list", "dict", "array", "defaultdict"})


def _is_type(node: ast.expr, own: Set[str]) -> bool:
    """Whether it is a type whose objects are kept: `list`, `array.array`, and no variable of that name."""
    if isinstance(node, ast.Name):
        return node.id in _KEPT_TYPES and node.id not in own
    is_member = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return is_member and node.attr in _KEPT_TYPES and node.value.id in ("array", "collections")  # type: ignore[attr-defined]


def _refused(node: ast.AST, message: str, hint: str) -> Refused:
    return Refused(getattr(node, "lineno", 0), message, hint)


def _imports(node: ast.Import | ast.ImportFrom, importable: Importable) -> Iterator[Refused]:
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


def _members(syntax: ast.Module, importable: Importable) -> Iterator[Refused]:
    """What is used of a module under the name by which it was imported, if nothing else has that name."""
    modules: dict[str, str] = {}
    for node in ast.walk(syntax):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names if alias.asname or "." not in alias.name}
    bound = {node.id for node in ast.walk(syntax) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in ast.walk(syntax) if isinstance(node, ast.arg)}
    for node in ast.walk(syntax):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and isinstance(node.ctx, ast.Load):
            module = modules.get(node.value.id)
            if module is None or node.value.id in bound or importable(module, ""):
                continue
            if why := importable(module, node.attr):
                yield _refused(node, f"{module}.{node.attr} is not there", why)


def _bound(syntax: ast.Module) -> Iterator[str]:
    """Names of variables and of arguments. No builtin is found under one of `REFUSED_NAMES`: where the variable is not set, there
    is nothing."""
    for node in ast.walk(syntax):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def _name(node: ast.Name, own: Set[str]) -> Iterator[Refused]:
    if node.id in REFUSED_NAMES and node.id not in own:
        why, hint = REFUSED_NAMES[node.id]
        yield _refused(node, f"{node.id} cannot be used: {why}", hint)
    elif node.id.startswith("__") and node.id not in _GLOBAL_NAMES:
        yield _refused(node, f"the name {node.id} begins with two underscores", "give it another name")


def _attribute(node: ast.Attribute) -> Iterator[Refused]:
    hidden = node.attr.startswith("__") and node.attr.endswith("__") and node.attr not in READABLE
    if hidden or node.attr in HIDDEN_ATTRIBUTES:
        yield _refused(node, f"the attribute {node.attr} is Python's own", "leave it out")


def _function(node: ast.FunctionDef) -> Iterator[Refused]:
    if node.name in REFUSED_NAMES:
        yield _refused(node, f"a function has the name {node.name}, which Python uses", "give it another name")
    elif node.name.startswith("__") and node.name.endswith("__") and node.name not in METHODS_WITH_TWO_LINES:
        yield _refused(node, f"a method {node.name} runs when nobody calls it", "give it another name")
    for default in (*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)):
        if isinstance(default, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp | ast.GeneratorExp):
            yield _refused(
                default,
                f"an argument of function {node.name} has a default that can change, which would be kept and never saved",
                "use None as the default, and make the value in the function; what is to be kept is a module variable",
            )


def _arguments(node: ast.arg) -> Iterator[Refused]:
    if node.arg.startswith("__"):
        yield _refused(node, f"an argument has the name {node.arg}", "give it another name")


def _try(node: ast.Try) -> Iterator[Refused]:
    if node.finalbody and _yields(node):
        yield _refused(
            node, "a generator has a finally, which runs when nobody knows", "do what comes last after the loop over the generator"
        )


def _with(node: ast.With) -> Iterator[Refused]:
    if _yields(node):
        yield _refused(node, "a generator has a with, which ends when nobody knows", "make a list instead of a generator")


def _yields(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(node))


def _asynchronous(node: ast.AST) -> Iterator[Refused]:
    yield _refused(node, "asynchronous code has nobody to run it", "write plain functions")


def _grouped(node: ast.AST) -> Iterator[Refused]:
    yield _refused(node, "except* is not understood", "use except")


def _handler(node: ast.ExceptHandler) -> Iterator[Refused]:
    if node.name and node.name.startswith("__"):
        yield _refused(node, f"the name {node.name} begins with two underscores", "give it another name")


def _global(node: ast.Global | ast.Nonlocal) -> Iterator[Refused]:
    for name in node.names:
        if name.startswith("__"):
            yield _refused(node, f"the name {name} begins with two underscores", "give it another name")


_RULES: Mapping[type[ast.AST], Callable[..., Iterator[Refused]]] = {
    ast.Attribute: _attribute,
    ast.FunctionDef: _function,
    ast.arg: _arguments,
    ast.Try: _try,
    ast.With: _with,
    ast.AsyncFunctionDef: _asynchronous,
    ast.AsyncFor: _asynchronous,
    ast.AsyncWith: _asynchronous,
    ast.Await: _asynchronous,
    ast.TryStar: _grouped,
    ast.ExceptHandler: _handler,
    ast.Global: _global,
    ast.Nonlocal: _global,
}
