"""Dates and stamps, always in UTC."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.engine.expressions.frame import Frame, Value
from hotspare.engine.expressions.function import (
    INT32,
    INT64,
    STAMP,
    STRING,
    Evaluate,
    Fallibility,
    Function,
    eager,
    fixed,
    plain,
)
from hotspare.engine.expressions.tree import TypedCall
from hotspare.engine.rows.elementwise import whole_seconds

TRUNC_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


def _part(kernel: Callable[[Value], Value]) -> Evaluate:
    return plain(lambda stamp: pc.cast(kernel(stamp), INT32.arrow))


def _weekday(count_from_zero: pa.Scalar, first: int) -> Evaluate:
    """The day of the week, the ISO day `first` being the first."""
    zero = count_from_zero.as_py()
    return _part(lambda stamp: pc.day_of_week(stamp, count_from_zero=zero, week_start=first))


def _micros(stamp: Value) -> Value:
    return pc.cast(stamp, INT64.arrow)


def _seconds(stamp: Value) -> Value:
    return pc.cast(whole_seconds(stamp), INT64.arrow)


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
    return frame.refuse(begin, pc.greater(begin, stamp), "date_trunc: the result exceeds stamp")


_PART = fixed(INT32, STAMP)

FUNCTIONS: tuple[Function, ...] = (
    Function("year", _PART, _part(pc.year), "year", ("year",), ("year", "timeyear")),
    Function("quarter", _PART, _part(pc.quarter), "quarter, 1 to 4", ("quarter",), ("quarter",)),
    Function("month", _PART, _part(pc.month), "month, 1 to 12", ("month",), ("month", "timemonth")),
    Function("day", _PART, _part(pc.day), "day of the month", ("day", "dayofmonth"), ("day", "timedayofmonth")),
    Function("dayofyear", _PART, _part(pc.day_of_year), "day of the year", ("dayofyear",), ("timedayofyear",)),
    Function("dayofweek", _PART, _weekday(pa.scalar(value=False), 7), "day of the week, Sunday is 1", ("dayofweek",)),
    Function("weekday", _PART, _weekday(pa.scalar(value=True), 1), "day of the week, Monday is 0", ("weekday",)),
    Function("timedayofweek", _PART, _weekday(pa.scalar(value=True), 7), "day of the week, Sunday is 0", esp=("timedayofweek",)),
    Function("hour", _PART, _part(pc.hour), "hour", ("hour",), ("hour", "timehour")),
    Function("minute", _PART, _part(pc.minute), "minute", ("minute",), ("minute", "timeminute")),
    Function("second", _PART, _part(pc.second), "second", ("second",), ("second", "timesecond")),
    Function("unix_micros", fixed(INT64, STAMP), plain(_micros), "microseconds since 1970", ("unix_micros",), ("unix_micros",)),
    Function(
        "unix_seconds",
        fixed(INT64, STAMP),
        plain(_seconds),
        "seconds since 1970, rounded down",
        ("unix_seconds",),
        ("unix_seconds",),
    ),
    Function(
        "timestamp_micros",
        fixed(STAMP, INT64),
        _from_number(1),
        "the stamp of microseconds since 1970",
        ("timestamp_micros",),
        ("timestamp_micros",),
        Fallibility.ROW,
    ),
    Function(
        "timestamp_seconds",
        fixed(STAMP, INT64),
        _from_number(1_000_000),
        "the stamp of seconds since 1970",
        ("timestamp_seconds",),
        ("timestamp_seconds",),
        Fallibility.ROW,
    ),
    Function(
        "date_trunc",
        fixed(STAMP, STRING, STAMP),
        eager(_truncate),
        f"date_trunc(unit, t): the beginning of the {', '.join(TRUNC_UNITS)}; what lies before the least stamp fails",
        ("date_trunc",),
        ("date_trunc",),
        Fallibility.ROW,
        (0,),
    ),
)
