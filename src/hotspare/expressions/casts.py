"""Conversions between types: explicit (`cast`), implicit (`convert`), and on assignment to a narrower field (`assign`).

`cast` follows ANSI SQL: dates and stamps as numbers are in seconds, doubles lose their fraction toward zero, texts must fit.
`convert` and `assign` take dates and stamps as the stored numbers (seconds, microseconds), as ESP does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INT32,
    INT64,
    MONEY,
    NULL,
    STAMP,
    STRING,
    Evaluate,
    Fallibility,
    Function,
    Signature,
    can_convert,
    eager,
)
from hotspare.expressions.tree import TypedCall, ValueType
from hotspare.model.project import Dialect
from hotspare.model.types import FieldType
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.elementwise import whole_seconds, with_nulls
from hotspare.rows.values import numbers, parse

Conversion: TypeAlias = Callable[[Frame, Value, ValueType, BadReason], Value]

_INTEGERS = (INT32, INT64)
_NUMBERS = (INT32, INT64, MONEY, DOUBLE)
_BOUND = {INT32: 2.0**31, INT64: 2.0**63}
_DECIMALS_OF_INT64 = pa.decimal128(23, 4)
_TRUE_TEXTS = ("t", "true", "y", "yes", "1")
_FALSE_TEXTS = ("f", "false", "n", "no", "0")


def _arrow_cast(frame: Frame, value: Value, target: ValueType, reason: BadReason) -> Value:
    if target is DOUBLE:
        return pc.cast(value, target.arrow, safe=False)
    try:
        return pc.cast(value, target.arrow)
    except pa.ArrowInvalid:
        return _fitted(frame, lambda v: pc.cast(v, target.arrow), value, target, reason)


def _fitted(frame: Frame, kernel: Callable[[Value], Value], value: Value, target: ValueType, reason: BadReason) -> Value:
    return frame.attempt(kernel, [value], f"the number does not fit {target.value}", target.arrow, reason)


def _double_to_integer(frame: Frame, value: Value, target: ValueType, reason: BadReason) -> Value:
    whole, bound = pc.trunc(value), _BOUND[target]
    inside = pc.and_(pc.greater_equal(whole, -bound), pc.less(whole, bound))
    whole = frame.fail_where(whole, pc.invert(inside), f"the number does not fit {target.value}", reason)
    return pc.cast(whole, target.arrow, safe=False)


def _integer_to_money(frame: Frame, value: Value, target: ValueType, reason: BadReason) -> Value:
    wide = pc.cast(pc.cast(value, INT64.arrow), _DECIMALS_OF_INT64)
    return _fitted(frame, lambda v: pc.cast(v, MONEY.arrow), wide, target, reason)


def _money_to_integer(frame: Frame, value: Value, target: ValueType, reason: BadReason) -> Value:
    whole = pc.round(value, ndigits=0, round_mode="towards_zero")
    return _fitted(frame, lambda v: pc.cast(v, target.arrow), whole, target, reason)


def _text_to_value(frame: Frame, value: Value, target: ValueType, reason: BadReason) -> Value:
    type_ = FieldType(target.value)
    values, bad = (numbers if type_ is FieldType.DOUBLE else parse)(frame.array(value), type_)
    frame.fail(bad, f"the text does not fit {target.value}", reason)
    return values


def _text_to_boolean(frame: Frame, value: Value, _target: ValueType, reason: BadReason) -> Value:
    text = pc.utf8_lower(pc.utf8_trim_whitespace(frame.array(value)))
    true, false = (pc.is_in(text, pa.array(words)) for words in (_TRUE_TEXTS, _FALSE_TEXTS))
    unknown = pc.and_(pc.invert(pc.or_(true, false)), pc.is_valid(text))
    return frame.fail_where(pc.if_else(pc.is_valid(text), true, None), unknown, "the text does not fit boolean", reason)


def _number_to_boolean(_frame: Frame, value: Value, _target: ValueType, _reason: BadReason) -> Value:
    return pc.not_equal(value, pa.scalar(Decimal(0) if value.type == MONEY.arrow else 0, value.type))


def _boolean_to_number(frame: Frame, value: Value, target: ValueType, reason: BadReason) -> Value:
    whole = pc.cast(value, INT32.arrow)
    return _integer_to_money(frame, whole, target, reason) if target is MONEY else pc.cast(whole, target.arrow)


def _double_to_text(frame: Frame, value: Value, _target: ValueType, _reason: BadReason) -> Value:
    return pa.array([None if v is None else double_text(v) for v in frame.array(value).to_pylist()], pa.string())


def double_text(value: float) -> str:
    """Returns the shortest exact text in SQL's form: 1.0, 1.5E10, NaN, Infinity."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    digits = repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return digits if "e" not in digits else f"{value:f}"
    mantissa, _, exponent = f"{value:.16e}".partition("e")
    for precision in range(17):
        shorter = f"{value:.{precision}e}"
        if float(shorter) == value:
            mantissa, _, exponent = shorter.partition("e")
            break
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _time_to_text(frame: Frame, value: Value, target: ValueType, reason: BadReason) -> Value:
    """Returns dates and stamps as text in UTC. A fraction of a second has no trailing zeros; a zero fraction is omitted with its
    point.
    """
    text = pc.strftime(frame.array(value), format="%Y-%m-%d %H:%M:%S")
    return pc.replace_substring_regex(pc.replace_substring_regex(text, r"(\.[0-9]*[1-9])0+$", r"\1"), r"\.0*$", "")


