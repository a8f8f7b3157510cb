"""Rules for the engine core and `decide`: nothing there may answer differently in two identical engines.

Sets of strings iterate in an order that differs from process to process, so only their sorted form may be iterated. Sets are
recognized by what the code shows (literals, calls, annotations in the same function or class), not by types.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.repo.imports import imported
from tests.repo.tree import Source, Violation, dotted, nodes

_CORE = ("rows", "formats", "expressions", "table", "scripting", "windows", "stages", "flow")
PLACES = (*(f"src/hotspare/{package}/" for package in _CORE), "src/hotspare/ha/rules/")
EXCEPT = "src/hotspare/table/page_cache/"
"""Outputs do not depend on which pages are in memory."""

BANNED_MODULES = {
    "time": "time is input",
    "random": "randomness differs between engines",
    "secrets": "randomness differs between engines",
    "uuid": "randomness differs between engines",
    "os": "the environment differs between engines",
    "platform": "the environment differs between engines",
    "locale": "the environment differs between engines",
    "socket": "the core does no input or output",
    "subprocess": "the core does no input or output",
    "tempfile": "the core does no input or output",
    "threading": "the core is sequential",
    "multiprocessing": "the core is sequential",
    "concurrent": "the core is sequential",
    "asyncio": "the core is sequential",
    "logging": "the core does not log; what it has to say is an output",
    "structlog": "the core does not log; what it has to say is an output",
    "numpy.random": "randomness differs between engines",
    "pyspark": "the core knows no runner",
}

BANNED_CALLS = {
    "now": "time is input",
    "utcnow": "time is input",
    "today": "time is input",
    "getenv": "the environment differs between engines",
    "print": "the core does not log; what it has to say is an output",
    "open": "the core does no input or output",
    "input": "the core does no input or output",
    "hash": "differs from process to process for strings",
    "id": "differs from process to process",
}
ALLOWED = {
    ("src/hotspare/scripting/python/attributes.py", "id"): "finds objects of a program again; neither value nor order gets out",
    ("src/hotspare/rows/compile.py", "id"): "finds the twin of a function object; neither value nor order gets out",
    ("src/hotspare/scripting/python/keeper.py", "id"): "finds containers again within one call; neither value nor order gets out",
    ("src/hotspare/scripting/python/plain_values.py", "id"): "looks into each container once; neither value nor order gets out",
    (
        "src/hotspare/scripting/canonical_bytes.py",
        "id",
    ): "tells containers apart that live at once; neither value nor order gets out",
}
"""(path, call) -> why this one cannot make two engines differ."""
ALLOWED_MODULES = {
    ("src/hotspare/scripting/python/virtual_clock.py", "random"): "generators get a seed that the position of the event determines",
    ("src/hotspare/scripting/python/virtual_clock.py", "uuid"): "identifiers get their bits",
}
"""(path, module) -> why this module cannot."""
_CLOCKS = frozenset({"datetime", "date", "Timestamp", "os"})
_NUMPY_RANDOM = frozenset({"np.random", "numpy.random"})
_NUMBA_SWITCHES = frozenset({"parallel", "fastmath"})

_SETS = frozenset({"set", "frozenset", "Set", "AbstractSet", "MutableSet", "FrozenSet"})
_SET_OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
_SET_METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference"})
_ORDER_FREE = frozenset({"sorted", "set", "frozenset", "len", "any", "all", "min", "max", "bool"})
_ORDERED = frozenset({"list", "tuple", "enumerate", "iter", "dict", "zip", "map", "filter", "sum", "reversed", "next"})


def applies(source: Source) -> bool:
    return source.path.startswith(PLACES) and not source.path.startswith(EXCEPT)


def banned(source: Source) -> Iterator[Violation]:
    """Yields clocks, randomness, environment, threads, logs, files and unordered arithmetic."""
    if not applies(source):
        return
    for node, name in imported(source):
        for module, why in BANNED_MODULES.items():
            if (name == module or name.startswith(f"{module}.")) and (source.path, module) not in ALLOWED_MODULES:
                yield source.violation(node, f"{module}: {why}")
    for node in nodes(source, ast.Call, ast.Attribute, ast.keyword):
        if isinstance(node, ast.Attribute):
            if dotted(node) in _NUMPY_RANDOM:
                yield source.violation(node, f"{dotted(node)}: randomness differs between engines")
        elif isinstance(node, ast.keyword):
            if node.arg in _NUMBA_SWITCHES and not (isinstance(node.value, ast.Constant) and not node.value.value):
                yield source.violation(node.value, f"{node.arg}: changes the order of float operations")
        elif isinstance(node, ast.Call):
            yield from _call(source, node)


def _call(source: Source, node: ast.Call) -> Iterator[Violation]:
    if isinstance(node.func, ast.Name):
        name, owner = node.func.id, ""
    elif isinstance(node.func, ast.Attribute):
        name, owner = node.func.attr, dotted(node.func.value).rpartition(".")[2]
    else:
        return
    if name in BANNED_CALLS and (not owner or owner in _CLOCKS) and (source.path, name) not in ALLOWED:
        yield source.violation(node, f"{name}(): {BANNED_CALLS[name]}")


def set_order(source: Source) -> Iterator[Violation]:
    """Yields iterations whose result depends on the order of a set."""
    if not applies(source):
        return
    attributes = {
        node.target.attr if isinstance(node.target, ast.Attribute) else node.target.id
        for node in nodes(source, ast.AnnAssign)
        if isinstance(node.target, ast.Attribute | ast.Name) and _is_set_type(node.annotation)
    }
    for scope in nodes(source, ast.Module, ast.FunctionDef, ast.AsyncFunctionDef):
        body = [node for statement in getattr(scope, "body", []) for node in _own(statement)]
        yield from _walked(source, body, _Known(_set_names(scope, body), attributes))


class _Known:
    """The names and attributes that hold sets at one place."""

    def __init__(self, names: set[str], attributes: set[str]) -> None:
        self._names = names
        self._attributes = attributes

    def is_set(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        if isinstance(node, ast.Name):
            return node.id in self._names
        if isinstance(node, ast.Attribute):
            return node.attr in self._attributes
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, _SET_OPERATORS) and (self.is_set(node.left) or self.is_set(node.right))
        if isinstance(node, ast.Call):
            if dotted(node.func) in ("set", "frozenset"):
                return True
            return isinstance(node.func, ast.Attribute) and node.func.attr in _SET_METHODS and self.is_set(node.func.value)
        return False


def _own(statement: ast.AST) -> Iterator[ast.AST]:
    """Yields the statement's nodes, without those of functions inside it, which are scopes of their own."""
    yield statement
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    for child in ast.iter_child_nodes(statement):
        yield from _own(child)


