"""Inputs for the law Twin: one generator per kernel that Python calls, each from a fixed seed. Arrays are small: twins are slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hotspare.rows.chunk import Chunk, Positions, Timeline
from hotspare.rows.partition_clock import NO_TIME
from hotspare.table.loops import index, queue, slots
from hotspare.table.loops import relation as k
from hotspare.table.loops.outputs import ENTERED_WIDTH, EnteredRows, OutputColumns
from hotspare.table.relation import Relation, RowTime, Shape
from hotspare.table.row_index import empty_index, grown_index
from hotspare.windows.calculate.algorithms import SUMMARY_OUTPUTS
from hotspare.windows.calculate.loops import RUNNING_WIDTH
from hotspare.windows.calculate.operator import NewestObservations, PreviousBlock
from tests.laws import (
    aggregate_inputs,
    csv_inputs,
    encoding_inputs,
    group_inputs,
    held_inputs,
    join_inputs,
    json_inputs,
    pattern_inputs,
    text_inputs,
    unloaded_inputs,
)
from tests.laws.text_inputs import crowded_index

Args = tuple[Any, ...]
Random = np.random.Generator


def _random() -> Random:
    return np.random.default_rng(20_240_607)


def xxh64() -> Iterator[Args]:
    random = _random()
    for size in (0, 1, 3, 4, 7, 8, 31, 32, 33, 63, 64, 100):
        yield random.integers(0, 256, size + 5, np.uint8), 2, size + 2


def mark_rows() -> Iterator[Args]:
    rows = _stored(policies()[0])._rows
    for since, count in ((0, 99), (0, 5), (13, 7), (int(rows.state[slots.NUMBER] - 1) * 4, 99)):
        small = rows._replace(lanes=abs(rows.lanes) % 50)
        yield small, np.array([0, 2]), since, count, np.zeros(99, np.uint8), 2


def mark_ring() -> Iterator[Args]:
    ring = _ring(policies()[0], 8, _random().integers(0, 9, (5, 3)))
    for begin, end in ((6, 11), (7, 9), (6, 6)):
        yield ring, np.array([0, 2]), begin, end, np.zeros(99, np.uint8), 1


def pick_columns() -> Iterator[Args]:
    random = _random()
    columns = np.array([2, -1, 0, 0])
    for count in (0, 7, 1030):
        lanes, valid = random.integers(-9, 9, (count, 3)), random.random((count, 3)) < 0.5
        yield lanes, valid, columns, np.ones((count, 4), np.int64), np.ones((count, 4), np.bool_)


def identifier_texts() -> Iterator[Args]:
    for seed, first in ((1, 0), (2**64 - 1, 2**40)):
        yield np.uint64(seed), np.arange(first, first + 3), np.zeros(3 * 36, np.uint8)


def policies() -> list[k.Policy]:
    kinds = [(k.KEEP, 0), (k.COUNT_SLIDING, 0), (k.COUNT_JUMPING, 0)]
    kinds += [(kind, by) for kind in (k.TIME_SLIDING, k.TIME_JUMPING, k.TIME_LOOKBACK) for by in (0, 1)]
    found = [k.Policy(kind, 5, 4, by, new) for kind, by in kinds for new in (0, 1)]
    return found + [
        each._replace(evicts_first=1) for each in found if each.by_event or each.kind in (k.COUNT_SLIDING, k.COUNT_JUMPING)
    ]


def queue_policies() -> list[k.Policy]:
    return [policy._replace(in_order=known) for policy in policies() if policy.new_keys and not policy.by_event for known in (0, 1)]


def _chunk(random: Random, begin: int, count: int) -> tuple[Chunk, Timeline, RowTime]:
    opcode = random.choice([1, 1, 2, 3, 3, 4, 5], count).astype(np.uint8)
    rank = np.arange(count) * 2
    for i in np.flatnonzero(random.random(count - 1) < 0.1).tolist():
        opcode[i], opcode[i + 1] = 6, 4
        rank[i + 1] = rank[i]
    lanes = np.column_stack([random.integers(-6, 6, count), random.integers(0, 2, count), random.integers(0, 99, count)])
    valid = random.random((count, 3)) < 0.93
    lanes[~valid] = 0
    time = np.sort(begin + random.integers(0, 40, 2 * count))
    row_time = RowTime(begin + random.integers(0, 60, count), random.random(count) < 0.95)
    flags = random.choice([1, 2, 3], count).astype(np.uint8)
    return Chunk(rank, opcode, flags, lanes, valid), Timeline(time, np.flatnonzero(random.random(2 * count) < 0.2)), row_time


class _Tapped(Relation):
    """A relation that records the arguments of the kernels' `relate` before each call."""

    taps: list[Args]

    def _resolve(self, *args: Any) -> Any:
        relate = k.relate

        def tapped(*args: Any) -> Any:
            self.taps.append(tuple(_copied(part) for part in args))
            return relate(*args)

        k.relate = tapped  # type: ignore[assignment]
        try:
            return super()._resolve(*args)
        finally:
            k.relate = relate