def _stamp_to_date(_frame: Frame, value: Value, _target: ValueType, _reason: BadReason) -> Value:
    return whole_seconds(value)


def _time_to_number(frame: Frame, value: Value, target: ValueType, reason: BadReason) -> Value:
    dates = value if value.type == DATE.arrow else whole_seconds(value)
    return _arrow_cast(frame, pc.cast(dates, INT64.arrow), target, reason)


def _number_to_time(frame: Frame, value: Value, target: ValueType, reason: BadReason) -> Value:
    seconds = pc.cast(pc.cast(value, INT64.arrow), DATE.arrow)
    return _fitted(frame, lambda v: pc.cast(v, target.arrow), seconds, target, reason)


def _time_to_stored_number(frame: Frame, value: Value, target: ValueType, reason: BadReason) -> Value:
    return _arrow_cast(frame, pc.cast(value, INT64.arrow), target, reason)


def _time_to_stored_money(frame: Frame, value: Value, target: ValueType, reason: BadReason) -> Value:
    return _integer_to_money(frame, pc.cast(value, INT64.arrow), target, reason)


def _stored_number_to_time(frame: Frame, value: Value, target: ValueType, reason: BadReason) -> Value:
    if value.type == DOUBLE.arrow:
        value = _double_to_integer(frame, value, INT64, reason)
    elif value.type == MONEY.arrow:
        value = _money_to_integer(frame, value, INT64, reason)
    elif value.type == BOOLEAN.arrow:
        value = pc.cast(value, INT32.arrow)
    return pc.cast(pc.cast(value, INT64.arrow), target.arrow)


def _time_to_stored_boolean(_frame: Frame, value: Value, _target: ValueType, _reason: BadReason) -> Value:
    return pc.not_equal(pc.cast(value, INT64.arrow), 0)


def _money_to_double(_frame: Frame, value: Value, _target: ValueType, _reason: BadReason) -> Value:
    """Returns the double nearest to each money value; Arrow's own conversion may miss it."""
    return pc.cast(pc.cast(value, STRING.arrow), DOUBLE.arrow)


def _double_to_money(frame: Frame, value: Value, target: ValueType, reason: BadReason) -> Value:
    return _fitted(frame, lambda v: pc.cast(v, MONEY.arrow), value, target, reason)


