"""The entries of the function table, and the rules by which functions accept types.

A rule takes the types of the arguments and returns the types that the function wants for them and the type of its result; the
checker inserts the conversions.

Implicit conversions are: int32 -> int64 -> double, integers -> money -> double, date -> stamp, null -> anything. A double takes the
nearest value of an int64 beyond 2^53 or of a money; a row fails if its integer has more than 14 digits and must become money. The
ESP dialect, whose dates and truth values are numbers, adds boolean -> numbers, numbers -> boolean, and date, stamp -> int64 (the
stored number). The function language of functional windows has no types: numbers, texts, truth values and times convert into each
other if the value can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.tree import Typed, TypedCall, ValueType
from hotspare.model.project import Dialect

INT32, INT64, DOUBLE, MONEY = ValueType.INT32, ValueType.INT64, ValueType.DOUBLE, ValueType.MONEY
STRING, BOOLEAN, NULL = ValueType.STRING, ValueType.BOOLEAN, ValueType.NULL
DATE, STAMP = ValueType.DATE, ValueType.STAMP
LIST, MAP = ValueType.LIST, ValueType.MAP

_NUMBERS = (INT32, INT64, MONEY, DOUBLE)
"""The numeric types from narrow to wide."""
_TIMES = (DATE, STAMP)
_LOOSE = (*_NUMBERS, STRING, BOOLEAN, *_TIMES)
"""The types that the function language converts into each other implicitly."""


@dataclass(frozen=True, slots=True)
class Signature:
    arguments: tuple[ValueType, ...]
    result: ValueType


class TypeMismatch(Exception):
    """Raised by a rule if the function does not accept arguments of these types, or this number of arguments."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Evaluator(Protocol):
    """The part of the evaluator that a lazy function uses to evaluate the arguments that it needs."""

    def evaluate_node(self, node: Typed, frame: Frame) -> Value: ...

    def can_fail(self, node: Typed) -> bool: ...


class Fallibility(Enum):
    """Whether evaluating a function can fail for a row. A branch of a choice that cannot fail is evaluated for all rows at once."""

    NEVER = "never"
    ROW = "row"


Rule: TypeAlias = Callable[[Sequence[ValueType], Dialect], Signature]
Evaluate: TypeAlias = Callable[[Evaluator, Frame, TypedCall], Value]
EagerKernel: TypeAlias = Callable[[Frame, TypedCall, list[Value]], Value]


@dataclass(frozen=True, slots=True)
class Function:
    """An entry of the function table. `spark_names` and `esp_names`: the lower-case names by which each dialect calls the function;
    operators and syntax have none.
    """

    name: str
    rule: Rule
    evaluate: Evaluate
    meaning: str
    spark_names: tuple[str, ...] = ()
    esp_names: tuple[str, ...] = ()
    fallibility: Fallibility = Fallibility.NEVER
    literal_arguments: tuple[int, ...] = ()
    """The indexes, from 0, of the arguments that must be literals."""
    pattern_arguments: tuple[int, ...] = ()
    """The indexes of the arguments that must be literals and regular expressions."""
    replacement_arguments: tuple[int, ...] = ()
    """The indexes of the arguments that must be literals and replacements for matches of the pattern."""


def eager(kernel: EagerKernel) -> Evaluate:
    """Returns an evaluation that computes all arguments from left to right, then calls the kernel with their values."""

    def evaluate(evaluator: Evaluator, frame: Frame, call: TypedCall) -> Value:
        return kernel(frame, call, [evaluator.evaluate_node(a, frame) for a in call.arguments])

    return evaluate


@dataclass(frozen=True, slots=True)
class ValueFunction:
    """An eager kernel and a function of Python values with equal results. The function gets no null, since a null argument gives
    null, and raises for no value.
    """

    kernel: EagerKernel
    function: Callable[..., object]

    def __call__(self, evaluator: Evaluator, frame: Frame, call: TypedCall) -> Value:
        return self.kernel(frame, call, [evaluator.evaluate_node(a, frame) for a in call.arguments])


def infallible(kernel: Callable[..., Value]) -> Evaluate:
    """Returns the evaluation of a kernel over Arrow values that is elementwise and raises for no value."""
    return eager(lambda _frame, _call, arguments: kernel(*arguments))


def can_convert(source: ValueType, target: ValueType, dialect: Dialect) -> bool:
    """Whether `source` converts to `target` implicitly in this dialect."""
    if can_widen(source, target, dialect):
        return True
    return dialect is Dialect.FUNCTIONS and source in _LOOSE and target in _LOOSE


