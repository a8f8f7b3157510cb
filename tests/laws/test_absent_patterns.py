"""Laws Cut and Crash where a restore leaves open matches of patterns in the store: those of the partition of an event come before
it, those that are due when they are, and change no bit (SPEC G7, A30)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.engine.kernels.slots import NEVER
from hotspare.engine.operators.pattern import PatternOperator
from hotspare.engine.pipeline import Pipeline
from hotspare.engine.plan import Plan, compile_plan
from hotspare.engine.snapshot import Frozen
from hotspare.engine.state import multi_index
from hotspare.engine.state.absent import AbsentPages
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
    absent,
    check_after_restore,
    check_any_restarts,
    decoded,
    fed,
    filled,
    in_one,
    only_at_use,
    opened,
    parts_of,
    small_pages,
    unread,
)
from tests.laws.core_scripts import joined, snapshot_bytes
from tests.laws.test_patterns import SECOND, Script, Shape, Windows, case_of, scripts, windows
from tests.tunings import tunings

pytestmark = pytest.mark.law

SHAPES = (
    Shape("fby(bind, more)", "k", ("bind", "more")),
    Shape("fby{6 seconds}(one, seen:2(any), notoccur{3 seconds}(text))", "k", ("one", "any")),
    Shape("fby{9 seconds}(bind, or(apart, not(more)))", "k y", ("bind", "apart")),
    Shape("and{4 seconds}(bind, is:2(same), twice)", "k", ("bind", "twice")),
    Shape("fby(text, notoccur{5 seconds}(same))", "k", ("text", "text")),
)
BATCHES = 16
COMES = st.sampled_from(Comes)
TUNINGS = tunings(key_pages_min=1)


@cache
def plan(by_event: bool) -> Plan:
    return Windows(SHAPES, by_event).plan


def messages(random: np.random.Generator, batches: int, keys: int) -> list[Message]:
    """Events of two sources, second by second, most of early partitions at first; once nothing comes for a while."""
    made, time_us, number = [], 10 * SECOND, 0
    for batch in range(batches):
        for source in ("s", "t"):
            rows = []
            for _ in range(int(random.integers(3, 40))):
                number += 1
                k = int(random.integers(keys)) if batch < batches // 2 else keys - 1 - int(random.integers(1 + keys // 9))
                k_text, y = (f"k{k}" if k else ""), ("a", "b", "b", "")[random.integers(4)]
                at = time_us - int(random.integers(0, 3)) * 700_000
                rows.append(f"I,N,{number},{k_text},{random.integers(4)},{y},1.5,{at}")
            made.append(Message(time_us, source, " | ".join(rows)))
        made.append(Message(time_us + 2, "", ""))
        time_us += 800_000 if batch != batches - 4 else 5 * SECOND
    return made


@cache
def batches(by_event: bool) -> tuple[pa.RecordBatch, ...]:
    return tuple(decoded(plan(by_event), messages(np.random.default_rng(31), BATCHES, 130)))


@pytest.fixture(params=[2, 8])
def page_slots(request: pytest.FixtureRequest) -> Iterator[int]:
    with under(small_pages(request.param)):
        yield int(request.param)


@pytest.mark.parametrize("comes", Comes)
@pytest.mark.parametrize("place", [18, 33])
@pytest.mark.parametrize("by_event", [False, True], ids=["system time", "event time"])
def test_what_comes_after_a_restore_is_the_same(
    by_event: bool, place: int, comes: Comes, page_slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    went = check_after_restore(plan(by_event), batches(by_event), place, comes, monkeypatch)
    assert went.before["found matches"] > 3
    assert went.after.get("found matches", 0) < went.before["found matches"]


@examples(0.5)
@given(windows(), scripts(), TUNINGS, st.integers(0, 99), st.integers(0, 99), COMES)
def test_any_patterns(found: Windows, script: Script, tuning: Tuning, one: int, other: int, comes: Comes) -> None:
    """Of random patterns, with a restore at any two places."""
    check_any(found, script, tuning, [one, other], comes)


@examples(0.15)
@given(windows(of_code=True), scripts(), TUNINGS, st.integers(0, 99), COMES)
def test_any_patterns_of_code(found: Windows, script: Script, tuning: Tuning, place: int, comes: Comes) -> None:
    check_any(found, script, tuning, [place], comes)


def check_any(found: Windows, script: Script, tuning: Tuning, places: list[int], comes: Comes) -> None:
    pieces = decoded(found.plan, case_of(found.plan, script).messages)
    check_any_restarts(found.plan, pieces, [place % len(pieces) for place in places], tuning, comes)


@examples(0.15)
@given(st.integers(0, 2**32), st.booleans(), TUNINGS, st.sampled_from([4, 200]), COMES)
def test_any_events(seed: int, by_event: bool, tuning: Tuning, keys: int, comes: Comes) -> None:
    """With a restore at any place, and another one soon after."""
    random = np.random.default_rng(seed)
    pieces = decoded(plan(by_event), messages(random, 8, keys))
    check_any_restarts(plan(by_event), pieces, random.integers(0, len(pieces), 2).tolist(), tuning, comes)


def test_pages_that_are_cleared_are_read(page_slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before an event clears an absent page, it is there: so it is in the tests above."""
    brought, bring = 0, multi_index.bring_to_clear

    def bring_to_clear(pages: RowPages) -> None:
        nonlocal brought
        before = pages.absent.left if pages.absent is not None else 0
        bring(pages)
        brought += before - (pages.absent.left if pages.absent is not None else 0)

    monkeypatch.setattr(multi_index, "bring_to_clear", bring_to_clear)
    check_after_restore(plan(False), batches(False), 33, Comes.AT_USE, monkeypatch)
    assert brought > 0


