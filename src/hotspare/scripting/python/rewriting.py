"""Rewrites user code so that it counts its steps, and calls guards for operations of Python that differ between engines.

| code | becomes |
|---|---|
| a loop, a comprehension | the same with a step at each turn |
| a function, a lambda | the same with a step at each call, counting its depth |
| a generator | the same, counting as a function whenever it is resumed |
| `a * b`, `a ** b`, `a << b`, `a % b`, `a + b` | a call of the guard, if the result may be a sequence or a long number |
| `{a, b}`, `{x for x in y}`, `a & b`, `a - b` | a set in the order of insertion, if it is one |
| `a is b` | a comparison of values if these are plain, since two equal texts may be one object or two |
| `f'{x}'`, `str(x)` | a call of the guard |
| `a.b`, if some type that code may meet hides `b` | a call of the guard |
| `a.b = c` | the same, if `a` is an object of the code's own that lives no longer than the call |
| `except:` | `except Exception:` |
| `[f(x) for x in y]`, in a program over columns | a call of the guard, which takes columns for `y` |
| the body of `except`, `with` and of `try` with `finally` | the same, with a check of the error that the code is about to see |

Guards have names that the code itself cannot use.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from hotspare.scripting.contract import CallingConvention
from hotspare.scripting.python.allowed_attributes import is_unrestricted
from hotspare.scripting.python.name_lists import split_names

TICK, ENTER, LEAVE, CAUGHT = "__hs_tick__", "__hs_enter__", "__hs_leave__", "__hs_caught__"
DEEP, GENERATING, ITERATED, NEXT = "__hs_deep__", "__hs_generating__", "__hs_iterated__", "__hs_next__"
ATTRIBUTE, TARGET, HELD, EVERYTHING = "__hs_attribute__", "__hs_target__", "__hs_held__", "__hs_everything__"
SET, SAME, TEXT, EACH = "__hs_set__", "__hs_same__", "__hs_text__", "__hs_each__"
_ROWS = "__hs_rows__"
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "__hs_add__",
    ast.Mult: "__hs_mult__",
    ast.Pow: "__hs_pow__",
    ast.LShift: "__hs_lshift__",
    ast.Mod: "__hs_mod__",
    ast.Sub: "__hs_sub__",
    ast.BitAnd: "__hs_and__",
    ast.BitOr: "__hs_or__",
    ast.BitXor: "__hs_xor__",
}
IN_PLACE_PREFIX = "i"
"""The prefix in the name of an operator's guard that works in place: `__hs_imult__`."""

TYPES_WITH_STAND_IN = frozenset({"list", "dict", "str"})
"""The types that are replaced by a stand-in. A type that code only calls or compares with remains the type itself, which is
faster.
"""


def real_name(kind: str) -> str:
    """Returns the name by which rewritten code refers to Python's own type `kind`."""
    return f"__hs_type_{kind}__"


def call_name(kind: str) -> str:
    """Returns the name by which rewritten code calls the type `kind`."""
    return f"__hs_call_{kind}__"


_CALLED_BY_READING = frozenset({"property", "defaultdict", "DefaultDict"})
"""The names by which reading an attribute or an element can call a lambda. In code without them a lambda can recurse only by a
call.
"""
CONSUMING_CALLS = frozenset(split_names("all any bytes dict frozenset list max min set sorted sum tuple"))
"""The builtins that consume a generator expression at once if it is their only argument."""


def rewrite_python(syntax: ast.Module, calls: CallingConvention) -> ast.Module:
    """Returns the program with its guards. `syntax` is changed in place."""
    rewriter = _Rewriter(syntax, calls)
    return cast(ast.Module, ast.fix_missing_locations(rewriter.visit(syntax)))


def is_column_comprehension(node: ast.AST) -> bool:
    """Whether a node is a comprehension that may iterate over a column: a list comprehension with one loop and no condition."""
    return isinstance(node, ast.ListComp) and len(node.generators) == 1 and not node.generators[0].ifs


