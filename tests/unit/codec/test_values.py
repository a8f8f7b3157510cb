"""Text to values: a text is read the same way whatever stands around it (SPEC 5.2: blanks, dates, money; SPEC A7)."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hotspare.engine.rows.batch import ARROW_TYPE
from hotspare.engine.rows.values import DateFormat, parse
from hotspare.errors import UsageError
from hotspare.model.types import FieldType

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
        ["2024-10-17 08:40:25.5", "2024-10-17T08:40:25Z", "99999999999999999999", "2147483648", "1e400", "nan(x)", "0xg", "--1"]
    ),
    st.text(alphabet="0123456789+-.eExXnaifty() :TZ", max_size=8),
)


@pytest.mark.parametrize("type_", TYPES)
@given(texts=st.lists(TEXTS, min_size=1, max_size=10))
def test_a_text_does_not_depend_on_its_neighbours(type_: FieldType, texts: list[str | None]) -> None:
    dateformat = DateFormat.of("%Y-%m-%d %H:%M:%S")
    for dates in (None, dateformat):
        together, bad = parse(pa.array(texts, pa.string()), type_, dates)
        assert together.type == ARROW_TYPE[type_]
        alone = [parse(pa.array([text], pa.string()), type_, dates) for text in texts]
        assert [str(v) for v in together] == [str(v[0]) for v, _ in alone]
        assert bad.tolist() == [i for i, (_, wrong) in enumerate(alone) if len(wrong)]
        assert not any(together[i].is_valid for i in bad.tolist())
        assert all(together[i].is_valid for i, text in enumerate(texts) if text is not None and i not in set(bad.tolist()))


def _whole(text: str, bits: int) -> int | None:
    """What an integer of so many bits means; Arrow takes hexadecimal digits as the bits."""
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
    ],
)
def test_dateformat(format_: str, text: str, number: int) -> None:
    """SPEC 5.2: strptime, with a fraction accepted after %S; stamps also as numbers."""
    values, bad = parse(pa.array([text]), FieldType.STAMP, DateFormat.of(format_))
    assert (values.cast(pa.int64()).to_pylist(), bad.tolist()) == ([number], [])


@pytest.mark.parametrize("text", ["31.02.2024", "32.01.2024", "1.1.24x", "", "01/02/2024"])
def test_a_day_that_does_not_exist_is_no_date(text: str) -> None:
    _, bad = parse(pa.array([text]), FieldType.DATE, DateFormat.of("%d.%m.%Y"))
    assert bad.tolist() == [0]


def test_a_directive_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(UsageError, match="directive %Q"):
        DateFormat.of("%Y-%Q")
