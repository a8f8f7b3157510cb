"""Converts between field values and values of user code, in both directions.

| field | code sees | code may give |
|---|---|---|
| int32, int64 | a whole number | a number (its fraction is dropped), a truth value, a text that is a whole number |
| double | a number | a number, a truth value, a text that is a number |
| money | a number: the nearest double | a number (rounded to four decimals), a text that is one |
| string | text | text, bytes that are UTF-8, a number or truth value as text |
| date, stamp | seconds or microseconds since 1970, whole | a number (its fraction is dropped), an ISO 8601 text |
| blob | bytes | bytes, a text as UTF-8 |
| array | a list of numbers, nulls among them | a list of values for a field of its elements, a text such as `[1;2]` |

Code does not see a null field. A field that code omits is null. So is NaN in a field whose type has no NaN. A number that does not
fit is a bad event `number-range`, another value that the field cannot hold a bad event `code`.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import pyarrow as pa

from hotspare.model.types import TIME_TYPES, FieldType
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.batch import ARROW_TYPE
from hotspare.rows.values import parse

_WHOLE = {FieldType.INT32: 31, FieldType.INT64: 63, FieldType.DATE: 63, FieldType.STAMP: 63}
_ELEMENTS = {
    FieldType.INT32_ARRAY: FieldType.INT32,
    FieldType.INT64_ARRAY: FieldType.INT64,
    FieldType.DOUBLE_ARRAY: FieldType.DOUBLE,
}
"""The element type of each array type."""
_MONEY_MAX = Decimal(10) ** 14
_MONEY_UNIT = Decimal("0.0001")
_DIGITS_MAX = 1 << 128
"""The bound below which a whole number is written in digits; digits of larger numbers cost too much time."""


class Unfit(Exception):
    """Raised if a field cannot hold a value. `reason`: the reason of the bad event."""

    def __init__(self, text: str, reason: BadReason = BadReason.CODE) -> None:
        super().__init__(text)
        self.reason = reason


def column_values(column: pa.Array, type_: FieldType) -> list[Any]:
    """Returns the values of a column, of type `ARROW_TYPE[type_]`, as code sees them; None for null."""
    if type_ in TIME_TYPES:
        column = column.cast(pa.int64())
    elif type_ is FieldType.MONEY:
        column = column.cast(pa.float64())
    if not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        numbers: list[Any] = column.to_numpy().tolist()  # in half the time
        return numbers
    values: list[Any] = column.to_pylist()
    return values


class ColumnBuilder:
    """Builds a column for a field of one type, value by value."""

    def __init__(self, type_: FieldType) -> None:
        self._type = type_
        self._element = ColumnBuilder(_ELEMENTS[type_]) if type_ in _ELEMENTS else None
        self._values: list[Any] = []

    def append(self, fitted: Any) -> None:
        """Appends `fitted`, a result of the method `fitted`, to the column."""
        self._values.append(fitted)

    def array(self) -> pa.Array:
        """Returns the column of all appended values, of type `ARROW_TYPE`."""
        if self._type in TIME_TYPES:
            return pa.array(self._values, pa.int64()).cast(ARROW_TYPE[self._type])
        return pa.array(self._values, ARROW_TYPE[self._type])

    def fitted(self, value: Any) -> Any:
        """Returns `value` converted to the field's type. Raises Unfit if the field cannot hold it."""
        if value is None:
            return None
        if self._type is FieldType.STRING:
            return _text(value)
        if self._type is FieldType.BLOB:
            return _blob(value)
        if isinstance(value, str):
            return self._parsed(value)
        if self._element is not None and isinstance(value, list | tuple):
            return [self._element.fitted(each) for each in value]
        if self._element is not None or not isinstance(value, bool | int | float):
            raise Unfit(f"{_named(value)} is not a value of a field of type {self._type.value}")
        if isinstance(value, float) and math.isnan(value):
            return value if self._type is FieldType.DOUBLE else None
        if self._type is FieldType.DOUBLE:
            return _double(value)
        return _money(value) if self._type is FieldType.MONEY else _whole(value, self._type)

    def _parsed(self, text: str) -> Any:
        found, unfit = parse(pa.array([text], pa.string()), self._type)
        if len(unfit):
            raise Unfit(f"the text {text[:100]!r} is not a value of a field of type {self._type.value}")
        return (found.cast(pa.int64()) if self._type in TIME_TYPES else found)[0].as_py()


def _whole(value: float, type_: FieldType) -> int:
    bits = _WHOLE[type_]
    if not (isinstance(value, float) and math.isinf(value)):
        whole = int(value)
        if -(1 << bits) <= whole < 1 << bits:
            return whole
    raise Unfit(f"{_named(value)} does not fit {type_.value}", BadReason.NUMBER_RANGE)


def _double(value: float) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise Unfit(f"{_named(value)} does not fit double", BadReason.NUMBER_RANGE) from error


def _money(value: float) -> Decimal:
    if not (isinstance(value, float) and math.isinf(value)) and abs(value) < _MONEY_MAX:
        exact = Decimal(int(value) if isinstance(value, bool) else value).quantize(_MONEY_UNIT, ROUND_HALF_EVEN)
        if abs(exact) < _MONEY_MAX:
            return exact
    raise Unfit(f"{_named(value)} does not fit money", BadReason.NUMBER_RANGE)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise Unfit("the bytes are not UTF-8 text") from error
    if isinstance(value, str):
        if not value.isascii() and not _is_unicode(value):
            raise Unfit("the text holds half a character")
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < _DIGITS_MAX):
        return str(value)
    raise Unfit(f"{_named(value)} is not a value of a field of type string")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _blob(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str) and _is_unicode(value):
        return value.encode()
    raise Unfit(f"{_named(value)} is not a value of a field of type blob")


def _named(value: Any) -> str:
    """Returns a text for messages: the number itself, or the kind of the value if it is not a number or has too many digits."""
    if isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < _DIGITS_MAX):
        return str(value)
    return "a whole number of many digits" if isinstance(value, int) else describe_kind(value)


def describe_kind(value: Any) -> str:
    """Returns words for the kind of a value, such as "nothing" or "a list", for messages."""
    if value is None:
        return "nothing"
    return _KINDS.get(type(value), f"a {type(value).__name__}")


_KINDS = {bool: "a truth value", int: "a number", float: "a number", str: "a text", bytes: "bytes", list: "a list", dict: "a table"}
