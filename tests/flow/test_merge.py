"""Merging partitions (SPEC K5): the order, and which rows are released, against brute force."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import StateError
from hotspare.flow.merge import NO_TIME, Merge
from hotspare.rows.batch import decoded_schema
from hotspare.rows.partition_clock import Belief
from tests.examples import examples

SCHEMA = decoded_schema([])
PARTITIONS = [(0, 0), (0, 1), (1, 0)]
Row = tuple[int, int, int, int, int]
"""Topic, partition, offset, index, time."""


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    columns = {name: [row[i] for row in rows] for i, name in enumerate(("topic", "partition", "offset", "index", "time_us"))}
    count = len(rows)
    columns |= {"kind": [0] * count, "opcode": [1] * count, "flags": [1] * count, "bad": [None] * count}
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    names = ("topic", "partition", "offset", "index", "time_us")
    return [row for batch in batches for row in zip(*(batch.column(name).tolist() for name in names), strict=True)]


@st.composite
def inputs(draw: st.DrawFn) -> list[Row]:
    """Draws rows in an order of arrival that respects each partition's own."""
    rows: list[Row] = []
    nexts = dict.fromkeys(PARTITIONS, 0)
    for _ in range(draw(st.integers(0, 25))):
        key = draw(st.sampled_from(PARTITIONS))
        time = draw(st.integers(0, 12))
        for index in range(draw(st.integers(1, 2))):
            rows.append((*key, nexts[key], index, time))
        nexts[key] += 1
    return rows


def let_go(rows: list[Row]) -> list[Row]:
    """Returns the rows in merged order, with running times, as far as no partition can still bring an earlier one."""
    running: dict[tuple[int, int], int] = {}
    keyed = []
    for row in rows:
        key = row[:2]
        running[key] = max(running.get(key, -1), row[4])
        keyed.append(((running[key], *row[:4]), (*row[:4], running[key])))
    if len(running) < len(PARTITIONS):
        return []
    bounds = {key: (running[key], *key) for key in PARTITIONS}
    ready = []
    for sort_key, row in keyed:
        others = [bound for key, bound in bounds.items() if key != row[:2]]
        if all(sort_key[:3] < bound for bound in others):
            ready.append((sort_key, row))
    return [row for _, row in sorted(ready)]


@examples(2.5)
@given(inputs(), st.lists(st.integers(0, 60), max_size=8))
def test_merge(rows: list[Row], places: list[int]) -> None:
    """SPEC B7, F1, K5."""
    merge = Merge(PARTITIONS, {})
    edges = sorted({0, len(rows), *(place % (len(rows) + 1) for place in places)})
    found: list[Row] = []
    for begin, end in pairwise(edges):
        merge.push(batch_of(rows[begin:end]))
        found += rows_of(merge.pull())
    expected = let_go(rows)
    assert found == expected
    assert merge.waiting_rows == len(rows) - len(expected)


@given(inputs())
def test_merge_goes_on_after_a_restore(rows: list[Row]) -> None:
    """Rows that waited are read again, and clocks that went back do not change the order."""
    expected = let_go(rows)
    merge = Merge(PARTITIONS, {})
    middle = len(rows) // 2
    merge.push(batch_of(rows[:middle]))
    found = rows_of(merge.pull())
    running: dict[tuple[int, int], int] = {}
    passed: dict[tuple[int, int], Belief] = {}
    for row in rows[:middle]:
        running[row[:2]] = max(running.get(row[:2], -1), row[4])
        if (*row[:4], running[row[:2]]) in found:
            passed[row[:2]] = Belief(running[row[:2]])
    merge = Merge(PARTITIONS, passed)
    places = {row[:4] for row in found}
    merge.push(batch_of([row for row in rows if row[:4] not in places]))
    assert found + rows_of(merge.pull()) == expected


def test_one_partition_does_not_wait() -> None:
    merge = Merge([(0, 0)], {})
    rows = [(0, 0, i, 0, 9 - i) for i in range(3)]
    merge.push(batch_of(rows))
    assert rows_of(merge.pull()) == [(0, 0, i, 0, 9) for i in range(3)]
    assert list(merge.pull()) == []


def test_unknown_partition() -> None:
    with pytest.raises(StateError, match="not declared"):
        Merge([(0, 0)], {}).push(batch_of([(0, 1, 0, 0, 0)]))


def test_partitions_may_be_added_not_lost() -> None:
    merge = Merge([(0, 0), (0, 1)], {})
    merge.push(batch_of([(0, 0, 0, 0, 5)]))
    merge.set_partitions([(0, 0), (0, 1), (1, 0)])
    with pytest.raises(StateError, match="cannot be removed"):
        merge.set_partitions([(0, 1)])
    merge.set_partitions([(0, 0)])
    assert rows_of(merge.pull()) == [(0, 0, 0, 0, 5)]


@examples(3)
@given(inputs(), st.integers(1, 2_000))
def test_however_small_the_batches_they_hold_the_same_rows_in_the_same_order(rows: list[Row], bytes_max: int) -> None:
    """An Arrow array holds 2 GiB of text, so waiting rows are not joined without a limit."""
    merge = Merge(PARTITIONS, {}, bytes_max=bytes_max)
    for row in rows:
        merge.push(batch_of([row]))
    batches = list(merge.pull())
    assert rows_of(batches) == let_go(rows)
    bitmaps = 256  # validity bitmaps are rounded up
    assert all(batch.nbytes <= bytes_max + bitmaps or batch.num_rows == 1 for batch in batches)


@given(st.lists(st.tuples(st.sampled_from([NO_TIME, 1, 2, 3, 4]), st.integers(0, 4)), max_size=5))
def test_a_partition_blocks_if_an_event_of_any_other_is_not_before_its_clock(times: list[tuple[int, int]]) -> None:
    """`times`: by partition, the time of its newest event and its clock."""
    merge = Merge([], {})
    merge._partitions = {  # type: ignore[assignment]
        (0, i): SimpleNamespace(event_time_us=event_us, clock=SimpleNamespace(time_us=clock_us))
        for i, (event_us, clock_us) in enumerate(times)
    }
    others = {i: [event_us for j, (event_us, _) in enumerate(times) if j != i] for i in range(len(times))}
    expected = {(0, i) for i, (_, clock_us) in enumerate(times) if max(others[i], default=NO_TIME) >= clock_us}
    assert merge._blocking_partitions() == expected
