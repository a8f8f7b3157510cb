"""Times in texts as microseconds since 1970: in ISO 8601 and RFC 3339 (`iso_times`), or in a format that a user names
(`DateFormat`).

`iso_micros` defines the meaning of a text in ISO 8601. It parses

- a date as `2024-03-01`, `20240301`, `2024-061`, `2024061`, `2024-W09-5`, `2024W095`, `2024-W09` (its Monday) or `2024-03` (its
  first day),
- after `T`, `t` or a blank a time as `14`, `14:05`, `14:05:09`, `1405`, `140509`, whose last part may have a fraction after a point
  or comma; `24:00` is the end of the day, and the leap second 23:59:60 of UTC is the second after it,
- after the time, and after a blank if the text has one, an offset: `Z`, `z`, `+02`, `+0200` or `+02:00`. A time without an offset
  is in UTC, as is a date alone, which may have `Z` or `+02:00`.

A fraction is cut to microseconds. `iso_times` parses columns: Arrow parses the shapes that most programs write, `iso_micros` all
others. The value of a text depends on that text alone.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.base.errors import UsageError
from hotspare.rows.elementwise import Rows, converted, either, filled, true_mask, true_rows, whole_seconds, with_nulls

_DATE = (
    r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2}))?|(?P<month_>[0-9]{2})(?P<day_>[0-9]{2})"
    r"|-?(?P<of_year>[0-9]{3})|-W(?P<week>[0-9]{2})(?:-(?P<weekday>[1-7]))?|W(?P<week_>[0-9]{2})(?P<weekday_>[1-7])?)"
)
_CLOCK = r"(?P<hour>[0-9]{2})(?::?(?P<minute>[0-9]{2})(?::?(?P<second>[0-9]{2}))?)?(?:[.,](?P<fraction>[0-9]+))?"
_OFFSET = r"Z|[+-][0-9]{2}(?::?[0-9]{2})?"
_ISO = re.compile(
    rf"{_DATE}(?:[T ]{_CLOCK}(?: ?(?P<zone>{_OFFSET}))?|(?P<zone_of_day>Z|[+-][0-9]{{2}}:[0-9]{{2}}))?", re.IGNORECASE | re.ASCII
)
_EPOCH_DAYS = datetime.date(1970, 1, 1).toordinal()
_DAYS_400_YEARS, _DAY_S = 146_097, 86_400
_FRACTION_DIGITS_MAX = 18
_MICROS = pa.timestamp("us")

_MONTHS = r"(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8])"
_LEAP_YEAR = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_TIME = r"[T ]([01][0-9]|2[0-3])(:[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?)?"
_SHAPE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?)?)?$"
"""A pattern of the texts in UTC that Arrow parses."""
_FITS = rf"^([0-9]{{4}}-({_MONTHS})|{_LEAP_YEAR}-02-29)({_TIME})?$"
"""A pattern of nearly all texts of `_SHAPE` that are times, and of no others."""
_ZONED = (
    r"^(?P<base>[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.(?P<fraction>[0-9]+))?"
    r" ?(?P<zone>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)$"
)


def iso_micros(text: str) -> int | None:
    """Returns the text's microseconds since 1970 in UTC, or None if the text is not a time as the module describes."""
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    try:
        days = _days(match)
        seconds, micros = _of_day(match)
        offset_s = _zone_seconds(match["zone"] or match["zone_of_day"] or "Z")
    except ValueError:
        return None
    seconds += days * _DAY_S - offset_s
    if match["second"] == "60" and seconds % _DAY_S:
        return None
    return seconds * 1_000_000 + micros


def _days(match: re.Match[str]) -> int:
    """Returns the days since 1970; raises ValueError for a day that does not exist."""
    year, week = int(match["year"]), match["week"] or match["week_"]
    if week:
        day = datetime.date.fromisocalendar(year, int(week), int(match["weekday"] or match["weekday_"] or 1))
        return day.toordinal() - _EPOCH_DAYS
    shift = 0 if year else 1  # Python's calendar begins with year 1, and repeats itself after 400 years
    begin = datetime.date(year + 400 * shift, 1, 1)
    if match["of_year"]:
        number = int(match["of_year"])
        found = begin.toordinal() + number - 1
        if not begin.toordinal() <= found <= begin.replace(month=12, day=31).toordinal():
            raise ValueError("the year has no such day")
    else:
        month, day_of_month = match["month"] or match["month_"], match["day"] or match["day_"]
        found = begin.replace(month=int(month), day=int(day_of_month or 1)).toordinal()
    return found - shift * _DAYS_400_YEARS - _EPOCH_DAYS


