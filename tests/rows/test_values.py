"""Conversion of texts to values: a text is read the same way whatever is around it (SPEC 5.2: blanks, dates, money; SPEC A7)."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hotspare.base.errors import UsageError
from hotspare.model.types import FieldType
from hotspare.rows.batch import ARROW_TYPE
from hotspare.rows.times import DateFormat, iso_micros, iso_times
from hotspare.rows.values import parse

TYPES = [t for t in FieldType if t is not FieldType.STRING]
TEXTS = st.one_of(
    st.none(),
    st.sampled_from(
        [
            "1",
            "-7",
            " 5 ",
            "+3",
            "0x1F",
            "1e3",
            ".5",
            "5.",
            "nan",
            "-inf",
            "Infinity",
            "2024-02-29",
            "2024-02-30",
            "aGk=",
            "",
            "1.2345",
            "1.23456",
        ]
    ),
    st.sampled_from(
        [
            "2024-10-17 08:40:25.5",
            "2024-10-17T08:40:25Z",
            "2024-10-17t08:40:25.5+02:00",
            "20241017T084025Z",
            "99999999999999999999",
            "2147483648",
            "1e400",
            "nan(x)",
            "0xg",
            "--1",
        ]
    ),
    st.text(alphabet="0123456789+-.eExXnaifty() :TZ", max_size=8),
)


@pytest.mark.parametrize("type_", TYPES)
@given(texts=st.lists(TEXTS, min_size=1, max_size=10))
def test_a_text_does_not_depend_on_its_neighbours(type_: FieldType, texts: list[str | None]) -> None:
    dateformat = DateFormat.from_format("%Y-%m-%d %H:%M:%S")
    for dates in (None, dateformat):
        together, bad = parse(pa.array(texts, pa.string()), type_, dates)
        assert together.type == ARROW_TYPE[type_]
        alone = [parse(pa.array([text], pa.string()), type_, dates) for text in texts]
        assert [str(v) for v in together] == [str(v[0]) for v, _ in alone]
        assert bad.tolist() == [i for i, (_, wrong) in enumerate(alone) if len(wrong)]
        assert not any(together[i].is_valid for i in bad.tolist())
        assert all(together[i].is_valid for i, text in enumerate(texts) if text is not None and i not in set(bad.tolist()))


def _whole(text: str, bits: int) -> int | None:
    """Returns the meaning of an integer of `bits` bits; Arrow takes hexadecimal digits as the bits."""
    if text.lower().startswith("0x"):
        value = int(text, 16)
        return None if len(text) > 2 + bits // 4 else value - (1 << bits) * (value >> bits - 1)
    return int(text) if -(1 << bits - 1) <= int(text) < 1 << bits - 1 else None


LIMITS = st.sampled_from([10**9, 10**10, 10**18, 10**19, 2**31, 2**32, 2**63, 2**64])
WHOLE = st.builds(lambda limit, beside, sign: sign * (limit + beside), LIMITS, st.integers(-12, 12), st.sampled_from([1, -1]))
DIGITS = st.one_of(WHOLE.map(str), WHOLE.map(lambda n: f"{'-' * (n < 0)}000{abs(n)}"), WHOLE.map(lambda n: hex(abs(n))))


@given(st.lists(st.one_of(DIGITS, st.integers(-(10**20), 10**20).map(str)), min_size=1, max_size=20))
def test_integers_are_those_that_fit(texts: list[str]) -> None:
    for type_, bits in ((FieldType.INT32, 32), (FieldType.INT64, 64)):
        values, bad = parse(pa.array(texts), type_)
        assert values.to_pylist() == [_whole(text, bits) for text in texts]
        assert bad.tolist() == [i for i, text in enumerate(texts) if _whole(text, bits) is None]


@given(st.lists(st.from_regex(r"\A[+-]?(0{0,3}[0-9]{1,16}(\.[0-9]{0,6}0{0,3})?|0{0,3}\.[0-9]{1,6})\Z"), min_size=1, max_size=20))
def test_money_is_what_has_so_many_digits(texts: list[str]) -> None:
    values, bad = parse(pa.array(texts), FieldType.MONEY)
    units = [Decimal(text).scaleb(4) for text in texts]
    fits = [unit == int(unit) and abs(unit) < 10**18 for unit in units]
    assert values.to_pylist() == [unit.scaleb(-4) if fit else None for unit, fit in zip(units, fits, strict=True)]
    assert bad.tolist() == [i for i, fit in enumerate(fits) if not fit]


@given(st.lists(st.tuples(st.integers(1, 9999), st.integers(0, 13), st.integers(0, 32)), min_size=1, max_size=20))
@example([(2000, 2, 29), (1900, 2, 29), (2024, 2, 29), (2023, 2, 29), (2024, 4, 31)])
def test_dates_are_those_of_the_calendar(days: list[tuple[int, int, int]]) -> None:
    values, bad = parse(pa.array([f"{year:04}-{month:02}-{day:02}" for year, month, day in days]), FieldType.STAMP)
    found = values.to_pylist()
    for row, day in enumerate(days):
        try:
            assert found[row] == datetime(*day)
        except ValueError:
            assert found[row] is None
    assert bad.tolist() == [row for row, value in enumerate(found) if value is None]


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (FieldType.INT32, " 12 ", 12),
        (FieldType.INT64, "+3", 3),
        (FieldType.DOUBLE, "1e3", 1000.0),
        (FieldType.MONEY, "12.3456", Decimal("12.3456")),
        (FieldType.MONEY, "-5", Decimal("-5.0000")),
        (FieldType.BLOB, "aGk=", b"hi"),
    ],
)
def test_value(type_: FieldType, text: str, value: object) -> None:
    values, bad = parse(pa.array([text]), type_)
    assert (values.to_pylist(), bad.tolist()) == ([value], [])


@pytest.mark.parametrize("text", ["+0x1", "-0x1", "+", "+-1", "1_0", "1.0", "1E5", "\u0661", "0x", "0x1ffffffffffffffff"])
def test_what_is_no_integer(text: str) -> None:
    for type_ in (FieldType.INT32, FieldType.INT64):
        assert parse(pa.array([text]), type_)[1].tolist() == [0]


@pytest.mark.parametrize(
    ("type_", "text", "number"),
    [
        (FieldType.STAMP, "1729154425000000", 1_729_154_425_000_000),
        (FieldType.STAMP, "2024-10-17 08:40:25", 1_729_154_425_000_000),
        (FieldType.STAMP, "2024-10-17T08:40:25.123456789Z", 1_729_154_425_123_456),
        (FieldType.STAMP, "2024-10-17", 1_729_123_200_000_000),
        (FieldType.DATE, "1729154425", 1_729_154_425),
        (FieldType.DATE, "2024-10-17 08:40:25.9", 1_729_154_425),
        (FieldType.DATE, "1969-12-31 23:59:59.5", -1),
        (FieldType.DATE, "1970-01-01T00:59:59.5+01:00", -1),
    ],
)
def test_times_are_numbers_or_iso(type_: FieldType, text: str, number: int) -> None:
    values, bad = parse(pa.array([text]), type_)
    assert (values.cast(pa.int64()).to_pylist(), bad.tolist()) == ([number], [])


@pytest.mark.parametrize(
    ("format_", "text", "number"),
    [
        ("%Y-%m-%d %H:%M:%S", "2024-10-17 08:40:25", 1_729_154_425_000_000),
        ("%Y-%m-%d %H:%M:%S", "2024-10-17 08:40:25.000001", 1_729_154_425_000_001),
        ("'%Y-%m-%d %H:%M:%S", "2024-10-17 8:40:25,5", 1_729_154_425_500_000),
        ("%d.%m.%Y", "17.10.2024", 1_729_123_200_000_000),
        ("%H:%M:%S %d/%m/%y", "08:40:25.25 17/10/24", 1_729_154_425_250_000),
        ("%d %b %Y %I:%M %p", "17 Oct 2024 08:40 am", 1_729_154_400_000_000),
        ("%FT%T", "2024-10-17T08:40:25", 1_729_154_425_000_000),
        ("%Y%m%d%H%M%S", "20241017084025", 1_729_154_425_000_000),
        ("%Y-%m-%d", "1729154425000000", 1_729_154_425_000_000),
        ("%d/%b/%Y:%H:%M:%S %z", "17/Oct/2024:10:40:25 +0200", 1_729_154_425_000_000),
        ("%Y-%m-%dT%H:%M:%S%z", "2024-10-17T08:40:25.25Z", 1_729_154_425_250_000),
        ("%z %d.%m.%Y %H:%M", "-05:30 31.12.2023 23:00", 1_704_083_400_000_000),
        ("%Y-%m-%d %H:%M:%S.%f", "2024-10-17 08:40:25.1234567890", 1_729_154_425_123_456),
        ("%d.%m.%Y", "2024-10-17T10:40:25+02:00", 1_729_154_425_000_000),
    ],
)
def test_dateformat(format_: str, text: str, number: int) -> None:
    """SPEC 5.2: strptime, with a fraction accepted after %S; stamps also as numbers and in ISO 8601."""
    values, bad = parse(pa.array([text]), FieldType.STAMP, DateFormat.from_format(format_))
    assert (values.cast(pa.int64()).to_pylist(), bad.tolist()) == ([number], [])


@pytest.mark.parametrize("text", ["31.02.2024", "32.01.2024", "1.1.24x", "", "01/02/2024"])
def test_a_day_that_does_not_exist_is_no_date(text: str) -> None:
    _, bad = parse(pa.array([text]), FieldType.DATE, DateFormat.from_format("%d.%m.%Y"))
    assert bad.tolist() == [0]


@pytest.mark.parametrize(
    ("text", "said"), [("%Y-%Q", "directive %Q, which is not"), ("%z%z", "directive %z, twice"), ("%f", "directive %f, which")]
)
def test_a_directive_that_cannot_be_read_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        DateFormat.from_format(text)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2023-11-05T01:40:00-07:00", "2023-11-05T08:40:00"),
        ("2023-11-05t01:40:00.123456789z", "2023-11-05T01:40:00.123456"),
        ("2023-11-05 01:40:00 +0530", "2023-11-04T20:10:00"),
        ("20231105T014000+05", "2023-11-04T20:40:00"),
        ("20231105T0140Z", "2023-11-05T01:40:00"),
        ("2023-11-05T01:40:00,5", "2023-11-05T01:40:00.500000"),
        ("2023-11-05T01:40.25Z", "2023-11-05T01:40:15"),
        ("2023-11-05T01,5Z", "2023-11-05T01:30:00"),
        ("2023-309T01", "2023-11-05T01:00:00"),
        ("2023309T01", "2023-11-05T01:00:00"),
        ("2023-W44-7", "2023-11-05T00:00:00"),
        ("2023w447t01", "2023-11-05T01:00:00"),
        ("2023-W44", "2023-10-30T00:00:00"),
        ("2023-11", "2023-11-01T00:00:00"),
        ("2023-11-05+02:00", "2023-11-04T22:00:00"),
        ("2023-12-31T24:00:00Z", "2024-01-01T00:00:00"),
        ("1990-12-31T15:59:60.5-08:00", "1991-01-01T00:00:00.500000"),
        ("2024-02-29T23:59:59-00:00", "2024-02-29T23:59:59"),
    ],
)
def test_times_of_iso_8601_and_rfc_3339(text: str, utc: str) -> None:
    values, bad = parse(pa.array([f" {text}\t"]), FieldType.STAMP)
    assert (values.to_pylist(), bad.tolist()) == ([datetime.fromisoformat(utc)], [])


@pytest.mark.parametrize(
    "text",
    [
        "2023-02-29T00:00:00Z",
        "2023-366",
        "2023-W53-1",
        "2023-11-05T25:00Z",
        "2023-11-05T24:00:01Z",
        "2023-11-05T01:60Z",
        "2023-11-05T01:40:60Z",
        "2023-11-05T01:40:00+24:00",
        "2023-11-05T01:40:00+01:60",
        "2023-11-05T01:40:00 UTC",
        "2023-11-05T01:40:00+1",
        "2023-11-05T01:40:00.Z",
        "2023-1-5",
        "2023-11-05-07",
        "\u0662\u0660\u0662\u0663-11-05",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    assert parse(pa.array([text]), FieldType.STAMP)[1].tolist() == [0]


DAYS = st.one_of(st.dates().map(str), st.from_regex(r"\A[0-9]{4}-(0[0-9]|1[0-3])-([0-2][0-9]|3[01])\Z"))
CLOCKS = st.one_of(
    st.times().map(lambda time: time.isoformat()),
    st.from_regex(r"\A[01][0-9](:?[0-6][0-9]){0,2}([.,][0-9]{1,9})?\Z"),
    st.sampled_from(["23:59:60", "24:00:00", "24:00", "00:00:00.9999999"]),
)
ZONES = st.from_regex(r"\A( ?([Zz]|[+-][0-2][0-9](:?[0-6][0-9])?))?\Z")
ISO_TEXTS = st.one_of(
    st.builds("{}{}{}{}".format, DAYS, st.sampled_from("Tt _"), CLOCKS, ZONES),
    st.builds("{}{}".format, DAYS, ZONES),
    st.from_regex(r"\A[0-9]{4}-?(W?[0-5][0-9](-?[0-9])?|[0-3][0-9]{2})([T ][0-2][0-9]:?[0-5][0-9]Z?)?\Z"),
    st.text(alphabet="0123456789-:+TZtzW., ", max_size=24),
)


@given(st.lists(ISO_TEXTS, max_size=12))
def test_times_of_a_column_are_those_that_are_read_one_by_one(texts: list[str]) -> None:
    values, bad = iso_times(pa.array(texts, pa.string()))
    assert values.cast(pa.int64()).to_pylist() == [iso_micros(text.strip()) for text in texts]
    assert bad.tolist() == [row for row, text in enumerate(texts) if iso_micros(text.strip()) is None]


def test_a_double_that_is_written_in_digits_is_finite() -> None:
    """Also in arrays; only texts that name an infinity are one."""
    texts = ["1e400", "-1e309", "1e-400", "1.7976931348623157e308", "inf", "-Infinity", "x"]
    values, bad = parse(pa.array(texts), FieldType.DOUBLE)
    assert (values.to_pylist(), bad.tolist()) == (
        [None, None, 0.0, 1.7976931348623157e308, float("inf"), float("-inf"), None],
        [0, 1, 6],
    )
    assert parse(pa.array(["[1;1e400]", "[inf]"]), FieldType.DOUBLE_ARRAY)[1].tolist() == [0]
