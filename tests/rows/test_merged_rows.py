"""The cost of a row does not grow with the number of topics."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from hotspare.rows.batch import ARROW_TYPE, BAD_TYPE, RAW_SCHEMA
from hotspare.rows.elementwise import null_array
from hotspare.rows.ordering import by_partition, partition_numbers

ROWS = 40


def plan_of(topics: int) -> Plan:
    """Returns the plan of one window over sources that hold back each other's rows."""
    sources = "".join(
        f'      s{i}: {{type: source, index: empty, opcodes: insert-only, schema: "id*:int64,text:string"}}\n'
        for i in range(topics)
    )
    edges = ", ".join(f"s{i} -> all" for i in range(topics))
    union = "      all: {type: union, index: empty}\n"
    return compile_plan(load_text(f"project: p\nqueries:\n  q:\n    windows:\n{sources}{union}    edges: [{edges}]\n").resolved)


def raw(topic: int, rows: range, topics: int, *, ends: bool) -> pa.RecordBatch:
    """Returns every `topics`-th row; with `ends`, a tick after all."""
    mine = [row for row in rows if row % topics == topic]
    values = [(topic, 0, 2 * row, row, False, 0, f"I,N,{row},t{row}".encode()) for row in mine]
    values += [(topic, 0, 2 * rows.stop, rows.stop, True, 0, b"")] if ends else []
    columns = zip(*values, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, RAW_SCHEMA, strict=True)], schema=RAW_SCHEMA)


def test_rows_that_wait_take_as_much_memory_with_many_topics_as_with_few() -> None:
    taken = []
    for topics in (2, 30):
        plan = plan_of(topics)
        pipeline = Pipeline.fresh(plan)
        pipeline.feed(Head.from_plan(plan).decode(raw(0, range(0, 1000, 1), 1, ends=False)))
        assert pipeline.waiting_rows == 1000
        taken.append(pipeline.waiting_bytes)
    assert taken[0] == taken[1]


@pytest.mark.parametrize("topics", [2, 3, 7])
def test_events_of_all_topics_come_in_the_order_of_their_times(topics: int) -> None:
    plan = plan_of(topics)
    pipeline, head = Pipeline.fresh(plan), Head.from_plan(plan)
    table = pa.Table.from_batches([head.decode(raw(topic, range(ROWS), topics, ends=True)) for topic in range(topics)])
    made = pipeline.feed(table)["q/all"]
    assert made.column("id").to_pylist() == list(range(ROWS))
    assert made.column("text").to_pylist() == [f"t{row}" for row in range(ROWS)]


@given(st.integers(1, 50), st.sampled_from([*ARROW_TYPE.values(), BAD_TYPE]))
def test_nothing_is_nulls(count: int, type_: pa.DataType) -> None:
    array = null_array(count, type_)
    array.validate(full=True)
    assert array.equals(pa.nulls(count, type_))
    assert array.take(pa.array(np.zeros(count, np.int64))).null_count == count


@given(st.lists(st.tuples(st.sampled_from([0, 1, 5, 70_000]), st.sampled_from([0, 2, 3, 2**31 - 1])), min_size=1, max_size=30))
def test_rows_are_taken_apart_by_partition(keys: list[tuple[int, int]]) -> None:
    topics, partitions = (np.array(column, np.int32) for column in zip(*keys, strict=True))
    found, number = partition_numbers(topics, partitions)
    assert found == sorted(set(keys))
    assert [found[i] for i in (np.zeros(len(keys), np.int64) if number is None else number)] == keys
    for key, rows in by_partition(topics, partitions):
        expected = [row for row, each in enumerate(keys) if each == key]
        assert (list(range(len(keys))) if rows is None else rows.tolist()) == expected