def _copied(part: Any) -> Any:
    if isinstance(part, tuple):
        return type(part)(*(_copied(item) for item in part))
    return part.copy() if isinstance(part, np.ndarray) else part


def relate() -> Iterator[Args]:
    random = _random()
    for policy in policies():
        relation = _Tapped(Shape(3, (0, 1), ()), policy)
        _in_small_pages(relation)
        relation.taps = []
        for batch in range(4):
            chunk, timeline, row_time = _chunk(random, batch * 30, 30)
            if batch % 2:
                relation.settle(relation.resolve_chunk(chunk, timeline, row_time))
                continue
            relation.change(chunk, timeline, row_time, 12)
            while not relation.is_done:
                relation.continue_change(12)
        yield from relation.taps


def _in_small_pages(relation: Relation) -> Relation:
    """Sets small pages, so that pages are begun, cleared and reused within few rows; and so that the many stored arguments are
    small."""
    relation._pages.page_slots = 4
    relation._pages.rows.state[[slots.PAGE_SLOTS, slots.SPARE]] = 4, 0
    return relation


def _stored(policy: k.Policy) -> Relation:
    relation = _in_small_pages(Relation(Shape(3, (0, 1), ()), policy))
    random = _random()
    for batch in range(2):
        chunk, timeline, row_time = _chunk(random, batch * 30, 20)
        relation.settle(relation.resolve_chunk(chunk, timeline, row_time))
    return relation


def boundary_passed() -> Iterator[Args]:
    for policy in policies()[10:]:
        for boundary in (slots.UNSET, np.int64(8), np.int64(-3)):
            for now in (np.int64(-9), np.int64(7), np.int64(8), np.int64(21)):
                state = np.zeros(slots.STATE_WIDTH, np.int64)
                state[slots.BOUNDARY] = boundary
                yield state, policy, now


def fill_index() -> Iterator[Args]:
    rows = _stored(policies()[0])._rows
    yield rows._replace(by_key=empty_index()), 0, 40
    yield rows._replace(by_key=crowded_index()), 3, 40


def find_evicted_slots() -> Iterator[Args]:
    rows = _stored(policies()[0])._rows
    lanes = np.concatenate([rows.lanes[:20], rows.lanes[:20] + 100])
    for away in (0, 1):
        is_page_evicted = np.full(len(rows.pages), away, np.uint8)
        is_page_evicted[::2] = 1
        yield rows.by_key, lanes, rows.keys, np.int64(4), is_page_evicted, np.zeros(len(lanes), np.int64)


def relink() -> Iterator[Args]:
    for policy in policies():
        pages = _stored(policy)._pages
        pages.rows.state[[slots.FIRST, slots.LAST, slots.HEAPED]] = slots.NONE, slots.NONE, 0
        yield pages.rows, policy, pages.slots_in_arrival_order()


def repeat_moves() -> Iterator[Args]:
    rows = _stored(policies()[0])._rows
    rows.state[slots.MOVED] = 2
    yield (rows._replace(moved=np.array([[1, 5, 0], [5, 7, 3]])),)


def has_room() -> Iterator[Args]:
    """Yields indexes without arrays that are long enough, with them, and for keys that no bit separates."""
    yield crowded_index(), np.uint64(3)
    yield grown_index(crowded_index()), np.uint64(3)
    stuck = grown_index(crowded_index())
    stuck.segments[0, index.DEPTH] = index.DEPTH_MAX
    yield stuck, np.uint64(3)


