"""guid() and random() are drawn from the position of an event (SPEC Z8): equal in every engine, different for every event."""

from __future__ import annotations

import re

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hotspare.expressions.checking import POSITION_FIELD
from hotspare.expressions.compiled import compile_assignment
from hotspare.model.project import Expression
from hotspare.model.types import Field, FieldType
from hotspare.model.window_type import Counting
from tests.expressions.samples import ESP, SCHEMA, SQL, locate_mistake

COUNT = 2_000


def drawn(text: str, target: FieldType, positions: list[int | None], window: str = "q/w") -> list[object]:
    expression = compile_assignment(Expression(text, ESP), SCHEMA, Field("f", target), window, Counting.POSITION)
    values, failures = expression.evaluate({POSITION_FIELD: pa.array(positions, pa.int64())}, len(positions))
    assert not list(failures)
    found: list[object] = values.to_pylist()
    return found


def test_identifiers_differ_and_look_like_those_of_version_8() -> None:
    found = drawn("guid()", FieldType.STRING, list(range(COUNT)))
    assert len(set(found)) == COUNT
    assert all(re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", str(each)) for each in found)


def test_numbers_lie_evenly_between_their_limits() -> None:
    found = [float(str(each)) for each in drawn("random(10, 20)", FieldType.DOUBLE, list(range(COUNT)))]
    assert all(10 <= each < 20 for each in found)
    assert len(set(found)) == COUNT
    assert [sum(low <= each < low + 1 for each in found) > COUNT / 20 for low in range(10, 20)] == [True] * 10


def test_calls_fields_and_windows_draw_for_themselves() -> None:
    assert drawn("random() - random()", FieldType.DOUBLE, [5]) != [0.0]
    assert drawn("random()", FieldType.DOUBLE, [5]) != drawn("random()", FieldType.DOUBLE, [5], "q/other")


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=6))
def test_a_draw_depends_on_its_place_alone(positions: list[int | None]) -> None:
    whole = drawn("guid()", FieldType.STRING, positions)
    assert [drawn("guid()", FieldType.STRING, [each])[0] for each in positions] == whole
    assert [each is None for each in whole] == [each is None for each in positions]


def test_where_nothing_counts_nothing_can_be_drawn() -> None:
    assert "cannot be used here" in locate_mistake("random()", ESP).message
    assert "it draws a random value" in locate_mistake("random()", SQL).message
