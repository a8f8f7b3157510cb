"""Laws Cut and Crash if a restore leaves pages in the store, over any graph: whenever the engine reads these pages, every bit of
outputs and snapshots is the same (SPEC G7).

`check` draws sizes, the time at which pages are read, places of restarts and snapshots, and cuts of the input, and compares with a
run without a restart. `drawn` makes graphs whose windows keep many rows, and changelogs for them.
"""

from __future__ import annotations

import itertools
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan
from hotspare.flow.snapshot import FrozenProjectState
from hotspare.rows.chunk import Int64s
from hotspare.rows.tuning import Tuning, tuning_override
from hotspare.table.loops.multi_index import BEFORE, UNORDERED
from hotspare.table.multi_index import MultiIndex
from hotspare.table.relation import Relation
from tests.laws.any_changelogs import TICK, Given, changelogs, raw_messages
from tests.laws.any_graphs import SECOND, Graph, Window, keepers
from tests.laws.core_scripts import bytes_of, joined, snapshot_bytes
from tests.laws.graph_laws import same
from tests.laws.test_cut import cut
from tests.laws.unloaded_kit import Asked, StoreFault, absent, is_of_key_filter, only_at_use, unread, walk_typed
from tests.tunings import any_tuning

ROWS_MAX = 40
"""The greatest number of rows of a message."""
GROUPS = (3, 8, 40)
KEYS = (12, 100, 300)
PAGE_SLOTS = (1, 2, 4, 8, 16)
PAGES_MAX = 50
"""The greatest number of pages that the rows of a changelog fill, unless pages are of the largest size."""
ROWS_FEW = 150
"""Below this number of rows there may be a restart after every message."""
LOOKS_MIN = 32
"""Above the texts of any row: `collect_all_strings` ends a round by itself, without rows to earn looks by."""


class Read(Enum):
    """The time at which the engine reads the pages that a restore left in the store."""

    AT_USE = "at use"
    BY_AND_BY = "at use, and a few after each step"
    IN_ANY_ORDER = "some at once, in any order; others as by and by"


@dataclass(frozen=True)
class Way:
    """The settings of a run that is compared with one without a restart."""

    tuning: Tuning
    read: Read
    restarts: frozenset[int]
    """Numbers of messages after which a snapshot is taken and restored."""
    looks: frozenset[int]
    """Numbers of messages after which a snapshot is taken, which is written a message later."""
    cut_each: int
    """The greatest number of rows of a batch; 0: each message is one."""
    parts: int | None
    """The greatest number of outputs of a part; None: the engine's own."""

    @classmethod
    def drawn(cls, random: Random, pieces: Sequence[pa.RecordBatch]) -> Way:
        """Pages are small, but not many: each snapshot costs time for each page."""
        places, rows = range(1, len(pieces)), sum(piece.num_rows for piece in pieces)
        restarts = random.choice([1, 1, 2, 2, 3, 3, 99 if rows < ROWS_FEW else 4])
        return cls(
            tuning=any_tuning(
                random,
                page_slots=random.choice([slots for slots in PAGE_SLOTS if rows <= PAGES_MAX * slots] or PAGE_SLOTS[-1:]),
                looks_min=LOOKS_MIN,
            ),
            read=random.choice(list(Read)),
            restarts=frozenset(random.sample(places, min(len(places), restarts))),
            looks=frozenset(random.sample(places, min(len(places), random.randint(0, 2)))),
            cut_each=random.choice([0, 0, 11]),
            parts=random.choice([None, None, 1, 4]),
        )


@dataclass
class Seen:
    """Counts of the parts that restarts met, which show that the law reaches every kind of part."""

    absent: Counter[str] = field(default_factory=Counter)
    """Pages left in the store, by window type and part."""
    unordered: set[str] = field(default_factory=set)
    """Window types and parts with a list whose rows were read in another order than that of their arrival."""


@dataclass(frozen=True)
class _Run:
    outputs: dict[str, pa.Table]
    snapshots: Sequence[tuple[int, bytes]]
    """Each with the number of the message after which it was taken."""


def broken(graph: Graph, script: Sequence[Given], random: Random, seen: Seen | None = None) -> str | None:
    """Returns the difference from a run without a restart, or the error; None if there is neither."""
    try:
        plan = graph.plan()
        head = Head.from_plan(plan)
        check(plan, [head.decode(raw) for raw in raw_messages(script, len(plan.entries))], random, seen or Seen())
    except Exception:
        return f"absent pages: {traceback.format_exc()}"
    return None


def check(plan: Plan, pieces: Sequence[pa.RecordBatch], random: Random, seen: Seen, way: Way | None = None) -> None:
    """Raises AssertionError, or the error of the engine, if a run with restarts differs from one without. `pieces`: a batch of each
    message; `way` is drawn if it is None."""
    way = way or Way.drawn(random, pieces)
    with tuning_override(way.tuning), pytest.MonkeyPatch.context() as patch:
        whole = _whole(plan, pieces, way)
        if way.read is Read.AT_USE:
            only_at_use(patch)
        found = _Restarts(plan, pieces, way, random, seen).run()
    same(f"{way}: outputs", found.outputs, whole.outputs)
    expected = dict(whole.snapshots)
    for number, content in found.snapshots:
        assert content == expected[number], f"{way}: snapshot after message {number}"


