"""Rewrites people's code so that it counts its steps, and asks before it does at once what could be too much.

| code | becomes |
|---|---|
| a loop, a comprehension, a function | the same with a step at each turn and call |
| a function or lambda that may call itself | the same, counting its depth |
| a generator | the same, counting as a function whenever it goes on |
| `a * b`, `a ** b`, `a << b`, `a % b`, `a + b` | a call of the guard, where sequences or long numbers may come of it |
| `x in y`, `y[a:b]`, `y.upper()`, `', '.join(y)` | the same, with the length of `y` counted |
| `{a, b}`, `{x for x in y}`, `a & b`, `a - b` | a set in the order in which elements came, where it is one |
| `a is b` | a comparison of values where these are plain, since two equal texts may be one object or two |
| `f'{x}'`, `str(x)`, `list(x)` | a call of the guard |
| `a.b = c` | the same, where `a` is an object of the code's own |
| `except:` | `except Exception:` |

Guards are found under names that the code itself cannot use.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, cast

from hotspare.engine.code.python.recursion import Function, recursive
from hotspare.engine.code.python.words import words

TICK, ENTER, LEAVE, CAUGHT = "__hs_tick__", "__hs_enter__", "__hs_leave__", "__hs_caught__"
DEEP, GENERATING, ITERATED, NEXT = "__hs_deep__", "__hs_generating__", "__hs_iterated__", "__hs_next__"
SIZED, SCANNED, TARGET, SET, SAME, TEXT, METHOD, CALL = (
    "__hs_sized__",
    "__hs_scanned__",
    "__hs_target__",
    "__hs_set__",
    "__hs_same__",
    "__hs_text__",
    "__hs_method__",
    "__hs_call__",
)
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
IN_PLACE = "i"
"""Before the name of an operator's guard that works in place: `__hs_imult__`."""

GUARDED_CALLS = frozenset({"list", "tuple", "dict", "bytes", "bytearray", "str", "int", "range"})
"""Types that are guarded where they are called, and stay what they are elsewhere: `isinstance(x, list)`."""

CONSUMING_CALLS = frozenset(words("all any bytes dict frozenset list max min set sorted sum tuple"))
"""Builtins that walk a generator expression at once, if it is all that they are given."""

GROWING_METHODS = frozenset(
    words(
        """
    join ljust rjust center zfill expandtabs replace format format_map translate to_bytes encode
    """
    )
)
"""Methods of texts and numbers, whose results may be far longer than what they are called of."""

LONG_METHODS = frozenset(
    words(
        """
        capitalize casefold count endswith extend find index insert lower lstrip partition remove reverse rfind rindex
        rpartition rsplit rstrip sort split splitlines startswith strip swapcase title upper update copy decode hex
        isdigit isalpha isalnum isnumeric isdecimal isspace isupper islower
        """
    )
)
"""Methods that may look at all that their object holds."""


def rewritten(syntax: ast.Module) -> ast.Module:
    """The program with its guards; `syntax` is changed."""
    rewriter = _Rewriter(recursive(syntax), _bound(syntax))
    return cast(ast.Module, ast.fix_missing_locations(rewriter.visit(syntax)))


