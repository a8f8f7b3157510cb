"""Pages of a relation: their content, what snapshots keep of them, and how many there are, in any size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.rows.chunk import Chunk, Timeline
from hotspare.rows.tuning import Tuning, tuning_override
from hotspare.table.loops import index as index_kernels
from hotspare.table.loops import relation as k
from hotspare.table.loops import slots
from hotspare.table.relation import Relation, Shape
from tests.examples import examples
from tests.table import relations
from tests.table.relations import reload

INSERT, UPSERT, SAFE_DELETE = 1, 3, 5
Change = tuple[int, int, int]
"""Opcode, key, value."""
POLICIES = [k.KEEP, k.COUNT_SLIDING, k.TIME_SLIDING]


def policy_of(kind: int) -> k.Policy:
    return k.Policy(kind, 40 if kind == k.COUNT_SLIDING else 1000, 1, 0, 0)


def chunk_of(changes: list[Change]) -> tuple[Chunk, Timeline]:
    count = len(changes)
    table = np.array(changes, np.int64).reshape(count, 3)
    flags, valid = np.ones(count, np.uint8), np.ones((count, 2), np.bool_)
    chunk = Chunk(np.arange(count), table[:, 0].astype(np.uint8), flags, np.ascontiguousarray(table[:, 1:]), valid)
    return chunk, Timeline(np.zeros(count, np.int64), np.empty(0, np.int64))


def content(relation: Relation) -> list[list[int]]:
    rows: list[list[int]] = relation.stored()[0].tolist()
    return rows


@dataclass
class Model:
    """Rows by key, in order of arrival."""

    kind: int
    rows: dict[int, int] = field(default_factory=dict)

    def take(self, changes: list[Change]) -> None:
        for opcode, key, value in changes:
            if opcode == SAFE_DELETE or self.kind == k.TIME_SLIDING:
                self.rows.pop(key, None)
            if opcode == UPSERT:
                self.rows[key] = value
            while self.kind == k.COUNT_SLIDING and len(self.rows) > 40:
                del self.rows[next(iter(self.rows))]

    @property
    def content(self) -> list[list[int]]:
        return [[key, value] for key, value in self.rows.items()]


def batches(keys_max: int) -> st.SearchStrategy[list[list[Change]]]:
    change = st.tuples(st.sampled_from([UPSERT, UPSERT, UPSERT, SAFE_DELETE]), st.integers(0, keys_max), st.integers(0, 99))
    return st.lists(st.lists(change, max_size=80), min_size=1, max_size=12)


@pytest.fixture
def small_pages() -> Iterator[None]:
    with tuning_override(Tuning(page_slots=4, spare_slots=0)):
        yield


@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.usefixtures("small_pages")
@examples(0.7)
@given(batches(60), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=6))
def test_every_snapshot_stays_what_it_was(kind: int, given_batches: list[list[Change]], lives: list[tuple[int, int]]) -> None:
    """Several live at once, and end in any order; rows are moved and pages reused meanwhile."""
    relation, model = Relation(Shape(2, (0,), ()), policy_of(kind)), Model(kind)
    twins: list[tuple[int, Relation, list[list[int]]]] = []
    for number, changes in enumerate(given_batches):
        twins += [(end, relation.freeze(), model.content) for begin, end in lives if begin == number]
        twins = [twin for twin in twins if twin[0] >= number]
        if number % 2:
            relation.change(*chunk_of(changes))
        else:
            relation.settle(relation.resolve_chunk(*chunk_of(changes)))
        model.take(changes)
        assert content(relation) == model.content
        assert all(content(twin) == was for _, twin, was in twins)


def filled(keys: int, random: np.random.Generator) -> Relation:
    relation = Relation(Shape(2, (0,), ()), policy_of(k.KEEP))
    for begin in range(0, keys, 100):
        relation.change(*chunk_of([(UPSERT, key, 0) for key in range(begin, min(begin + 100, keys))]))
    for _ in range(60):
        relation.change(*chunk_of([(UPSERT, key, 1) for key in random.integers(0, keys, 200).tolist()]))
    return relation


@pytest.mark.usefixtures("small_pages")
def test_gaps_are_cleared() -> None:
    """However often rows change, pages hold few gaps."""
    relation = filled(2_000, np.random.default_rng(1))
    state = relation._rows.state
    assert state[slots.PAGES] * 4 <= 1.15 * 2_000
    assert state[slots.HIGH] * 4 <= 1.6 * 2_000, "pages are used again with the next batch"
    assert relation.live == 2_000


@pytest.mark.usefixtures("small_pages")
def test_a_snapshot_keeps_no_more_than_was_there() -> None:
    """However long it is held: slots of rows that arrived later and were removed are reused."""
    random = np.random.default_rng(2)
    relation = filled(1_000, random)
    twin = relation.freeze()
    was = content(twin)
    for _ in range(100):
        relation.change(*chunk_of([(UPSERT, key, 2) for key in random.integers(0, 1_000, 200).tolist()]))
    assert relation._rows.state[slots.HIGH] * 4 <= 3 * 1_000
    assert content(twin) == was


def test_values_written_late_go_with_rows_that_moved() -> None:
    """`settle` returns values written to a slot after the batch was resolved, also if the row was moved by then."""
    with tuning_override(Tuning(page_slots=2, spare_slots=0)):
        relation = Relation(Shape(2, (0,), ()), policy_of(k.KEEP))
        expected: dict[int, int] = {}
        random = np.random.default_rng(3)
        for turn in range(30):
            keys = random.integers(0, 40, 90).tolist()
            resolution = relation.resolve_chunk(*chunk_of([(UPSERT, key, 0) for key in keys]))
            rows, where = resolution.arrived_rows()
            values = rows + 1_000 * turn
            relation.lanes[where, 1] = values
            expected |= dict(zip(keys, values.tolist(), strict=True))
            relation.settle(resolution)
            assert dict(content(relation)) == expected


@pytest.mark.parametrize("new_keys", [0, 1])
@pytest.mark.usefixtures("small_pages")
def test_an_empty_relation_goes_on_where_it_stood(new_keys: int) -> None:
    """Rows arrived, changed and were removed: the next one goes behind all of them, also after a restore."""
    policy = policy_of(k.KEEP)._replace(new_keys=new_keys)
    relation = Relation(Shape(2, (0,), ()), policy)
    relation.change(*chunk_of([(UPSERT, 7, value) for value in range(6)]))
    relation.change(*chunk_of([(SAFE_DELETE, 7, 0)]))
    again = reload(relation, Relation(Shape(2, (0,), ()), policy))
    for each in (relation, again):
        each.change(*chunk_of([(UPSERT, 8, 1)]))
    assert relations.content(again) == relations.content(relation)


def test_keys_that_no_hash_tells_apart_are_found() -> None:
    """A segment that cannot be split keeps the rest in a list: slow, but right. Its depth is set here; keys can be made for it."""
    relation = Relation(Shape(2, (0,), ()), policy_of(k.KEEP))
    crowded = relation._rows.by_key
    crowded.segments[0, index_kernels.DEPTH] = index_kernels.DEPTH_MAX
    relation.change(*chunk_of([(UPSERT, key, key) for key in range(1_200)]))
    assert relation._rows.by_key.sizes[index_kernels.STUCK] == 1_200 - index_kernels.SEGMENT_ENTRIES_MAX
    relation.change(*chunk_of([(SAFE_DELETE, key, 0) for key in range(0, 1_200, 3)]))
    relation.change(*chunk_of([(UPSERT, key, 0) for key in range(600)]))
    assert sorted(key for key, _ in content(relation)) == sorted({*range(600), *(key for key in range(1_200) if key % 3)})


def with_gaps(policy: k.Policy) -> Relation:
    """Returns a relation with a begun page, whose pages with gaps follow too many without any to be checked at once."""
    relation = Relation(Shape(2, (0,), ()), policy)
    relation.change(*chunk_of([(INSERT, key, 0) for key in range(1_000)]))
    relation.change(*chunk_of([(SAFE_DELETE, key, 0) for key in range(400, 1_000, 2)]))
    while relation._rows.state[slots.FILL] != 1:
        relation.change(*chunk_of([(INSERT, 1_000 + relation.live, 0)]))
    return relation


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("new_keys", [0, 1])
def test_gaps_are_seen_to_once_for_each_event(new_keys: int) -> None:
    """Law Cut: not once more if the index must be built first, as after a restore."""
    policy = policy_of(k.KEEP)._replace(new_keys=new_keys)
    relation = with_gaps(policy)
    again = reload(relation, Relation(Shape(2, (0,), ()), policy))
    for each in (relation, again):
        each.change(*chunk_of([(SAFE_DELETE, 1, 0)]))
    assert relations.content(again) == relations.content(relation)


@pytest.mark.usefixtures("small_pages")
def test_gaps_are_not_seen_to_at_heartbeats() -> None:
    """Law Cut: a window that needs no time gets heartbeats only together with rows."""
    policy = k.Policy(k.COUNT_SLIDING, 10_000, 1, 0, 0)
    relation, other = with_gaps(policy), with_gaps(policy)
    chunk, timeline = chunk_of([(SAFE_DELETE, 1, 0), (SAFE_DELETE, 1, 0)])
    chunk.rank[:] = 0, 2
    timeline = Timeline(np.zeros(3, np.int64), np.array([1]))
    relation.change(chunk, timeline)
    other.change(chunk, Timeline(np.zeros(3, np.int64), np.empty(0, np.int64)))
    assert relations.content(other) == relations.content(relation)
