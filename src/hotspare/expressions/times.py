"""The functions of dates and stamps, which are always in UTC."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import (
    DATE,
    INT32,
    INT64,
    NULL,
    STAMP,
    STRING,
    Evaluate,
    Fallibility,
    Function,
    Rule,
    Signature,
    check_argument_count,
    eager,
    fixed_rule,
    infallible,
)
from hotspare.expressions.tree import TypedCall, ValueType
from hotspare.model.project import Dialect
from hotspare.rows.elementwise import whole_seconds, with_nulls
from hotspare.rows.times import DateFormat

TRUNC_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


def _part(kernel: Callable[[Value], Value]) -> Evaluate:
    return infallible(lambda moment: pc.cast(kernel(_within_stamp_range(moment)), INT32.arrow))


def _within_stamp_range(moment: Value) -> Value:
    """Returns a stamp unchanged, and a date unchanged if a stamp can hold its seconds, else null."""
    if moment.type == STAMP.arrow:
        return moment
    seconds = pc.cast(moment, INT64.arrow)
    inside = pc.and_(pc.less_equal(seconds, _SECONDS_MAX), pc.greater_equal(seconds, pc.negate(_SECONDS_MAX)))
    return pc.if_else(inside, moment, pa.scalar(None, DATE.arrow))


_SECONDS_MAX = pa.scalar((2**63 - 1) // 1_000_000, pa.int64())


def _weekday(count_from_zero: pa.Scalar, first: int) -> Evaluate:
    """Returns an evaluation of the day of the week. `first`: the ISO number of the first day of the week. `count_from_zero`:
    whether that day is 0, else 1.
    """
    zero = count_from_zero.as_py()
    return _part(lambda stamp: pc.day_of_week(stamp, count_from_zero=zero, week_start=first))


def _micros(stamp: Value) -> Value:
    return pc.cast(stamp, INT64.arrow)


def _seconds(stamp: Value) -> Value:
    return pc.cast(whole_seconds(stamp), INT64.arrow)


def _seconds_of_moment(moment: Value) -> Value:
    return _seconds(moment) if moment.type == STAMP.arrow else pc.cast(moment, INT64.arrow)


def _from_number(factor: int) -> Evaluate:
    def evaluate(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
        micros = frame.attempt(
            lambda number: pc.multiply_checked(number, pa.scalar(factor, pa.int64())),
            arguments,
            "the number is too large for a stamp",
            INT64.arrow,
        )
        return pc.cast(micros, STAMP.arrow)

    return eager(evaluate)


def _truncate(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    unit, stamp = str(arguments[0].as_py()).lower(), arguments[1]
    begin = pc.floor_temporal(stamp, unit=unit, week_starts_monday=True)
    return frame.fail_where(begin, pc.greater(begin, stamp), "date_trunc: the result exceeds stamp")


def _time_rule(result: ValueType, *rest: ValueType, least: int = 1) -> Rule:
    """Returns a rule for a time and further arguments `rest`. The time is a stamp; the function language also accepts a number,
    which is a date in seconds.
    """

    def rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
        check_argument_count(types, least, 1 + len(rest))
        is_number = dialect is Dialect.FUNCTIONS and bool(types) and types[0] not in (STAMP, NULL)
        return fixed_rule(result, DATE if is_number else STAMP, *rest, required=least)(types, dialect)

    return rule


def _formatted(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    format_ = arguments[1].as_py() if len(arguments) > 1 else DEFAULT_FORMAT
    if format_ is None:
        return pa.scalar(None, pa.string())
    stamps = frame.array(arguments[0])
    whole = whole_seconds(stamps) if stamps.type == STAMP.arrow else _within_stamp_range(stamps)
    return pc.strftime(whole, format=format_)


def _parsed(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    format_ = arguments[1].as_py() if len(arguments) > 1 else DEFAULT_FORMAT
    if format_ is None:
        return pa.scalar(None, call.type.arrow)
    texts = frame.array(arguments[0])
    values, bad = DateFormat.from_format(format_).parse(texts, DATE.arrow)
    frame.fail(bad, "the text is not a time of this format")
    return with_nulls(pc.cast(values, INT64.arrow), bad)


def check_format(text: str) -> None:
    """Raises ValueError if the format `text`, for writing a time, contains a directive other than those of `_WRITTEN`."""
    unknown = [piece for piece in re.findall(r"%.?", text) if piece[1:] not in _WRITTEN]
    if unknown:
        raise ValueError(f"{unknown[0]} is not a directive of a format")


DEFAULT_FORMAT = "%Y-%m-%d %H:%M:%S"
_WRITTEN = tuple("aAbBCdDeFgGhHIjmMnprRStTuUVwWyYzZ%")
"""The directives of strftime whose results do not depend on the machine's settings."""


