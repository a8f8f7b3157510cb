"""The type of each column of a CSV sample, the key column and the event time, each with the reason.

A type is guessed only if that type's parser reads every value, so every row of the sample can be read. A code of digits that would
lose zeros or a sign as a number, such as 007, stays a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.adapters.guess.sample import CsvSample, Extent
from hotspare.model.names import FIELD_NAME_LENGTH_MAX, FLAGS_FIELD, OPCODE_FIELD
from hotspare.model.types import TIME_TYPES, Field, FieldType, KeyRole, Schema
from hotspare.rows.values import parse

_WHOLE = r"^-?(0|[1-9][0-9]*)$"
_CODE = r"^([+-]?0[0-9]+|\+[0-9]+)$"
"""Digits that would lose zeros or a sign as a number."""
_DIGITS = r"[0-9]"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIME = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ].*)?|[0-9]{8}[Tt].*)$"
_DECIMAL_COMMA = r"^-?[0-9]+(\.[0-9]{3})*,[0-9]+$"
_TRUTH = r"(?i)^(true|false|yes|no)$"
_OTHER_TIME = r"^[0-9]{1,4}[./-][0-9]{1,2}[./-][0-9]{1,4}([ T][0-9]{1,2}:[0-9]{2}.*)?$"
_KEY_TITLE = re.compile(r"(.*[_ ])?(id|key|uuid|guid|seq|nr|no|number)|.*[a-z]I[dD]|ID", re.IGNORECASE)
_PLAIN_KEYS = ("id", "key", "uuid", "guid")
_TIME_TITLE = re.compile(r"(.*_)?(time|timestamp|ts|at|date|datetime|epoch|created|updated)(_.*)?", re.IGNORECASE)
_EPOCH_SECONDS = (978_307_200, 4_102_444_800)
"""2001 to 2100: the range of whole numbers that are read as times if the title suggests it."""
_PLAIN_TEXT = r"^[A-Za-z0-9_ .-]{1,40}$"
"""Texts that an expression can quote without escapes."""
_EXAMPLE_LENGTH_MAX = 24


@dataclass(frozen=True)
class GuessedColumn:
    """A column under the name that its field gets. `text` has its values as written, null if a row has no value;
    `type_reason` is the reason for the type in a few words."""

    title: str
    name: str
    type: FieldType
    type_reason: str
    text: pa.Array
    is_unique: bool = False

    @property
    def nulls(self) -> int:
        return int(self.text.null_count)

    @property
    def example(self) -> str:
        """The first value of the first 1,000 rows that is not null, cut to _EXAMPLE_LENGTH_MAX characters; "" if there is none."""
        found = pc.drop_null(self.text.slice(0, 1000))
        text = found[0].as_py() if len(found) else ""
        return text if len(text) <= _EXAMPLE_LENGTH_MAX else f"{text[: _EXAMPLE_LENGTH_MAX - 3]}..."

    def values(self) -> pa.Array:
        return parse(self.text, self.type)[0]


@dataclass(frozen=True)
class GuessedTable:
    """The columns of a sample. `key` names the column that is the key; "" if none can be, so that keys are generated in the field
    `generated_key`. `event_time` names the column with the time of each row, or is ""."""

    sample: CsvSample
    columns: tuple[GuessedColumn, ...]
    key: str
    key_reason: str
    generated_key: str
    event_time: str

    @property
    def schema(self) -> Schema:
        """The fields in the order of the columns, a generated key first."""
        fields = [Field(c.name, c.type, KeyRole.KEY if c.name == self.key else KeyRole.VALUE) for c in self.columns]
        return Schema(tuple(fields if self.key else [Field(self.generated_key, FieldType.INT64, KeyRole.KEY), *fields]))


def guess_table(sample: CsvSample) -> GuessedTable:
    """Returns the guess for each column of the sample. Equal samples give equal results."""
    titles = sample.titles or tuple(f"column{number}" for number in range(1, len(sample.columns) + 1))
    names = field_names(titles)
    columns = [_guessed(*each) for each in zip(titles, names, sample.columns, strict=True)]
    columns = [replace(each, is_unique=_is_unique(each)) for each in columns]
    key = _key(columns)
    extent = "in all rows" if sample.extent is Extent.WHOLE else f"in the first {sample.rows} rows"
    known = {name.lower() for name in names}
    generated = next(each for each in ("id", "row_id", *(f"row_id{n}" for n in range(2, len(names) + 3))) if each not in known)
    times = [each for each in columns if each.type in TIME_TYPES and not each.nulls]
    return GuessedTable(
        sample=sample,
        columns=tuple(columns),
        key=key.name if key else "",
        key_reason=f"unique {extent}" if key else "no column titled id or key has a value of its own in each row",
        generated_key="" if key else generated,
        event_time=times[0].name if times else "",
    )


def field_names(titles: Sequence[str]) -> list[str]:
    """Returns a name that expressions can use for each title, all of them different in lower case."""
    found: list[str] = []
    taken = {OPCODE_FIELD.lower(), FLAGS_FIELD.lower()}
    for number, title in enumerate(titles, 1):
        name = re.sub(r"\W+", "_", title.strip(), flags=re.ASCII).rstrip("_")[: FIELD_NAME_LENGTH_MAX - 10]
        base = name = f"_{name}" if name[:1].isdigit() else name or f"column{number}"
        again = 2
        while name.lower() in taken:
            name, again = f"{base}_{again}", again + 1
        taken.add(name.lower())
        found.append(name)
    return found


def _guessed(title: str, name: str, text: pa.Array) -> GuessedColumn:
    present = pc.drop_null(text)
    type_, why = _type(title, present) if len(present) else (FieldType.STRING, "no row has a value")
    return GuessedColumn(title, name, type_, why, text)


def _type(title: str, texts: pa.Array) -> tuple[FieldType, str]:
    """Returns the type of a column, and the reason. `texts`: the column's values without nulls, at least one."""
    if _all(texts, _WHOLE) and _reads(texts, FieldType.INT64):
        return _whole_number_type(title, parse(texts, FieldType.INT64)[0])
    if not _any(texts, _CODE) and _any(texts, _DIGITS) and _reads(texts, FieldType.DOUBLE):
        if _all(texts, _WHOLE):
            return FieldType.STRING, "whole numbers beyond 64 bits"
        return FieldType.DOUBLE, "numbers"
    if _all(texts, _TIME) and _reads(texts, FieldType.STAMP):
        return (FieldType.DATE, "days") if _all(texts, _DAY) else (FieldType.STAMP, "times")
    return FieldType.STRING, _text_reason(texts)


