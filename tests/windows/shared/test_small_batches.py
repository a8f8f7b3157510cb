"""A few rows, computed on Python's own values, give the results of columns, to the bit: the result of an event does not depend on
the size of its batch (law Cut; SPEC A24-A26)."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.expressions.single_values import number_step
from hotspare.model.events import Flag, Opcode
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.chunk import Chunk
from hotspare.table.strings import StringTable
from hotspare.windows.aggregate.operator import ChunkEvaluator
from hotspare.windows.shared.expressions import Assignments
from hotspare.windows.shared.small_batches import SMALL_BATCH_ROWS_MAX, SmallBatches
from hotspare.windows.shared.stateless import Projection, RowFunction, Selection
from tests.expressions.random_sql import TARGETS, expressions
from tests.expressions.samples import SCHEMA, SQL, compiled, condition

_WORKS_MIN = 150
_LONGS = (0, 1, -1, 7, 100, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
_INTS = (0, 1, -2, 5, 2**31 - 1, -(2**31))
_DOUBLES = (0.0, -0.0, 1.5, -2.5, 1e300, -1e-320, float("inf"), float("-inf"), float("nan"), 2.0**63)
_MADE = {type_: Schema((Field("k", FieldType.INT64, KeyRole.KEY), Field("f", type_))) for type_ in TARGETS.values()}


def _chunk(rows: list[tuple[int | None, int | None, float | None]]) -> Chunk:
    lanes, valid = np.zeros((len(rows), len(SCHEMA)), np.int64), np.zeros((len(rows), len(SCHEMA)), np.bool_)
    for row, values in enumerate(rows):
        for column, value in enumerate(values):
            if value is not None:
                (lanes.view(np.float64) if isinstance(value, float) else lanes)[row, column] = value
                valid[row, column] = True
    count = len(rows)
    return Chunk(np.arange(count), np.full(count, Opcode.INSERT, np.uint8), np.full(count, Flag.NORMAL, np.uint8), lanes, valid)


def _values(values: tuple[float, ...]) -> st.SearchStrategy[float | None]:
    return st.none() | st.sampled_from(values)


_ROWS = st.lists(st.tuples(_values(_LONGS), _values(_INTS), _values(_DOUBLES)), min_size=1, max_size=4).map(_chunk)


@cache
def _works() -> list[RowFunction]:
    """Returns the random expressions that are computed this way, as an assignment or as a condition."""
    found: list[RowFunction] = []
    for text, type_ in expressions(1500, seed=5):
        expression = compiled(text, SQL, type_)
        if number_step(expression.tree) is not None:
            found.append(_assigned(text, type_))
            if type_ is FieldType.INT64 and len(found) % 3 == 0:
                found.append(Selection(condition(f"{text} > 3", SQL), SCHEMA))
    return found


def test_enough_of_the_language_is_computed_so() -> None:
    assert len(_works()) > _WORKS_MIN
    said = " ".join(str(each) for each in _works())
    used = ("add", "multiply", "divide", "mod", "negate", "abs", "convert", "case", "coalesce", "greater", "least", "round")
    assert [name for name in used if f"function='{name}'" not in said] == []


@given(st.integers(0, _WORKS_MIN), _ROWS)
def test_a_few_rows_are_as_columns_are(number: int, chunk: Chunk) -> None:
    _compare(_works()[number], chunk)


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("a + b", FieldType.INT64),
        ("a % b", FieldType.INT64),
        ("x * 2 - a", FieldType.DOUBLE),
        ("- x", FieldType.DOUBLE),
        ("round(x / b, 1)", FieldType.DOUBLE),
        ("if((x >= 1.5 or a = 7) and not a < b, x, abs(x))", FieldType.DOUBLE),
    ],
)
def test_hard_values_are_as_in_columns(text: str, type_: FieldType) -> None:
    work = _assigned(text, type_)
    assert number_step(work.computed[0][1].tree) is not None
    for row in itertools.product((*_LONGS, None), (*_INTS, None), (*_DOUBLES, None)):
        _compare(work, _chunk([row]))


@pytest.mark.parametrize("text", ["length(s)", "unix_micros(t)", "cast(cast(a as string) as bigint)", "a + cast(m as bigint)"])
def test_what_takes_more_than_numbers_is_left_to_columns(text: str) -> None:
    chunk = _chunk([(1, 2, 3.0)])
    assert SmallBatches(_assigned(text, FieldType.INT64), SCHEMA).try_evaluate(chunk, chunk) is None


def test_many_rows_are_left_to_columns() -> None:
    few = SmallBatches(Selection(condition("a > 0", SQL), SCHEMA), SCHEMA)
    for count, is_done in ((1, True), (SMALL_BATCH_ROWS_MAX, True), (SMALL_BATCH_ROWS_MAX + 1, False)):
        chunk = _chunk([(1, 2, 3.0)] * count)
        assert (few.try_evaluate(chunk, chunk) is not None) == is_done


def _assigned(text: str, type_: FieldType) -> Projection:
    return Projection(Assignments((compiled("a", SQL, FieldType.INT64), compiled(text, SQL, type_))), SCHEMA)


def _compare(work: RowFunction, chunk: Chunk) -> None:
    """Compares with the same rows repeated until columns are used."""
    many = chunk
    while len(many) <= SMALL_BATCH_ROWS_MAX:
        many = many.joined(chunk)
    made = SCHEMA if isinstance(work, Selection) else _MADE[FieldType(work.computed[0][1].tree.type.value)]
    evaluator, count = ChunkEvaluator(SCHEMA, made, work), len(chunk)
    few, passes, refused = evaluator.evaluate_chunk(chunk, StringTable())
    all_, all_pass, all_refused = evaluator.evaluate_chunk(many, StringTable())
    assert passes.tolist() == all_pass[:count].tolist()
    assert few.valid.tolist() == all_.valid[:count].tolist()
    assert few.lanes[passes].tolist() == all_.lanes[:count][passes].tolist()
    begin = int(np.searchsorted(all_refused.rows, count))
    assert refused.rows.tolist() == all_refused.rows[:begin].tolist()
    assert refused.message.to_pylist() == all_refused.message[:begin].to_pylist()
