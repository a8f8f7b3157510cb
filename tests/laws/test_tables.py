"""Law Runner for tables: a project over tables gives the outputs of `hotspare replay` over the same rows in
order.

This test runs a task's work without Spark; tests/integration/spark/test_tables.py uses Spark.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import UsageError
from hotspare.flow.plan import compile_plan
from hotspare.projects.load import load_text
from hotspare.projects.resolve import resolve
from hotspare.rows.batch import BAD_STREAM
from hotspare.spark.in_task import TIME, OnBadEvents, ShardWork, TimeRange, field_column
from tests.cases.case import OF_EVERY_TYPE, read_case
from tests.examples import examples
from tests.laws.any_tables import AnyTable, Kind, Values, any_table, replayed, task_batches, time_field_of
from tests.laws.search import drawn
from tests.laws.table_laws import STEPS, check_all_streams, opaque_values, tables_differ

pytestmark = pytest.mark.law

SEEDS = st.integers(0, 1 << 40)


@examples(0.15)
@given(seed=SEEDS)
def test_a_task_gives_what_replay_gives(seed: int) -> None:
    """Any graph, any rows; `make laws-search` tries more."""
    assert tables_differ(drawn(seed)[0], seed) is None


@pytest.mark.parametrize("path", OF_EVERY_TYPE, ids=lambda path: path.stem)
def test_a_case_over_tables(path: Path) -> None:
    """Rows of every type and size for cases that have windows of all types, with times if their sources have such a field."""
    random = Random(path.stem)
    plan = read_case(path).plan
    schemas = [plan.resolved.schema(source) for source in plan.resolved.sources]
    times = [time_field_of(schema) for schema in schemas]
    times = times if all(times) else [""] * len(times)
    check_all_streams(plan, {i: any_table(s, random, 30, t) for i, (s, t) in enumerate(zip(schemas, times, strict=True))}, random)


KEYED = """
project: keyed
heartbeat: 500 milliseconds
queries:
  q:
    windows:
      given: {type: source, schema: "id*:int64,x*:int64,d:double,s:string,at:stamp", opcodes: insert-only, index: empty}
      recent: {type: copy, retention: {bytime_sliding: 2 seconds}}
      sums: {type: aggregate, schema: "x*:int64,n:int64,total:double", publish: true,
             outputs: {n: ESP_aCount(), total: ESP_aSum(d)}}
    edges: [given -> recent, recent -> sums]