def _whole_number_type(title: str, numbers: pa.Array) -> tuple[FieldType, str]:
    low, high = (pc.min_max(numbers)[side].as_py() for side in ("min", "max"))
    first, last = _EPOCH_SECONDS
    if _TIME_TITLE.fullmatch(title.strip()):
        if first <= low and high <= last:
            return FieldType.DATE, "seconds since 1970, by title and size"
        if first * 1_000_000 <= low and high <= last * 1_000_000:
            return FieldType.STAMP, "microseconds since 1970, by title and size"
        if first * 1000 <= low and high <= last * 1000:
            return FieldType.INT64, "maybe milliseconds since 1970: use a stamp with --stamp-unit milliseconds"
    return FieldType.INT64, f"whole numbers, {low} to {high}"


def _text_reason(texts: pa.Array) -> str:
    """Returns the reason why a column of numbers, times or truth values stays a text."""
    if _any(texts, _CODE) and _all(texts, r"^[+-]?[0-9]+$"):
        return "digits with zeros or signs that a number would lose"
    if _all(texts, _TRUTH):
        return "texts: hotspare has no type for truth values"
    if _all(texts, _DECIMAL_COMMA):
        return "numbers with a decimal comma: write a point"
    if _all(texts, _OTHER_TIME):
        return "maybe times: give their format with --dateformat"
    wrong = parse(texts, FieldType.DOUBLE)[1]
    if 0 < len(wrong) <= len(texts) // 10:
        return f"numbers, except {len(wrong)} such as {texts[int(wrong[0])].as_py()[:12]!r}: leave those empty for null"
    return "texts"


def _reads(texts: pa.Array, type_: FieldType) -> bool:
    return not len(parse(texts, type_)[1])


def _all(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern)).as_py())


def _any(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def _is_unique(column: GuessedColumn) -> bool:
    """Whether a column of a type for keys has a different value in each row."""
    if column.nulls or column.type not in (FieldType.INT64, FieldType.STRING):
        return False
    return int(pc.count_distinct(column.values()).as_py()) == len(column.text)


def _key(columns: Sequence[GuessedColumn]) -> GuessedColumn | None:
    """Returns a unique column that its title names as key: the first, unless a later one is called `id` or the like."""
    found = [each for each in columns if each.is_unique and _KEY_TITLE.fullmatch(each.title.strip())]
    return next((each for each in found if each.title.strip().lower() in _PLAIN_KEYS), found[0] if found else None)


def guess_conditions(table: GuessedTable) -> list[str]:
    """Returns conditions over single columns that some rows of the sample fulfil and others do not, those over numbers first."""
    columns = [each for each in table.columns if each.name != table.key]
    numbers = [each for each in columns if each.type in (FieldType.DOUBLE, FieldType.INT64)]
    texts = [each for each in columns if each.type is FieldType.STRING]
    return [found for found in (*map(_above_most, numbers), *map(_rarest, texts)) if found]


def _above_most(column: GuessedColumn) -> str:
    """Returns a condition that about a tenth of the values fulfil, "" if all are equal."""
    values = pc.drop_null(column.values()).to_numpy()
    finite = np.sort(values[np.isfinite(values)])
    below_highest = finite[finite < finite[-1]] if len(finite) else finite
    if not len(below_highest):
        return ""
    bound = min(finite[int(0.9 * (len(finite) - 1))], below_highest[-1])
    return f"{column.name} > {int(bound) if column.type is FieldType.INT64 else repr(float(bound))}"


def _rarest(column: GuessedColumn) -> str:
    """Returns a condition that the rows with the rarest text fulfil, "" if texts hardly repeat."""
    plain = column.text.filter(pc.match_substring_regex(column.text, _PLAIN_TEXT))
    counts = pc.value_counts(plain).to_pylist()
    if not 1 < len(counts) <= len(column.text) // 2:
        return ""
    rarest = min(counts, key=lambda each: (each["counts"], each["values"]))
    return f"{column.name} = '{rarest['values']}'"
