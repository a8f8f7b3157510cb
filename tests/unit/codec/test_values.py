"""Text to values: a text is read the same way whatever stands around it (SPEC 5.2: blanks, dates, money; A7)."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.engine.batch import ARROW_TYPE
from hotspare.engine.codec.values import DateFormat, parse
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