def pages_needed() -> Iterator[Args]:
    for pages_ in (0, 3, 40):
        state = np.zeros(slots.STATE_WIDTH, np.int64)
        state[slots.PAGES] = pages_
        yield (state,)


def index_add() -> Iterator[Args]:
    yield empty_index(), np.uint64(2**63 + 5), 8
    yield grown_index(crowded_index()), np.uint64(2**63 + 5), 8


def _ring(policy: k.Policy, capacity: int, rows: np.ndarray) -> queue.Ring:
    """Returns a ring that has wrapped around: `rows` are int64[n, 3], the newest in the lowest slots."""
    state = np.zeros(slots.STATE_WIDTH, np.int64)
    state[[slots.NEWEST, slots.BOUNDARY]] = slots.UNSET
    state[slots.FIRST], state[slots.LAST] = capacity - 2, capacity - 2 + len(rows)
    lanes, valid = np.zeros((capacity, 3), np.int64), np.ones((capacity, 3), np.bool_)
    where = (capacity - 2 + np.arange(len(rows))) % capacity
    lanes[where] = rows
    times = where if policy.kind >= k.TIME_SLIDING else where[:0]
    by_slot = np.zeros(capacity if len(times) else 0, np.int64)
    by_slot[times] = np.arange(len(times)) * 3
    return queue.Ring(lanes.reshape(-1), valid.reshape(-1), by_slot, np.array([0, 1]), state, 3, capacity)


def queue_take() -> Iterator[Args]:
    random = _random()
    for policy in queue_policies():
        for count in (0, 5, 12):
            stored = np.column_stack([np.arange(5), np.zeros(5, np.int64), random.integers(0, 9, 5)])
            opcode = np.array([1, 4, 1, 1, 5, 4, 1, 4, 4, 4, 1, 3], np.uint8)[:count]
            key = np.array([5, 0, 6, 7, 1, 2, 8, 3, 4, 5, 9, 9])[:count]
            lanes = np.column_stack([key, np.zeros(count, np.int64), random.integers(0, 9, count)]).reshape(-1)
            valid, rank = np.ones(3 * count, np.bool_), np.arange(count) * 2
            valid[2::9] = False
            beats = np.array([[3, 6], [6, 9], [40, 90]])
            flags = random.choice([1, 2, 3], count).astype(np.uint8)
            given = queue.QueueArrays(rank, opcode, flags, lanes, valid, rank + 7, beats)
            for room, leaving in ((100, 0), (3, 1), (6, 2)):
                counts = np.zeros(queue.COUNTS_WIDTH, np.int64)
                counts[[queue.ROOM, queue.LEAVING, queue.CAUSE]] = room, leaving, 0
                runs = np.zeros((2 * count + 4, queue.RUN_WIDTH), np.int64)
                out = _no_outputs(2 * count)
                yield _ring(policy, 32, stored), policy, given, runs, np.zeros((count, 2), np.int64), counts, out


def queue_write_out() -> Iterator[Args]:
    for args in queue_take():
        ring, _, given, runs, _, counts, _ = args
        queue.resolve_and_write(*args)
        yield ring, given, runs, int(counts[queue.RUNS]), _no_outputs(int(counts[queue.MADE]))


def _no_outputs(rows: int) -> queue.QueueOutputs:
    """Returns room for outputs, with defined content."""
    out = queue.QueueOutputs.empty(rows, 3)
    for array in out:
        array.fill(0)
    return out


def certain_rows() -> Iterator[Args]:
    keys = np.array([0, 2])
    for opcode in ([], [1, 4, 1, 5], [1, 3], [1, 1, 6]):
        for is_valid in (True, False):
            valid = np.full((len(opcode), 3), is_valid)
            yield np.array(opcode, np.uint8), valid, keys, np.zeros(len(opcode), np.int64)


def arrived() -> Iterator[Args]:
    made = _random().integers(-1, 5, (9, 5))
    yield made, np.zeros(9, np.int64), np.zeros(9, np.int64)


