"""Field values and user code: the field's value for any value that code may give (SPEC A36)."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.model.types import FieldType
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.batch import ARROW_TYPE
from hotspare.scripting.fields import ColumnBuilder, Unfit, column_values

ANY = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.just([]), st.just({}))


def column(type_: FieldType, *values: Any) -> pa.Array:
    builder = ColumnBuilder(type_)
    for value in values:
        builder.append(builder.fitted(value))
    return builder.array()


@given(st.sampled_from(FieldType), ANY)
def test_every_value_becomes_one_of_the_field_or_is_refused(type_: FieldType, value: Any) -> None:
    try:
        made = column(type_, value)
    except Unfit as unfit:
        assert str(unfit)
        assert unfit.reason in (BadReason.CODE, BadReason.NUMBER_RANGE)
        return
    assert made.type == ARROW_TYPE[type_]
    made.validate(full=True)


@given(st.sampled_from(FieldType), st.data())
def test_what_code_sees_of_a_field_it_may_give_back(type_: FieldType, data: st.DataObject) -> None:
    values = {
        FieldType.INT32: st.integers(-(2**31), 2**31 - 1),
        FieldType.DOUBLE: st.floats(allow_nan=False),
        FieldType.STRING: st.text(),
        FieldType.MONEY: st.integers(-(10**12), 10**12).map(lambda n: Decimal(n).scaleb(-4)),
        FieldType.BLOB: st.binary(),
        FieldType.INT32_ARRAY: st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=4),
        FieldType.INT64_ARRAY: st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=4),
        FieldType.DOUBLE_ARRAY: st.lists(st.none() | st.floats(allow_nan=False), max_size=4),
    }.get(type_, st.integers(-(2**63), 2**63 - 1))
    given_ = pa.array([data.draw(values), None], pa.int64() if type_ in (FieldType.DATE, FieldType.STAMP) else ARROW_TYPE[type_])
    given_ = given_.cast(ARROW_TYPE[type_])
    assert column(type_, *column_values(given_, type_)).equals(given_)


@pytest.mark.parametrize(
    ("type_", "value", "fitted"),
    [
        (FieldType.INT32, -2.9, -2),
        (FieldType.INT64, True, 1),
        (FieldType.INT64, " 17 ", 17),
        (FieldType.DOUBLE, "1.5", 1.5),
        (FieldType.STRING, 7, "7"),
        (FieldType.STRING, False, "false"),
        (FieldType.MONEY, 0.00005, Decimal("0.0001")),
        (FieldType.MONEY, "12.5", Decimal("12.5000")),
        (FieldType.DATE, "1970-01-02", 86_400),
        (FieldType.INT32, math.nan, None),
        (FieldType.INT32_ARRAY, (1, 2.7, None, "3"), [1, 2, None, 3]),
        (FieldType.DOUBLE_ARRAY, "[1;2.5]", [1.0, 2.5]),
    ],
)
def test_values_become_those_of_their_field(type_: FieldType, value: Any, fitted: Any) -> None:
    assert ColumnBuilder(type_).fitted(value) == fitted


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (FieldType.INT32_ARRAY, [1, 2**31]),
        (FieldType.INT32, 2**31),
        (FieldType.INT64, 1e19),
        (FieldType.DOUBLE, 10**400),
        (FieldType.MONEY, math.inf),
    ],
)
def test_a_number_that_does_not_fit_says_so(type_: FieldType, value: Any) -> None:
    with pytest.raises(Unfit, match="does not fit") as unfit:
        ColumnBuilder(type_).fitted(value)
    assert unfit.value.reason is BadReason.NUMBER_RANGE