def _table() -> dict[tuple[ValueType, ValueType], Conversion]:
    table: dict[tuple[ValueType, ValueType], Conversion] = {}
    for integer in _INTEGERS:
        table |= {(integer, other): _arrow_cast for other in (*_INTEGERS, DOUBLE, STRING) if other is not integer}
        table |= {(integer, MONEY): _integer_to_money, (MONEY, integer): _money_to_integer, (DOUBLE, integer): _double_to_integer}
    for kind in _NUMBERS:
        table |= {(kind, BOOLEAN): _number_to_boolean, (BOOLEAN, kind): _boolean_to_number, (STRING, kind): _text_to_value}
    table |= {(MONEY, DOUBLE): _money_to_double, (DOUBLE, MONEY): _double_to_money, (MONEY, STRING): _arrow_cast}
    table |= {(DOUBLE, STRING): _double_to_text, (BOOLEAN, STRING): _arrow_cast, (STRING, BOOLEAN): _text_to_boolean}
    table |= {(DATE, STAMP): _arrow_cast, (STAMP, DATE): _stamp_to_date}
    for time in (DATE, STAMP):
        table |= {(time, STRING): _time_to_text, (STRING, time): _text_to_value}
    return table


_CAST = _table()
_CAST |= {(time, number): _time_to_number for time in (DATE, STAMP) for number in (INT32, INT64)}
_CAST |= {(number, time): _number_to_time for time in (DATE, STAMP) for number in (INT32, INT64)}
_STORED = _table()
_STORED |= {(time, number): _time_to_stored_number for time in (DATE, STAMP) for number in (INT32, INT64, DOUBLE)}
_STORED |= {(time, MONEY): _time_to_stored_money for time in (DATE, STAMP)}
_STORED |= {(number, time): _stored_number_to_time for time in (DATE, STAMP) for number in (INT32, INT64, MONEY, DOUBLE, BOOLEAN)}
_STORED |= {(time, BOOLEAN): _time_to_stored_boolean for time in (DATE, STAMP)}


def is_castable(source: ValueType, target: ValueType) -> bool:
    """Whether an explicit cast can convert values of `source` to `target`."""
    return source is target or source is NULL or (source, target) in _CAST


def is_assignable(source: ValueType, target: ValueType, dialect: Dialect) -> bool:
    """Whether a value of `source` may be assigned to a field of `target` without a cast. Only the SAS dialects allow narrowing
    numbers.
    """
    if can_convert(source, target, dialect):
        return True
    if not dialect.is_sas or STRING in (source, target) or BOOLEAN is target:
        return False
    return (source, target) in _STORED


def _conversion(table: dict[tuple[ValueType, ValueType], Conversion], reason: BadReason) -> Evaluate:
    def evaluate(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
        source = call.arguments[0].type
        if source is call.type:
            return arguments[0]
        return table[source, call.type](frame, arguments[0], call.type, reason)

    return eager(evaluate)


def _try_cast(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    """Returns the value converted as by `cast`; a row for which the cast fails is null."""
    source, inner = call.arguments[0].type, Frame({}, frame.length)
    if source is call.type:
        return arguments[0]
    value = inner.array(_CAST[source, call.type](inner, arguments[0], call.type, BadReason.EXPRESSION))
    return with_nulls(value, inner.failed_rows())


def _read_text(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    """Returns each text converted to the type of the call, null for a blank text. A row with an invalid text fails."""
    text = frame.array(arguments[0])
    text = pc.if_else(pc.match_substring_regex(text, r"^\s*$"), pa.scalar(None, pa.string()), text)
    return _STORED[STRING, call.type](frame, text, call.type, BadReason.EXPRESSION)


def _never(types: Sequence[ValueType], dialect: Dialect) -> Signature:
    raise AssertionError("the checker types conversions itself")


ROW = Fallibility.ROW

FUNCTIONS: tuple[Function, ...] = (
    Function(
        "cast",
        _never,
        _conversion(_CAST, BadReason.EXPRESSION),
        "cast(x as type); fails if the value does not fit",
        fallibility=ROW,
    ),
    Function("try_cast", _never, eager(_try_cast), "try_cast(x as type); null if the value does not fit"),
    Function("convert_text", _never, eager(_read_text), "a text as the value that it is; null if it is blank", fallibility=ROW),
    Function("convert", _never, _conversion(_STORED, BadReason.EXPRESSION), "implicit conversion"),
    Function(
        "convert_checked",
        _never,
        _conversion(_STORED, BadReason.EXPRESSION),
        "implicit conversion that may fail",
        fallibility=ROW,
    ),
    Function("assign", _never, _conversion(_STORED, BadReason.NUMBER_RANGE), "assignment to a narrower field", fallibility=ROW),
)
