"""Encodes outputs as CSV text (SPEC 5.2), `OPCODE,FLAG, field,...`, which `csv.decode` reads."""

from __future__ import annotations

import base64
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.rows.arrays import texts_of
from hotspare.rows.letters import flag_letters, opcode_letters

_EXACT_BELOW = 1e9
"""Doubles of smaller size have less than 2^53 millionths, so these are exact integers."""
_UNIT = 2.0**-52
_THREE_DIGITS = np.frombuffer(b"".join(b"%03d" % number for number in range(1000)), np.uint8).reshape(1000, 3)
_NEEDS_QUOTES = r'[",\\\r\n]|^[ \t]|[ \t]$|^$'


class CsvStyle(Enum):
    """The format of doubles, and whether a blank follows the flag."""

    FILE = "file"
    """The format of SAS Event Stream Processing (SPEC 5.2): six decimals, a blank after the flag."""
    EXACT = "exact"
    """The shortest text that parses to the same double; no blank."""


class RowPrefix(Enum):
    """The columns before the fields. The value names them without the prefix `hs:` that they have in the batch."""

    EVENT = ("opcode", "flags")
    OPCODE = ("opcode",)
    NONE = ()


def rows_to_csv(batch: pa.RecordBatch, style: CsvStyle, prefix: RowPrefix = RowPrefix.EVENT) -> bytes:
    """Returns one CSV line per row of a batch of `rows.batch.output_schema`, each with a line feed.

    Null is empty; an empty string or blob is `""`. Strings with commas, quotes, backslashes, line ends or outer blanks are
    quoted. Dates are seconds and stamps microseconds since 1970, money has 4 decimals, blobs are base64, arrays `[a;b;c]`.
    """
    if batch.num_rows == 0:
        return b""
    lines = csv_rows(batch, style, prefix)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), "\n")
    return bytes(joined[0].as_py().encode() + b"\n")


def row_texts(batch: pa.RecordBatch, style: CsvStyle) -> list[str]:
    """Returns the CSV text of each row (`csv_rows`) as a list of Python strings."""
    texts: list[str] = csv_rows(batch, style).to_pylist()
    return texts


def field_texts(rows: pa.Table, style: CsvStyle) -> list[str]:
    """Returns the CSV text of each row with only the fields, for tables whose rows are not events."""
    if rows.num_rows == 0:
        return []
    columns = [_text(column.combine_chunks(), style).fill_null("") for column in rows.columns]
    texts: list[str] = pc.binary_join_element_wise(*columns, ",").to_pylist()
    return texts


def csv_rows(batch: pa.RecordBatch, style: CsvStyle, prefix: RowPrefix = RowPrefix.EVENT) -> pa.Array:
    """Returns the CSV text of each row, without a line feed. `prefix`: the columns before the fields."""
    letters = {"opcode": opcode_letters, "flags": flag_letters}
    columns = [letters[name](batch.column(f"hs:{name}")) for name in prefix.value]
    first = " " if style is CsvStyle.FILE and columns else ""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name.startswith("hs:"):
            continue
        text = _text(column, style).fill_null("")
        columns.append(pc.binary_join_element_wise(first, text, "") if first and len(columns) == len(prefix.value) else text)
    return pc.binary_join_element_wise(*columns, ",")


def _text(column: pa.Array, style: CsvStyle) -> pa.Array:
    """Returns the text of one column as written in a row; null for null."""
    if pa.types.is_string(column.type):
        return _quoted(column)
    texts = value_texts(column, style)
    return pc.if_else(pc.equal(texts, ""), '""', texts) if pa.types.is_binary(column.type) else texts


def value_texts(column: pa.Array, style: CsvStyle) -> pa.Array:
    """Returns the values of a column as unquoted text; null for null."""
    type_ = column.type
    if pa.types.is_floating(type_):
        return column.cast(pa.string()) if style is CsvStyle.EXACT else _six_decimals(column)
    if pa.types.is_timestamp(type_):
        return column.cast(pa.int64()).cast(pa.string())
    if pa.types.is_binary(type_):
        return pa.array([None if v is None else base64.b64encode(v).decode() for v in column.to_pylist()], pa.string())
    if pa.types.is_list(type_):
        return texts_of(column, lambda elements: value_texts(elements, style))
    return column.cast(pa.string())


def _quoted(column: pa.Array) -> pa.Array:
    needed = pc.match_substring_regex(column, _NEEDS_QUOTES)
    if not pc.any(needed).as_py():
        return column
    escaped = pc.replace_substring(pc.replace_substring(column, "\\", "\\\\"), '"', '""')
    return pc.if_else(needed, pc.binary_join_element_wise('"', escaped, '"', ""), column)


def _six_decimals(column: pa.Array) -> pa.Array:
    """Returns the texts that `%.6f` writes; null for null. If the millionths certainly round the same way, they are computed on
    integers, which takes less than half the time."""
    values = column.fill_null(0.0).to_numpy(zero_copy_only=False)
    size = np.abs(values)
    with np.errstate(over="ignore", invalid="ignore"):
        millionths = size * 1e6  # wrong by at most half a unit in its last place
        rounded = np.rint(millionths)
        is_certain = (size < _EXACT_BELOW) & (np.abs(np.abs(millionths - rounded) - 0.5) > millionths * _UNIT)
    whole, fraction = np.divmod(np.where(is_certain, rounded, 0.0).astype(np.int64), 1_000_000)
    sign = pc.if_else(pa.array(np.signbit(values)), "-", "")
    texts = pc.binary_join_element_wise(sign, pa.array(whole).cast(pa.string()), _fraction_texts(fraction), "")
    if not is_certain.all():
        others = values[~is_certain].tolist()
        written = (("%.6f\n" * len(others)) % tuple(others)).split("\n")[:-1]
        texts = pc.replace_with_mask(texts, pa.array(~is_certain), pa.array(written, pa.string()))
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string())) if column.null_count else texts


def _fraction_texts(millionths: npt.NDArray[np.int64]) -> pa.Array:
    """Returns a decimal point and six digits for each number, which must be below a million."""
    texts = np.empty((len(millionths), 7), np.uint8)
    texts[:, 0] = ord(".")
    texts[:, 1:4], texts[:, 4:7] = _THREE_DIGITS[millionths // 1000], _THREE_DIGITS[millionths % 1000]
    ends = np.arange(0, texts.size + 1, 7, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(millionths), [None, pa.py_buffer(ends), pa.py_buffer(texts)])