def gather_outputs() -> Iterator[Args]:
    rows = _stored(policies()[0])._rows
    made = _random().integers(0, 6, (9, 5))
    columns = np.zeros(9, np.int64), np.zeros(9, np.uint8), np.zeros(9, np.uint8)
    yield rows, made, *columns, np.zeros((9, 3), np.int64), np.zeros((9, 3), np.bool_)


def split_columns() -> Iterator[Args]:
    random = _random()
    for count in (0, 5, 1100):
        lanes, valid = random.integers(-9, 9, (count, 2)), random.random((count, 2)) < 0.8
        yield lanes, valid, np.zeros((2, count), np.int64), np.zeros((2, count), np.bool_), np.zeros(2, np.int64)


def deliver() -> Iterator[Args]:
    """Yields every opcode, including both rows of an update block, some with the flag of retention."""
    random = _random()
    opcode = np.array([1, 6, 4, 4, 6, 4, 2, 4, 5, 3], np.uint8)
    count = len(opcode)
    flags = random.choice([1, 4, 5], count).astype(np.uint8)
    lanes, valid = random.integers(-9, 9, (count, 3)), random.random((count, 3)) < 0.8
    for collapses in (0, 1):
        for drops in (0, 1):
            made = np.zeros(count, np.int64), np.zeros(count, np.uint8), np.zeros(count, np.uint8)
            given = np.arange(count), opcode, flags, lanes, valid, np.int64(collapses), np.int64(drops)
            yield *given, *made, np.zeros_like(lanes), np.zeros_like(valid)


def split_lanes() -> Iterator[Args]:
    for lanes, _, columns, *_ in split_columns():
        yield lanes, columns


def causes_of() -> Iterator[Args]:
    random = _random()
    for count in (0, 40):
        given = Positions(*(random.integers(0, 99, 12).astype(t) for t in (np.int32, np.int32, np.int64, np.int32)))
        yield random.integers(0, 12, count), given, Positions(*(np.zeros(count, each.dtype) for each in given))


