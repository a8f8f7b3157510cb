"""From the untyped tree to the typed one: fields and functions are looked up, conversions inserted, mistakes found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.engine.expressions.casts import assignable, castable
from hotspare.engine.expressions.function import TypeMismatch, converts
from hotspare.engine.expressions.functions import CAST_NAMES, EVENT_COUNTER, NAMES, REFUSED, lookup
from hotspare.engine.expressions.text import replacement
from hotspare.engine.expressions.times import TRUNC_UNITS
from hotspare.engine.expressions.tree import (
    Call,
    Constant,
    ExpressionRefused,
    FieldRef,
    Literal,
    Tree,
    Typed,
    TypedCall,
    TypedField,
    TypedLiteral,
    ValueType,
)
from hotspare.model.names import nearest
from hotspare.model.project import Dialect

COUNTER_FIELD = "hs:event-counter"
"""The field that eventCounter() reads; a functional window supplies it (int64)."""
_CASTS = {"cast": "cast", "try_cast": "try_cast", "cast_stored": "convert_checked"}
_REGEX = ("rlike", "regexp_replace")
_SQL_NAME = {ValueType.INT32: "int", ValueType.INT64: "bigint", ValueType.STAMP: "timestamp", ValueType.MONEY: "decimal(18,4)"}


class Checker:
    """Types one expression over `fields` (names to types; COUNTER_FIELD among them where eventCounter() is allowed)."""

    def __init__(self, fields: Mapping[str, ValueType], dialect: Dialect) -> None:
        self._fields = fields
        self._dialect = dialect

    def typed(self, node: Tree) -> Typed:
        """ExpressionRefused with the column of the first mistake."""
        if isinstance(node, Literal):
            return TypedLiteral(node.value, node.type)
        if isinstance(node, FieldRef):
            return self._field(node)
        if node.function in _CASTS:
            return self._cast(node)
        if not node.function:
            return self._unknown(node)
        arguments = [self.typed(a) for a in node.arguments]
        function = lookup(node.function)
        try:
            signature = function.rule([a.type for a in arguments], self._dialect)
        except TypeMismatch as mismatch:
            raise ExpressionRefused(node.column, f"{node.written}: {mismatch.message}", mismatch.hint) from None
        self._check_literals(node, arguments, function.literals)
        fitted = tuple(converted(a, t) for a, t in zip(arguments, signature.arguments, strict=True))
        return TypedCall(function.name, fitted, signature.result, node.column)

    def condition(self, node: Tree) -> Typed:
        """A typed tree of type boolean."""
        typed = self.typed(node)
        if typed.type is ValueType.BOOLEAN or converts(typed.type, ValueType.BOOLEAN, self._dialect):
            return converted(typed, ValueType.BOOLEAN)
        raise ExpressionRefused(1, f"the condition is {typed.type.value}, boolean is wanted", "compare it with something")

    def slot(self, node: Tree) -> Typed:
        """A typed tree of type int64: a number without its fraction, true as 1 and false as 0."""
        typed = self.typed(node)
        if typed.type is ValueType.STRING or not castable(typed.type, ValueType.INT64):
            hint = "compute a number, or a condition that is 1 where it is true and 0 where it is not"
            raise ExpressionRefused(1, f"the splitter is {typed.type.value}, a number is wanted", hint)
        if typed.type in (ValueType.INT64, ValueType.NULL):
            return converted(typed, ValueType.INT64)
        return TypedCall("cast", (typed,), ValueType.INT64)

    def assigned(self, node: Tree, target: ValueType, field: str) -> Typed:
        """A typed tree of the type of the field that it is assigned to."""
        typed = self.typed(node)
        if typed.type is target or converts(typed.type, target, self._dialect):
            return converted(typed, target)
        if assignable(typed.type, target, self._dialect):
            return TypedCall("assign", (typed,), target)
        message = f"the expression is {typed.type.value}, field {field} is {target.value}"
        hint = "compute a value of that type, or change the type of the field"
        if castable(typed.type, target):
            hint = f"write cast(... as {_SQL_NAME.get(target, target.value)})" if self._dialect is Dialect.SPARK_SQL else ""
            hint = hint or f"convert it, for example with to{'String' if target is ValueType.STRING else 'Double'}(...)"
        raise ExpressionRefused(1, message, hint)

    def _field(self, node: FieldRef) -> Typed:
        found = node.name if node.name in self._fields else ""
        if not found and self._dialect is Dialect.SPARK_SQL:
            alike = [name for name in self._fields if name.lower() == node.name.lower()]
            found = alike[0] if len(alike) == 1 else ""
        if not found or found == COUNTER_FIELD:
            names = [n for n in self._fields if n != COUNTER_FIELD]
            raise ExpressionRefused(node.column, f"unknown field {node.name}", nearest(node.name, names))
        return TypedField(found, self._fields[found])

    def _unknown(self, node: Call) -> Typed:
        name = node.written.lower()
        if name == EVENT_COUNTER:
            if node.arguments:
                raise ExpressionRefused(node.column, "eventCounter takes no argument", "write eventCounter()")
            if COUNTER_FIELD in self._fields:
                return TypedField(COUNTER_FIELD, ValueType.INT64)
            raise ExpressionRefused(
                node.column, "eventCounter() keeps a count, which only a functional window has", "use it in a functional window"
            )
        if name in REFUSED:
            hint = "use a field of the event instead"
            raise ExpressionRefused(node.column, f"function {node.written} is not allowed: {REFUSED[name]}", hint)
        names = sorted([*NAMES[self._dialect], *CAST_NAMES[self._dialect]])
        raise ExpressionRefused(node.column, f"unknown function {node.written}", nearest(name, names))

    def _cast(self, node: Call) -> Typed:
        argument, name = self.typed(node.arguments[0]), node.arguments[1]
        assert isinstance(name, Literal)
        target = ValueType(name.value)
        if not castable(argument.type, target):
            raise ExpressionRefused(
                node.column, f"{node.written}: {argument.type.value} cannot become {target.value}", "convert it to string first"
            )
        if argument.type is target or argument.type is ValueType.NULL:
            return converted(argument, target)
        return TypedCall(_CASTS[node.function], (argument,), target, node.column)

    def _check_literals(self, node: Call, arguments: Sequence[Typed], places: Iterable[int]) -> None:
        for place in places:
            if place >= len(arguments):
                continue
            if not isinstance(arguments[place], TypedLiteral):
                raise ExpressionRefused(
                    node.column, f"{node.written}: argument {place + 1} must be a constant", "write the value itself, not a field"
                )
        if node.function in _REGEX and isinstance(arguments[1], TypedLiteral):
            _check_regex(node, [argument.value for argument in arguments[1:] if isinstance(argument, TypedLiteral)])
        if node.function == "date_trunc" and isinstance(arguments[0], TypedLiteral):
            unit = str(arguments[0].value).lower()
            if unit not in TRUNC_UNITS:
                raise ExpressionRefused(node.column, f"unknown unit {unit}", nearest(unit, TRUNC_UNITS))


def _check_regex(node: Call, constants: Sequence[Constant]) -> None:
    """The pattern and, where there is one, what it is replaced by."""
    pattern, *new = (str(constant) for constant in constants)
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
        for text in new:
            pc.replace_substring_regex(pa.array([""]), pattern, replacement(text))
    except pa.ArrowInvalid as error:
        raise ExpressionRefused(node.column, f"{node.written}: {error}", "the syntax is that of RE2") from None


def converted(node: Typed, target: ValueType) -> Typed:
    """`node` as `target`, to which it converts."""
    if node.type is target:
        return node
    if isinstance(node, TypedLiteral):
        if node.value is None:
            return TypedLiteral(None, target)
        if target in (ValueType.INT64, ValueType.DOUBLE) and node.type in (ValueType.INT32, ValueType.INT64):
            assert isinstance(node.value, int)
            return TypedLiteral(float(node.value) if target is ValueType.DOUBLE else node.value, target)
    checked = (target is ValueType.MONEY and node.type is not ValueType.BOOLEAN) or (
        target is ValueType.STAMP and node.type is ValueType.DATE
    )
    if node.type is ValueType.NULL:
        return TypedLiteral(None, target)
    return TypedCall("convert_checked" if checked else "convert", (node,), target)
