"""Every field type survives the conversion to 64-bit lanes and back (SPEC A7, A13)."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import ARROW_TYPE
from hotspare.rows.event_texts import event_texts
from hotspare.rows.refusals import BAD_TEXT_LENGTH_MAX
from hotspare.table.lanes import to_arrow, to_arrow_columns, to_lane, to_lanes
from hotspare.table.strings import StringTable
from tests.examples import examples

VALUES: dict[FieldType, st.SearchStrategy[object]] = {
    FieldType.INT32: st.integers(-(2**31), 2**31 - 1),
    FieldType.INT64: st.integers(-(2**63), 2**63 - 1),
    FieldType.DOUBLE: st.floats(allow_nan=False),
    FieldType.STRING: st.text(max_size=5),
    FieldType.DATE: st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 1, 1)).map(lambda d: d.replace(microsecond=0)),
    FieldType.STAMP: st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 1, 1)),
    FieldType.MONEY: st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: decimal.Decimal(n).scaleb(-4)),
    FieldType.BLOB: st.binary(max_size=5),
    FieldType.INT32_ARRAY: st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=4),
    FieldType.INT64_ARRAY: st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=4),
    FieldType.DOUBLE_ARRAY: st.lists(st.none() | st.floats(allow_nan=False), max_size=4),
}


@pytest.mark.parametrize("type_", FieldType)
@examples(0.4)
@given(st.data())
def test_round_trip(type_: FieldType, data: st.DataObject) -> None:
    """Slices, too; an invalid lane holds 0."""
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
    columns = to_arrow_columns(lanes, valid, schema, strings)
    assert event_texts(schema, np.array([1, 3], np.uint8), columns).to_pylist() == ["I,a,", "P,,1.5"]


def test_texts_of_events() -> None:
    """Times are numbers, blobs hexadecimal, null is empty; at most BAD_TEXT_LENGTH_MAX characters."""
    values = [pa.array([1, None]), pa.array([2.5, -0.0]), pa.array(["x" * 10_000, ""]), pa.array([b"\x00\xff", b""])]
    values += [pa.array([5, None], ARROW_TYPE[type_]) for type_ in (FieldType.DATE, FieldType.STAMP)]
    values.append(pa.array([decimal.Decimal("1.5"), None], ARROW_TYPE[FieldType.MONEY]))
    types = (FieldType.INT64, FieldType.DOUBLE, FieldType.STRING, FieldType.BLOB, FieldType.DATE, FieldType.STAMP, FieldType.MONEY)
    schema = Schema(tuple(Field(f"f{i}", type_) for i, type_ in enumerate(types)))
    first, second = event_texts(schema, np.array([4, 6], np.uint8), values).to_pylist()
    assert (len(first), second) == (BAD_TEXT_LENGTH_MAX, "UB,,-0.0,,,,,")
    fields = [value.slice(0, 1) if i != 2 else pa.array(["a,b"]) for i, value in enumerate(values)]
    (short,) = event_texts(schema, np.array([4], np.uint8), fields).to_pylist()
    assert short == "D,1,2.5,a,b,00ff,5,5,1.5000"
