"""Laws Cut and Crash where a restore leaves in the store what aggregates keep of all values and rows of a group: what the group of
an event has comes before it, to where it stood, and changes no bit (SPEC G7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.engine.kernels.multi_index import BEFORE, UNORDERED
from hotspare.engine.operators.aggregate_groups import ARRIVALS, VALUES
from hotspare.engine.pipeline import Pipeline
from hotspare.engine.plan import Plan, compile_plan
from hotspare.engine.snapshot import KeyPageContent, RowPageContent, unpack
from hotspare.engine.state import multi_index, ordered_values
from hotspare.engine.state.multi_index import MultiIndex
from hotspare.engine.state.ordered_values import OrderedValues
from hotspare.engine.state.row_pages import RowPages
from hotspare.engine.tuning import Tuning, under
from hotspare.model.load import load_text
from hotspare.residence.budget import Budget
from hotspare.stores.contract import Store
from tests.cases.case import Message
from tests.examples import examples
from tests.laws.absent_kit import (
    FEW_KEY_PAGES,
    Asked,
    Comes,
    check_after_restore,
    check_all_comes,
    check_any_restarts,
    decoded,
    fed,
    filled,
    in_one,
    only_at_use,
    opened,
    parts_of,
    restored_at,
    small_pages,
    unread,
)
from tests.laws.core_scripts import joined, snapshot_bytes
from tests.tunings import tunings

pytestmark = pytest.mark.law

PROJECT = """
project: ordered
queries:
  q:
    windows:
      source: {type: source, schema: "id*:int64,g:int64,x:double,n:int64,s:string"}
      added: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,g:int64,x:double,s:string"}
      extremes: {type: aggregate, schema: "g*:int64,a:double,b:double,c:int64", publish: true,
                 outputs: {a: ESP_aMin(x), b: ESP_aMax(x), c: ESP_aMin(n)}}
      placed: {type: aggregate, schema: "g*:int64,a:double,b:double,c:int64,d:double,e:double", publish: true,
               outputs: {a: median(x), b: "percentile(x, 0.9)", c: ESP_aCountDistinct(n), d: ESP_aMode(x), e: ESP_aSum(x)}}
      texts: {type: aggregate, schema: "g*:int64,a:string,b:string,c:int64,d:string", publish: true,
              outputs: {a: ESP_aMin(s), b: ESP_aMax(s), c: ESP_aCountDistinct(s), d: ESP_aMode(s)}}
      by_text: {type: aggregate, schema: "s*:string,a:double,b:int64", publish: true,
                outputs: {a: ESP_aMax(x), b: "ESP_aCountDistinct(id)"}}
      rows: {type: aggregate, schema: "g*:int64,a:double,b:int64,c:string,d:string", publish: true,
             outputs: {a: ESP_aFirst(x), b: "ESP_aLag(n, 2)", c: "ESP_aCat(s, ';')", d: "nth(s, 3)"}}
      of_added: {type: aggregate, schema: "g*:int64,a:double,b:int64,c:string", publish: true,
                 outputs: {a: median(x), b: ESP_aCountDistinct(s), c: "ESP_aCat(s, ',')"}}
    edges: [source -> extremes, source -> placed, source -> texts, source -> by_text, source -> rows, added -> of_added]
