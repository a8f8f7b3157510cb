"""Dates and stamps in files: by a format that is checked before anything is written, and right for every value (SPEC I6, F4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hotspare.adapters.files.output_rows import FileStyle, OutputRows
from hotspare.base.errors import UsageError
from hotspare.model.types import Field, FieldType, Schema
from hotspare.rows.batch import OUTPUT_COLUMNS, output_schema

SCHEMA = Schema((Field("at", FieldType.DATE), Field("exactly", FieldType.STAMP)))
INT64 = st.integers(-(2**63), 2**63 - 1)
FIRST_S, END_S = -62_135_596_800, 253_402_300_800
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def written(seconds: int, micros: int, date_format: str) -> list[str]:
    """Returns the two fields as a file has them."""
    fixed = {name: pa.array([0]).cast(type_) for name, type_ in OUTPUT_COLUMNS}
    fields = {"at": pa.array([seconds], pa.timestamp("s")), "exactly": pa.array([micros], pa.timestamp("us"))}
    rows = pa.RecordBatch.from_pydict({**fixed, **fields}, schema=output_schema(SCHEMA))
    return OutputRows(FileStyle(date_format=date_format), SCHEMA).format_rows(rows).decode().strip().split(",")[-2:]


def expected(seconds: int) -> str:
    if not FIRST_S <= seconds < END_S:
        return str(seconds)
    at = EPOCH + timedelta(seconds=seconds)
    return f"{at.year:04}-{at:%m-%d %H:%M}"


@example(2**63 - 1, -(2**63))
@example(FIRST_S, END_S * 10**6)
@example(END_S, END_S * 10**6 - 1)
@example(-1, -1)
@given(INT64 | st.integers(FIRST_S - 5, END_S + 5), INT64 | st.integers((FIRST_S - 5) * 10**6, (END_S + 5) * 10**6))
def test_a_time_is_its_text_by_the_calendar_or_beyond_the_calendars_years_its_number(seconds: int, micros: int) -> None:
    at, exactly = written(seconds, micros, "%Y-%m-%d %H:%M")
    assert at.strip() == expected(seconds)
    whole = micros // 10**6
    assert exactly == (expected(whole) if FIRST_S <= whole < END_S else str(micros))


def test_a_format_that_writes_a_zone_is_refused_before_anything_is_written() -> None:
    with pytest.raises(UsageError, match="dateformat '%z' cannot be used"):
        FileStyle(date_format="%z")
