"""Laws Cut and Crash if a restore leaves pages in the store, over graphs of windows that keep many rows: outputs and snapshots are
the same, whenever the engine reads the pages (SPEC G7).

`python -m tests.laws.search --seed SEED --runs 1` shrinks a failure of this test.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import SnapshotDamaged
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.snapshot import unpack
from hotspare.rows.chunk import Bools
from hotspare.rows.tuning import tuning_override
from hotspare.table import key_filters, multi_index, unloaded_relation
from hotspare.table.loops import groups
from hotspare.table.loops import multi_index as multi_index_kernels
from hotspare.table.loops.slots import NEVER
from hotspare.table.multi_index import MultiIndex
from hotspare.table.pages import FilterPiece
from hotspare.table.relation import GroupLists
from hotspare.table.row_layout import StoredRows
from hotspare.table.row_pages import RowPages
from hotspare.table.unloaded import UnloadedPages
from hotspare.table.unloaded_queue import UnloadedRows
from hotspare.windows.aggregate import groups as aggregate_groups
from hotspare.windows.aggregate.groups import OrderedValues
from hotspare.windows.pattern.operator import PatternOperator
from tests.examples import examples
from tests.laws.any_changelogs import TICK, Given, raw_messages
from tests.laws.any_graphs import FIELDS, SECOND, Graph
from tests.laws.test_patterns import Script, Windows, case_of, scripts, windows
from tests.laws.unloaded_kit import Asked, absent, decoded, walk_typed
from tests.laws.unloaded_law import Read, Seen, Way, broken, check, drawn
from tests.laws.unloaded_windows import QUEUED, RETAINED, ROWS, SMALL_PAGES, VALUED, Held

pytestmark = pytest.mark.law

SEEDS = st.integers(0, 1 << 40)


@examples(3)
@given(seed=SEEDS)
def test_any_graph(seed: int) -> None:
    """Outputs and snapshots are those of a run without a restart, wherever restarts are, in small pages, cut or not."""
    assert broken(*drawn(seed), Random(seed)) is None, f"python -m tests.laws.search --seed {seed} --runs 1"


PARTS = {
    *("Source rows", "Copy rows", "Join left", "Join right", "Aggregate groups", "Aggregate values", "Aggregate arrivals"),
    *("Pattern matches", "Transpose groups", "Geofence results"),
}
"""Types of windows, and their parts whose pages a restore can leave in the store."""
CLEARERS = (unloaded_relation, aggregate_groups, multi_index)
"""The modules that load an unloaded page before an event clears it."""
SEEDS_OF_ALL = (0, 2, 4, 5, 6, 22, 71, 111)
"""Seeds of graphs that have all of these."""


def test_the_law_reaches_every_kind_of_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of each are left in the store, and read before an event clears them."""
    seen, cleared, bring = Seen(), set[ModuleType](), unloaded_relation.load_page_to_clear
    for module in CLEARERS:

        def load_page_to_clear(pages: RowPages, module: ModuleType = module) -> None:
            before = pages.unloaded
            left = before.left if before is not None else 0
            bring(pages)
            if before is not None and before.left < left:
                cleared.add(module)

        monkeypatch.setattr(module, "load_page_to_clear", load_page_to_clear)
    for seed in SEEDS_OF_ALL:
        assert broken(*drawn(seed), Random(seed), seen) is None
    assert set(seen.absent) >= PARTS
    assert cleared == set(CLEARERS)


LONG = Graph(
    {
        "left": {"type": "source", "opcodes": "any", "index": "empty", "schema": FIELDS},
        "right": {"type": "source", "opcodes": "any", "index": "empty", "schema": FIELDS},
        "copied": {"type": "copy", "retention": {"bycount_sliding": 90, "by": ["x"]}},
        "joined": {"type": "join", "kind": "inner", "conditions": {"x": "x"}, "outputs": {"ls": "l_s"}},
        "listed": {"type": "aggregate", "schema": "x*:int64,s:string", "outputs": {"s": "ESP_aCat(s, ';')"}},
    },
    (("left", "copied", ""), ("left", "joined", " as left"), ("right", "joined", " as right"), ("left", "listed", "")),
)
"""Windows with long lists of rows that agree in a field, in order of arrival."""


