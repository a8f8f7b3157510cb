"""Strings that no row holds are collected step by step: none that is held, in bounded time and memory, and unseen by snapshots."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hotspare.rows.chunk import Chunk, Int64s, Timeline
from hotspare.rows.tuning import DEFAULT, SMALL, Tuning, tuning_override
from hotspare.table.loops import relation as k
from hotspare.table.relation import KEEP_ALL, Relation, Shape
from hotspare.table.strings import FrozenStrings, StringTable, TextCollector
from tests.examples import examples
from tests.tunings import tunings

NO_BEATS = np.empty(0, np.int64)
PAGE = 1 << DEFAULT.text_page_bits


def chunk_of(keys: Int64s, codes: Int64s, opcode: int) -> Chunk:
    count = len(keys)
    lanes, valid = np.column_stack([keys, codes]), np.ones((count, 2), np.bool_)
    return Chunk(np.arange(count), np.full(count, opcode, np.uint8), np.ones(count, np.uint8), lanes, valid)


class Windows:
    """A table of strings, and two windows that hold them: rows by key, and the newest rows."""

    def __init__(self, newest: int = 5) -> None:
        self.strings, self.collector = StringTable(), TextCollector()
        shape = Shape(2, (0,), (1,))
        self.by_key = Relation(shape, KEEP_ALL)
        self.newest = Relation(shape, k.Policy(k.COUNT_SLIDING, newest, 1, 0, 1))
        self._came = 0

    @property
    def parts(self) -> Mapping[str, Relation]:
        return {"by_key": self.by_key, "newest": self.newest}

    def step(self, keys: Int64s, texts: pa.Array, collects: bool = True) -> None:
        codes, _ = self.strings.intern(texts)
        timeline = Timeline(np.zeros(len(keys), np.int64), NO_BEATS)
        self.by_key.change(chunk_of(keys, codes, 3), timeline)
        self.newest.change(chunk_of(self._came + np.arange(len(keys)), codes, 1), timeline)
        self._came += len(keys)
        if collects:
            self.collector.collect_some(self.strings, lambda: self.parts, len(keys))

    def delete(self, keys: Int64s) -> None:
        self.by_key.change(chunk_of(keys, 0 * keys, 5), Timeline(np.zeros(len(keys), np.int64), NO_BEATS))

    def texts(self) -> list[list[str]]:
        return [texts_of(self.strings.freeze(), part) for part in self.parts.values()]


def texts_of(strings: FrozenStrings, part: Relation) -> list[str]:
    codes = part.stored()[0][:, 1]
    found = strings.subset(codes)
    return [bytes(found.data[a:b]).decode() for a, b in zip(found.offsets[:-1], found.offsets[1:], strict=True)]


def test_a_table_is_sent_while_codes_are_given_free() -> None:
    """A string that was collected and arrives again has two codes until the old one is free. Only the new one is pickled."""
    with tuning_override(SMALL):
        windows = Windows(newest=1)
        for number in range(60):
            windows.step(np.array([0]), pa.array(["abcdefg"[number % 7 if number % 2 else 0]]))
            sent, *parts = pickle.loads(pickle.dumps((windows.strings, windows.by_key, windows.newest)))
            assert [texts_of(sent.freeze(), part) for part in parts] == windows.texts()


class Collecting(RuleBasedStateMachine):
    """Whatever arrives, is removed and arrives again during rounds, and however many snapshots are read meanwhile."""

    @initialize(tuning=tunings())
    def begin(self, tuning: Tuning) -> None:
        self.sizes = ExitStack()
        self.sizes.enter_context(tuning_override(tuning))
        self.windows = Windows()
        self.expected: dict[int, str] = {}
        self.newest: list[str] = []
        self.snapshots: list[tuple[FrozenStrings, list[Relation], list[list[str]]]] = []

    def teardown(self) -> None:
        if hasattr(self, "sizes"):
            self.sizes.close()

    def held(self) -> list[list[str]]:
        return [list(self.expected.values()), self.newest]

    @rule(rows=st.lists(st.tuples(st.integers(0, 9), st.text("ab", max_size=40)), max_size=9, unique_by=lambda row: row[0]))
    def put(self, rows: list[tuple[int, str]]) -> None:
        self.windows.step(np.array([key for key, _ in rows], np.int64), pa.array([text for _, text in rows], pa.string()))
        for key, text in rows:
            self.expected[key] = text
        self.newest = [*self.newest, *(text for _, text in rows)][-5:]

    @rule(keys=st.lists(st.integers(0, 9), unique=True, max_size=9))
    def delete(self, keys: list[int]) -> None:
        self.windows.delete(np.array(keys, np.int64))
        for key in keys:
            self.expected.pop(key, None)

    @rule()
    def freeze(self) -> None:
        windows = self.windows
        self.snapshots.append((windows.strings.freeze(), [windows.by_key.freeze(), windows.newest.freeze()], windows.texts()))

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.snapshots.pop(data.draw(st.integers(0, len(self.snapshots) - 1)))

    @rule()
    def send(self) -> None:
        """Continues in another process; a round under way is dropped."""
        windows = self.windows
        windows.strings, windows.by_key, windows.newest, windows.collector = pickle.loads(
            pickle.dumps((windows.strings, windows.by_key, windows.newest, windows.collector))
        )

    @invariant()
    def all_is_there(self) -> None:
        if not hasattr(self, "windows"):
            return
        by_key, newest = self.windows.texts()
        assert (sorted(by_key), newest) == (sorted(self.expected.values()), self.newest)
        for strings, parts, was in self.snapshots:
            assert [texts_of(strings, part) for part in parts] == was
        strings = self.windows.strings
        assert strings.bytes == int(strings._texts.page_bytes.sum())

    @precondition(lambda self: hasattr(self, "windows"))
    @rule()
    def forget(self) -> None:
        """A whole round leaves only the strings that rows hold."""
        windows = self.windows
        windows.collector.finish(windows.strings, lambda: windows.parts)
        windows.collector.begin(windows.strings)
        windows.collector.finish(windows.strings, lambda: windows.parts)
        held = {*self.expected.values(), *self.newest}
        assert windows.strings.live == len(held)
        assert windows.strings.bytes == sum(map(len, held))


TestCollecting = Collecting.TestCase
TestCollecting.settings = settings(examples(1), stateful_step_count=40)


def churn(windows: Windows, steps: int, rows: int, size: int) -> int:
    """Gives each row another text at each step. Returns the most bytes of text that there were."""
    most = 0
    for step in range(steps):
        texts = pa.array([f"{step}-{row}-".ljust(size, "x") for row in range(rows)])
        windows.step(np.arange(rows), texts)
        most = max(most, int((windows.strings._texts.page_bytes > 0).sum()) * PAGE)
    return most


@tuning_override(Tuning(collect_bytes_min=1 << 20))
def test_text_of_dead_strings_is_bounded_by_bytes() -> None:
    """A hundred rows of 10 kB each that change repeatedly take a few times their own bytes, not those of all that arrived."""
    windows = Windows(newest=100)
    assert churn(windows, steps=60, rows=100, size=10_000) < 8 << 20
    assert windows.strings.bytes < 4 << 20


@tuning_override(Tuning(collect_bytes_min=1 << 20))
def test_few_strings_among_many_that_die_do_not_keep_their_pages() -> None:
    """A tenth lives on: the rest is compacted, and the other memory is released."""
    windows = Windows()
    windows.step(np.arange(20_000), pa.array([f"{row}".ljust(200, "x") for row in range(20_000)]), collects=False)
    windows.delete(np.flatnonzero(np.arange(20_000) % 10))
    used = int((windows.strings._texts.page_bytes > 0).sum())
    windows.collector.begin(windows.strings)
    windows.collector.finish(windows.strings, lambda: windows.parts)
    assert used * PAGE > 4_000_000
    assert int((windows.strings._texts.page_bytes > 0).sum()) * PAGE < 1_000_000
    assert windows.texts()[0] == [f"{row}".ljust(200, "x") for row in range(0, 20_000, 10)]


@tuning_override(Tuning(text_page_bits=3, small_text_bytes=0))
def test_pages_smaller_than_those_of_the_system_keep_their_neighbours() -> None:
    """Memory is released in system pages: if free and used pages of text share one, it is kept."""
    windows, texts = Windows(newest=1), [f"text {row}".ljust(20) for row in range(2_000)]
    windows.step(np.arange(2_000), pa.array(texts))
    windows.delete(np.arange(100, 2_000))
    windows.collector.begin(windows.strings)
    windows.collector.finish(windows.strings, lambda: windows.parts)
    for _ in range(30):
        windows.strings.reuse_freed()
    assert windows.texts()[0] == texts[:100]


def test_what_a_step_looks_at_does_not_grow_with_the_state() -> None:
    """A step of ten rows marks and frees as many with 2,000 as with 20,000 rows; only the number of such steps grows."""
    steps = []
    for rows in (2_000, 20_000):
        with pytest.MonkeyPatch.context() as patch, tuning_override(Tuning(looks_min=500, collect_codes_min=100)):
            windows = Windows()
            windows.step(np.arange(rows), pa.array([f"a{row}" for row in range(rows)]), collects=False)
            windows.step(np.arange(rows), pa.array([f"b{row}" for row in range(rows)]), collects=False)
            windows.collector._given = windows.strings.codes_assigned
            marked, freed = watch(patch)
            count = 0
            while count == 0 or not windows.collector.is_resting:
                windows.step(np.arange(10), pa.array([f"c{count}-{row}" for row in range(10)]))
                count += 1
            assert max(marked) <= 500 + 10 * DEFAULT.looks_per_row + 10 * DEFAULT.looks_per_string + 20
            assert max(freed) <= 150
            assert windows.strings.live <= rows + 20 * count
            steps.append(count)
    assert 5 * steps[0] < steps[1]


def watch(patch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
    """Returns how many rows each call may mark, and how many strings each frees."""
    marked: list[int] = []
    freed: list[int] = []
    mark, free = Relation.mark, StringTable.free_unmarked

    def marking(part: Relation, marks: np.ndarray, mark_: int, since: int, rows: int) -> int:
        marked.append(rows)
        return mark(part, marks, mark_, since, rows)

    def freeing(table: StringTable, first: int, looks: int) -> int:
        before = table.live
        at = free(table, first, looks)
        freed.append(before - table.live)
        return at

    patch.setattr(Relation, "mark", marking)
    patch.setattr(StringTable, "free_unmarked", freeing)
    return marked, freed


def test_codes_and_memory_are_used_again_when_no_snapshot_needs_them() -> None:
    """Codes do not rise without end; while a snapshot lives, those that it may read are kept."""
    with tuning_override(replace(SMALL, looks_min=1_000)):
        windows = Windows()
        for step in range(50):
            windows.step(np.arange(5), pa.array([f"{step}-{row}" for row in range(5)]))
        count = windows.strings.count
        assert count < 60
        twin, part, was = windows.strings.freeze(), windows.by_key.freeze(), windows.texts()[0]
        for step in range(50, 100):
            windows.step(np.arange(5), pa.array([f"{step}-{row}" for row in range(5)]))
        assert texts_of(twin, part) == was
        assert windows.strings.count > count
        del twin
        highest = windows.strings.count
        for step in range(100, 150):
            windows.step(np.arange(5), pa.array([f"{step}-{row}" for row in range(5)]))
        assert windows.strings.count <= highest + 10


@pytest.mark.parametrize(("strings", "size", "wants"), [(65_000, 4, False), (66_000, 4, True), (80, 1 << 20, True)])
def test_rounds_are_worth_it_by_codes_or_by_bytes(strings: int, size: int, wants: bool) -> None:
    """Eighty strings of a megabyte take more memory than a million of ten bytes."""
    table = StringTable()
    table.intern(pa.array([f"{number}".ljust(size, "x") for number in range(strings)]))
    assert TextCollector().is_round_due(table) is wants
