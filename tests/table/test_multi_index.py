"""Rows found by the fields of a condition: lists follow events one by one, moved rows, and snapshots (SPEC A27)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.rows.chunk import Chunk, Timeline
from hotspare.rows.compile import plain
from hotspare.rows.tuning import SMALL, Tuning, tuning_override
from hotspare.table.loops import multi_index as k
from hotspare.table.loops import relation, slots
from hotspare.table.loops.index import NONE
from hotspare.table.multi_index import MultiIndex
from hotspare.table.relation import Relation, Shape
from hotspare.table.row_layout import FrozenRowPage
from tests.examples import examples
from tests.tunings import tunings

SHAPE = Shape(3, (0,), (), (1,))
UPSERT, SAFE_DELETE = 3, 5
Change = tuple[int, int, int | None, int]
"""Opcode, key, field of the condition, value."""
follow, follow_moves, first_of = plain(k.follow), plain(k.follow_moves), plain(k.first_of)
admit_all, first_in_order, delist = plain(k.admit_all), plain(k.first_in_order), plain(k.delist)


@dataclass
class Model:
    """Rows by key, in order of arrival; a row whose condition changes arrives again."""

    rows: dict[int, tuple[int | None, int]] = field(default_factory=dict)

    def take(self, change: Change) -> None:
        opcode, key, condition, value = change
        if opcode == SAFE_DELETE or (key in self.rows and self.rows[key][0] != condition):
            self.rows.pop(key, None)
        if opcode == UPSERT:
            self.rows[key] = condition, value

    @property
    def lists(self) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for key, (condition, value) in self.rows.items():
            if condition is not None:
                found.setdefault(condition, []).append((key, value))
        return found


def chunk_of(changes: list[Change]) -> tuple[Chunk, Timeline]:
    count = len(changes)
    lanes = np.array([(key, condition or 0, value) for _, key, condition, value in changes], np.int64).reshape(count, 3)
    valid = np.ones((count, 3), np.bool_)
    valid[:, 1] = [condition is not None for _, _, condition, _ in changes]
    opcode = np.array([change[0] for change in changes], np.uint8)
    return Chunk(np.arange(count), opcode, np.ones(count, np.uint8), lanes, valid), Timeline(
        np.zeros(count, np.int64), np.empty(0, np.int64)
    )


def lists_of(index: MultiIndex, conditions: range) -> dict[int, list[tuple[int, int]]]:
    """Returns the rows found by each value, from the first to the last; checks that the way back is the same."""
    lists, found = index.lists, {}
    for condition in conditions:
        asked, known = np.array([[condition]]), np.array([[True]])
        met, at, before = [], int(first_of(lists, asked, known, 0, np.array([0]))), int(NONE)
        while at >= 0:
            assert lists.links[at, k.BEFORE] == before
            met.append((int(lists.lanes[at, 0]), int(lists.lanes[at, 2])))
            at, before = int(lists.links[at, k.AFTER]), at
        if met:
            found[condition] = met
    return found


def taken(index: MultiIndex, model: Model, changes: list[Change], conditions: range) -> int:
    """Applies changes, and checks the lists after each. Returns the count of moved rows."""
    made = index.resolve_chunk(*chunk_of(changes)).output_records
    opcode, slot = made[:, relation.OPCODE].astype(np.uint8), made[:, relation.SLOT].copy()
    caused, at = made[:, relation.RANK].tolist(), 0
    for number, change in enumerate(changes):
        model.take(change)
        while at < len(made) and caused[at] == number:
            while not follow(index.lists, opcode, slot, at):
                index.make_room()
            at += 2 if opcode[at] == relation.UPDATE_BLOCK else 1
        assert lists_of(index, conditions) == model.lists
    moved = int(index.rows.pages.rows.state[slots.MOVED])
    index.settle()
    assert lists_of(index, conditions) == model.lists
    return moved


def restored(twin: Relation) -> MultiIndex:
    index = MultiIndex(SHAPE)
    index.load_pages(twin.columns(), {page.number: page.columns() for page in twin.row_pages()})
    return index


CONDITIONS = range(5)
CHANGES = st.tuples(
    st.sampled_from([UPSERT, UPSERT, UPSERT, SAFE_DELETE]),
    st.integers(0, 40),
    st.one_of(st.none(), st.sampled_from(CONDITIONS), st.just(0)),
    st.integers(0, 99),
)


@pytest.fixture(autouse=True)
def _hashes_may_overflow() -> Iterator[None]:
    """Silences overflows, as in compiled kernels."""
    with np.errstate(over="ignore"):
        yield


@pytest.fixture
def small_pages() -> Iterator[None]:
    with tuning_override(SMALL):
        yield


@examples(0.4)
@given(st.lists(st.lists(CHANGES, max_size=40), min_size=1, max_size=6), st.integers(0, 5), tunings())
def test_lists_follow_rows(batches: list[list[Change]], frozen_at: int, tuning: Tuning) -> None:
    """Event by event; and a snapshot that is held meanwhile is restored as it was."""
    with tuning_override(tuning):
        index, model = MultiIndex(SHAPE), Model()
        twin, was = index.freeze(), model.lists
        for number, changes in enumerate(batches):
            if number == frozen_at:
                twin, was = index.freeze(), model.lists
            taken(index, model, changes, CONDITIONS)
        assert lists_of(restored(twin), CONDITIONS) == was
        assert lists_of(restored(index.freeze()), CONDITIONS) == model.lists
        assert lists_of(pickle.loads(pickle.dumps(index)), CONDITIONS) == model.lists


@examples(0.4)
@given(st.permutations(range(60)), st.sampled_from([1, 3, 30]), st.lists(st.integers(0, 59), max_size=20), st.integers(0, 70))
def test_rows_are_admitted_where_they_arrived(came: list[int], values: int, gone: list[int], walked_at: int) -> None:
    """Rows are loaded in any order; others are removed meanwhile, and lists are walked."""
    index, model = MultiIndex(SHAPE), Model()
    rows: list[Change] = [(UPSERT, key, key % values, 7) for key in range(60)]
    slots_of = index.resolve_chunk(*chunk_of(rows)).output_records[:, relation.SLOT]
    index.settle()
    for number, key in enumerate(came):
        while int(admit_all(index.lists, slots_of[[key]], 0)) == 0:
            index.make_room()
        model.rows[key] = key % values, 7
        if number < len(gone) and gone[number] in model.rows:
            delist(index.lists, slots_of[gone[number]])
            del model.rows[gone[number]]
        if number == walked_at:
            put_in_order(index, model)
    put_in_order(index, model)


def put_in_order(index: MultiIndex, model: Model) -> None:
    """Walks all lists, and checks them then."""
    for condition in range(60):
        first_in_order(index.lists, np.array([[condition]]), np.array([[True]]), 0, np.array([0]))
    there = Model(dict(sorted(model.rows.items())))
    assert lists_of(index, range(60)) == there.lists


@pytest.mark.usefixtures("small_pages")
def test_lists_follow_rows_that_are_moved() -> None:
    random = np.random.default_rng(11)
    index, model, moved = MultiIndex(SHAPE), Model(), 0
    for _ in range(12):
        keys, conditions = random.integers(0, 120, 60).tolist(), random.integers(0, 9, 60).tolist()
        changes: list[Change] = [(UPSERT, key, condition or None, 1) for key, condition in zip(keys, conditions, strict=True)]
        moved += taken(index, model, changes, range(1, 9))
    assert moved > 100


@pytest.mark.usefixtures("small_pages")
def test_the_index_of_lists_grows_by_splitting() -> None:
    index, model = MultiIndex(SHAPE), Model()
    made = index.resolve_chunk(*chunk_of([(UPSERT, key, key, 1) for key in range(3_000)])).output_records
    opcode, slot = made[:, relation.OPCODE].astype(np.uint8), made[:, relation.SLOT].copy()
    for at in range(len(made)):
        model.take((UPSERT, at, at, 1))
        while not follow(index.lists, opcode, slot, at):
            index.make_room()
    index.settle()
    assert lists_of(index, range(3_000)) == model.lists == lists_of(restored(index.freeze()), range(3_000))


@pytest.mark.usefixtures("small_pages")
def test_a_snapshot_shares_rows_and_the_next_one_writes_what_is_new() -> None:
    index, model = MultiIndex(SHAPE), Model()
    taken(index, model, [(UPSERT, key, None, 0) for key in range(400)], CONDITIONS)
    lanes = index.rows.lanes
    first = index.freeze()
    _write(first.row_pages())
    taken(index, model, [(UPSERT, key, None, 1) for key in range(8)], CONDITIONS)
    assert index.rows.lanes is lanes, "nothing is copied at the first change after a snapshot"
    assert _write(index.freeze().row_pages()) <= 4
    assert first.stored()[0][:, 2].tolist() == [0] * 400


def _write(pages: list[FrozenRowPage]) -> int:
    """Returns the count of pages that were not known."""
    new = [page for page in pages if page.store_key is None]
    for page in new:
        page.set_store_key(page.number)
    return len(new)
