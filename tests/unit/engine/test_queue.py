"""A relation that stands in a queue does what its table does, and a snapshot of it stays as it was while the ring comes round."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotspare.engine.kernels import plain
from hotspare.engine.kernels import queue as kernel
from hotspare.engine.kernels import relation as k
from hotspare.engine.kernels.relation import DELETE, INSERT
from hotspare.engine.rows.chunk import Chunk, Timeline
from hotspare.engine.state import memory, queue, row_pages
from hotspare.engine.state.pages import Column
from hotspare.engine.state.relation import Change, Relation, Resolution, Shape
from tests.unit.engine.relations import content

SHAPE = Shape(2, (0,), (1,))
KINDS = ((k.KEEP, 0), (k.COUNT_SLIDING, 5), (k.COUNT_JUMPING, 5), (k.TIME_SLIDING, 9), (k.TIME_JUMPING, 9), (k.TIME_LOOKBACK, 9))
Batch = tuple[Chunk, Timeline]


def policy(kind: int, limit: int) -> k.Policy:
    return k.Policy(kind, limit, 6, 0, 1)


@st.composite
def histories(draw: st.DrawFn) -> list[Batch]:
    """Batches in which keys are new and rows leave from the oldest on; now and then a null key, or a delete out of order."""
    batches: list[Batch] = []
    first = last = time = 0
    odd = draw(st.sampled_from([0, 0, 0, 60]))
    for _ in range(draw(st.integers(1, 12))):
        rows: list[tuple[int, int, int, bool]] = []
        times, beats = [], []
        for rank in range(draw(st.integers(0, 12))):
            time += draw(st.integers(0, 2))
            times.append(time)
            what = draw(st.sampled_from(["insert", "insert", "delete", "beat"]))
            if what == "beat":
                beats.append(rank)
            elif what == "insert" or first == last:
                rows.append((rank, int(INSERT), last, draw(st.integers(0, 59)) >= odd))
                last += 1
            else:
                rows.append((rank, int(DELETE), draw(st.integers(first, last - 1)) if odd else first, True))
                first += 1
        batches.append((_chunk(rows), Timeline(np.array(times, np.int64), np.array(beats, np.int64))))
    return batches


def _chunk(rows: list[tuple[int, int, int, bool]]) -> Chunk:
    columns = np.array([row[:3] for row in rows], np.int64).reshape(len(rows), 3)
    valid = np.ones((len(rows), 2), np.bool_)
    valid[:, 0] = [row[3] for row in rows]
    lanes = np.column_stack([np.where(valid[:, 0], columns[:, 2], 0), columns[:, 2] % 7])
    return Chunk(columns[:, 0].copy(), columns[:, 1].astype(np.uint8), np.ones(len(rows), np.uint8), lanes, valid)


def told(chunk: Chunk, done: Change | Resolution) -> object:
    arrays = (chunk.rank, chunk.opcode, chunk.flags, chunk.lanes, chunk.valid, done.refused_row, done.refused_why)
    return [array.tolist() for array in arrays]


@pytest.mark.parametrize(("kind", "limit"), KINDS)
@settings(max_examples=60)
@given(histories(), st.sets(st.integers(0, 12)))
def test_a_queue_is_as_good_as_a_table(kind: int, limit: int, batches: list[Batch], frozen_at: set[int]) -> None:
    """Outputs, refusals and content; and every twin stays what it was, however long it is held."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue, "_CAPACITY_MIN", 4)  # so that the ring comes round, and grows
        patch.setattr(row_pages, "PAGE_SLOTS", 4)
        patch.setattr(row_pages, "SPARE_SLOTS", 0)
        in_queue, in_table = (Relation(SHAPE, policy(kind, limit)) for _ in range(2))
        twins: list[tuple[Relation, dict[str, object]]] = []
        for number, (chunk, timeline) in enumerate(batches):
            if number in frozen_at:
                twins.append((in_queue.freeze(), content(in_queue)))
            change, resolution = in_queue.change(chunk, timeline), in_table.apply(chunk, timeline)
            assert told(change.chunk, change) == told(in_table.settle(resolution), resolution)
            assert content(in_queue) == content(in_table)
            assert in_queue.live == in_table.live
        for twin, was in twins:
            assert content(twin) == was


def filled(rows: int) -> Relation:
    relation = Relation(SHAPE, policy(k.KEEP, 0))
    relation.change(
        _chunk([(i, int(INSERT), i, True) for i in range(rows)]), Timeline(np.zeros(rows, np.int64), np.empty(0, np.int64))
    )
    return relation


def test_a_snapshot_costs_no_copy_before_the_ring_comes_round() -> None:
    relation = filled(40)
    kept = relation._queue
    assert kept is not None
    ring, twin = kept._ring, relation.freeze()
    empty = np.empty(0, np.int64)
    for key in range(40, 63):
        relation.change(
            _chunk([(0, int(INSERT), key, True), (1, int(DELETE), key - 40, True)]), Timeline(np.zeros(2, np.int64), empty)
        )
    assert kept._ring.lanes is ring.lanes, "there is room beside what the snapshot needs"
    for key in (63, 64):
        relation.change(_chunk([(0, int(INSERT), key, True)]), Timeline(np.zeros(1, np.int64), empty))
    assert kept._ring.lanes is not ring.lanes
    assert twin.stored()[0][:, 0].tolist() == list(range(40))
    assert relation.stored()[0][:, 0].tolist() == list(range(23, 65))