def _whole(plan: Plan, pieces: Sequence[pa.RecordBatch], way: Way) -> _Run:
    pipeline, outputs, snapshots = Pipeline.fresh(plan), [], []
    for number, piece in enumerate(pieces):
        outputs.append(pipeline.feed(piece))
        if number in way.looks | way.restarts or number == len(pieces) - 1:
            snapshots.append((number, snapshot_bytes(pipeline)))
    return _Run(joined(outputs), snapshots)


class _Restarts:
    """An engine that is restarted, with its outputs and snapshots; `way` and `random` decide how."""

    def __init__(self, plan: Plan, pieces: Sequence[pa.RecordBatch], way: Way, random: Random, seen: Seen) -> None:
        self._plan, self._pieces, self._way, self._random, self._seen = plan, pieces, way, random, seen
        self._more = {} if way.parts is None else {"extra_rows_max": way.parts}
        self._pipeline = Pipeline.fresh(plan, **self._more)
        self._outputs: list[dict[str, pa.RecordBatch]] = []
        self._snapshots: list[tuple[int, bytes]] = []
        self._unwritten: list[tuple[int, FrozenProjectState]] = []
        self._restored: tuple[bytes, dict[str, bytes], int, int] | None = None
        """Header and pages of the snapshot that the engine began with, the number of the message after which it was taken, and the
        number of outputs at that time."""

    def run(self) -> _Run:
        number, last = 0, len(self._pieces) - 1
        while number <= last:
            try:
                self._take(number)
                if number == last:
                    self._write()
                    self._snapshots.append((last, snapshot_bytes(self._pipeline)))
                number += 1
            except StoreFault:
                number = self._go_back() + 1
        return _Run(joined(self._outputs), self._snapshots)

    def _take(self, number: int) -> None:
        """Feeds one message, and restarts or takes a snapshot after it."""
        piece, each = self._pieces[number], self._way.cut_each
        for part in cut(piece, list(range(0, piece.num_rows, each))) if each else [piece]:
            self._outputs.append(self._pipeline.feed(part))
        self._write()
        if number in self._way.looks:
            self._unwritten.append((number, self._pipeline.freeze()))
        if number in self._way.restarts:
            self._snapshots.append((number, snapshot_bytes(self._pipeline)))
            frozen = self._pipeline.freeze()
            self._restored = frozen.header, dict(frozen.pages()), number, len(self._outputs)
            self._restore(self._random.randrange(40) if self._random.random() < 0.3 else -1)
            self._seen.absent.update(absent_parts(self._plan, self._pipeline))
            return
        if self._random.random() < 0.2:
            self._pipeline._state.collect_all_strings()
        if self._random.random() < 0.1:
            snapshot_bytes(self._pipeline)

    def _write(self) -> None:
        """Writes the snapshots that were taken a message before."""
        self._snapshots += [(number, bytes_of(frozen)) for number, frozen in self._unwritten]
        self._unwritten = []

    def _go_back(self) -> int:
        """Restores the same snapshot again, as an engine does after one that could not read a page. Returns the number of the
        message after which the snapshot was taken."""
        assert self._restored is not None
        *_, number, outputs = self._restored
        del self._outputs[outputs:]
        self._unwritten = []
        self._restore(-1)
        return number

    def _restore(self, fails_at: int) -> None:
        """Starts from a snapshot whose pages are left in the store. One in eight has no key filters: then only queues leave
        pages."""
        assert self._restored is not None
        (header, content, number, _), random, has_keys = self._restored, self._random, self._random.random() < 0.875
        pages = Asked({name: page for name, page in content.items() if has_keys or not is_of_key_filter(name)}, fails_at)
        self._pipeline = restored = Pipeline.restore(self._plan, header, pages, **self._more)
        if not has_keys:
            assert all(rows.pages.unloaded is rows.pages.unlinked is None for rows in walk_typed(restored).values())
        if self._way.read is Read.IN_ANY_ORDER:
            bring_some_in_any_order(restored, random)
            self._seen.unordered |= unordered_parts(self._plan, restored)
        if random.random() < 0.3:
            restored._state.collect_all_strings()
        if self._way.read is not Read.AT_USE and random.random() < 0.2:
            self._read_all(pages)
        if random.random() < 0.5:
            self._unwritten.append((number, restored.freeze()))
        again = unread(list(self._pieces[: number + 1]), restored)
        self._outputs += [restored.feed(rest) for rest in again if rest.num_rows]

    def _read_all(self, pages: Asked) -> None:
        """Reads the rest as steps without events do: each page once."""
        restored = self._pipeline
        while restored._state.lazy_parts:
            restored._state.load_some_pages(0)
        assert absent(restored) == {}, "pages stay absent"
        assert all(rows.pages.unlinked is None for rows in walk_typed(restored).values()), "rows wait for ever"
        assert len(set(pages.names)) == len(pages.names), "a page is read twice"
        assert {name for name in pages if not is_of_key_filter(name)} <= set(pages.names), "a page is never read"