def frozen_at(place: int) -> Frozen:
    whole = Pipeline.fresh(plan(False))
    fed(list(batches(False))[:place], whole)
    return whole.freeze()


def test_all_comes_by_and_by(page_slots: int) -> None:
    """After a while nothing is absent and nothing waits, whatever comes; and what was not read is read once."""
    frozen, pieces = frozen_at(33), list(batches(False))
    pages = Asked(dict(frozen.pages()))
    restored = Pipeline.restore(plan(False), frozen.header, pages)
    assert absent(restored)["found matches"] > 3
    while restored._state.read_later:
        restored._state.read_some(0)
    matches = parts_of(restored)["found matches"].pages
    assert matches.absent is matches.unlinked is None
    assert len(set(pages.names)) == len(pages.names) == len(pages)
    other = Pipeline.restore(plan(False), frozen.header, dict(frozen.pages()))
    assert fed(unread(pieces, restored), restored) == fed(unread(pieces, other), other)


@pytest.mark.parametrize("missed", ["partitions", "time"])
@under(small_pages(8))
def test_the_law_bites(missed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A match that is not brought is missed, and so is one that is due."""
    frozen, pieces = frozen_at(33), list(batches(False))
    restored, other = (Pipeline.restore(plan(False), frozen.header, Asked(dict(frozen.pages()))) for _ in range(2))
    expected = fed(unread(pieces, other), other)
    only_at_use(monkeypatch)
    if missed == "partitions":
        monkeypatch.setattr(PatternOperator, "_bring", lambda each, matches, events: None)
    else:
        monkeypatch.setattr(AbsentPages, "least", property(lambda each: int(NEVER)))
    assert fed(unread(pieces, restored), restored) != expected


def test_matches_without_a_partition_are_read_whole(page_slots: int) -> None:
    """As every event may be for each of them."""
    of = Windows((Shape("fby(bind, more)", "", ("bind", "more")),), by_event=False).plan
    whole = Pipeline.fresh(of)
    fed(decoded(of, messages(np.random.default_rng(2), 10, 9)), whole)
    frozen = whole.freeze()
    pages = Asked(dict(frozen.pages()))
    assert len(pages) > 4
    assert not any("/keys" in name for name in pages)
    assert absent(Pipeline.restore(of, frozen.header, pages)) == {}


LARGE = """
project: large
queries:
  q:
    windows:
      calls: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,who:int64,what:int64"}
      found:
        type: pattern
        index: empty
        schema: "n*:int64,first:int64,last:int64"
        patterns:
          answered:
            events: {asked: {source: calls, condition: "what = 1"}, told: {source: calls, condition: "what = 2"}}
            logic: "fby{100 seconds}(asked, told)"
            index: [who]
            outputs: {first: asked.id, last: told.id}
          silent:
            events: {asked: {source: calls, condition: "what = 1"}, any: {source: calls, condition: "what = 3"}}
            logic: "fby(asked, notoccur{50 seconds}(any))"
            index: [who]
            outputs: {first: asked.id, last: asked.id}
        publish: true
    edges: [calls -> found]
"""
CALLS = 20_000


@cache
def large_plan() -> Plan:
    return compile_plan(load_text(LARGE).resolved)


def calls(offset: int, time_us: int, who: list[int], what: int) -> pa.RecordBatch:
    """Calls whose numbers are who calls, and a heartbeat."""
    text = " | ".join(f"I,N,{each},{each},{what}" for each in who)
    return in_one(large_plan(), 2 * offset, [Message(time_us, "calls", text), Message(time_us + 1, "", "")])


@pytest.fixture(params=["folder", "database"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A snapshot `s` of two open matches of each caller, who call one after the other, a thousand in a second."""
    pieces = (calls(at, (at + 1) * SECOND, list(range(at * 1_000, (at + 1) * 1_000)), 1) for at in range(CALLS // 1_000))
    store = opened(request.param, tmp_path)
    with under(FEW_KEY_PAGES):
        yield filled(store, large_plan(), pieces)
    store.close()


def test_a_restore_reads_what_it_needs(stored: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page that is being filled; what tells where partitions are; the page with those of an event; and those with matches that
    are due."""
    only_at_use(monkeypatch)
    found = stored.get("g", "s")
    pages = Asked(found.pages)
    restored = Pipeline.restore(large_plan(), found.header, pages)
    assert len([name for name in pages if name.rpartition("/")[2].isdecimal()]) == 10
    first = len(pages.names)
    assert [name for name in pages.names if "/matches/" in name] == ["q/found#0/matches/9"]
    made = restored.feed(calls(100, 21 * SECOND, [5_000], 2))["q/found"]
    assert made.column("first").to_pylist() == [5_000]
    assert {name.rpartition("/")[2] for name in pages.names[first:]} <= {"keys0", "2", "0"}
    made = restored.feed(calls(101, 51 * SECOND, [CALLS], 2))["q/found"]
    assert made.column("first").to_pylist() == list(range(1_000))
    assert {name.rpartition("/")[2] for name in pages.names[first:]} <= {"keys0", "2", "0", "1"}


@pytest.mark.parametrize("budget", [300_000, 1 << 24])
def test_with_little_memory(budget: int, stored: Store, tmp_path: Path) -> None:
    """Matches that were absent leave again where there is no room (SPEC G1)."""
    found, residence = stored.get("g", "s"), Budget(budget, tmp_path)
    restored = Pipeline.restore(large_plan(), found.header, found.pages, residence=residence)
    whole = Pipeline.restore(large_plan(), found.header, dict(found.pages))
    random = np.random.default_rng(3)
    for at in range(30):
        batch = calls(100 + at, (21 + 2 * at) * SECOND, random.integers(0, 2 * CALLS, 100).tolist(), int(random.integers(1, 4)))
        assert joined([restored.feed(batch)]) == joined([whole.feed(batch)])
    assert snapshot_bytes(restored) == snapshot_bytes(whole)
    assert (residence.counts()["away"] > 0) == (budget < 1 << 24)