def rows_of(first: int, count: int, opcode: int = int(INSERT)) -> Batch:
    keys = np.arange(first, first + count)
    lanes, valid = np.column_stack([keys, keys % 7]), np.ones((count, 2), np.bool_)
    chunk = Chunk(np.arange(count), np.full(count, opcode, np.uint8), np.ones(count, np.uint8), lanes, valid)
    return chunk, Timeline(np.zeros(count, np.int64), np.empty(0, np.int64))


def test_a_large_queue_grows_without_being_copied_and_gives_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a snapshot still needs stays, while it lives."""
    monkeypatch.setattr(memory, "SMALL_BYTES", 0)
    monkeypatch.setattr(queue, "GIVE_BACK_ROWS", 100)
    relation = Relation(SHAPE, policy(k.COUNT_SLIDING, 3_000))
    lanes = relation._queue._ring.lanes
    for first in range(0, 6_000, 500):
        relation.change(*rows_of(first, 500))
    assert relation._queue._ring.lanes is lanes
    assert not lanes[: 2 * 2_500 // 512 * 512].any(), "of the first 2,500 rows, as far as they fill pages of memory"
    assert lanes[2 * 3_000] == 3_000
    twin = relation.freeze()
    was = content(twin)
    for first in range(6_000, 20_000, 500):
        relation.change(*rows_of(first, 500))
    assert content(twin) == was
    del twin
    relation.change(*rows_of(20_000, 1))
    assert not lanes[: 2 * 16_000].any()
    assert relation.stored()[0][:, 0].tolist() == list(range(17_001, 20_001))


def test_a_large_ring_comes_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many rows that even its address space is used up, and beside a snapshot that keeps it from doing so."""
    monkeypatch.setattr(memory, "SMALL_BYTES", 0)
    monkeypatch.setattr(memory, "RESERVED_BYTES", 18 * 8_192)
    monkeypatch.setattr(queue, "GIVE_BACK_ROWS", 100)
    relation = Relation(SHAPE, policy(k.COUNT_SLIDING, 1_000))
    lanes = relation._queue._ring.lanes
    for first in range(0, 20_000, 250):
        relation.change(*rows_of(first, 250))
        expected = list(range(max(0, first - 750), first + 250))
        assert relation.stored()[0][:, 0].tolist() == expected
    assert relation._queue._ring.lanes is lanes
    twin = relation.freeze()
    was = content(twin)
    for first in range(20_000, 30_000, 250):
        relation.change(*rows_of(first, 250))
    assert content(twin) == was
    assert relation.stored()[0][:, 0].tolist() == list(range(29_000, 30_000))


def test_new_codes_do_not_reach_a_snapshot() -> None:
    relation = filled(10)
    twin = relation.freeze()
    used = np.zeros(7, np.bool_)
    relation.mark(used)
    assert used.all()
    relation.recode(np.arange(7) + 100)
    assert twin.stored()[0][:, 1].tolist() == [i % 7 for i in range(10)]
    assert relation.stored()[0][:, 1].tolist() == [i % 7 + 100 for i in range(10)]


def test_only_live_rows_hold_codes() -> None:
    """What stands in slots that were given up may be older than the last compaction."""
    relation = filled(3)
    timeline = Timeline(np.zeros(2, np.int64), np.empty(0, np.int64))
    relation.change(_chunk([(0, int(DELETE), 0, True), (1, int(DELETE), 1, True)]), timeline)
    used = np.zeros(7, np.bool_)
    relation.mark(used)
    assert np.flatnonzero(used).tolist() == [2]


def test_a_page_of_the_first_format_is_read() -> None:
    """It has rows in one piece, and a time for every row, also where none is needed."""
    relation = filled(3)
    lanes, valid, _ = relation.stored()
    again = Relation(SHAPE, policy(k.KEEP, 0))
    columns = {"lanes": Column(lanes), "valid": Column(valid), "time": Column(np.arange(3))}
    again.load({**columns, "state": relation.columns()["state"]})
    assert content(again) == content(relation)


@pytest.mark.parametrize("kind", [k.COUNT_SLIDING, k.COUNT_JUMPING])
def test_rows_of_a_batch_are_looked_at_a_bounded_number_of_times(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention by count looks after every row, and not again at all that follow."""
    looked = 0
    keys_valid = plain(kernel.keys_valid)

    def counting(ring: kernel.Ring, given: kernel.Given, row: int) -> bool:
        nonlocal looked
        looked += 1
        return keys_valid(ring, given, row)

    monkeypatch.setattr(kernel, "keys_valid", counting)
    monkeypatch.setattr(kernel, "take", plain(kernel.take))
    count = 200
    timeline = Timeline(np.arange(count), np.empty(0, np.int64))
    changed = Relation(SHAPE, policy(kind, 5)).change(_chunk([(i, int(INSERT), i, True) for i in range(count)]), timeline)
    assert len(changed.chunk) > count
    assert looked <= 3 * count
