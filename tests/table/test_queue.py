"""A relation in a queue equals one in pages with an index, and its snapshot does not change while the ring wraps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.rows.chunk import Chunk, Timeline
from hotspare.rows.compile import plain
from hotspare.rows.tuning import Tuning, tuning_override
from hotspare.table import queue
from hotspare.table.loops import queue as kernel
from hotspare.table.loops import relation as k
from hotspare.table.loops import slots
from hotspare.table.loops.relation import DELETE, INSERT
from hotspare.table.page_cache.budget import Budget
from hotspare.table.relation import Change, Relation, Resolution, Shape
from hotspare.table.row_pages import RowPages
from tests.table.relations import content, reload
from tests.tunings import tunings

SHAPE = Shape(2, (0,), (1,))
KINDS = ((k.KEEP, 0), (k.COUNT_SLIDING, 5), (k.COUNT_JUMPING, 5), (k.TIME_SLIDING, 9), (k.TIME_JUMPING, 9), (k.TIME_LOOKBACK, 9))
Batch = tuple[Chunk, Timeline]


def policy(kind: int, limit: int, in_order: int = 0, evicts_first: int = 0) -> k.Policy:
    return k.Policy(kind, limit, 6, 0, 1, in_order, evicts_first)


@st.composite
def histories(draw: st.DrawFn, odds: tuple[int, ...] = (0, 0, 0, 60)) -> list[Batch]:
    """Returns batches in which keys are new and rows are deleted from the oldest on; sometimes a null key, a delete out of order,
    or one of an unknown row."""
    batches: list[Batch] = []
    first = last = time = 0
    odd = draw(st.sampled_from(odds))
    for _ in range(draw(st.integers(1, 12))):
        rows: list[tuple[int, int, int, bool]] = []
        times, beats = [], []
        for rank in range(draw(st.integers(0, 12))):
            time += draw(st.integers(0, 2))
            times.append(time)
            what = draw(st.sampled_from(["insert", "insert", "delete", "beat", "strange"]))
            if what == "beat":
                beats.append(rank)
            elif what == "strange":
                opcode, key, has_key = draw(
                    st.sampled_from([(INSERT, 0, False), (DELETE, 0, False), (DELETE, -1, True), (5, -1, True)])
                )
                rows.append((rank, int(opcode), key, has_key))
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


@pytest.mark.parametrize(
    ("kind", "limit", "evicts_first"), [*((*each, 0) for each in KINDS), (k.COUNT_SLIDING, 5, 1), (k.COUNT_JUMPING, 5, 1)]
)
@given(histories(), st.sets(st.integers(0, 12)), tunings(), st.integers(1, 9))
def test_a_queue_is_as_good_as_a_table(
    kind: int, limit: int, evicts_first: int, batches: list[Batch], frozen_at: set[int], tuning: Tuning, rows_max: int
) -> None:
    """Outputs, refusals and content, also in parts; and no twin changes, however long it is held."""
    with tuning_override(tuning):
        in_queue, in_table, in_batches = (Relation(SHAPE, policy(kind, limit, 0, evicts_first)) for _ in range(3))
        twins: list[tuple[Relation, dict[str, object]]] = []
        for number, (chunk, timeline) in enumerate(batches):
            if number in frozen_at:
                twins.append((in_queue.freeze(), content(in_queue)))
            change, resolution = in_queue.change(chunk, timeline), in_table.resolve_chunk(chunk, timeline)
            whole = in_table.settle(resolution)
            assert told(change.chunk, change) == told(whole, resolution)
            assert content(in_queue) == content(in_table)
            assert in_queue.live == in_table.live
            part = in_batches.change(chunk, timeline, rows_max=rows_max)
            lanes = [part.chunk.lanes]
            while not in_batches.is_done:
                lanes.append(in_batches.continue_change(rows_max).chunk.lanes)
            assert np.concatenate(lanes).tolist() == whole.lanes.tolist()
        for twin, was in twins:
            assert content(twin) == was


@pytest.mark.parametrize(("kind", "limit"), KINDS)
@given(histories(odds=(0,)), tunings())
def test_where_rows_leave_in_order_no_index_is_made(kind: int, limit: int, batches: list[Batch], tuning: Tuning) -> None:
    """Also for deletes of unknown rows, which the table finds with its index."""
    with tuning_override(tuning):
        in_queue, in_table = Relation(SHAPE, policy(kind, limit, in_order=1)), Relation(SHAPE, policy(kind, limit))
        for chunk, timeline in batches:
            change, resolution = in_queue.change(chunk, timeline), in_table.resolve_chunk(chunk, timeline)
            assert told(change.chunk, change) == told(in_table.settle(resolution), resolution)
            assert content(in_queue) == content(in_table)
            assert in_queue._queue is not None


@pytest.mark.parametrize(("kind", "by_event"), [(k.KEEP, 0), (k.TIME_SLIDING, 1)])
@tuning_override(Tuning(late_index_rows_max=1_000))
def test_an_index_that_may_be_needed_is_made_while_there_are_few_rows(
    kind: int, by_event: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large relation that is read from a snapshot has it from the beginning."""
    built: list[int] = []
    begin = RowPages.begin_index

    def beginning(pages: RowPages, live: int) -> None:
        built.append(live)
        begin(pages, live)

    monkeypatch.setattr(RowPages, "begin_index", beginning)
    relation = Relation(SHAPE, k.Policy(kind, 10**6, 1, by_event, 1))
    for first in range(0, 50_000, 500):
        relation.change(*rows_of(first, 500))
    relation.change(*rows_of(25_000, 1, int(DELETE)))
    assert relation.live == 49_999
    assert len(built) == 1
    assert built[0] <= 1_500
    again = reload(relation, Relation(SHAPE, relation.policy))
    assert again._rows.state[slots.INDEXED] == 1
    again.change(*rows_of(30_000, 1, int(DELETE)))
    assert len(built) == 2


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