def _lines(random: Random, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns values and validity."""
    extreme = np.array([0.0, -0.0, 5e-324, 1e308, -1e308, 0.1, 3.0, np.inf])
    line = np.where(random.random(count) < 0.2, random.choice(extreme, count), random.normal(0, 9, count))
    valid = random.random(count) < 0.8
    return np.where(valid, line, 0.0), valid


def slide() -> Iterator[Args]:
    """Yields windows that are begun, completed within a batch, and longer than it; and windows with few statistics."""
    random = _random()
    for statistics in (SUMMARY_OUTPUTS, ["sumOut"]):
        for length, count in ((1, 3), (4, 9), (3, 60), (50, 9)):
            observations = NewestObservations(length, statistics)
            observations.observe(*_lines(random, count))
            room = observations._shape.allocate_ends(count, PreviousBlock.NONE)
            yield *_lines(random, count), observations._window, room, np.empty(count, np.int64)


def complete_block() -> Iterator[Args]:
    for args in slide():
        yield (args[2],)


def running() -> Iterator[Args]:
    random = _random()
    for count in (4, 60):
        state = np.zeros(RUNNING_WIDTH)
        state[4:] = np.inf, -np.inf
        out, counts = np.empty((count, RUNNING_WIDTH)), np.empty((count, 2), np.int64)
        yield *_lines(random, count), state, np.zeros(2, np.int64), out, counts


def _positions(random: Random, count: int) -> Positions:
    topic, partition = random.integers(0, 3, count).astype(np.int32), random.integers(0, 3, count).astype(np.int32)
    return Positions(topic, partition, np.sort(random.integers(0, count, count)), random.integers(0, 3, count).astype(np.int32))


def due_heartbeats() -> Iterator[Args]:
    random = _random()
    time = np.sort(random.integers(0, 50, 30))
    yield np.arange(0, 30, 2), time, -5, 7, np.zeros(15, np.int64)


def first_disorder() -> Iterator[Args]:
    random = _random()
    for count in (0, 1, 6):
        yield _positions(random, count), random.integers(0, 2, count), np.full((2, 3), -1)
    rising = Positions(np.zeros(3, np.int32), np.zeros(3, np.int32), np.arange(3), np.zeros(3, np.int32))
    yield rising, np.array([0, 1, 0]), np.full((2, 3), -1)
    yield rising, np.zeros(3, np.int64), np.zeros((1, 3), np.int64)


def enter_rows() -> Iterator[Args]:
    random = _random()
    for count, kinds, beat_us in ((0, 5, NO_TIME), (1, 1, 5), (30, 5, 5), (30, 5, NO_TIME)):
        time_us, kind = random.integers(0, 50, count), random.integers(0, kinds, count).astype(np.int8)
        rows = [np.zeros(size, np.int64) for size in (count, count, 3, count, count, ENTERED_WIDTH)]
        yield _positions(random, count), time_us, kind, 20, beat_us, 7, EnteredRows(*rows)


def order_by_number() -> Iterator[Args]:
    random = _random()
    for count in (0, 1, 40):
        yield random.integers(-1, 5, count), np.zeros(5, np.int64), np.zeros(count, np.int64)


def observed_doubles() -> Iterator[Args]:
    random = _random()
    doubles = np.column_stack([_lines(random, 20)[0], np.where(random.random(20) < 0.3, np.nan, 1.5)])
    for column in (0, 1):
        rows = np.sort(random.choice(20, 12, replace=False))
        yield doubles, random.random((20, 2)) < 0.8, rows, column, np.empty(12), np.empty(12, np.bool_)


def observed_whole() -> Iterator[Args]:
    random = _random()
    whole, rows = random.integers(-(2**60), 2**60, (20, 2)), np.sort(random.choice(20, 12, replace=False))
    yield whole, random.random((20, 2)) < 0.8, rows, 1, np.empty(12), np.empty(12, np.bool_)


def _written(random: Random, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns values, the rows to write them to, and their current content."""
    values = np.where(random.random(count) < 0.2, np.nan, _lines(random, count)[0])
    return values, random.permutation(count), random.integers(0, 9, (count, 2)), np.ones((count, 2), np.bool_)


def write_doubles() -> Iterator[Args]:
    values, rows, lanes, valid = _written(_random(), 40)
    yield values, rows, 1, lanes.view(np.float64), valid


def write_whole() -> Iterator[Args]:
    for low, high in ((-(2.0**31) - 1.0, 2.0**31), (np.nextafter(-(2.0**63), -np.inf), 2.0**63)):
        values, rows, lanes, valid = _written(_random(), 40)
        yield values, low, high, rows, 1, lanes, valid, np.empty(40, np.int64)


def number_outputs() -> Iterator[Args]:
    random = _random()
    rank = np.sort(random.integers(0, 10, 20))
    lanes, valid = random.integers(0, 5, (20, 3)), random.random((20, 3)) < 0.8
    bytes_ = [random.integers(1, 7, 20).astype(np.uint8) for _ in range(2)]
    coded, hashes = np.array([True, False, False]), random.integers(0, 2**63, 5).astype(np.uint64)
    results = np.zeros(20, np.int32), np.zeros(20, np.uint64)
    for ordinal in (0, 3):
        yield rank, *bytes_, lanes, valid, coded, hashes, _positions(random, 10), np.uint64(7), ordinal, *results


def write_outputs() -> Iterator[Args]:
    for *args, _, _ in number_outputs():
        yield *args, 5, OutputColumns.empty(3, 30), 4


GENERATORS: dict[str, Callable[[], Iterator[Args]]] = {
    "csv.split_rows": csv_inputs.split_rows,
    "formats.read_cells": csv_inputs.read_cells,
    "formats.gather_values": csv_inputs.gather_values,
    "hashing.xxh64": xxh64,
    "events.read_messages": json_inputs.read_messages,
    "events.fill_slots": json_inputs.fill_slots,
    "interning.intern_bytes": text_inputs.intern_bytes,
    "interning.hash_bytes": text_inputs.hash_bytes,
    "interning.gather_bytes": text_inputs.gather_bytes,
    "interning.free_run": text_inputs.free_run,
    "text_collection.mark_rows": mark_rows,
    "text_collection.mark_ring": mark_ring,
    "text_collection.purge": text_inputs.purge,
    "text_collection.free_unmarked": text_inputs.free_unmarked,
    "text_collection.copy_sparse": text_inputs.copy_sparse,
    "text_collection.redirect_moved": text_inputs.redirect_moved,
    "columns.pick_columns": pick_columns,
    "columns.identifier_texts": identifier_texts,
    "columns.certain_rows": certain_rows,
    "queue.resolve_and_write": queue_take,
    "queue.write_out": queue_write_out,
    "relation.relate": relate,
    "relation.boundary_passed": boundary_passed,
    "index.add": index_add,
    "index.has_room": has_room,
    "pages.pages_needed": pages_needed,
    "relation.fill_index": fill_index,
    "prefetch.find_evicted_slots": find_evicted_slots,
    "unloaded.key_halves": unloaded_inputs.key_halves,
    "unloaded.mark_outline": unloaded_inputs.mark_outline,
    "unloaded.may_have_half": unloaded_inputs.may_have_half,
    "unloaded.scan_key_filter": unloaded_inputs.scan_key_filter,
    "unloaded.index_key_filter": unloaded_inputs.index_key_filter,
    "unloaded.look_up_pages": unloaded_inputs.look_up_pages,
    "unloaded.rows_before_gap_check": unloaded_inputs.rows_before_gap_check,
    "unloaded.page_to_clear": lambda: unloaded_inputs.page_to_clear(_stored(policies()[0])._rows),
    "pages.slots_before_gap_check": unloaded_inputs.rows_before_gap_check,
    "unlinked.add_run": lambda: unloaded_inputs.add_run([_stored(policy)._pages for policy in policies()]),
    "unlinked.link_waiting": lambda: unloaded_inputs.link_waiting([_stored(policy)._pages for policy in policies()]),
    "unlinked.relink": relink,
    "relation.repeat_moves": repeat_moves,
    "relation.write_arrived": arrived,
    "relation.gather_outputs": gather_outputs,
    "encoding.doubtful_doubles": encoding_inputs.doubtful_doubles,
    "encoding.write_csv_rows": encoding_inputs.write_csv_rows,
    "held.fold_events": held_inputs.fold_events,
    "held.append_events": held_inputs.append_events,
    "held.release_entries": held_inputs.let_go,
    "join.run_join": join_inputs.join,
    "join.gather_matched": join_inputs.gather_matched,
    "join.match_inserts": join_inputs.match_inserts,
    "join.gather_matched_inserts": join_inputs.gather_matched_inserts,
    "pattern.run_pattern": pattern_inputs.run,
    "pattern.collect_waiting_matches": pattern_inputs.collect_waiting_matches,
    "pattern.collect_awaited_events": pattern_inputs.collect_awaited_events,
    "multi_index.fill_lists": join_inputs.fill_lists,
    "multi_index.follow_all": join_inputs.follow_all,
    "multi_index.find_lists": join_inputs.find_lists,
    "multi_index.follow_moves": join_inputs.follow_moves,
    "multi_index.admit_all": join_inputs.admit_all,
    "multi_index.first_in_order": join_inputs.first_in_order,
    "groups.relate_groups": group_inputs.relate_groups,
    "groups.fill_groups": group_inputs.fill_groups,
    "groups.admit_groups": group_inputs.admit_groups,
    "aggregate.run_aggregate": aggregate_inputs.aggregate,
    "aggregate.gather_groups": aggregate_inputs.gather_groups,
    "ordered.fill_trees": aggregate_inputs.fill_trees,
    "calculate.complete_block": complete_block,
    "calculate.slide": slide,
    "calculate.accumulate_statistics": running,
    "calculate.observed_doubles": observed_doubles,
    "calculate.observed_whole": observed_whole,
    "calculate.write_doubles": write_doubles,
    "calculate.write_whole": write_whole,
    "ordering.order_by_number": order_by_number,
    "outputs.due_heartbeats": due_heartbeats,
    "outputs.enter_rows": enter_rows,
    "outputs.first_disorder": first_disorder,
    "delivery.deliver": deliver,
    "outputs.split_columns": split_columns,
    "outputs.split_lanes": split_lanes,
    "outputs.causes_of": causes_of,
    "outputs.number_outputs": number_outputs,
    "outputs.write_outputs": write_outputs,
}
"""Generators by kernel, as in KERNELS."""
