"""Array fields in expressions: elements, sizes, equality, and functions that pass them on (SPEC A7)."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import ProjectError
from hotspare.expressions.compiled import compile_assignment
from hotspare.expressions.tree import ValueType
from hotspare.model.project import Expression
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from tests.expressions.samples import SQL, with_events

SCHEMA = Schema(
    (
        Field("id", FieldType.INT64, KeyRole.KEY),
        Field("few", FieldType.INT32_ARRAY),
        Field("real", FieldType.DOUBLE_ARRAY),
        Field("other", FieldType.DOUBLE_ARRAY),
    )
)
Reals = list[float | None] | None


def evaluated(
    text: str, target: FieldType, number: int | None = 0, real: Reals = None, other: Reals = None
) -> tuple[object, list[str]]:
    """Returns the value of one row, and why it fails."""
    values = (number, None if real is None else [1], real, other)
    columns = {
        f.name: pa.array([value], ValueType.from_field_type(f.type).arrow) for f, value in zip(SCHEMA.fields, values, strict=True)
    }
    found, failures = compile_assignment(Expression(text, SQL), SCHEMA, Field("f", target), "q/w").evaluate(
        with_events(columns, 1), 1
    )
    return found.to_pylist()[0], [failure.message for failure in failures]


reals = st.none() | st.lists(st.none() | st.floats(allow_nan=False), max_size=4)


@given(reals, st.none() | st.integers(-6, 6))
def test_an_element_counts_from_one_or_from_the_end(real: Reals, number: int | None) -> None:
    """A missing element fails, or is null in the functions that return null; a null index gives null."""
    place = None if number is None or real is None else number - 1 if number > 0 else len(real) + number
    is_there = real is not None and place is not None and number != 0 and 0 <= place < len(real)
    expected = real[place] if real is not None and place is not None and is_there else None
    found, failures = evaluated("element_at(real, id)", FieldType.DOUBLE, number, real)
    assert (found, bool(failures)) == (expected, place is not None and not is_there)
    assert evaluated("try_element_at(real, id)", FieldType.DOUBLE, number, real) == (expected, [])
    assert evaluated("size(real)", FieldType.INT32, number, real) == (None if real is None else len(real), [])


@pytest.mark.parametrize(
    ("real", "other", "same"),
    [
        ([], [], True),
        ([0.0, None, math.nan], [-0.0, None, math.nan], True),
        ([1.0], [1.0, None], False),
        ([None], [0.0], False),
        (None, [], None),
    ],
)
def test_arrays_are_equal_where_their_elements_are(real: Reals, other: Reals, same: bool | None) -> None:
    assert evaluated("cast(real = other as int)", FieldType.INT32, 0, real, other) == (None if same is None else int(same), [])
    is_null = same is not False
    assert evaluated("cast(nullif(real, other) is null as int)", FieldType.INT32, 0, real, other) == (int(is_null), [])


def test_arrays_pass_through_what_chooses() -> None:
    assert evaluated("case when id = 0 then real else other end", FieldType.DOUBLE_ARRAY, 0, [1.0], [2.0]) == ([1.0], [])
    assert evaluated("coalesce(real, other)", FieldType.DOUBLE_ARRAY, 0, None, [2.0, None]) == ([2.0, None], [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("few < few", "arrays have no order"),
        ("few = real", "no common type"),
        ("size(id)", "int64 is not an array"),
        ("few[0]", "cannot be used here"),
        ("element_at(few, 'a')", "not int64"),
    ],
)
def test_what_no_array_can_do_is_refused(text: str, message: str) -> None:
    with pytest.raises(ProjectError, match=message):
        evaluated(text, FieldType.INT32)
