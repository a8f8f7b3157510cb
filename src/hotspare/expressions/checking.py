"""Turns the untyped tree into the typed one: looks up fields and functions, inserts conversions, finds mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from hotspare.base.errors import UsageError
from hotspare.expressions.casts import is_assignable, is_castable
from hotspare.expressions.documents import JSON_FUNCTIONS, XML_FUNCTIONS, compile_xpath, json_path
from hotspare.expressions.function import Function, TypeMismatch, can_convert
from hotspare.expressions.function_table import (
    CAST_NAMES,
    CLOCK_FUNCTIONS,
    EVENT_COUNTER,
    FUNCTION_NAMES,
    RANDOM_FUNCTIONS,
    RANDOM_REASON,
    REFUSED_FUNCTIONS,
    lookup_function,
)
from hotspare.expressions.patterns import named_groups
from hotspare.expressions.text import replacement
from hotspare.expressions.times import TRUNC_UNITS, check_format
from hotspare.expressions.tree import (
    Call,
    Constant,
    ExpressionRefused,
    FieldRef,
    Literal,
    Method,
    Tree,
    Typed,
    TypedCall,
    TypedField,
    TypedLiteral,
    ValueType,
)
from hotspare.model.names import nearest_names_hint
from hotspare.model.project import Dialect
from hotspare.rows.times import DateFormat

_WIDE = (ValueType.INT64, ValueType.MONEY, ValueType.DOUBLE)
_TIMES = (ValueType.DATE, ValueType.STAMP)
_NARROW = (ValueType.INT32, ValueType.INT64, *_TIMES)
"""The types that cannot hold all values of a wider type, so that converting to them is checked."""
HIDDEN_PREFIX = "hs:"
"""The prefix of the names that an expression cannot contain, so they cannot collide with fields."""
COUNTER_FIELD = "hs:event-counter"
"""The field that eventCounter() reads (int64). Only functional windows supply it."""
EVENT_NUMBER_FIELD = "hs:event-number"
"""The field that eventNumber() reads: 0 for the event itself, and 1, 2, 3 ... for the events of its loops."""
POSITION_FIELD = "hs:position"
"""The field that guid() and random() draw from: the number of the event among the events of its window (int64). It exists only in
windows that allow these functions.
"""
SYSTEM_TIME_FIELD = "hs:moment"
"""The field that Today() and similar functions read: the system time of the event (stamp)."""
_CASTS = {"cast": "cast", "try_cast": "try_cast", "cast_stored": "convert_checked"}
_SQL_NAME = {ValueType.INT32: "int", ValueType.INT64: "bigint", ValueType.STAMP: "timestamp", ValueType.MONEY: "decimal(18,4)"}


@dataclass
class VisibleNames:
    """The names that an expression may use besides fields: `variables` by name, and `functions` by lower-case name."""

    variables: dict[str, Typed] = field(default_factory=dict)
    functions: dict[str, Callable[[Call, Sequence[Typed]], Typed]] = field(default_factory=dict)
    label: str = ""
    """The text that makes the random numbers of this expression differ from those of other expressions."""

    def call_seed(self, column: int) -> int:
        """Returns the int64 seed of the random call at `column`, derived from `label` and the column."""
        return xxhash.xxh3_64_intdigest(f"{self.label} {column}".encode()) - (1 << 63)

    def type_method_call(self, node: Method, checker: Checker) -> Typed:
        """Returns the typed call of a method of a variable. In this scope no variable has methods, so it always raises
        ExpressionRefused.
        """
        message = f"{node.variable}.{node.name}(...) is a method, and {node.variable} is not a variable with a regular expression"
        hint = "declare it: regex r, and compile it in the initializer; or as an array: integer array a"
        raise ExpressionRefused(node.column, message, hint)


class Checker:
    """Types one expression over `fields`, which map names to types. eventCounter() is allowed only if COUNTER_FIELD is
    among them.
    """

    def __init__(self, fields: Mapping[str, ValueType], dialect: Dialect, scope: VisibleNames | None = None) -> None:
        self._fields = fields
        self._dialect = dialect
        self._scope = scope or VisibleNames()

    def typed(self, node: Tree) -> Typed:
        """Returns the typed tree of `node`. Raises ExpressionRefused with the column of the first mistake."""
        if isinstance(node, Literal):
            return TypedLiteral(node.value, node.type)
        if isinstance(node, FieldRef):
            return self._field(node)
        if isinstance(node, Method):
            return self._scope.type_method_call(node, self)
        if node.function in _CASTS:
            return self._cast(node)
        if not node.function:
            return self._unknown(node)
        arguments = [self.typed(a) for a in node.arguments]
        function = lookup_function(node.function)
        try:
            signature = function.rule([a.type for a in arguments], self._dialect)
        except TypeMismatch as mismatch:
            raise ExpressionRefused(node.column, f"{node.written_name}: {mismatch.message}", mismatch.hint) from None
        constants = (*function.literal_arguments, *function.pattern_arguments, *function.replacement_arguments)
        self._check_literals(node, arguments, constants)
        fitted = tuple(converted(a, t) for a, t in zip(arguments, signature.arguments, strict=True))
        for place in constants:
            if place < len(fitted) and not isinstance(fitted[place], TypedLiteral):
                what = f"argument {place + 1} is not a constant of type {signature.arguments[place].value}"
                raise ExpressionRefused(node.column, f"{node.written_name}: {what}", "write a constant of that type")
        _check_patterns(node, fitted, function)
        return TypedCall(function.name, fitted, signature.result, node.column)

    def resolve_name(self, name: str) -> Typed | None:
        """Returns the variable of this name, else the field of this name, else None."""
        if name in self._scope.variables:
            return self._scope.variables[name]
        return TypedField(name, self._fields[name]) if name in self._fields else None

    def condition(self, node: Tree) -> Typed:
        """Returns the typed tree of `node`, converted to boolean. Raises ExpressionRefused if the type does not convert."""
        return self.as_condition(self.typed(node))

    def as_condition(self, typed: Typed) -> Typed:
        """Returns `typed` converted to boolean. Raises ExpressionRefused if its type does not convert implicitly."""
        if typed.type is ValueType.BOOLEAN or can_convert(typed.type, ValueType.BOOLEAN, self._dialect):
            return converted(typed, ValueType.BOOLEAN)
        raise ExpressionRefused(1, f"the condition has type {typed.type.value}, not boolean", "compare it with something")

    def as_slot(self, typed: Typed) -> Typed:
        """Returns `typed` converted to int64: a number loses its fraction, true is 1, false is 0. Raises ExpressionRefused for
        texts and types without a cast.
        """
        if typed.type is ValueType.STRING or not is_castable(typed.type, ValueType.INT64):
            hint = "compute a number, or a condition that is 1 where it is true and 0 where it is not"
            raise ExpressionRefused(1, f"the splitter has type {typed.type.value}, not a numeric type", hint)
        if typed.type in (ValueType.INT64, ValueType.NULL):
            return converted(typed, ValueType.INT64)
        return TypedCall("cast", (typed,), ValueType.INT64)

    def assigned(self, node: Tree, target: ValueType, field: str) -> Typed:
        """Returns the typed tree of `node`, converted to the type `target` of `field`. Raises ExpressionRefused if the type cannot
        be assigned.
        """
        return self.as_assigned_value(self.typed(node), target, f"field {field}")

    def as_assigned_value(self, typed: Typed, target: ValueType, what: str) -> Typed:
        """Returns `typed` converted to `target`, the type of `what`, which messages name. Raises ExpressionRefused if the type
        cannot be assigned.
        """
        if typed.type is target or can_convert(typed.type, target, self._dialect):
            return converted(typed, target)
        if is_assignable(typed.type, target, self._dialect):
            return TypedCall("assign", (typed,), target)
        message = f"the expression is {typed.type.value}, {what} is {target.value}"
        hint = f"compute a value of that type, or change the type of the {what.split()[0]}"
        if is_castable(typed.type, target):
            hint = f"write cast(... as {_SQL_NAME.get(target, target.value)})" if self._dialect is Dialect.SPARK_SQL else ""
            hint = hint or f"convert it, for example with to{'String' if target is ValueType.STRING else 'Double'}(...)"
        raise ExpressionRefused(1, message, hint)

    def as_variable_value(self, typed: Typed, target: ValueType, what: str) -> Typed:
        """Returns `typed` converted to the type `target` of a variable. Unlike a field, a variable also accepts types that need an
        explicit cast.
        """
        if not (is_assignable(typed.type, target, self._dialect) or typed.type is target) and is_castable(typed.type, target):
            return TypedCall("convert_checked", (typed,), target)
        return self.as_assigned_value(typed, target, what)

    def _field(self, node: FieldRef) -> Typed:
        if node.name in self._scope.variables:
            return self._scope.variables[node.name]
        found = node.name if node.name in self._fields else ""
        if not found and self._dialect is Dialect.SPARK_SQL:
            alike = [name for name in self._fields if name.lower() == node.name.lower()]
            found = alike[0] if len(alike) == 1 else ""
        if not found or found.startswith(HIDDEN_PREFIX):
            names = [n for n in self._fields if not n.startswith(HIDDEN_PREFIX)]
            raise ExpressionRefused(node.column, f"unknown field {node.name}", nearest_names_hint(node.name, names))
        return TypedField(found, self._fields[found])

    def _unknown(self, node: Call) -> Typed:
        name = node.written_name.lower()
        if name in self._scope.functions:
            return self._scope.functions[name](node, [self.typed(a) for a in node.arguments])
        if name == EVENT_COUNTER:
            if node.arguments:
                raise ExpressionRefused(node.column, "eventCounter takes no argument", "write eventCounter()")
            if COUNTER_FIELD in self._fields:
                return TypedField(COUNTER_FIELD, ValueType.INT64)
            raise ExpressionRefused(
                node.column, "eventCounter() keeps a count, which only a functional window has", "use it in a functional window"
            )
        if name == "eventnumber" and EVENT_NUMBER_FIELD in self._fields and not node.arguments:
            return TypedField(EVENT_NUMBER_FIELD, ValueType.INT64)
        if name in RANDOM_FUNCTIONS and self._dialect.is_sas:
            return self._random_call(node, name)
        if name in CLOCK_FUNCTIONS and self._dialect.is_sas:
            return self._clock_call(node, CLOCK_FUNCTIONS[name])
        if name in REFUSED_FUNCTIONS or name in RANDOM_FUNCTIONS:
            hint = "use a field of the event instead"
            raise ExpressionRefused(
                node.column, f"function {node.written_name} is not allowed: {REFUSED_FUNCTIONS.get(name, RANDOM_REASON)}", hint
            )
        names = sorted([*FUNCTION_NAMES[self._dialect], *CAST_NAMES[self._dialect], *self._scope.functions])
        raise ExpressionRefused(node.column, f"unknown function {node.written_name}", nearest_names_hint(name, names))

    def _random_call(self, node: Call, name: str) -> Typed:
        """Returns the typed call of a random function. The number depends on the event's position in the window's input and on the
        call's column. Raises ExpressionRefused if the window has no POSITION_FIELD.
        """
        if POSITION_FIELD not in self._fields:
            raise ExpressionRefused(
                node.column, f"{node.written_name} cannot be used here", "use it in a compute or functional window"
            )
        position = TypedField(POSITION_FIELD, ValueType.INT64)
        function = RANDOM_FUNCTIONS[name]
        seed = TypedLiteral(self._scope.call_seed(node.column), ValueType.INT64)
        limits = [
            self.as_assigned_value(self.typed(a), ValueType.DOUBLE, f"argument of {node.written_name}") for a in node.arguments
        ]
        most = 0 if function == "guid" else 2
        if len(limits) > most:
            raise ExpressionRefused(
                node.column, f"{node.written_name}: {len(limits)} arguments given, not 0 to {most}", "leave some out"
            )
        if function == "guid":
            return TypedCall(function, (position, seed), ValueType.STRING, node.column)
        ends: list[Typed] = [TypedLiteral(0.0, ValueType.DOUBLE), TypedLiteral(1.0, ValueType.DOUBLE)]
        between = limits if len(limits) == 2 else [ends[0], *(limits or ends[1:])]
        return TypedCall(function, (position, seed, *between), ValueType.DOUBLE, node.column)

    def _clock_call(self, node: Call, wanted: str) -> Typed:
        """Returns the value of a SAS clock function, computed from the time of the event."""
        if SYSTEM_TIME_FIELD not in self._fields:
            hint = "use it in a compute, filter or functional window"
            raise ExpressionRefused(node.column, f"{node.written_name} cannot be used here", hint)
        if node.arguments:
            raise ExpressionRefused(node.column, f"{node.written_name} takes no argument", f"write {node.written_name}()")
        moment: Typed = TypedField(SYSTEM_TIME_FIELD, ValueType.STAMP)
        if wanted == "today":
            seconds = TypedCall("cast", (moment,), ValueType.DATE, node.column)
            return TypedCall("cast", (seconds,), ValueType.STAMP, node.column)
        if wanted in ("micros", "millis"):
            micros = TypedCall("unix_micros", (moment,), ValueType.INT64, node.column)
            thousand = TypedLiteral(1000, ValueType.INT64)
            return micros if wanted == "micros" else TypedCall("div", (micros, thousand), ValueType.INT64, node.column)
        if wanted == "midnight":
            moment = TypedCall("date_trunc", (TypedLiteral("day", ValueType.STRING), moment), ValueType.STAMP, node.column)
        return TypedCall("unix_seconds", (moment,), ValueType.INT64, node.column)

    def _cast(self, node: Call) -> Typed:
        argument, name = self.typed(node.arguments[0]), node.arguments[1]
        assert isinstance(name, Literal)
        target = ValueType(name.value)
        if not is_castable(argument.type, target):
            raise ExpressionRefused(
                node.column,
                f"{node.written_name}: {argument.type.value} cannot become {target.value}",
                "convert it to string first",
            )
        if argument.type is target or argument.type is ValueType.NULL:
            return converted(argument, target)
        if self._dialect is Dialect.FUNCTIONS and argument.type is ValueType.STRING:
            return TypedCall("convert_text", (argument,), target, node.column)
        return TypedCall(_CASTS[node.function], (argument,), target, node.column)

    def _check_literals(self, node: Call, arguments: Sequence[Typed], places: Iterable[int]) -> None:
        for place in places:
            if place >= len(arguments):
                continue
            if not isinstance(arguments[place], TypedLiteral):
                raise ExpressionRefused(
                    node.column,
                    f"{node.written_name}: argument {place + 1} must be a constant",
                    "write the value itself, not a field",
                )
        for place, check in _TEXTS.get(node.function, {}).items():
            given = arguments[place] if place < len(arguments) else None
            if isinstance(given, TypedLiteral) and isinstance(given.value, str):
                try:
                    check(given.value)
                except (ValueError, UsageError) as error:
                    what = f"{given.value[:40]!r} cannot be used: {error}"
                    raise ExpressionRefused(node.column, f"{node.written_name}: {what}", "write another one") from None
        if node.function == "date_trunc" and isinstance(arguments[0], TypedLiteral):
            unit = str(arguments[0].value).lower()
            if unit not in TRUNC_UNITS:
                raise ExpressionRefused(node.column, f"unknown unit {unit}", nearest_names_hint(unit, TRUNC_UNITS))


_TEXTS: Mapping[str, Mapping[int, Callable[[str], object]]] = {
    **{name: {1: json_path} for name in JSON_FUNCTIONS},
    **{name: {1: compile_xpath} for name in XML_FUNCTIONS},
    "time_string": {1: check_format},
    "time_parse": {1: DateFormat.from_format},
}
"""The functions that check constant texts, by function name and argument index from 0. They raise ValueError for an invalid
text.
"""


def _check_patterns(node: Call, arguments: Sequence[Typed], function: Function) -> None:
    places = [place for place in function.pattern_arguments if place < len(arguments)]
    values = {i: a.value for i, a in enumerate(arguments) if isinstance(a, TypedLiteral) and a.value is not None}
    new = [values[place] for place in function.replacement_arguments if place in values]
    for place in places:
        if place in values:
            check_regex(node, [values[place], *new])


def check_regex(node: Call | Method, constants: Sequence[Constant]) -> None:
    """Raises ExpressionRefused if the first constant is not a regular expression of RE2, or a further one is not a valid
    replacement.
    """
    pattern, *new = (str(constant) for constant in constants)
    written = node.written_name if isinstance(node, Call) else node.name
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
        pc.extract_regex(pa.array([""]), named_groups(pattern).pattern)
        for text in new:
            pc.replace_substring_regex(pa.array([""]), pattern, replacement(text))
    except (pa.ArrowInvalid, ValueError) as error:
        raise ExpressionRefused(node.column, f"{written}: {error}", "the syntax is that of RE2") from None


def converted(node: Typed, target: ValueType) -> Typed:
    """Returns `node` converted to the type `target`. The caller has checked that the type of `node` converts."""
    if node.type is target:
        return node
    if isinstance(node, TypedLiteral):
        if node.value is None:
            return TypedLiteral(None, target)
        if target in (ValueType.INT64, ValueType.DOUBLE) and node.type in (ValueType.INT32, ValueType.INT64):
            assert isinstance(node.value, int)
            return TypedLiteral(float(node.value) if target is ValueType.DOUBLE else node.value, target)
    checked = (
        (target is ValueType.MONEY and node.type is not ValueType.BOOLEAN)
        or (target is ValueType.STAMP and node.type is ValueType.DATE)
        or (node.type in _WIDE and target in _NARROW)
        or (node.type in _TIMES and target is ValueType.INT32)
    )
    if node.type is ValueType.NULL:
        return TypedLiteral(None, target)
    if node.type is ValueType.STRING:
        return TypedCall("convert_text", (node,), target)
    return TypedCall("convert_checked" if checked else "convert", (node,), target)