def imported_modules(syntax: ast.Module) -> Mapping[str, str]:
    """Returns the modules that `import` statements bind, by name. A name that the program also binds otherwise is omitted."""
    found: dict[str, str] = {}
    for node in ast.walk(syntax):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: alias.name for alias in node.names if alias.asname or "." not in alias.name}
    others = _bound(syntax, without=ast.Import)
    return {name: module for name, module in found.items() if name not in others}


def _bound(syntax: ast.Module, without: type[ast.AST] | None = None) -> frozenset[str]:
    """Returns every name that the program binds anywhere. Imports count too, except statements of the node type `without`."""
    found: list[str | None] = []
    for node in ast.walk(syntax):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.append(node.id)
        elif isinstance(node, ast.arg):
            found.append(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            found.append(node.name)
        elif isinstance(node, ast.MatchMapping):
            found.append(node.rest)
        elif isinstance(node, ast.Import | ast.ImportFrom) and not (without and isinstance(node, without)):
            found += [alias.asname or alias.name for alias in node.names]
    return frozenset(name for name in found if name)


def _named(syntax: ast.Module) -> Iterator[str]:
    for node in ast.walk(syntax):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _step() -> ast.Expr:
    return ast.Expr(_call(TICK))


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, syntax: ast.Module, calls: CallingConvention) -> None:
        self._calls = calls
        self._bound, self._modules = _bound(syntax), imported_modules(syntax)
        self._reads_call = not _CALLED_BY_READING.isdisjoint(_named(syntax))
        self._count = 0
        self._consumed: set[ast.expr] = set()
        """The generator expressions that a builtin consumes at once, so that they cannot be resumed later."""
        self._classes: list[str] = []
        """The names of the enclosing classes, for name mangling of attributes with two leading underscores."""
        self._held: list[ast.stmt] = []
        """The statements to insert before the `match` being visited."""

    def visit(self, node: ast.AST) -> Any:
        made = super().visit(node)
        if isinstance(made, ast.expr | ast.stmt) and isinstance(node, ast.expr | ast.stmt):
            ast.copy_location(made, node)
        return made

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        begin = 1 if ast.get_docstring(node, clean=False) is not None else 0
        body: list[ast.stmt] = [_step(), *node.body[begin:]]
        if _yields(node.body):
            node.decorator_list = [*node.decorator_list, ast.Name(GENERATING, ast.Load())]
        else:
            body = [ast.Expr(_call(ENTER)), ast.Try(node.body[begin:] or [ast.Pass()], [], [], [ast.Expr(_call(LEAVE))])]
        node.body = [*node.body[:begin], *body]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        may_call = self._reads_call or any(isinstance(each, ast.Call) for each in ast.walk(node.body))
        self.generic_visit(node)
        if _yields([node.body]):
            return _call(GENERATING, node)
        if may_call:
            return _call(DEEP, node)
        node.body = ast.BoolOp(ast.And(), [_call(TICK), node.body])
        return node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        self.generic_visit(node)
        return node if node in self._consumed else _call(ITERATED, node)

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        may_walk_column = self._calls is CallingConvention.WITH_COLUMNS and is_column_comprehension(node)
        self.generic_visit(node)
        if not may_walk_column:
            return node
        values, node.generators[0].iter = node.generators[0].iter, ast.Name(_ROWS, ast.Load())
        return _call(EACH, values, ast.Lambda(ast.arguments([], [ast.arg(_ROWS)], None, [], [], None, []), node))

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        node.body = [_step(), *node.body]
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        node.body = [_step(), *node.body]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.generic_visit(node)
        node.ifs = [_call(TICK), *node.ifs]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self._classes.append(node.name)
        self.generic_visit(node)
        self._classes.pop()
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        self.generic_visit(node)
        node.type = node.type or ast.Name("Exception", ast.Load())
        node.body = [ast.Expr(_call(CAUGHT)), *node.body]
        return node

    def visit_Try(self, node: ast.Try) -> ast.Try:
        self.generic_visit(node)
        if node.finalbody:
            inner: list[ast.stmt] = [ast.Try(node.body, node.handlers, node.orelse, [])] if node.handlers else node.body
            node.body, node.handlers, node.orelse = [_with_error_check(inner)], [], []
        return node

    def visit_With(self, node: ast.With) -> ast.stmt:
        self.generic_visit(node)
        body = node.body
        for item in reversed(node.items):
            if item.optional_vars is not None and not isinstance(item.optional_vars, ast.Name):
                self._count += 1
                name = f"__hs_part{self._count}__"
                body = [ast.Assign([item.optional_vars], ast.Name(name, ast.Load())), *body]
                item.optional_vars = ast.Name(name, ast.Store())
            body = [ast.With([item], [_with_error_check(body)])]
        return body[0]

    def visit_Match(self, node: ast.Match) -> list[ast.stmt]:
        outer, self._held = self._held, []
        self.generic_visit(node)
        held, self._held = self._held, outer
        return [ast.copy_location(each, node) for each in [*held, node]]

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.MatchValue:
        if isinstance(node.value, ast.Attribute):
            node.value = self._hold(node.value)
        return node

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.MatchClass:
        if isinstance(node.cls, ast.Attribute):
            node.cls = self._hold(node.cls)
        elif self._is_stood_in(node.cls):
            node.cls = ast.Name(real_name(cast(ast.Name, node.cls).id), ast.Load())
        node.patterns = [self.visit(each) for each in node.patterns]
        node.kwd_patterns = [self.visit(each) for each in node.kwd_patterns]
        return node

    def _hold(self, value: ast.Attribute) -> ast.expr:
        """Returns the attribute for a pattern of `match`. If reading it needs a guard, the guard is called in a statement before
        the `match`.
        """
        read: ast.expr = self.visit(value)
        inner = read
        while isinstance(inner, ast.Attribute):
            inner = inner.value
        if isinstance(inner, ast.Name):
            return read
        self._count += 1
        name = f"__hs_held{self._count}__"
        self._held.append(ast.Assign([ast.Name(name, ast.Store())], _call(HELD, read)))
        return ast.Attribute(ast.Name(name, ast.Load()), "value", ast.Load())

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        guard = OPERATORS.get(type(node.op))
        if guard is None or not self._may_grow(node.op, node.left, node.right):
            return node
        return _call(guard, node.left, node.right)

    @staticmethod
    def _may_grow(operator: ast.operator, left: ast.expr, right: ast.expr) -> bool:
        if isinstance(operator, ast.Add):
            return not (isinstance(left, ast.Constant) or isinstance(right, ast.Constant))
        if isinstance(operator, ast.Sub | ast.BitAnd | ast.BitOr | ast.BitXor):
            return not (_is_number(left) or _is_number(right))
        if isinstance(operator, ast.Mod):
            return not _is_number(left)
        return not any(isinstance(each, ast.Constant) and type(each.value) is float for each in (left, right))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        guard = OPERATORS.get(type(node.op))
        if guard is not None and self._may_grow(node.op, ast.Name("x", ast.Load()), node.value):
            guard = guard.replace("__hs_", f"__hs_{IN_PLACE_PREFIX}")
        elif isinstance(node.target, ast.Attribute) and not is_unrestricted(node.target.attr):
            guard = None
        else:
            return node
        before, read, target = self._once(node.target)
        computed = ast.BinOp(read, node.op, node.value) if guard is None else _call(guard, read, node.value)
        made = [*before, ast.Assign([target], computed)]
        return [ast.copy_location(each, node) for each in made]

    def _once(self, target: ast.expr) -> tuple[Sequence[ast.stmt], ast.expr, ast.expr]:
        """Returns statements that compute the parts of an assignment's target once, and expressions that read and bind the target
        by these parts.
        """
        if isinstance(target, ast.Name):
            return (), ast.Name(target.id, ast.Load()), target
        self._count += 1
        name = f"__hs_part{self._count}__"
        if isinstance(target, ast.Attribute):
            before = [ast.Assign([ast.Name(name, ast.Store())], target.value)]
            read = self._read(ast.Name(name, ast.Load()), target.attr)
            return before, read, ast.Attribute(ast.Name(name, ast.Load()), target.attr, ast.Store())
        target = cast(ast.Subscript, target)
        key = f"__hs_key{self._count}__"
        before = [
            ast.Assign([ast.Name(name, ast.Store())], target.value),
            ast.Assign([ast.Name(key, ast.Store())], target.slice),
        ]
        parts = ast.Name(name, ast.Load()), ast.Name(key, ast.Load())
        return before, ast.Subscript(*parts, ast.Load()), ast.Subscript(*parts, ast.Store())

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.IsNot):
            other = node.comparators[0]
            if not any(isinstance(each, ast.Constant) and each.value in (None, True, False) for each in (node.left, other)):
                same: ast.expr = _call(SAME, node.left, other)
                return ast.UnaryOp(ast.Not(), same) if isinstance(node.ops[0], ast.IsNot) else same
        return node

    def visit_Set(self, node: ast.Set) -> ast.expr:
        self.generic_visit(node)
        return _call(SET, ast.List(node.elts, ast.Load()))

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        self.generic_visit(node)
        return _call(SET, ast.ListComp(node.elt, node.generators))

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.expr:
        self.generic_visit(node)
        conversion = ast.Constant(chr(node.conversion) if node.conversion > 0 else "")
        spec = node.format_spec or ast.Constant("")
        return ast.FormattedValue(_call(TEXT, node.value, conversion, spec), -1, None)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        is_of_module = isinstance(node.value, ast.Name) and node.value.id in self._modules
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            node.value = _call(TARGET, node.value)
            return node
        return node if is_of_module else self._read(node.value, node.attr)

    def _read(self, owner: ast.expr, name: str) -> ast.expr:
        if is_unrestricted(name):
            return ast.Attribute(owner, name, ast.Load())
        if name.startswith("__") and not name.endswith("__") and self._classes and (own := self._classes[-1].lstrip("_")):
            name = f"_{own}{name}"
        return _call(ATTRIBUTE, owner, ast.Constant(name))

    def _is_stood_in(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in TYPES_WITH_STAND_IN and node.id not in self._bound

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if self._walks_at_once(node.func):
            self._consumed.update(node.args[:1])
        self.generic_visit(node)
        if not isinstance(node.func, ast.Name) or node.func.id in self._bound:
            return node
        if node.func.id in TYPES_WITH_STAND_IN:
            node.func = ast.Name(call_name(node.func.id), ast.Load())
        elif node.func.id == "next":
            node.func = ast.Name(NEXT, ast.Load())
        elif node.func.id in ("isinstance", "issubclass") and len(node.args) > 1:
            kinds = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
            for kind in filter(self._is_stood_in, kinds):
                cast(ast.Name, kind).id = real_name(cast(ast.Name, kind).id)
        return node

    def _walks_at_once(self, called: ast.expr) -> bool:
        if isinstance(called, ast.Name):
            return called.id in CONSUMING_CALLS and called.id not in self._bound
        return isinstance(called, ast.Attribute) and called.attr == "join" and isinstance(called.value, ast.Constant)


def _with_error_check(body: list[ast.stmt]) -> ast.stmt:
    """Returns a `try` statement around `body` that checks an error of the body and raises it again."""
    handler = ast.ExceptHandler(ast.Name(EVERYTHING, ast.Load()), None, [ast.Expr(_call(CAUGHT)), ast.Raise()])
    return ast.Try(body, [handler], [], [])


def _yields(body: Sequence[ast.AST]) -> bool:
    """Whether the body makes a function a generator; inner functions do not count."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return False
