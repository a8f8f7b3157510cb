"""Small batches of outputs share columns (`flow.output_room`): a batch never changes when later ones are written."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.head.head import Head
from hotspare.flow.output_room import SMALL_OUTPUT_ROWS_MAX
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.flow.project_state import State
from hotspare.projects.load import load_text
from hotspare.rows.batch import RAW_SCHEMA, output_schema

FIELDS = {
    "numbers": ("id*:int64,price:double,at:stamp,day:date", "{},1.5,7,8"),
    "others": ("id*:int64,n:int32,text:string,m:money,b:blob", "{},7,word,1.25,YQ=="),
    "nulls": ("id*:int64,price:double", "{},"),
}


def plan_of(fields: str) -> Plan:
    source = f'      s: {{type: source, index: empty, opcodes: insert-only, schema: "{fields}"}}\n'
    windows = f"{source}      a: {{type: copy, index: empty}}\n"
    return compile_plan(load_text(f"project: p\nqueries:\n  q:\n    windows:\n{windows}    edges: [s -> a]\n").resolved)


def decoded(head: Head, row: str, begin: int, counts: Sequence[int]) -> list[pa.RecordBatch]:
    """Returns batches of the given counts of events."""
    made = []
    for count in counts:
        values = [(0, 0, i, i, False, 0, f"I,N,{row.format(i)}".encode()) for i in range(begin, begin + count)]
        columns = zip(*values, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, RAW_SCHEMA, strict=True)]
        made.append(head.decode(pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)))
        begin += count
    return made


@given(st.sampled_from(sorted(FIELDS)), st.lists(st.integers(1, 2 * SMALL_OUTPUT_ROWS_MAX), min_size=1, max_size=12))
def test_outputs_stay_as_they_are_however_many_come_after_them(kind: str, counts: list[int]) -> None:
    fields, row = FIELDS[kind]
    plan = plan_of(fields)
    head = Head.from_plan(plan)
    whole = Pipeline.fresh(plan).feed(*decoded(head, row, 0, [sum(counts)]))["q/a"]
    pipeline = Pipeline.fresh(plan)
    parts = [pipeline.feed(batch)["q/a"] for batch in decoded(head, row, 0, counts)]
    assert [part.num_rows for part in parts] == counts
    assert all(part.schema.equals(output_schema(plan.entry_schemas[0])) for part in parts)
    for part in parts:
        part.validate(full=True)
    assert pa.concat_batches(parts).equals(whole)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda state: pickle.loads(pickle.dumps(state))])
def test_states_that_are_copied_write_to_different_rows(copied: Callable[[State], State]) -> None:
    """A failed step is retried on a copy of the state before it."""
    fields, row = FIELDS["numbers"]
    plan = plan_of(fields)
    first = Pipeline.fresh(plan)
    one, two, other = decoded(Head.from_plan(plan), row, 0, [1, 1, 1])
    first.feed(one)
    second = Pipeline(plan, copied(first._state))
    mine = first.feed(two)["q/a"]
    before = mine.to_pydict()
    second.feed(other)
    assert mine.to_pydict() == before