def _set_names(scope: ast.AST, body: list[ast.AST]) -> set[str]:
    names: set[str] = set()
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = [*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs]
        names |= {a.arg for a in arguments if a.annotation is not None and _is_set_type(a.annotation)}
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _is_set_type(node.annotation):
            names.add(node.target.id)
        elif isinstance(node, ast.Assign) and _Known(names, set()).is_set(node.value):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _is_set_type(annotation: ast.AST) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    base = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return dotted(base).rpartition(".")[2] in _SETS


def _walked(source: Source, body: list[ast.AST], known: _Known) -> Iterator[Violation]:
    free = {id(arg) for node in body if isinstance(node, ast.Call) and dotted(node.func) in _ORDER_FREE for arg in node.args}
    for node in body:
        if isinstance(node, ast.For | ast.AsyncFor) and known.is_set(node.iter):
            yield source.violation(node, "walks a set; walk sorted(...) of it")
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and id(node) not in free:
            if any(known.is_set(generator.iter) for generator in node.generators):
                yield source.violation(node, "walks a set; walk sorted(...) of it")
        elif isinstance(node, ast.Starred) and known.is_set(node.value):
            yield source.violation(node, "unpacks a set; unpack sorted(...) of it")
        elif isinstance(node, ast.Call):
            yield from _ordered_use(source, node, known)


def _ordered_use(source: Source, node: ast.Call, known: _Known) -> Iterator[Violation]:
    name = dotted(node.func)
    if name in _ORDERED and any(known.is_set(arg) for arg in node.args):
        yield source.violation(node, f"{name}() of a set; sort it first")
    elif isinstance(node.func, ast.Attribute):
        if node.func.attr == "join" and any(known.is_set(arg) for arg in node.args):
            yield source.violation(node, "joins a set; join sorted(...) of it")
        elif node.func.attr == "pop" and not node.args and known.is_set(node.func.value):
            yield source.violation(node, "takes any element of a set; take min(...) of it")
