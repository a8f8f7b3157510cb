"""Text to typed values, elementwise: what CSV fields and casts share.

A text is read the same way whatever stands around it: the fast path converts a whole array and, if anything in it is wrong, the
slow path converts row by row with equal results for good rows.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.engine.rows.arrays import ELEMENT, parse_arrays
from hotspare.engine.rows.batch import ARROW_TYPE
from hotspare.engine.rows.elementwise import Rows, attempt_rows, either, true_rows, whole_seconds, with_nulls
from hotspare.errors import UsageError
from hotspare.model.types import FieldType

_NO_ROWS: Rows = np.empty(0, np.int64)
_BLOCK = 4096
_NUMBER = r"([0-9]+\.?[0-9]*|\.[0-9]+)"
_EXPONENT = r"[eE][+-]?[0-9]+"


def _up_to(limit: str) -> str:
    """A pattern of numbers in decimal digits, without a sign, up to `limit`."""
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
"""Everything that Arrow's own conversions take, so that clearly bad rows are set aside at once."""
_ISO = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?)?)?$"
_FITS = {
    FieldType.INT32: _whole(32),
    FieldType.INT64: _whole(64),
    FieldType.DOUBLE: "",
    FieldType.MONEY: rf"^[+-]?(0*[0-9]{{1,14}}(\.[0-9]{{0,4}}0*)?|0*\.([0-9]{{1,4}}0*)|{_NUMBER}{_EXPONENT})$",
}
"""The same, and next to nothing else. It is asked only where something does not fit: a long pattern costs as much as many rows."""
_MONTHS = r"(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8])"
_LEAP_YEAR = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_TIME = r"[T ]([01][0-9]|2[0-3])(:[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?)?"
_ISO_FITS = rf"^([0-9]{{4}}-({_MONTHS})|{_LEAP_YEAR}-02-29)({_TIME})?$"


def parse(texts: pa.Array, type_: FieldType, dateformat: DateFormat | None = None) -> tuple[pa.Array, Rows]:
    """Values of `ARROW_TYPE[type_]` for an Arrow string array, and the rows whose text is no such value (null there).

    Blanks around a text are ignored but for strings; an integer may have a plus sign or be hexadecimal (`0x`). Money has up to 4
    decimals. A stamp is microseconds, a date seconds since 1970, or either is a time: by `dateformat` where given (before an
    integer), else ISO 8601 in UTC; a date drops the fraction. A blob is base64, an array `[a;b;c]`.
    """
    if type_.is_array:
        return parse_arrays(texts, ARROW_TYPE[type_], lambda elements: _numbers(elements, ELEMENT[type_]))
    if type_ is FieldType.STRING:
        return texts, _NO_ROWS
    if type_ is FieldType.BLOB:
        return _blobs(texts)
    if type_ in (FieldType.DATE, FieldType.STAMP):
        return _times(texts, type_, dateformat)
    return _numbers(texts, type_)


def _numbers(texts: pa.Array, type_: FieldType) -> tuple[pa.Array, Rows]:
    target = ARROW_TYPE[type_]
    try:
        return _cast(texts, target), _NO_ROWS
    except pa.ArrowInvalid:
        trimmed = pc.utf8_trim_whitespace(texts)
    if type_ in (FieldType.INT32, FieldType.INT64):
        trimmed = pc.replace_substring_regex(trimmed, r"^\+([0-9])", r"\1")
    shapeless = true_rows(pc.invert(pc.match_substring_regex(trimmed, _SHAPE[type_])))
    values, unfit = _converted(with_nulls(trimmed, shapeless), target, _FITS[type_])
    return values, either(len(texts), shapeless, unfit)


def _converted(texts: pa.Array, target: pa.DataType, fits: str) -> tuple[pa.Array, Rows]:
    """Values of texts of the right shape, and the rows that do not fit: nearly all of them are not matched by `fits`."""
    try:
        return _cast(texts, target), _NO_ROWS
    except pa.ArrowInvalid:
        outside = true_rows(pc.invert(pc.match_substring_regex(texts, fits)))
    values, unfit = attempt_rows(lambda a: a.cast(target), [with_nulls(texts, outside)], target)
    return values, either(len(texts), outside, unfit)


