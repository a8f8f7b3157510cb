"""Lanes: every field type survives the way through 64 bits (A7, A13)."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotspare.engine.batch import ARROW_TYPE
from hotspare.engine.lanes import TEXT_LENGTH_MAX, row_text, to_arrow, to_lane, to_lanes
from hotspare.engine.strings import StringTable
from hotspare.model.types import Field, FieldType, KeyRole, Schema

VALUES: dict[FieldType, st.SearchStrategy[object]] = {
    FieldType.INT32: st.integers(-(2**31), 2**31 - 1),
    FieldType.INT64: st.integers(-(2**63), 2**63 - 1),
    FieldType.DOUBLE: st.floats(allow_nan=False),
    FieldType.STRING: st.text(max_size=5),
    FieldType.DATE: st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 1, 1)).map(lambda d: d.replace(microsecond=0)),
    FieldType.STAMP: st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 1, 1)),
    FieldType.MONEY: st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: decimal.Decimal(n).scaleb(-4)),
    FieldType.BLOB: st.binary(max_size=5),
}


@pytest.mark.parametrize("type_", FieldType)
@settings(max_examples=25)
@given(st.data())
def test_round_trip(type_: FieldType, data: st.DataObject) -> None:
    """Of slices too; an invalid lane holds 0."""
    values = data.draw(st.lists(st.one_of(st.none(), VALUES[type_]), max_size=20))
    begin = data.draw(st.integers(0, len(values)))
    array = pa.array(values, ARROW_TYPE[type_]).slice(begin)
    strings = StringTable()
    lane, valid = to_lane(array, type_, strings)
    assert lane.dtype == np.int64
    assert not lane[~valid].any()
    back = to_arrow(lane, valid, type_, strings)
    back.validate(full=True)
    assert back.equals(array)


def test_columns() -> None:
    schema = Schema((Field("k", FieldType.STRING, KeyRole.KEY), Field("x", FieldType.DOUBLE)))
    strings = StringTable()
    lanes, valid = to_lanes([pa.array(["a", None]), pa.array([None, 1.5])], schema, strings)
    assert valid.tolist() == [[True, False], [False, True]]
    assert lanes.view(np.float64)[1, 1] == 1.5
    assert row_text(schema, lanes[1], valid[1], 3, strings) == "P,,1.5"


def test_row_text_is_bounded() -> None:
    schema = Schema((Field("k", FieldType.STRING, KeyRole.KEY),))
    strings = StringTable()
    lanes, valid = to_lanes([pa.array(["x" * 10_000])], schema, strings)
    assert len(row_text(schema, lanes[0], valid[0], 1, strings)) == TEXT_LENGTH_MAX