"""
KEPT = {
    *(f"{window} {VALUES}" for window in ("extremes", "placed", "texts", "by_text", "of_added")),
    *(f"{window} {ARRIVALS}" for window in ("rows", "of_added")),
}
BATCHES = 15


@cache
def plan() -> Plan:
    return compile_plan(load_text(PROJECT).resolved)


def messages(random: np.random.Generator, batches: int, groups: int, keys: int) -> list[Message]:
    """Rows come in groups of very different size, change their values and their groups, and go, most of them late ones; sums of
    some groups need more words than most."""
    made = []
    for batch in range(batches):
        is_early, rows, added = batch < batches // 2, [], []
        for i in range(int(random.integers(20, 140))):
            key = int(random.integers(keys)) if is_early else keys - 1 - int(random.integers(0, 1 + keys // 8))
            group = int(random.integers(groups) ** 2 // groups)
            x = "1e300" if group == 1 and i % 7 == 0 else "" if i % 19 == 0 else f"{random.integers(40)}.25"
            opcode = "SD" if random.random() < (0.1 if is_early else 0.4) else "P"
            rows.append(f"{opcode},N,{key},{group},{x},{random.integers(9) * 7},{'ab'[i % 2]}{random.integers(12)}")
            if i % 3 == 0:
                added.append(f"I,N,{batch * 1000 + i},{group},{x},t{i % 11}")
        time_us = 1_000_000 * (batch + 1)
        made += [Message(time_us, "source", " | ".join(rows)), Message(time_us + 1, "added", " | ".join(added))]
        made += [Message(time_us + 2, "", "")]
    return made


@cache
def batches() -> tuple[pa.RecordBatch, ...]:
    return tuple(decoded(plan(), messages(np.random.default_rng(14), BATCHES, 12, 500)))


@pytest.fixture(params=[4, 16])
def page_slots(request: pytest.FixtureRequest) -> Iterator[int]:
    with under(small_pages(request.param)):
        yield int(request.param)


@pytest.mark.parametrize("comes", Comes)
@pytest.mark.parametrize("place", [14, 33])
def test_what_comes_after_a_restore_is_the_same(place: int, comes: Comes, page_slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    went = check_after_restore(plan(), batches(), place, comes, monkeypatch)
    assert set(went.before) >= KEPT
    assert sum(went.after.values()) < sum(went.before.values())


COMES = st.sampled_from(Comes)


@examples(0.25)
@given(st.integers(0, 2**32), tunings(key_pages_min=1), st.sampled_from([2, 30]), st.sampled_from([12, 150]), COMES)
def test_any_events(seed: int, tuning: Tuning, groups: int, keys: int, comes: Comes) -> None:
    """The same for many scripts, with a restore at any place, and another one soon after."""
    random = np.random.default_rng(seed)
    pieces = decoded(plan(), messages(random, 7, groups, keys))
    check_any_restarts(plan(), pieces, random.integers(0, len(pieces), 2).tolist(), tuning, comes)


def churned() -> list[Message]:
    """Rows of many groups come and half of them go, so that pages have gaps; then rows come to a few groups that are new."""
    random, made = np.random.default_rng(6), []

    def message(at: int, opcode: str, rows: Iterable[tuple[int, int]]) -> None:
        texts = (f"{opcode},N,{key},{group},{key % 97}.5,{key % 13},{'abc'[key % 3]}{group}" for key, group in rows)
        made.extend([Message(1_000_000 * at, "source", " | ".join(texts)), Message(1_000_000 * at + 1, "", "")])

    for at in range(3):
        message(at, "P", [(key, key % 40) for key in range(at * 200, at * 200 + 200)])
    message(3, "SD", [(key, key % 40) for key in range(600) if random.random() < 0.5])
    for at in range(4, 12):
        message(at, "P", [(1000 + 20 * at + each, 90 + each % 2) for each in range(20)])
    return made


@under(small_pages(8))
def test_pages_that_are_cleared_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a change clears an absent page of values, or of rows in order of arrival, it is there."""
    brought = {VALUES: 0, ARRIVALS: 0}

    def counted(module: object, name: str, bring: Callable[[RowPages], None]) -> None:
        def bring_to_clear(pages: RowPages) -> None:
            before = pages.absent.left if pages.absent is not None else 0
            bring(pages)
            brought[name] += before - (pages.absent.left if pages.absent is not None else 0)

        monkeypatch.setattr(module, "bring_to_clear", bring_to_clear)

    counted(ordered_values, VALUES, ordered_values.bring_to_clear)
    counted(multi_index, ARRIVALS, multi_index.bring_to_clear)
    check_after_restore(plan(), decoded(plan(), churned()), 8, Comes.AT_USE, monkeypatch)
    assert min(brought.values()) > 3


def test_all_comes_by_and_by(page_slots: int) -> None:
    """After a while nothing is absent, also where no event comes; and what was not read is read once."""
    assert set(check_all_comes(plan(), batches(), 30)) >= KEPT


@under(small_pages(4))
def test_rows_come_to_where_they_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages come in any order, far from both ends of long lists, which are put in order when they are asked for."""
    restored, other = restored_at(plan(), batches(), 24, 2)
    expected = fed(unread(list(batches()), other), other)
    only_at_use(monkeypatch)
    arrivals = restored._state.pages["q/rows#0"].parts[ARRIVALS]
    assert isinstance(arrivals, MultiIndex)
    pages, random = arrivals.rows.pages, np.random.default_rng(1)
    assert pages.absent is not None
    for page in random.permutation(pages.absent.first(pages.absent.left)).tolist():
        pages.bring(page)
        arrivals._admit()
    assert (arrivals.lists.links[:, BEFORE] == UNORDERED).any()
    assert fed(unread(list(batches()), restored), restored) == expected
    assert snapshot_bytes(restored) == snapshot_bytes(other)


@pytest.mark.parametrize("missed", [VALUES, ARRIVALS])
@under(small_pages(8))
def test_the_law_bites(missed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not brought is missed."""
    restored, other = restored_at(plan(), batches(), 24, 2)
    expected = fed(unread(list(batches()), other), other)
    only_at_use(monkeypatch)
    if missed == VALUES:
        monkeypatch.setattr(OrderedValues, "bring", lambda each, groups: None)
    else:
        monkeypatch.setattr(MultiIndex, "bring", lambda each, groups: None)
    found = fed(unread(list(batches()), restored), restored)
    windows = ("extremes", "placed", "texts", "by_text") if missed == VALUES else ("rows", "of_added")
    assert all(found[f"q/{window}"] != expected[f"q/{window}"] for window in windows)


