"""Conversion of texts to typed values, elementwise, shared by CSV fields and casts.

A text is parsed the same way whatever its neighbours are: the fast path converts a whole array and, if any of it is invalid, the
slow path converts row by row with equal results for good rows.
"""

from __future__ import annotations

import base64
import binascii

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.model.types import TIME_TYPES, FieldType
from hotspare.rows.arrays import ELEMENT, parse_arrays
from hotspare.rows.batch import ARROW_TYPE
from hotspare.rows.elementwise import Rows, cast_blocks, converted, either, filled, true_rows, with_nulls
from hotspare.rows.times import DateFormat, in_unit, iso_times

_NO_ROWS: Rows = np.empty(0, np.int64)
_NUMBER = r"([0-9]+\.?[0-9]*|\.[0-9]+)"
_EXPONENT = r"[eE][+-]?[0-9]+"


def _up_to(limit: str) -> str:
    """Returns a regular expression of the numbers from 0 to `limit` in decimal digits, without a sign."""
    smaller = [f"{limit[:i]}[0-{int(d) - 1}][0-9]{{{len(limit) - i - 1}}}" for i, d in enumerate(limit) if d != "0"]
    return f"0*([0-9]{{1,{len(limit) - 1}}}|{'|'.join(smaller)}|{limit})"


def _whole(bits: int) -> str:
    most = 1 << bits - 1
    return f"^({_up_to(str(most - 1))}|-{_up_to(str(most))}|0[xX][0-9a-fA-F]{{1,{bits // 4}}})$"


_SHAPE = {
    FieldType.INT32: r"^(-?[0-9]+|0[xX][0-9a-fA-F]+)$",
    FieldType.INT64: r"^(-?[0-9]+|0[xX][0-9a-fA-F]+)$",
    FieldType.DOUBLE: rf"^[+-]?({_NUMBER}({_EXPONENT})?|(?i:nan(\([a-z0-9_]*\))?|inf(inity)?))$",
    FieldType.MONEY: rf"^[+-]?{_NUMBER}({_EXPONENT})?$",
}
"""Patterns, by type, of all texts that Arrow's own conversions accept: a text that does not match is bad without a try."""
_FITS = {
    FieldType.INT32: _whole(32),
    FieldType.INT64: _whole(64),
    FieldType.DOUBLE: "",
    FieldType.MONEY: rf"^[+-]?(0*[0-9]{{1,14}}(\.[0-9]{{0,4}}0*)?|0*\.([0-9]{{1,4}}0*)|{_NUMBER}{_EXPONENT})$",
}
"""Patterns, by type, of all texts that Arrow converts, and of hardly any others. They are used only after a conversion failed,
because long patterns are slow."""


def parse(texts: pa.Array, type_: FieldType, dateformat: DateFormat | None = None) -> tuple[pa.Array, Rows]:
    """Returns values of `ARROW_TYPE[type_]` for an Arrow string array, and the rows whose text is not such a value (null there).

    Blanks around a text are ignored except for strings; an integer may have a plus sign or be hexadecimal (`0x`). Money has up to 4
    decimals. A double that is written in digits must be finite. A stamp is microseconds, a date seconds since 1970, or either is a
    time: by `dateformat` if given (before an integer), else as `iso_times` reads it; a date drops the fraction. A blob is base64,
    an array `[a;b;c]`.
    """
    if type_.is_array:
        return parse_arrays(texts, ARROW_TYPE[type_], lambda elements: parse(elements, ELEMENT[type_]))
    if type_ is FieldType.DOUBLE:
        return _finite(texts, *numbers(texts, type_))
    if type_ is FieldType.STRING:
        return texts, _NO_ROWS
    if type_ is FieldType.BLOB:
        return _blobs(texts)
    if type_ in TIME_TYPES:
        return _times(texts, type_, dateformat)
    return numbers(texts, type_)


def _finite(texts: pa.Array, values: pa.Array, bad: Rows) -> tuple[pa.Array, Rows]:
    """Returns `values` with null where a double is infinite although its text is not, and `bad` with those rows added."""
    infinite = true_rows(pc.is_inf(values))
    if not len(infinite):
        return values, bad
    beyond = infinite[true_rows(pc.invert(pc.match_substring(texts.take(pa.array(infinite)), "inf", ignore_case=True)))]
    return with_nulls(values, beyond), either(len(texts), bad, beyond)


def numbers(texts: pa.Array, type_: FieldType) -> tuple[pa.Array, Rows]:
    """Returns the same as `parse` for integers, doubles and money, but a number too large for a double becomes infinite, as in a
    cast."""
    target = ARROW_TYPE[type_]
    try:
        return cast_blocks(texts, target), _NO_ROWS
    except pa.ArrowInvalid:
        trimmed = pc.utf8_trim_whitespace(texts)
    if type_ in (FieldType.INT32, FieldType.INT64):
        trimmed = pc.replace_substring_regex(trimmed, r"^\+([0-9]+)$", r"\1")
    shapeless = true_rows(pc.invert(pc.match_substring_regex(trimmed, _SHAPE[type_])))
    values, unfit = converted(with_nulls(trimmed, shapeless), target, _FITS[type_])
    return values, either(len(texts), shapeless, unfit)


def _times(texts: pa.Array, type_: FieldType, dateformat: DateFormat | None) -> tuple[pa.Array, Rows]:
    target = ARROW_TYPE[type_]
    if dateformat is None:
        values, other = numbers(texts, FieldType.INT64)
        values = values.cast(target)
        if len(other):
            micros, bad = iso_times(texts.take(pa.array(other)))
            return filled(values, other, (in_unit(micros, target), bad))
        return values, _NO_ROWS
    values, other = dateformat.parse(texts, target)
    if len(other):
        return filled(values, other, _times(texts.take(pa.array(other)), type_, None))
    return values, other


def _blobs(texts: pa.Array) -> tuple[pa.Array, Rows]:
    values: list[bytes | None] = []
    bad: list[int] = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else base64.b64decode(text.strip(), validate=True))
        except (binascii.Error, ValueError):
            values.append(None)
            bad.append(row)
    return pa.array(values, pa.binary()), np.array(bad, np.int64)