def test_rows_enter_long_lists_in_any_order() -> None:
    """Pages are read far from both ends of a list, which is put in order when an event needs it."""

    def rows(keys: range) -> tuple[bytes, ...]:
        return tuple(f"P,N,{key},{key % 3},{key},t{key},{key}".encode() for key in keys)

    script = [Given(SECOND, 0, rows(range(240))), Given(SECOND + 1, 1, rows(range(120))), Given(2 * SECOND, TICK)]
    script += [
        Given(3 * SECOND, 0, rows(range(240, 400))),
        Given(3 * SECOND + 1, 1, rows(range(200, 230))),
        Given(4 * SECOND, TICK),
    ]
    plan, seen, tuning = LONG.plan(), Seen(), replace(SMALL_PAGES, page_slots=4, spare_slots=0)
    way = Way(tuning, Read.IN_ANY_ORDER, frozenset([2]), frozenset(), 0, None)
    pieces = [Head.from_plan(plan).decode(raw) for raw in raw_messages(script, len(plan.entries))]
    check(plan, pieces, Random(1), seen, way)
    assert seen.unordered == {"Copy rows", "Join left", "Join right", "Aggregate arrivals"}


@examples(0.5)
@given(windows(), scripts(), SEEDS)
def test_any_patterns(found: Windows, script: Script, seed: int) -> None:
    """The same, for patterns of any logic."""
    check(found.plan, decoded(found.plan, case_of(found.plan, script).messages), Random(seed), Seen())


@examples(0.2)
@given(windows(of_code=True), scripts(), SEEDS)
def test_any_patterns_of_code(found: Windows, script: Script, seed: int) -> None:
    check(found.plan, decoded(found.plan, case_of(found.plan, script).messages), Random(seed), Seen())


def no_page(pages: UnloadedPages, lanes: object) -> list[int]:
    return []


def nothing(*_: object) -> None:
    return None


def reversed_page(each: UnloadedRows, stored: StoredRows, number: int, alive: Bools) -> StoredRows:
    return replace(stored, lanes=stored.lanes[::-1], valid=stored.valid[::-1])


PLANTED: dict[str, tuple[int, Any, str, Any]] = {
    "a page with a key is not read": (1, UnloadedPages, "pages_with_keys", no_page),
    "a page whose rows leave next is not read": (7, UnloadedPages, "least_expiry_key", property(lambda _: int(NEVER))),
    "a page of a queue is read in reverse": (4, UnloadedRows, "_checked", reversed_page),
    "rows of a condition are not read": (2, MultiIndex, "load_matches", nothing),
    "rows of a condition keep no order": (0, multi_index_kernels, "admit_all", multi_index_kernels.fill_lists),
    "rows of a group are not read": (24, GroupLists, "load_chunk_groups", nothing),
    "rows of a group keep no order": (24, groups, "admit_groups", groups.fill_groups),
    "values of a group are not read": (71, OrderedValues, "load_group_sets", nothing),
    "matches of a partition are not read": (2, PatternOperator, "_load_matches", nothing),
}
"""By fault: the seed of a graph that shows it, the owner and name of the replaced attribute, and the replacement."""