def _units_since_midnight(divisor: int) -> Evaluate:
    """Returns an evaluation of the number of complete units since midnight UTC; a unit has `divisor` seconds."""

    def evaluate(moment: Value) -> Value:
        seconds = pc.cast(whole_seconds(moment) if moment.type == STAMP.arrow else _within_stamp_range(moment), INT64.arrow)
        rest = pc.subtract(seconds, pc.multiply(pc.divide(seconds, _DAY), _DAY))
        rest = pc.if_else(pc.less(rest, 0), pc.add(rest, _DAY), rest)
        return pc.cast(pc.divide(rest, pa.scalar(divisor, pa.int64())), INT32.arrow)

    return infallible(evaluate)


_DAY = pa.scalar(86_400, pa.int64())
_PART = _time_rule(INT32)

FUNCTIONS: tuple[Function, ...] = (
    Function("year", _PART, _part(pc.year), "year", ("year",), ("year", "timeyear")),
    Function("quarter", _PART, _part(pc.quarter), "quarter, 1 to 4", ("quarter",), ("quarter",)),
    Function("month", _PART, _part(pc.month), "month, 1 to 12", ("month",), ("month", "timemonth")),
    Function("day", _PART, _part(pc.day), "day of the month", ("day", "dayofmonth"), ("day", "timedayofmonth")),
    Function("dayofyear", _PART, _part(pc.day_of_year), "day of the year", ("dayofyear",), ("timedayofyear",)),
    Function("dayofweek", _PART, _weekday(pa.scalar(value=False), 7), "day of the week, Sunday is 1", ("dayofweek",)),
    Function("weekday", _PART, _weekday(pa.scalar(value=True), 1), "day of the week, Monday is 0", ("weekday",)),
    Function(
        "timedayofweek", _PART, _weekday(pa.scalar(value=True), 7), "day of the week, Sunday is 0", esp_names=("timedayofweek",)
    ),
    Function("hour", _PART, _part(pc.hour), "hour", ("hour",), ("hour", "timehour")),
    Function("minute", _PART, _part(pc.minute), "minute", ("minute",), ("minute", "timeminute")),
    Function("second", _PART, _part(pc.second), "second", ("second",), ("second", "timesecond")),
    Function(
        "unix_micros", fixed_rule(INT64, STAMP), infallible(_micros), "microseconds since 1970", ("unix_micros",), ("unix_micros",)
    ),
    Function(
        "unix_seconds",
        fixed_rule(INT64, STAMP),
        infallible(_seconds),
        "seconds since 1970, rounded down",
        ("unix_seconds",),
        ("unix_seconds",),
    ),
    Function(
        "timestamp_micros",
        fixed_rule(STAMP, INT64),
        _from_number(1),
        "the stamp of microseconds since 1970",
        ("timestamp_micros",),
        ("timestamp_micros",),
        Fallibility.ROW,
    ),
    Function(
        "timestamp_seconds",
        fixed_rule(STAMP, INT64),
        _from_number(1_000_000),
        "the stamp of seconds since 1970",
        ("timestamp_seconds",),
        ("timestamp_seconds",),
        Fallibility.ROW,
    ),
    Function(
        "date_trunc",
        fixed_rule(STAMP, STRING, STAMP),
        eager(_truncate),
        f"date_trunc(unit, t): the beginning of the {', '.join(TRUNC_UNITS)}; fails below the least stamp",
        ("date_trunc",),
        ("date_trunc",),
        Fallibility.ROW,
        (0,),
    ),
    Function("minute_of_day", _PART, _units_since_midnight(60), "minutes of the day", esp_names=("timeminuteofday",)),
    Function("second_of_day", _PART, _units_since_midnight(1), "seconds of the day", esp_names=("timesecondofday",)),
    Function(
        "time_string",
        _time_rule(STRING, STRING),
        eager(_formatted),
        "timeString(t[, format]): as text, by the directives of strftime; in seconds, UTC",
        esp_names=("timestring", "timegmtstring", "formatdate"),
        literal_arguments=(1,),
    ),
    Function(
        "time_parse",
        fixed_rule(INT64, STRING, STRING, required=1),
        eager(_parsed),
        "timeParse(s[, format]): the seconds since 1970 of a text, by the directives of strptime; any other text fails",
        esp_names=("timeparse",),
        fallibility=Fallibility.ROW,
        literal_arguments=(1,),
    ),
    Function(
        "time_same",
        _time_rule(INT64),
        infallible(_seconds_of_moment),
        "seconds since 1970: local time is UTC",
        esp_names=("timegmttolocal", "timelocaltogmt", "timeseconds"),
    ),
)
