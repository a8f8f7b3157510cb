"""Converts times of a source to the notation of inbound topics: from a date format, or from numbers of another unit (SPEC I5)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from enum import Enum
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.base.errors import UsageError
from hotspare.formats.csv.grammar import grammar
from hotspare.formats.csv.rows import RowPrefix
from hotspare.formats.json.decode import decode_json
from hotspare.model.types import TIME_TYPES, FieldType, Schema
from hotspare.rows.batch import ARROW_TYPE, MessageFormat
from hotspare.rows.times import DateFormat
from hotspare.rows.values import parse

_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
_DIGITS_MAX = 40
"""A number with more digits before its point is not a time, and is left unchanged."""
_FLOOR = Context(prec=2 * _DIGITS_MAX, rounding=ROUND_FLOOR)
EARLY_YEAR = 1971
_EARLY_US = (EARLY_YEAR - 1970) * 365 * 86_400_000_000


class StampUnit(Enum):
    """The unit of the numbers in fields of type stamp, since 1970; the value is the number of units per second."""

    SECONDS = 1
    MILLISECONDS = 1_000
    MICROSECONDS = 1_000_000


UNIT_WORDS = {unit.name.lower(): unit for unit in StampUnit} | {
    "s": StampUnit.SECONDS,
    "ms": StampUnit.MILLISECONDS,
    "us": StampUnit.MICROSECONDS,
}


def parse_stamp_unit(text: str, option: str) -> StampUnit:
    """Returns the unit with this name, microseconds for "". UsageError, naming the option, for an unknown one."""
    word = text.strip().lower() or "us"
    if word not in UNIT_WORDS:
        raise UsageError(f"{option} is {text!r}: not a unit", hint="use seconds, milliseconds or microseconds")
    return UNIT_WORDS[word]


@dataclass(frozen=True)
class TimeTexts:
    """The notation of times. `date_format` (strptime) is the format of dates and stamps, "" for numbers; `unit` is the unit of
    numbers in stamps. Numbers in dates are always seconds. Raises UsageError for an invalid format."""

    date_format: str = ""
    unit: StampUnit = StampUnit.MICROSECONDS

    def __post_init__(self) -> None:
        if self.date_format:
            DateFormat.from_format(self.date_format)

    @property
    def is_canonical(self) -> bool:
        """Whether times are already in the notation of topics."""
        return not self.date_format and self.unit is StampUnit.MICROSECONDS

    def convertible_fields(self, schema: Schema | None) -> list[tuple[int, FieldType]]:
        """Returns the places and types of the fields whose texts may change."""
        if schema is None or self.is_canonical:
            return []
        wanted = TIME_TYPES if self.date_format else (FieldType.STAMP,)
        return [(place, field.type) for place, field in enumerate(schema.fields) if field.type in wanted]

    def canonicalize_times(self, texts: Sequence[str | None], type_: FieldType) -> list[str | None]:
        """Returns numbers in the notation of topics, one for each text; None for a text that is left unchanged."""
        found: list[str | None] = [None] * len(texts)
        if self.date_format:
            times, _ = self._dates.parse(pa.array(texts, pa.string()), ARROW_TYPE[type_])
            found = times.cast(pa.int64()).cast(pa.string()).to_pylist()
        if type_ is FieldType.STAMP and self.unit is not StampUnit.MICROSECONDS:
            found = [self._scaled(text) if known is None else known for text, known in zip(texts, found, strict=True)]
        return found

    def _scaled(self, text: str | None) -> str | None:
        if text is None or _NUMBER.fullmatch(text) is None:
            return None
        number = Decimal(text.strip())
        if number.adjusted() > _DIGITS_MAX:
            return None
        micros = _FLOOR.multiply(number, Decimal(1_000_000 // self.unit.value))
        return str(int(micros.to_integral_value(ROUND_FLOOR)))

    @cached_property
    def _dates(self) -> DateFormat:
        return DateFormat.from_format(self.date_format)


class StampUnitCheck:
    """Checks the first rows of a source, as topics hold them. Warns once if all their stamps of a field are before 1971, which
    suggests a wrong unit of numbers."""

    ROWS = 100
    """The number of rows that are checked."""

    def __init__(self, source: str, schema: Schema | None, warn: Callable[[str], None]) -> None:
        self._source = source
        self._schema = schema
        self._warn = warn
        self._is_done = schema is None or not any(field.type is FieldType.STAMP for field in schema.fields)

    def warn_on_first_rows(self, rows: Sequence[bytes], format_: MessageFormat) -> None:
        """Checks rows, until some row has a stamp. `format_` is that of the rows; only CSV and JSON are checked."""
        if self._is_done or self._schema is None:
            return
        for place, field in enumerate(self._schema.fields):
            if field.type is not FieldType.STAMP:
                continue
            columns = [column.cast(pa.int64()) for column in _stamps(rows[: self.ROWS], format_, self._schema, place)]
            newest = max((value for column in columns if (value := pc.max(column).as_py()) is not None), default=None)
            self._is_done |= newest is not None
            if newest is not None and newest < _EARLY_US:
                self._warn(
                    f"the first stamps of {self._source} in field {field.name} are before {EARLY_YEAR}, the newest is {newest} us "
                    "since 1970: if they are seconds or milliseconds, set --stamp-unit, or stampformat of the connector"
                )
                return


def _stamps(rows: Sequence[bytes], format_: MessageFormat, schema: Schema, place: int) -> list[pa.Array]:
    """Returns the valid stamps of field `place`. Few rows of CSV are read by the grammar, without the compiler of kernels."""
    if format_ is MessageFormat.JSON:
        return [part.columns[place] for part in decode_json(pa.array(rows, pa.binary()), schema)[0]]
    if format_ is not MessageFormat.CSV:
        return []
    before = len(RowPrefix.EVENT.value)
    columns = [found for row in rows if len(found := grammar().columns(row)) == before + len(schema)]
    texts = [(grammar().value(found[before + place]) or b"").decode(errors="replace") or None for found in columns]
    return [parse(pa.array(texts, pa.string()), FieldType.STAMP)[0]]
