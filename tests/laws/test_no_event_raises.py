"""Events never end an engine, tested at the evaluation of expressions: each row gives a value or a bad event, never an exception.

It also tests law Cut: the result of a row is the same together with others, in any cut, and alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.expressions.compiled import CompiledExpression
from hotspare.expressions.function_table import FUNCTION_TABLE
from hotspare.expressions.tree import Typed, TypedCall, TypedField, ValueType, fields_used
from hotspare.model.project import Dialect
from hotspare.rows.arrays import packed
from tests.examples import examples
from tests.laws.expression_calls import EXTREMES, FIELDS, Asked, columns_for, every_call

ROWS_MAX = 60
ALONE_EVERY = 31
"""In every second call, one row of this many is computed alone, in varying places; the calls between are cut in two."""
Told = tuple[list[object], list[tuple[int, str, str]]]


@cache
def collect_awaited_events(name: str) -> tuple[Asked, ...]:
    """Returns every call of a function, in both dialects; calls with equal meaning only once."""
    found = {asked.expression.tree: asked for dialect in Dialect for asked in every_call(name, dialect)}
    return tuple(found.values())


@pytest.mark.parametrize("name", FUNCTION_TABLE)
def test_every_function_gives_each_row_a_value_or_a_reason_in_any_cut(name: str) -> None:
    calls = collect_awaited_events(name)
    assert calls, f"{name} takes nothing"
    for number, asked in enumerate(calls):
        columns, count = columns_for(asked.expression.fields, ROWS_MAX)
        whole = told(asked, columns, 0, count)
        if number % 2:
            middle = count // 3
            assert joined(told(asked, columns, 0, middle), told(asked, columns, middle, count), middle) == whole, asked.what
            continue
        for row in range(number // 2 % min(count, ALONE_EVERY), count, ALONE_EVERY):
            assert told(asked, columns, row, row + 1) == taken(whole, row), f"{asked.what}, row {row}"


@examples(3)
@given(st.data())
def test_nested_calls_give_each_row_a_value_or_a_reason_in_any_cut(data: st.DataObject) -> None:
    outer, inner = (
        data.draw(st.sampled_from(collect_awaited_events(data.draw(st.sampled_from(sorted(FUNCTION_TABLE)))))) for _ in range(2)
    )
    tree = with_inner(outer.expression.tree, inner.expression.tree)
    asked = Asked(f"{inner} within {outer}", dataclasses.replace(outer.expression, tree=tree, fields=fields_used(tree)))
    rows = data.draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=12))
    columns = {
        name: EXTREMES[FIELDS[name]].take(pa.array([row // (7**i) % len(EXTREMES[FIELDS[name]]) for row in rows]))
        for i, name in enumerate(FIELDS)
    }
    columns |= {name: pa.array(["D"] * len(rows)) for name in asked.expression.fields if name not in FIELDS}
    whole = told(asked, columns, 0, len(rows))
    for row in range(len(rows)):
        assert told(asked, columns, row, row + 1) == taken(whole, row)


def with_inner(outer: Typed, inner: Typed) -> Typed:
    """Returns `outer` with `inner` in place of the fields of its type."""
    if isinstance(outer, TypedField) and outer.type is inner.type:
        return inner
    if isinstance(outer, TypedCall):
        return dataclasses.replace(outer, arguments=tuple(with_inner(a, inner) for a in outer.arguments))
    return outer


def told(asked: Asked, columns: Mapping[str, pa.Array], begin: int, end: int) -> Told:
    """Returns the bits of the values of some rows, and the failures among them: (row, reason, message)."""
    expression: CompiledExpression = asked.expression
    chosen = {name: columns[name].slice(begin, end - begin) for name in expression.fields}
    try:
        values, failures = expression.evaluate(chosen, end - begin)
    except Exception as error:
        raise AssertionError(f"{asked.what}: {error!r}") from error
    assert isinstance(values, pa.Array) and values.type == expression.tree.type.arrow, f"{asked.what}: {values.type}"
    assert len(values) == end - begin, f"{asked.what}: {len(values)} values of {end - begin} rows"
    failed = [failure.row for failure in failures]
    unforeseen = [failure.message for failure in failures if "cannot be computed" in failure.message]
    assert not unforeseen, unforeseen
    assert failed == sorted(set(failed)) and not any(values[row].is_valid for row in failed), asked.what
    return bits(values), [(f.row, str(f.reason), f.message) for f in failures]


def bits(values: pa.Array) -> list[object]:
    """Returns comparable values: NaN equals itself, the two zeros differ, and a stamp may be beyond Python's range."""
    if pa.types.is_floating(values.type):
        doubles = values.fill_null(0.0).to_numpy()
        doubles = np.where(np.isnan(doubles), np.nan, doubles)
        return [
            bit if valid else None
            for bit, valid in zip(doubles.view(np.int64).tolist(), values.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_timestamp(values.type):
        return list(values.cast(pa.int64()).to_pylist())
    if pa.types.is_list(values.type) and (
        pa.types.is_integer(values.type.value_type) or pa.types.is_floating(values.type.value_type)
    ):
        return list(packed(values).to_pylist())
    return list(values.to_pylist())


def taken(whole: Told, row: int) -> Told:
    return [whole[0][row]], [(0, reason, message) for failed, reason, message in whole[1] if failed == row]


def joined(first: Told, second: Told, count: int) -> Told:
    return first[0] + second[0], first[1] + [(row + count, reason, message) for row, reason, message in second[1]]


def test_every_type_of_value_is_asked_for() -> None:
    assert set(EXTREMES) == set(ValueType) - {ValueType.NULL}