def _bound(syntax: ast.Module) -> frozenset[str]:
    """Every name that the program gives a meaning of its own, anywhere."""
    names = {node.id for node in ast.walk(syntax) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    names |= {node.arg for node in ast.walk(syntax) if isinstance(node, ast.arg)}
    names |= {node.name for node in ast.walk(syntax) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {(a.asname or a.name) for n in ast.walk(syntax) if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
    return frozenset(names)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _step() -> ast.Expr:
    return ast.Expr(_call(TICK))


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, deep: frozenset[Function], bound: frozenset[str]) -> None:
        self._deep = deep
        self._bound = bound
        self._count = 0
        self._consumed: set[ast.expr] = set()
        """Generator expressions that nobody keeps."""

    def visit(self, node: ast.AST) -> Any:
        made = super().visit(node)
        if isinstance(made, ast.expr | ast.stmt) and isinstance(node, ast.expr | ast.stmt):
            ast.copy_location(made, node)
        return made

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        is_generator = _yields(node.body)
        begin = 1 if ast.get_docstring(node, clean=False) is not None else 0
        body: list[ast.stmt] = [_step(), *node.body[begin:]]
        if is_generator:
            node.decorator_list = [*node.decorator_list, ast.Name(GENERATING, ast.Load())]
        elif node in self._deep:
            body = [ast.Expr(_call(ENTER)), ast.Try(body, [], [], [ast.Expr(_call(LEAVE))])]
        node.body = [*node.body[:begin], *body]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        self.generic_visit(node)
        is_generator = _yields([node.body])
        node.body = ast.BoolOp(ast.And(), [_call(TICK), node.body])
        if is_generator:
            return _call(GENERATING, node)
        return _call(DEEP, node) if node in self._deep else node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        self.generic_visit(node)
        return node if node in self._consumed else _call(ITERATED, node)

    def visit_For(self, node: ast.For) -> ast.For:
        self._loop_over(node)
        self.generic_visit(node)
        node.body = [_step(), *node.body]
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        node.body = [_step(), *node.body]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self._loop_over(node)
        self.generic_visit(node)
        node.ifs = [_call(TICK), *node.ifs]
        return node

    def _loop_over(self, node: ast.For | ast.comprehension) -> None:
        """A range that is walked by a loop costs its turns alone."""
        if isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name) and node.iter.func.id == "range":
            node.iter.func = _Plain("range", ast.Load())

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        self.generic_visit(node)
        node.type = node.type or ast.Name("Exception", ast.Load())
        node.body = [ast.Expr(_call(CAUGHT)), *node.body]
        return node

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
        if guard is None:
            return node
        if isinstance(node.op, ast.Add):
            if not isinstance(node.value, ast.Constant):
                node.value = _call(SIZED, node.value)
            return node
        if not self._may_grow(node.op, ast.Name("x", ast.Load()), node.value):
            return node
        guard = guard.replace("__hs_", f"__hs_{IN_PLACE}")
        before, read, target = self._once(node.target)
        made = [*before, ast.Assign([target], _call(guard, read, node.value))]
        return [ast.copy_location(each, node) for each in made]

    def _once(self, target: ast.expr) -> tuple[Sequence[ast.stmt], ast.expr, ast.expr]:
        """Statements that name the parts of a target, which then can be read and bound without computing them twice."""
        if isinstance(target, ast.Name):
            return (), ast.Name(target.id, ast.Load()), target
        self._count += 1
        name = f"__hs_part{self._count}__"
        if isinstance(target, ast.Attribute):
            before = [ast.Assign([ast.Name(name, ast.Store())], target.value)]
            read: ast.expr = ast.Attribute(ast.Name(name, ast.Load()), target.attr, ast.Load())
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
        for i, operator in enumerate(node.ops):
            if isinstance(operator, ast.In | ast.NotIn) and not isinstance(
                node.comparators[i], ast.Constant | ast.Tuple | ast.List
            ):
                node.comparators[i] = _call(SCANNED, node.comparators[i])
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
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            node.value = _call(TARGET, node.value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        return _call(SIZED, node) if isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Slice) else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if self._walks_at_once(node.func):
            self._consumed.update(node.args[:1])
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and not isinstance(node.func, _Plain):
            if node.func.id in GUARDED_CALLS:
                guarded = _call(CALL, node.func) if node.func.id in self._bound else ast.Name(f"__hs_{node.func.id}__", ast.Load())
                node.func = guarded
            elif node.func.id == "next" and "next" not in self._bound:
                node.func = ast.Name(NEXT, ast.Load())
        elif isinstance(node.func, ast.Attribute):
            if node.func.attr in GROWING_METHODS:
                return ast.Call(
                    ast.Name(METHOD, ast.Load()), [node.func.value, ast.Constant(node.func.attr), *node.args], node.keywords
                )
            if node.func.attr in LONG_METHODS:
                node.func.value = _call(SIZED, node.func.value)
                if node.func.attr in ("extend", "update"):
                    node.args = [each if isinstance(each, ast.Starred) else _call(SIZED, each) for each in node.args]
        return node

    def _walks_at_once(self, called: ast.expr) -> bool:
        if isinstance(called, ast.Name):
            return called.id in CONSUMING_CALLS and called.id not in self._bound
        return isinstance(called, ast.Attribute) and called.attr == "join" and isinstance(called.value, ast.Constant)


class _Plain(ast.Name):
    """A name that is what it says, though it is called."""


def _yields(body: Sequence[ast.AST]) -> bool:
    """Whether what a function does makes it a generator; functions in it are others."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return False