def _cast(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Block by block: of a block Arrow makes an error for each text that is wrong."""
    blocks = [texts.slice(at, _BLOCK) for at in range(0, max(1, len(texts)), _BLOCK)]
    return pa.concat_arrays([block.cast(target) for block in blocks])


def _times(texts: pa.Array, type_: FieldType, dateformat: DateFormat | None) -> tuple[pa.Array, Rows]:
    target = ARROW_TYPE[type_]
    if dateformat is None:
        values, other = _numbers(texts, FieldType.INT64)
        values = values.cast(target)
        if len(other):
            values, bad = _filled(values, other, _iso(texts.take(pa.array(other)), target))
            return values, bad
        return values, _NO_ROWS
    values, other = dateformat.parse(texts, target)
    if len(other):
        numbers, unfit = _numbers(texts.take(pa.array(other)), FieldType.INT64)
        return _filled(values, other, (numbers.cast(target), unfit))
    return values, other


def _filled(values: pa.Array, rows: Rows, found: tuple[pa.Array, Rows]) -> tuple[pa.Array, Rows]:
    """`values` with those found for `rows`; the rows that stay bad."""
    mask = np.zeros(len(values), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(values, pa.array(mask), found[0]), rows[found[1]]


def _iso(texts: pa.Array, target: pa.DataType) -> tuple[pa.Array, Rows]:
    trimmed = pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"Z$", "")
    trimmed = pc.replace_substring_regex(trimmed, r"(\.[0-9]{6})[0-9]+$", r"\1")
    shapeless = true_rows(pc.invert(pc.match_substring_regex(trimmed, _ISO)))
    micros = pa.timestamp("us")
    values, unfit = _converted(with_nulls(trimmed, shapeless), micros, _ISO_FITS)
    return _to_unit(values, target), either(len(texts), shapeless, unfit)


def _to_unit(micros: pa.Array, target: pa.DataType) -> pa.Array:
    """Timestamps in microseconds as `target`, the fraction dropped downwards."""
    return whole_seconds(micros) if target.unit == "s" else micros


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


_COMPOSITE = {"%T": "%H:%M:%S", "%F": "%Y-%m-%d", "%D": "%m/%d/%y", "%R": "%H:%M", "%e": "%d", "%h": "%b", "%B": "%b"}
_DIRECTIVE = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "m": "[0-9]{1,2}",
    "d": "(?P<day>[0-9]{1,2})",
    "j": "[0-9]{1,3}",
    "b": "[A-Za-z]+",
    "H": "[0-9]{1,2}",
    "I": "[0-9]{1,2}",
    "M": "[0-9]{1,2}",
    "S": "[0-9]{1,2}",
    "p": "(?i:am|pm)",
    "%": "%",
}


@dataclass(frozen=True, slots=True)
class DateFormat:
    """A strptime format, checked; a fraction of up to 9 digits is accepted after %S and kept to microseconds."""

    text: str
    format: str
    pattern: str
    has_day: bool

    @classmethod
    def of(cls, text: str) -> DateFormat:
        """UsageError for a directive that cannot be read. Apostrophes around the format are dropped."""
        expanded = text.strip().strip("'\"")
        for name, meaning in _COMPOSITE.items():
            expanded = expanded.replace(name, meaning)
        if not expanded:
            raise UsageError("the dateformat is empty", hint="write one, such as %Y-%m-%d %H:%M:%S")
        parts, seconds_at, has_day = [], -1, False
        for piece in re.findall(r"%.?|\s+|[^%\s]+", expanded):
            if not piece.startswith("%"):
                parts.append(r"\s*" if piece.isspace() else re.escape(piece))
                continue
            if piece[1:] not in _DIRECTIVE:
                raise UsageError(
                    f"dateformat {text!r} has the directive {piece}, which cannot be read",
                    hint=f"use {', '.join('%' + d for d in _DIRECTIVE)}",
                )
            parts.append("[0-9]{1,2}" if piece == "%d" and has_day else _DIRECTIVE[piece[1:]])
            has_day = has_day or piece == "%d"
            seconds_at = len(parts) if piece == "%S" and seconds_at < 0 else seconds_at
        cut = seconds_at if seconds_at >= 0 else len(parts)
        fraction = r"(?P<fraction>[.,][0-9]{1,9})?" if seconds_at >= 0 else r"(?P<fraction>)"
        pattern = f"^(?P<before>{''.join(parts[:cut])}){fraction}(?P<after>{''.join(parts[cut:])})$"
        return cls(text, expanded, pattern, has_day)

    def parse(self, texts: pa.Array, target: pa.DataType) -> tuple[pa.Array, Rows]:
        """Timestamps of type `target`, and the rows that the format does not fit or that name a day that does not exist."""
        found = pc.extract_regex(pc.utf8_trim_whitespace(texts), self.pattern)
        base = pc.binary_join_element_wise(pc.struct_field(found, "before"), pc.struct_field(found, "after"), "")
        micros = pc.strptime(base, format=self.format, unit="us", error_is_null=True)
        digits = pc.utf8_rpad(pc.utf8_slice_codeunits(pc.struct_field(found, "fraction"), 1, 7), 6, padding="0")
        micros = pc.add(micros.cast(pa.int64()), digits.cast(pa.int64())).cast(pa.timestamp("us"))
        if self.has_day:
            day = pc.struct_field(found, "day").cast(pa.int64())
            micros = with_nulls(micros, true_rows(pc.not_equal(pc.day(micros), day)))
        bad = true_rows(pc.and_(micros.is_null(), texts.is_valid()))
        return _to_unit(micros, target), bad