def _of_day(match: re.Match[str]) -> tuple[int, int]:
    """Returns the time of day as (seconds, microseconds), zeros if the text has none. Raises ValueError for a time that does not
    exist."""
    if match["hour"] is None:
        return 0, 0
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    unit_s = 1 if match["second"] else 60 if match["minute"] else 3600
    digits = (match["fraction"] or "0")[:_FRACTION_DIGITS_MAX]
    micros = int(digits) * unit_s * 1_000_000 // 10 ** len(digits)
    is_end = hour == 24 and not (minute or second or micros)
    if (hour > 23 and not is_end) or minute > 59 or second > 60:
        raise ValueError("no day has such a time")
    return (hour * 60 + minute) * 60 + second, micros


def _zone_seconds(zone: str) -> int:
    """Returns the seconds that a time in this zone is ahead of UTC: of `Z`, `+02`, `+0200`, `+02:00`. Raises ValueError for an
    offset of a day or more, or with more than 59 minutes."""
    if zone in "Zz":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[3:].removeprefix(":") or 0)
    if hours > 23 or minutes > 59:
        raise ValueError("no offset is so long")
    return (hours * 60 + minutes) * (-60 if zone[0] == "-" else 60)


def iso_times(texts: pa.Array) -> tuple[pa.Array, Rows]:
    """Returns timestamps in microseconds, and the rows whose text is not a time (null there)."""
    trimmed = pc.utf8_trim_whitespace(texts)
    in_utc = pc.replace_substring_regex(trimmed, r"Z$", "")
    in_utc = pc.replace_substring_regex(in_utc, r"(\.[0-9]{6})[0-9]+$", r"\1")
    shapeless = true_rows(pc.invert(pc.match_substring_regex(in_utc, _SHAPE)))
    values, unfit = converted(with_nulls(in_utc, shapeless), _MICROS, _FITS)
    rest = either(len(texts), shapeless, unfit)
    for read in (_zoned, _one_by_one):
        if len(rest):
            values, rest = filled(values, rest, read(trimmed.take(pa.array(rest))))
    return values, rest


def _zoned(texts: pa.Array) -> tuple[pa.Array, Rows]:
    """Parses times that have seconds and an offset. Returns the same as `iso_times`: all other texts count as not a time."""
    found = pc.extract_regex(texts, _ZONED)
    base, fraction, zone = (pc.struct_field(found, name) for name in ("base", "fraction", "zone"))
    if zone.null_count == len(zone):
        return pa.nulls(len(texts), _MICROS), true_rows(texts.is_valid())
    values, _ = converted(pc.replace_substring(base, "t", "T"), _MICROS, _FITS)
    values = _moved(values, fraction, _zone_micros(zone))
    return values, true_rows(pc.and_(values.is_null(), texts.is_valid()))


def _zone_micros(zones: pa.Array) -> pa.Array:
    """Returns `_zone_seconds` of each zone in microseconds, null for an invalid offset. Each distinct zone is parsed once."""
    different = pc.unique(zones)
    return pa.array(map(_micros_of, different.to_pylist()), pa.int64()).take(pc.index_in(zones, different))


def _micros_of(zone: str | None) -> int | None:
    try:
        return None if zone is None else _zone_seconds(zone) * 1_000_000
    except ValueError:
        return None


def _moved(seconds: pa.Array, fraction: pa.Array, ahead_us: pa.Array | None) -> pa.Array:
    """Returns `seconds` as timestamps in microseconds, plus the first six digits of `fraction`, minus `ahead_us`, by which the zone
    is ahead of UTC (None: in UTC). The result is null if any of the three is null."""
    digits = pc.utf8_rpad(pc.utf8_slice_codeunits(fraction, 0, 6), 6, padding="0")
    micros = pc.add(seconds.cast(pa.int64()), digits.cast(pa.int64()))
    return (micros if ahead_us is None else pc.subtract(micros, ahead_us)).cast(_MICROS)


