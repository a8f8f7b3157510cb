"""A relation against a model of it in plain Python (SPEC A8-A13, A19-A23): same outputs, same rows kept, in the same order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import SnapshotDamaged
from hotspare.rows.chunk import Chunk, Timeline
from hotspare.rows.tuning import DEFAULT, Tuning, tuning_override
from hotspare.table.loops import relation as k
from hotspare.table.loops import slots
from hotspare.table.relation import Relation, Resolution, RowTime, Shape
from tests.examples import examples
from tests.table.relations import content, reload
from tests.tunings import tunings

INSERT, UPDATE, UPSERT, DELETE, SAFE_DELETE, UPDATE_BLOCK = range(1, 7)
NORMAL, PARTIAL, RETENTION = 1, 2, 4
SHAPE = Shape(3, (0, 1), ())
GROUPED = Shape(3, (0, 1), (), (2,))
"""A shape whose value names the group."""


@dataclass
class Event:
    """An event, or a heartbeat (opcode 0). `values` are (key, key, value), None for null; `event_time` may be None."""

    opcode: int
    flags: int
    values: tuple[int | None, int | None, int | None]
    event_time: int | None
    time: int

    @property
    def advanced(self) -> int | None:
        """The time by which event time has advanced at a heartbeat since the newest row, None if it has not."""
        return None if self.opcode or self.event_time is None else self.event_time - 90


@dataclass
class Model:
    """The semantics in the docstring of `hotspare.table.relation`, as a list of rows in order of arrival."""

    policy: k.Policy
    rows: list[tuple[tuple[int | None, ...], int]] = field(default_factory=list)
    newest: int | None = None
    boundary: int | None = None
    outputs: list[tuple[int, int, int, tuple[int | None, ...]]] = field(default_factory=list)
    refused: list[tuple[int, int]] = field(default_factory=list)

    def take(self, rank: int, event: Event) -> None:
        if self.boundary is None and not self.policy.by_event and self.policy.kind >= k.TIME_JUMPING:
            self._cross(event.time)
        if event.opcode == 0:
            if self.policy.by_event and self.newest is not None and (over := event.advanced) is not None:
                self._time_retention(self.newest + over, None, rank)
            elif not self.policy.by_event and self.policy.kind >= k.TIME_SLIDING:
                self._time_retention(event.time, None, rank)
            return
        first = len(self.outputs)
        came = self._resolve(rank, event)
        if came is None:
            return
        made = self.outputs[first:]
        self._retain(came, rank)
        if self.policy.evicts_first:
            expelled = self.outputs[first + len(made) :]
            others = [each for each in expelled if each[3][:2] != came[0][:2]]
            self.outputs[first:] = others + made + [each for each in expelled if each not in others]

    def _retain(self, came: tuple[tuple[int | None, ...], int], rank: int) -> None:
        if self.policy.kind == k.COUNT_OF_GROUP:
            group = [row for row in self.rows if row[0][2] == came[0][2]]
            for row in group[: len(group) - self.policy.limit]:
                self._expel(row, rank)
        elif self.policy.kind == k.COUNT_SLIDING:
            while len(self.rows) > self.policy.limit:
                self._expel(self.rows[0], rank)
        elif self.policy.kind == k.COUNT_JUMPING and len(self.rows) > self.policy.limit:
            for row in self.rows[:-1]:
                self._expel(row, rank)
        elif self.policy.by_event:
            self.newest = came[1] if self.newest is None else max(self.newest, came[1])
            self._time_retention(self.newest, came, rank)

    def _resolve(self, rank: int, event: Event) -> tuple[tuple[int | None, ...], int] | None:
        key = event.values[:2]
        if None in key:
            return self._refuse(rank, k.REFUSED_NULL_KEY)
        old = next((row for row in self.rows if row[0][:2] == key), None)
        flags = event.flags & ~PARTIAL or NORMAL
        if event.opcode in (DELETE, SAFE_DELETE):
            if old is not None:
                self.rows.remove(old)
                self.outputs.append((rank, DELETE, flags, old[0]))
            elif event.opcode == DELETE and self.policy.kind == k.KEEP:
                self._refuse(rank, k.REFUSED_KEY_UNKNOWN)
            return None
        if event.opcode == INSERT and old is not None:
            return self._refuse(rank, k.REFUSED_KEY_EXISTS)
        if event.opcode == UPDATE and old is None:
            return self._refuse(rank, k.REFUSED_KEY_UNKNOWN)
        partial = bool(event.flags & PARTIAL) and old is not None
        time = event.event_time if self.policy.by_event else event.time
        is_grouped = self.policy.kind == k.COUNT_OF_GROUP
        timeless = time is None
        if (timeless or (is_grouped and event.values[2] is None)) and not partial:
            if event.opcode == UPDATE_BLOCK and old is not None:
                self.rows.remove(old)
                self.outputs.append((rank, DELETE, flags, old[0]))
            return self._refuse(rank, k.REFUSED_NULL_TIME if timeless else k.REFUSED_NULL_GROUP)
        values: tuple[int | None, ...] = event.values
        if old is None:
            row = (values, int(time or 0))
            self.rows.append(row)
            self.outputs.append((rank, INSERT, flags, values))
            return row
        if partial:
            values = tuple(o if v is None else v for v, o in zip(values, old[0], strict=True))
        row = (values, old[1] if time is None else time)
        if self.policy.kind >= k.TIME_SLIDING or (is_grouped and values[2] != old[0][2]):
            self.rows.remove(old)
            self.rows.append(row)
        else:
            self.rows[self.rows.index(old)] = row
        self.outputs += [(rank, UPDATE_BLOCK, flags, values), (rank, DELETE, flags, old[0])]
        return row

    def _cross(self, now: int) -> int | None:
        unit = self.policy.unit
        if self.boundary is None:
            self.boundary = (now if self.policy.kind == k.TIME_JUMPING else now - now % unit) + unit
            return None
        if now < self.boundary:
            return None
        passed = self.boundary
        while self.boundary <= now:
            passed, self.boundary = self.boundary, self.boundary + unit
        return passed

    def _time_retention(self, now: int, came: object, rank: int) -> None:
        edge: int | None = now
        if self.policy.kind != k.TIME_SLIDING:
            edge = self._cross(now)
        if edge is None:
            return
        leaving = [row for row in self.rows if row is not came]
        if self.policy.kind != k.TIME_JUMPING:
            leaving = [row for row in self.rows if edge - row[1] >= self.policy.limit]
            leaving.sort(key=lambda row: row[1] if self.policy.by_event else 0)
        for row in leaving:
            self._expel(row, rank)

    def _expel(self, row: tuple[tuple[int | None, ...], int], rank: int) -> None:
        self.rows = [other for other in self.rows if other is not row]
        self.outputs.append((rank, DELETE, RETENTION, row[0]))

    def _refuse(self, rank: int, why: int) -> None:
        self.refused.append((rank, int(why)))


def chunk_of(events: list[Event]) -> tuple[Chunk, Timeline, RowTime, list[int]]:
    """Returns the events as a batch, in which rank is the place in the list; and the ranks of the rows."""
    rows = [i for i, event in enumerate(events) if event.opcode]
    values = [events[i].values for i in rows]
    lanes = np.array([[v or 0 for v in row] for row in values], np.int64).reshape(len(rows), 3)
    valid = np.array([[v is not None for v in row] for row in values], np.bool_).reshape(len(rows), 3)
    opcode, flags = (np.array([getattr(events[i], name) for i in rows], np.uint8) for name in ("opcode", "flags"))
    times = [events[i].event_time for i in rows]
    advanced = [(i, event.advanced) for i, event in enumerate(events) if event.advanced is not None]
    row_time = RowTime(
        np.array([t or 0 for t in times], np.int64),
        np.array([t is not None for t in times], np.bool_),
        np.array(advanced, np.int64).reshape(-1, 2),
    )
    beats = np.array([i for i, event in enumerate(events) if not event.opcode], np.int64)
    timeline = Timeline(np.array([event.time for event in events], np.int64), beats)
    return Chunk(np.array(rows, np.int64), opcode, flags, lanes, valid), timeline, row_time, rows


def row_values(lanes: np.ndarray, valid: np.ndarray) -> tuple[int | None, ...]:
    return tuple(int(v) if ok else None for v, ok in zip(lanes, valid, strict=True))


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    events, time = [], 100
    small = st.integers(0, 3)
    for _ in range(draw(st.integers(1, 40))):
        time += draw(st.integers(0, 4))
        opcode = draw(st.sampled_from([INSERT, INSERT, UPSERT, UPSERT, UPDATE, DELETE, SAFE_DELETE, UPDATE_BLOCK, 0]))
        key = (draw(small), draw(st.one_of(st.integers(0, 1), st.integers(0, 1), st.none())))
        value, event_time = (
            draw(st.one_of(small, st.none())),
            draw(st.one_of(st.integers(90, 130), st.integers(90, 130), st.none())),
        )
        flags = draw(st.sampled_from([NORMAL, NORMAL, PARTIAL, NORMAL | PARTIAL, NORMAL | RETENTION]))
        events.append(Event(opcode, flags, (*key, value), event_time, time))
    return events


KINDS = [(k.KEEP, 0, 0), (k.COUNT_SLIDING, 2, 0), (k.COUNT_JUMPING, 2, 0), (k.COUNT_OF_GROUP, 2, 0)]
KINDS += [(kind, 7, by) for kind in (k.TIME_SLIDING, k.TIME_JUMPING, k.TIME_LOOKBACK) for by in (0, 1)]
POLICIES = [k.Policy(kind, limit, 5, by, new_keys) for kind, limit, by in KINDS for new_keys in (0, 1)]
POLICIES += [each._replace(evicts_first=1) for each in POLICIES if each.by_event or k.KEEP < each.kind < k.TIME_SLIDING]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@examples(0.4)
@given(histories(), st.integers(0, 40), st.booleans(), st.one_of(tunings(), st.just(DEFAULT)))
def test_relation_is_its_model(policy: k.Policy, events: list[Event], middle: int, is_settled: bool, tuning: Tuning) -> None:
    """SPEC A8-A13, A19-A23; with the batch cut in two and the relation written and read back between, in pages of any size."""
    with tuning_override(tuning):
        check_against_model(policy, events, middle, is_settled=is_settled)


def check_against_model(policy: k.Policy, events: list[Event], middle: int, *, is_settled: bool) -> None:
    shape = GROUPED if policy.kind == k.COUNT_OF_GROUP else SHAPE
    model, relation = Model(policy), Relation(shape, policy)
    for rank, event in enumerate(events):
        if policy.new_keys and event.opcode == INSERT and any(row[0][:2] == event.values[:2] for row in model.rows):
            event.opcode = DELETE  # such an insert never occurs here
        model.take(rank, event)
    outputs: list[tuple[int, int, int, tuple[int | None, ...]]] = []
    refused: list[tuple[int, int]] = []
    for begin, end in ((0, middle), (middle, len(events))):
        part = events[begin:end]
        chunk, timeline, row_time, rows = without_pairs(part)
        time = row_time if policy.by_event else None
        done = relation.resolve_chunk(chunk, timeline, time) if is_settled else relation.change(chunk, timeline, time)
        found = relation.settle(done) if isinstance(done, Resolution) else done.chunk
        for i in range(len(found)):
            values = row_values(found.lanes[i], found.valid[i])
            outputs.append((begin + int(found.rank[i]), int(found.opcode[i]), int(found.flags[i]), values))
        whys = zip(done.refused_row.tolist(), done.refused_why.tolist(), strict=True)
        refused += [(begin + rows[row], why) for row, why in whys]
        relation = reload(relation, Relation(shape, policy))
    assert outputs == model.outputs
    assert refused == model.refused
    lanes, valid, _ = relation.stored()
    kept = [row_values(row, there) for row, there in zip(lanes, valid, strict=True)]
    assert kept == [row[0] for row in model.rows]


def without_pairs(events: list[Event]) -> tuple[Chunk, Timeline, RowTime, list[int]]:
    """Returns the same as `chunk_of`, each update block followed by its delete with old values, which adds nothing."""
    chunk, timeline, row_time, rows = chunk_of(events)
    twice = np.repeat(np.arange(len(rows)), np.where(chunk.opcode == UPDATE_BLOCK, 2, 1))
    second = np.concatenate([[False], twice[1:] == twice[:-1]]) if len(twice) else np.zeros(0, np.bool_)
    opcode = np.where(second, np.uint8(DELETE), chunk.opcode[twice])
    paired = Chunk(chunk.rank[twice], opcode, chunk.flags[twice], chunk.lanes[twice], chunk.valid[twice])
    return (
        paired,
        timeline,
        replace(row_time, time_us=row_time.time_us[twice], valid=row_time.valid[twice]),
        [rows[i] for i in twice.tolist()],
    )


def test_many_rows_come_and_go() -> None:
    """Growth, gaps in the table and reuse of slots: 30,000 keys in and out, half of them twice."""
    relation = Relation(Shape(2, (0,), ()))
    empty = Timeline(np.zeros(50_000, np.int64), np.empty(0, np.int64))

    def apply(opcode: int, keys: np.ndarray) -> int:
        lanes = np.column_stack([keys, keys * 3])
        count = len(keys)
        flags = np.ones(count, np.uint8)
        chunk = Chunk(np.arange(count), np.full(count, opcode, np.uint8), flags, lanes, np.ones((count, 2), np.bool_))
        resolution = relation.resolve_chunk(chunk, empty)
        found = relation.settle(resolution)
        assert (found.lanes[:, 1] == found.lanes[:, 0] * 3).all()
        return len(resolution.refused_row)

    keys = np.random.default_rng(3).permutation(30_000) * 4096
    assert apply(INSERT, keys) == 0
    assert apply(DELETE, keys[::2]) == 0
    assert apply(DELETE, keys[::2]) == 15_000
    assert apply(INSERT, keys[::2]) == 0
    assert apply(INSERT, keys) == 30_000
    assert relation.live == 30_000


def test_frozen_relation_stays() -> None:
    """A twin keeps its rows, whatever is written afterwards; nothing is copied for it."""
    relation = Relation(SHAPE)
    events = [Event(INSERT, NORMAL, (i, 0, i), None, 0) for i in range(5)]
    chunk, timeline, _, _ = chunk_of(events)
    relation.settle(relation.resolve_chunk(chunk, timeline))
    before = content(relation)
    twin = relation.freeze()
    shared = relation.lanes
    changes = [
        Event(DELETE, NORMAL, (0, 0, 0), None, 0),
        Event(UPDATE, NORMAL, (1, 0, 9), None, 0),
        Event(INSERT, NORMAL, (9, 0, 9), None, 0),
    ]
    relation.settle(relation.resolve_chunk(*chunk_of(changes)[:2]))
    assert relation.lanes is shared
    assert content(twin) == before


def test_of_two_frozen_twins_the_second_may_go_first() -> None:
    """Two snapshots may be written at once; when one is done, the other keeps its rows."""
    relation = Relation(SHAPE)
    relation.settle(relation.resolve_chunk(*chunk_of([Event(INSERT, NORMAL, (i, 0, i), None, 0) for i in range(5)])[:2]))
    first, second = relation.freeze(), relation.freeze()
    before = content(first)
    del second
    relation.settle(
        relation.resolve_chunk(
            *chunk_of([Event(UPDATE, NORMAL, (1, 0, 9), None, 0), Event(DELETE, NORMAL, (0, 0, 0), None, 0)])[:2]
        )
    )
    relation.settle(relation.resolve_chunk(*chunk_of([Event(INSERT, NORMAL, (7, 0, 7), None, 0)])[:2]))
    assert content(first) == before


def test_damaged_columns_are_refused() -> None:
    relation = Relation(SHAPE)
    relation.settle(relation.resolve_chunk(*chunk_of([Event(INSERT, NORMAL, (1, 0, 1), None, 0)])[:2]))
    good, (page,) = dict(relation.columns()), relation.freeze().row_pages()
    rows = dict(page.columns())
    for name in good:
        with pytest.raises(SnapshotDamaged):
            Relation(SHAPE).load_pages({other: column for other, column in good.items() if other != name}, {0: rows})
    for name in rows:
        with pytest.raises(SnapshotDamaged):
            Relation(SHAPE).load_pages(good, {0: {other: column for other, column in rows.items() if other != name}})
    for pages in ({}, {1: rows}, {0: rows, 1: rows}):
        with pytest.raises(SnapshotDamaged):
            Relation(SHAPE).load_pages(good, pages)
    with pytest.raises(SnapshotDamaged):
        Relation(Shape(4, (0,), ())).load_pages(good, {0: rows})
    rows["valid"].array[0, 0] = False
    with pytest.raises(SnapshotDamaged, match="without a key"):
        Relation(SHAPE).load_pages(good, {0: rows})


@pytest.mark.parametrize("new_keys", [0, 1])
def test_update_block_with_another_key(new_keys: int) -> None:
    """Old values under another key are a row of their own, which is deleted."""
    relation = Relation(SHAPE, k.Policy(k.KEEP, 0, 1, 0, new_keys))
    events = [
        Event(INSERT, NORMAL, (1, 0, 5), None, 0),
        Event(UPDATE_BLOCK, NORMAL, (2, 0, 6), None, 0),
        Event(DELETE, NORMAL, (1, 0, 5), None, 0),
    ]
    chunk, timeline, _, _ = chunk_of(events)
    chunk.rank[2] = chunk.rank[1]
    found = relation.settle(relation.resolve_chunk(chunk, timeline))
    rows = zip(found.opcode.tolist(), found.lanes[:, 0].tolist(), found.lanes[:, 2].tolist(), strict=True)
    assert list(rows) == [(INSERT, 1, 5), (INSERT, 2, 6), (DELETE, 1, 5)]


def test_update_block_without_a_key() -> None:
    """The new values are refused, and the old ones are deleted, whatever number represents null."""
    relation = Relation(SHAPE, k.Policy(k.KEEP, 0, 1, 0, 0))
    old = (0, 0, 5)
    chunk, timeline, _, _ = chunk_of([Event(INSERT, NORMAL, old, None, 0), *[Event(UPDATE_BLOCK, NORMAL, (0, 0, 6), None, 0)] * 2])
    chunk.rank[2], chunk.opcode[2], chunk.lanes[2], chunk.valid[1, 0] = chunk.rank[1], DELETE, old, False
    resolution = relation.resolve_chunk(chunk, timeline)
    assert resolution.refused_row.tolist() == [1]
    found = relation.settle(resolution)
    assert list(zip(found.opcode.tolist(), found.lanes[:, 0].tolist(), strict=True)) == [(INSERT, 0), (DELETE, 0)]


def test_table_is_spared_while_rows_leave_in_order() -> None:
    """If all keys are new, first in first out needs no table; another order builds one that finds every row."""
    relation = Relation(SHAPE, k.Policy(k.KEEP, 0, 1, 0, 1))
    for key in range(200):
        relation.change(*chunk_of([Event(INSERT, NORMAL, (key, 0, key), None, 0)])[:2])
    for key in range(50):
        relation.change(*chunk_of([Event(DELETE, NORMAL, (key, 0, 0), None, 0)])[:2])
    assert not relation._rows.by_key.table.any()
    gone = [relation.change(*chunk_of([Event(DELETE, NORMAL, (key, 0, 0), None, 0)])[:2]).chunk for key in range(199, 49, -1)]
    assert relation._rows.state[slots.INDEXED]
    assert [int(chunk.lanes[0, 2]) for chunk in gone] == list(range(199, 49, -1))
    assert relation.live == 0