def can_widen(source: ValueType, target: ValueType, dialect: Dialect) -> bool:
    """Whether `source` converts to `target` by the implicit conversions of the module's docstring, without those that only the
    function language adds (from a text, for example).
    """
    if source is target or source is NULL:
        return True
    if source in _NUMBERS and target in _NUMBERS:
        return _NUMBERS.index(source) < _NUMBERS.index(target)
    if source is DATE and target is STAMP:
        return True
    if not dialect.is_sas:
        return False
    if target is BOOLEAN:
        return source in _NUMBERS
    if source is BOOLEAN:
        return target in _NUMBERS
    return source in _TIMES and target is INT64


def common_type(types: Sequence[ValueType], dialect: Dialect) -> ValueType:
    """Returns the narrowest type to which all `types` convert, NULL if all are NULL. Raises TypeMismatch if no such type exists."""
    found = [t for t in dict.fromkeys(types) if t is not NULL]
    if not found:
        return NULL
    if len(types) > 1 and (LIST in found or MAP in found):
        raise TypeMismatch("lists and maps cannot be compared or chosen", "take a value out of them")
    for candidate in (*found, *_NUMBERS, STAMP):
        if all(can_widen(t, candidate, dialect) for t in found) and (candidate is not BOOLEAN or set(found) == {BOOLEAN}):
            return candidate
    if dialect is Dialect.FUNCTIONS and STRING in found and all(t in _LOOSE for t in found):
        return STRING
    raise TypeMismatch(f"{' and '.join(t.value for t in found)} have no common type", "cast one of them")


def comparison_type(types: Sequence[ValueType], dialect: Dialect) -> ValueType:
    """Returns the type in which values of these types are compared. In the function language a text that is compared with numbers
    counts as a number.
    """
    if dialect is Dialect.FUNCTIONS and STRING in types and any(t in (*_NUMBERS, BOOLEAN, *_TIMES) for t in types):
        return numeric_type(types, dialect)
    return common_type(types, dialect)


def numeric_type(types: Sequence[ValueType], dialect: Dialect) -> ValueType:
    """Returns the common numeric type of these types for arithmetic; the ESP dialect uses int64 for all integers."""
    for t in types:
        is_loose = (dialect.is_sas and (t is BOOLEAN or t in _TIMES)) or (dialect is Dialect.FUNCTIONS and t is STRING)
        if not (t is NULL or t in _NUMBERS or is_loose):
            raise TypeMismatch(f"{t.value} is not a number", "cast it" if t is STRING else "")
    if dialect.is_sas:
        types = [INT64 if t in (BOOLEAN, INT32, DATE, STAMP) else DOUBLE if t is STRING else t for t in types]
    widest = common_type(types, dialect)
    return INT32 if widest is NULL else widest


def fixed_rule(result: ValueType, *parameters: ValueType, required: int = -1) -> Rule:
    """Returns a rule for arguments of the types `parameters`. Arguments after the first `required` are optional; -1: all are
    required.
    """
    least = len(parameters) if required < 0 else required

    def rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
        check_argument_count(types, least, len(parameters))
        for i, (have, want) in enumerate(zip(types, parameters, strict=False)):
            if not can_convert(have, want, dialect):
                raise TypeMismatch(f"argument {i + 1} has type {have.value}, not {want.value}", f"cast it to {want.value}")
        return Signature(tuple(parameters[: len(types)]), result)

    return rule


def arithmetic_rule(count: int) -> Rule:
    """Returns a rule for `count` numbers (-1: one or more) that are converted to their common type, which is also the
    result type.
    """

    def rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
        check_argument_count(types, 1 if count < 0 else count, len(types) if count < 0 else count)
        widest = numeric_type(types, dialect)
        return Signature((widest,) * len(types), widest)

    return rule


def same_type_rule(least: int, most: int, result: ValueType | None = None) -> Rule:
    """Returns a rule for `least` to `most` arguments (-1: no maximum) that are converted to one common type. The result type is
    `result`, or the common type if `result` is None. With `result` the common type is the type for comparisons.
    """

    def rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
        check_argument_count(types, least, len(types) if most < 0 else most)
        shared = common_type(types, dialect) if result is None else comparison_type(types, dialect)
        shared = STRING if shared is NULL and result is not None else shared
        return Signature((shared,) * len(types), result or shared)

    return rule


def variadic_rule(result: ValueType, parameter: ValueType, least: int = 1) -> Rule:
    """Returns a rule for `least` or more arguments of the type `parameter`, with the result type `result`."""

    def rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
        return fixed_rule(result, *(parameter,) * max(least, len(types)))(types, dialect)

    return rule


def check_argument_count(types: Sequence[ValueType], least: int, most: int) -> None:
    if least <= len(types) <= max(least, most):
        return
    wanted = str(least) if least >= most else f"{least} to {most}"
    raise TypeMismatch(f"{len(types)} arguments given, not {wanted}", "give as many as it takes")