LARGE = """
project: large
queries:
  q:
    windows:
      numbers: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,g:int64,x:int64"}
      kept:
        type: aggregate
        schema: "g*:int64,middle:double,all:string"
        outputs: {middle: median(x), all: "ESP_aCat(x, ' ')"}
        publish: true
    edges: [numbers -> kept]
"""
GROUPS, EACH = 4_000, 20
"""Groups come one after the other, each with so many values."""


@cache
def large_plan() -> Plan:
    return compile_plan(load_text(LARGE).resolved)


def inserts(offset: int, groups: range | list[int], each: int = EACH) -> pa.RecordBatch:
    rows = [f"I,N,{offset * 1_000_000 + i},{g},{g + value}" for i, g in enumerate(groups) for value in range(each)]
    messages = Message(1_000_000 + offset, "numbers", " | ".join(rows)), Message(1_000_001 + offset, "", "")
    return in_one(large_plan(), 2 * offset, messages)


@pytest.fixture(params=["folder", "database"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A snapshot `s` of all groups."""
    pieces = (inserts(at, range(at * 1_000, at * 1_000 + 1_000)) for at in range(GROUPS // 1_000))
    store = opened(request.param, tmp_path)
    with under(FEW_KEY_PAGES):
        yield filled(store, large_plan(), pieces)
    store.close()


def test_a_restore_reads_what_it_needs(stored: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages that are being filled; what tells where groups are; and the pages with the values and rows of the group that is
    asked for."""
    only_at_use(monkeypatch)
    found = stored.get("g", "s")
    pages = Asked(found.pages)
    restored = Pipeline.restore(large_plan(), found.header, pages)
    of_rows = [name for name in pages if name.rpartition("/")[2].isdecimal()]
    assert len(pages.names) == 4
    assert len(of_rows) > 35
    made = restored.feed(inserts(100, [500], 1))["q/kept"]
    assert made.column("middle").to_pylist() == [509.0, 509.5]
    assert made.column("all").to_pylist()[0] == " ".join(str(500 + value) for value in (*range(EACH), 0))
    asked = pages.names[4:]
    assert sum("/keys" in name for name in asked) == 3
    assert {f"q/kept#0/{part}/2" for part in (VALUES, ARRIVALS)} <= set(asked)
    assert len(asked) <= 9


def test_the_first_snapshot_after_a_restore_writes_what_is_new(stored: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    found = stored.get("g", "s")
    restored = Pipeline.restore(large_plan(), found.header, found.pages)
    restored.feed(inserts(100, [500], 1))
    encoded: list[str] = []
    for content in (RowPageContent, KeyPageContent):
        encode = content.encode
        monkeypatch.setattr(content, "encode", lambda each, encode=encode: encoded.append(each.part) or encode(each))
    frozen = restored.freeze()
    stored.put("g", "t", "e", 2, frozen.header, frozen.contents())
    assert sorted(encoded) == sorted(["groups", VALUES, ARRIVALS])
    again = stored.get("g", "t")
    assert snapshot_bytes(Pipeline.restore(large_plan(), again.header, dict(again.pages))) == snapshot_bytes(restored)


@pytest.mark.parametrize("budget", [300_000, 1 << 28])
def test_with_little_memory(budget: int, stored: Store, tmp_path: Path) -> None:
    """Rows that were absent leave again where there is no room (SPEC G1)."""
    found, residence = stored.get("g", "s"), Budget(budget, tmp_path)
    restored = Pipeline.restore(large_plan(), found.header, found.pages, residence=residence)
    whole = Pipeline.restore(large_plan(), found.header, dict(found.pages))
    random = np.random.default_rng(3)
    for at in range(20):
        batch = inserts(100 + at, random.integers(0, GROUPS, 60).tolist(), 2)
        assert joined([restored.feed(batch)]) == joined([whole.feed(batch)])
    assert snapshot_bytes(restored) == snapshot_bytes(whole)
    assert (residence.counts()["away"] > 0) == (budget < 1 << 28)


def test_key_pages_have_each_group_once(page_slots: int) -> None:
    """Of a page of values: where a group has many there, it takes four bytes."""
    whole = Pipeline.fresh(plan())
    fed(list(batches())[:24], whole)
    told: dict[int, int] = {}
    for name, page in whole.freeze().pages():
        if name.startswith(f"q/placed#0/{VALUES}/keys"):
            columns = unpack(page)
            ends = columns[f"{VALUES}/ends"].array
            told |= dict(zip(columns[f"{VALUES}/numbers"].array.tolist(), np.diff(ends, prepend=0).tolist(), strict=True))
    pages = parts_of(whole)[f"placed {VALUES}"].pages
    alive, groups = pages.alive_slots(), pages.rows.lanes[:, 0]
    of_page = {int(pages.rows.pages[p, 0]): groups[alive[alive // pages.page_slots == p]] for p in pages.in_use()[:-1].tolist()}
    assert told == {number: len(np.unique(each)) for number, each in of_page.items() if len(each)}