def bring_some_in_any_order(pipeline: Pipeline, random: Random) -> None:
    """Loads some unloaded pages of each part, one by one, so that rows enter their lists far from both ends."""
    lists = lists_of(pipeline)
    for name, rows in walk_typed(pipeline).items():
        pages = rows.pages.unloaded
        if pages is None:
            continue
        places = np.flatnonzero(pages.is_unloaded).tolist()
        for place in random.sample(places, random.choice([random.randint(0, len(places)), len(places), len(places)])):
            rows.pages.load_page_now(place)
            if name in lists:
                lists[name].admit()


class _ListsOfPart(NamedTuple):
    links: Int64s
    admit: Callable[[], None]
    """Enters the rows that were read."""


def lists_of(pipeline: Pipeline) -> dict[str, _ListsOfPart]:
    """Returns the lists of rows that agree in some fields, in order of arrival, by window and part."""
    found = {}
    for name, page in pipeline._state.pages.items():
        for part, rows in page.parts.items():
            window = f"{name.partition('/')[2].partition('#')[0]} {part}"
            if isinstance(rows, MultiIndex):
                found[window] = _ListsOfPart(rows.lists.links, rows._admit)
            elif isinstance(rows, Relation) and rows._groups is not None:
                found[window] = _ListsOfPart(rows._groups._groups.lists.links, rows._groups.admit)
    return found


def unordered_parts(plan: Plan, pipeline: Pipeline) -> set[str]:
    """Returns the types of windows and their parts with a list that is not in order of arrival."""
    types = types_of(plan)
    found = [name.partition(" ") for name, lists in lists_of(pipeline).items() if (lists.links[:, BEFORE] == UNORDERED).any()]
    return {f"{types[window]} {part}" for window, _, part in found}


def types_of(plan: Plan) -> dict[str, str]:
    """Returns the types of the windows, by name."""
    return {window.id.window: type(window.window).__name__.removesuffix("Window") for window in plan.resolved.windows}


def absent_parts(plan: Plan, pipeline: Pipeline) -> Counter[str]:
    """Returns the number of unloaded pages, by the type of their window and the part."""
    types, found = types_of(plan), Counter[str]()
    for name, pages in absent(pipeline).items():
        window, _, part = name.partition(" ")
        found[f"{types[window]} {part}"] += pages
    return found


def drawn(seed: int) -> tuple[Graph, list[Given]]:
    """Returns a graph whose windows keep many rows, and a changelog for it; one in eight has errors of every kind."""
    random = Random(seed)
    graph = keepers(random, random.choice([15, 60, 150]))
    return graph, changelogs(random, graph.sources) if random.random() < 0.125 else changelog(random, graph.sources)


def changelog(random: Random, sources: Sequence[Window]) -> list[Given]:
    """Inserts keys, then changes and deletes some of them, most of them late ones: old pages stay, others empty and are cleared.
    Groups are of very different size; sums of some need more words than most. Times of events are not in order, and there is one
    long gap without events."""
    script, time_us, batches = list[Given](), SECOND, random.randint(5, 12)
    keys, groups, numbers = random.choice(KEYS), random.choice(GROUPS), itertools.count(1)
    for batch in range(batches):
        is_early = batch < batches // 2
        for topic, source in enumerate(sources):
            rows = range(random.randint(0, random.choice([8, ROWS_MAX])))
            texts = tuple(_row(random, source, next(numbers), time_us, keys, groups, is_early) for _ in rows)
            script += [Given(time_us + topic, topic, texts)] if texts else []
        script.append(Given(time_us + 2, TICK))
        time_us += 6 * SECOND if batch == batches - 3 else random.choice([100_000, 300_000, 800_000])
    return script


def _row(random: Random, source: Window, number: int, time_us: int, keys: int, groups: int, is_early: bool) -> bytes:
    if source.get("opcodes") == "insert-only":
        opcode, key = "I", number
    else:
        opcode = "SD" if random.random() < (0.1 if is_early else 0.35) else "P"
        key = random.randrange(keys) if is_early else keys - 1 - random.randrange(1 + keys // 8)
    group = random.randrange(groups) ** 2 // groups
    x = "" if random.random() < 0.05 else str(group)
    d = "1e300" if group == 1 and number % 7 == 0 else random.choice(["", "nan", f"{random.randrange(40)}.25", f"{key % 40}"])
    s = random.choice(["a", "b", "", f"t{random.randrange(groups)}", f"{'u' * (number % 5)}{group}"])
    at = max(0, time_us - random.randrange(2 * SECOND))
    flags = "P" if source.get("opcodes") == "any" and random.random() < 0.2 else "N"
    fields: Iterable[str] = (x, d, s, str(at))
    if flags == "P":
        fields = [value if random.random() < 0.6 else "" for value in fields]
    return f"{opcode},{flags},{key},{','.join(fields)}".encode()