def _one_by_one(texts: pa.Array) -> tuple[pa.Array, Rows]:
    """Parses each distinct text once, by `iso_micros`. Returns the same as `iso_times`."""
    encoded = texts.dictionary_encode()
    distinct = encoded.dictionary
    begins = true_mask(pc.match_substring_regex(distinct, r"^[0-9]{4}[-Ww0-9]"))
    found = [iso_micros(text) if maybe else None for text, maybe in zip(distinct.to_pylist(), begins, strict=True)]
    values = pa.array(found, pa.int64()).cast(_MICROS).take(encoded.indices)
    return values, true_rows(pc.and_(values.is_null(), texts.is_valid()))


def in_unit(micros: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns timestamps in microseconds in the unit of `target`, seconds or microseconds; rounded down."""
    return whole_seconds(micros) if target.unit == "s" else micros


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
    "z": "[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?",
    "%": "%",
}
_FRACTION = ")(?:[.,](?P<fraction>[0-9]+))?(?P<text{}>"
_ZONE = ")(?P<zone>{})(?P<text{}>"


@dataclass(frozen=True, slots=True)
class DateFormat:
    """A validated strptime format. After %S a text may have a fraction, with or without `.%f` in the format; it is cut to
    microseconds. %z is an offset as in `iso_times`; without %z, times are in UTC. `pattern` matches the texts of the format; its
    groups `text0`, `text1` ..., joined, are parsed by `format`, which has no %z. `has_day`: whether the format has %d."""

    text: str
    format: str
    pattern: str
    has_day: bool

    @classmethod
    def from_format(cls, text: str) -> DateFormat:
        """Returns the validated format of a text; drops quotes around it. Raises UsageError if it is empty or has an unsupported
        directive."""
        expanded = re.sub(r"%S[.,]%f", "%S", text.strip().strip("'\""))
        for name, meaning in _COMPOSITE.items():
            expanded = expanded.replace(name, meaning)
        if not expanded:
            raise UsageError("the dateformat is empty", hint="write a format such as %Y-%m-%d %H:%M:%S")
        parts, seen, groups = ["^(?P<text0>"], set[str](), 1
        for piece in re.findall(r"%.?|\s+|[^%\s]+", expanded):
            if not piece.startswith("%"):
                parts.append(r"\s*" if piece.isspace() else re.escape(piece))
                continue
            if piece[1:] not in _DIRECTIVE or (piece == "%z" and piece in seen):
                wrong = "twice" if piece in seen else "which is not supported"
                raise UsageError(
                    f"dateformat {text!r} has the directive {piece}, {wrong}",
                    hint=f"use {', '.join('%' + d for d in _DIRECTIVE)}, and %f after the seconds",
                )
            if piece == "%z":
                parts.append(_ZONE.format(_DIRECTIVE["z"], groups))
            else:
                parts.append("[0-9]{1,2}" if piece == "%d" and piece in seen else _DIRECTIVE[piece[1:]])
            if piece == "%S" and piece not in seen:
                parts.append(_FRACTION.format(groups))
            groups += piece in ("%z", "%S") and piece not in seen
            seen.add(piece)
        return cls(text, expanded.replace("%z", ""), "".join([*parts, ")$"]), "%d" in seen)

    def parse(self, texts: pa.Array, target: pa.DataType) -> tuple[pa.Array, Rows]:
        """Returns timestamps of type `target`, and the rows that the format does not fit or that name a day that does not exist."""
        found = pc.extract_regex(pc.utf8_trim_whitespace(texts), self.pattern)
        parts = {field.name: pc.struct_field(found, field.name) for field in found.type}
        base = pc.binary_join_element_wise(*(part for name, part in parts.items() if name.startswith("text")), "")
        times = pc.strptime(base, format=self.format, unit="us", error_is_null=True)
        if self.has_day:
            times = with_nulls(times, true_rows(pc.not_equal(pc.day(times), parts["day"].cast(pa.int64()))))
        nothing = pc.if_else(found.is_valid(), "", None)
        micros = _moved(times, parts.get("fraction", nothing), _zone_micros(parts["zone"]) if "zone" in parts else None)
        bad = true_rows(pc.and_(micros.is_null(), texts.is_valid()))
        return in_unit(micros, target), bad