@pytest.mark.parametrize("fault", PLANTED)
def test_the_law_bites(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed, owner, name, planted = PLANTED[fault]
    assert broken(*drawn(seed), Random(seed)) is None
    monkeypatch.setattr(owner, name, planted)
    assert broken(*drawn(seed), Random(seed)) is not None


@pytest.fixture
def small() -> Iterator[None]:
    """Sets small pages of rows and keys."""
    with tuning_override(replace(SMALL_PAGES, key_filter_spans=3)):
        yield


def filled(held: Held) -> Pipeline:
    """Returns an engine with the rows of `held`, and some more."""
    pipeline, random = Pipeline.fresh(held.plan()), np.random.default_rng(7)
    for at, sent in enumerate(held.fill(ROWS)):
        pipeline.feed(held.batch(at, sent))
    for at in range(3):
        pipeline.feed(held.batch(100 + at, held.later(random, at, ROWS)))
    return pipeline


def restored(held: Held, pipeline: Pipeline) -> Pipeline:
    frozen = pipeline.freeze()
    return Pipeline.restore(held.plan(), frozen.header, Asked(dict(frozen.pages())))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("by", RETAINED)
def test_key_pages_of_another_retention_tell_nothing_of_this_one(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an upgrade a key filter may lack the column: then a row of any of its pages may be the next to be evicted."""
    held, whole, load = RETAINED[by], filled(RETAINED[by]), key_filters.KeyOutline.load
    monkeypatch.setattr(key_filters.KeyOutline, "load", lambda columns, ways: replace(load(columns, ways), min_expiry_keys={}))
    other, random = restored(held, whole), np.random.default_rng(1)
    assert absent(other)
    for at in range(3, 9):
        batch = held.batch(100 + at, held.later(random, at, ROWS))
        assert other.feed(batch) == whole.feed(batch)


@pytest.mark.usefixtures("small")
def test_a_key_page_that_tells_another_order_is_damage() -> None:
    """Its rows would be evicted in the wrong order, unnoticed."""
    held = RETAINED["count"]
    pages = walk_typed(restored(held, filled(held)))["kept rows"].pages
    assert pages.unloaded is not None
    place = pages.unloaded.next_to_expire()
    pages.unloaded._least[place] += 1
    with pytest.raises(SnapshotDamaged, match="expires before the time"):
        pages.load_page_now(place)


@pytest.mark.usefixtures("small")
def test_rows_of_a_queue_in_another_order_are_damage() -> None:
    """They would be evicted in another order than they arrived, unnoticed."""
    held = QUEUED["count"]
    queue = walk_typed(restored(held, filled(held)))["kept rows"]._queue
    assert queue is not None
    assert queue.unloaded is not None
    number, alive = queue.unloaded.begin // SMALL_PAGES.page_slots + 1, np.ones(SMALL_PAGES.page_slots, np.bool_)
    rows = queue.unloaded.reader.rows(number, alive)
    with pytest.raises(SnapshotDamaged, match="not in order of arrival"):
        queue.unloaded._checked(dataclasses.replace(rows, order=rows.order[::-1]), number, alive)


def told(pipeline: Pipeline, part: str, column: str) -> dict[int, int]:
    """Returns a column of the key filters of the window `kept`, by the numbers of pages of rows."""
    found: dict[int, int] = {}
    pages = dict(pipeline.freeze().pages())
    prefix = f"q/kept#0/{part}/{FilterPiece.OUTLINE.value}"
    for name in (each for each in pages if each.startswith(prefix)):
        columns = unpack(pages[name]) | unpack(pages[f"q/kept#0/{part}/{FilterPiece.HALVES.value}{name.removeprefix(prefix)}"])
        values = columns[f"{part}/{column}"].array
        values = np.diff(values, prepend=0) if column == "ends" else values
        found |= dict(zip(columns[f"{part}/numbers"].array.tolist(), values.tolist(), strict=True))
    return found


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("by", "column"), [("count", "least_order"), ("event time", "least_time")])
def test_a_key_page_tells_the_first_row_of_each_page(by: str, column: str) -> None:
    """A key filter has the least number of arrival, or event time, of the rows of each page."""
    whole = filled(RETAINED[by])
    pages = walk_typed(whole)["kept rows"].pages
    values, alive = pages.rows.time if column == "least_time" else pages.rows.order, pages.alive_slots()
    run_by_page = {
        int(pages.rows.pages[p, 0]): values[alive[alive // SMALL_PAGES.page_slots == p]] for p in pages.in_use()[:-1].tolist()
    }
    assert told(whole, "rows", column) == {number: int(each.min()) for number, each in run_by_page.items() if len(each)}


@pytest.mark.usefixtures("small")
def test_key_pages_have_each_group_once() -> None:
    """A group takes four bytes for each page of values, independent of its number of values there."""
    whole = filled(VALUED)
    pages = walk_typed(whole)["kept values"].pages
    alive, groups_of = pages.alive_slots(), pages.rows.lanes[:, 0]
    run_by_page = {
        int(pages.rows.pages[p, 0]): groups_of[alive[alive // SMALL_PAGES.page_slots == p]] for p in pages.in_use()[:-1].tolist()
    }
    assert told(whole, "values", "ends") == {number: len(np.unique(each)) for number, each in run_by_page.items() if len(each)}