@tuning_override(Tuning(small_bytes=0, release_rows=100))
def test_a_large_queue_grows_without_being_copied_and_gives_memory_back() -> None:
    """Rows that a snapshot still needs stay while it lives."""
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


@tuning_override(Tuning(small_bytes=0, release_rows=100))
def test_of_rows_that_are_gone_nothing_is_remembered(tmp_path: Path) -> None:
    """Also if there is room for all rows, so that nothing is ever evicted."""
    budget = Budget(1 << 30, tmp_path)
    relation = Relation(SHAPE, policy(k.COUNT_SLIDING, 3_000), home=budget.window_memory(0))
    for first in range(0, 40 * queue.BLOCK_ROWS, queue.BLOCK_ROWS):
        relation.change(*rows_of(first, queue.BLOCK_ROWS))
        budget.evict_between_steps()
    assert (budget.counts()["may_leave"] > 0, budget.counts()["away"]) == (True, 0)
    assert len(relation._queue._marks) < 6


@tuning_override(Tuning(small_bytes=0, reserved_bytes=18 * 8_192, release_rows=100))
def test_a_large_ring_comes_round() -> None:
    """After so much input that even its address space is used up; and while a snapshot keeps it from wrapping."""
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


def test_only_live_rows_hold_codes() -> None:
    """The positions of a queue and of pages are the same; marked in pieces, and all at once."""
    for is_queue in (True, False):
        relation = filled(9)
        timeline = Timeline(np.zeros(2, np.int64), np.empty(0, np.int64))
        relation.change(_chunk([(0, int(DELETE), 0, True), (1, int(DELETE), 1, True)]), timeline)
        if not is_queue:
            relation.change(_chunk([(0, int(DELETE), 5, True)]), timeline)
        assert (relation._queue is not None) == is_queue
        assert relation.write_position == 9
        marks, at = np.zeros(7, np.uint8), 0
        while at < 9:
            at = relation.mark(marks, 2, at, 2)
        left = {2, 3, 4, 5, 6, 7, 8} if is_queue else {2, 3, 4, 6, 7, 8}
        assert set(np.flatnonzero(marks == 2).tolist()) == {i % 7 for i in left}


@pytest.mark.parametrize("kind", [k.COUNT_SLIDING, k.COUNT_JUMPING])
def test_rows_of_a_batch_are_looked_at_a_bounded_number_of_times(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention by count checks after every row, but not again all rows that follow."""
    looked = 0
    keys_valid = plain(kernel.keys_valid)

    def counting(ring: kernel.Ring, given: kernel.Given, row: int) -> bool:
        nonlocal looked
        looked += 1
        return keys_valid(ring, given, row)

    monkeypatch.setattr(kernel, "keys_valid", counting)
    monkeypatch.setattr(kernel, "resolve_and_write", plain(kernel.resolve_and_write))
    count = 200
    timeline = Timeline(np.arange(count), np.empty(0, np.int64))
    changed = Relation(SHAPE, policy(kind, 5)).change(_chunk([(i, int(INSERT), i, True) for i in range(count)]), timeline)
    assert len(changed.chunk) > count
    assert looked <= 3 * count