"""


def keyed_table(rows: int, random: Random) -> AnyTable:
    resolved = load_text(KEYED).resolved
    return any_table(resolved.schema(resolved.sources[0]), random, rows, "at", Kind.INSERTS)


@examples(0.35)
@given(seed=SEEDS)
def test_a_division_by_key_gives_each_key_what_the_whole_gives(seed: int) -> None:
    """SPEC K4. System time and its heartbeats are those of all rows: evictions by time are at the same heartbeats."""
    random = Random(seed)
    table, loaded = keyed_table(60, random), load_text(KEYED)
    with tempfile.TemporaryDirectory() as folder:
        expected = replayed(compile_plan(loaded.resolved), {0: table}, Path(folder)).get("q/sums", [])
    assert table.times_us is not None
    span = TimeRange(table.times_us[0].as_py(), table.times_us[-1].as_py())
    work = ShardWork.for_project(loaded.project, "q/sums", OnBadEvents.KEEP, span)
    shard = np.array([hash((seed, value)) % 3 for value in table.fields[1].to_pylist()])
    found = []
    for number in range(4):
        mine = table.taken(np.flatnonzero(shard == number).tolist())
        found += opaque_values(list(work.run(task_batches({0: mine}, random), number, random.choice(STEPS))))
    assert by_key(found) == by_key(expected)
    assert expected


def by_key(outputs: list[Values]) -> dict[object, list[Values]]:
    keys: dict[object, list[Values]] = {}
    for output in outputs:
        keys.setdefault(output[2], []).append(output)
    return keys


def test_a_row_that_is_refused_ends_the_job_and_is_named() -> None:
    """The error has the window, the reason and the row."""
    table, loaded = keyed_table(4, Random(1)), load_text(KEYED)
    keys = pa.array([0, 1, None, 3], pa.int64())
    table = AnyTable(table.schema, (keys, *table.fields[1:]), table.times_us, table.opcode, table.flags)
    work = ShardWork.for_project(resolve(loaded.project).project, "q/sums", OnBadEvents.FAIL, None)
    with pytest.raises(UsageError) as refused:
        list(work.run(task_batches({0: table}, Random(1)), 0))
    assert "window q/given refuses a row (null-key)" in str(refused.value)
    assert "the row is I,," in str(refused.value)


@pytest.mark.parametrize(("column", "reason"), [("opcode", "opcode"), ("flags", "flag")])
def test_a_word_that_is_no_opcode_is_named(column: str, reason: str) -> None:
    table, loaded = keyed_table(4, Random(3)), load_text(KEYED)
    words = pa.array(["Insert", "i", "Q", None] if column == "opcode" else ["N", "n", "Q", None])
    opcode, flags = (words, table.flags) if column == "opcode" else (table.opcode, words)
    table = AnyTable(table.schema, table.fields, table.times_us, opcode, flags)
    work = ShardWork.for_project(loaded.project, BAD_STREAM, OnBadEvents.KEEP, None)
    made = pa.Table.from_batches(work.run(task_batches({0: table}, Random(1)), 0)).to_pylist()
    rows = [row for row in made if row["reason"] == reason]
    assert len(rows) == 2
    assert f"window q/given: 'Q' is no {reason}" in rows[0]["message"]
    assert "None is no" in rows[1]["message"]
    assert "id=2" in rows[0]["text"]


def test_a_row_without_a_time_is_named() -> None:
    batches = task_batches({0: keyed_table(4, Random(3))}, Random(1))
    rows = pa.Table.from_batches(batches).combine_chunks().set_column(0, TIME, pa.array([1, 2, None, 3], pa.int64()))
    work = ShardWork.for_project(load_text(KEYED).project, "q/sums", OnBadEvents.KEEP, None)
    with pytest.raises(UsageError, match="a row of q/given has no time") as refused:
        list(work.run(rows.to_batches(), 0))
    assert "id=2" in refused.value.detail


def test_outputs_leave_while_rows_still_come() -> None:
    """A shard is never buffered as a whole."""
    batches = task_batches({0: keyed_table(300, Random(3))}, Random(1))
    asked = []

    def coming():  # type: ignore[no-untyped-def]
        for number, batch in enumerate(batches):
            asked.append(number)
            yield batch

    next(ShardWork.for_project(load_text(KEYED).project, "q/sums", OnBadEvents.KEEP, None).run(coming(), 0, step_rows=1))
    assert len(asked) < len(batches) / 2


ZONED = """
project: zoned
queries:
  q:
    windows:
      s: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64"}
      w:
        type: python
        index: empty
        schema: "id*:int64,epoch:int64"
        events: create
        publish: true
        code: |
          from datetime import datetime
          def create(data):
              return {"epoch": int(datetime(2020, 7, 1).strftime("%s"))}
    edges: [s -> w]
"""


def test_a_task_runs_in_the_time_zone_of_every_engine_and_gives_its_own_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC A36: a Spark worker also runs other code of its application."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        rows = pa.record_batch({field_column(0, 0): pa.array([1], pa.int64())})
        outputs = list(ShardWork.for_project(load_text(ZONED).project, "q/w", OnBadEvents.FAIL, None).run([rows], 0))
        assert [batch.column("epoch").to_pylist() for batch in outputs] == [[1_593_561_600]]
        assert time.tzname[0] == "IST"
    finally:
        monkeypatch.undo()
        time.tzset()
