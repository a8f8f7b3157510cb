"""Laws Cut and Crash where a restore leaves rows of joins in the store: those that meet an event come before it, to where they
arrived, and change no bit (SPEC G7)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.engine.head.head import Head
from hotspare.engine.kernels import multi_index as kernels
from hotspare.engine.kernels.multi_index import BEFORE, UNORDERED
from hotspare.engine.pipeline import Pipeline
from hotspare.engine.plan import Plan, compile_plan
from hotspare.engine.state.multi_index import MultiIndex
from hotspare.engine.tuning import Tuning, under
from hotspare.model.load import load_text
from hotspare.residence.budget import Budget
from hotspare.stores.contract import Store
from tests.cases.case import Case, Message, raw_batches
from tests.laws.absent_kit import (
    FEW_KEY_PAGES,
    Asked,
    Comes,
    absent,
    check_after_restore,
    fed,
    filled,
    only_at_use,
    opened,
    small_pages,
    unread,
)
from tests.laws.core_scripts import joined, snapshot_bytes
from tests.laws.test_cut import cut
from tests.tunings import tunings

pytestmark = pytest.mark.law

PROJECT = """
project: joins
queries:
  q:
    windows:
      left: {type: source, index: empty, schema: "id*:int64,x:int64,s:string"}
      right: {type: source, index: empty, schema: "id*:int64,x:int64,s:string"}
      pairs: {type: join, kind: inner, conditions: {x: x, s: s}, outputs: {ls: l_s, rx: r_x}, publish: true}
      named: {type: join, kind: leftouter, conditions: {x: id}, outputs: {ls: l_s, rs: r_s}, publish: true}
      owned: {type: join, kind: rightouter, conditions: {id: x}, outputs: {ls: l_s, rs: r_s}, publish: true}
      texts: {type: join, kind: inner, conditions: {s: s}, outputs: {lx: l_x, rx: r_x}, publish: true}
      both: {type: join, kind: fullouter, conditions: {id: id}, outputs: {ls: l_s, rs: r_s}, publish: true}
      once: {type: join, kind: leftouter, conditions: {x: id}, outputs: {rs: r_s}, regenerates: never, publish: true}
    edges:
      - left -> pairs as left
      - right -> pairs as right
      - left -> named as left
      - right -> named as right
      - left -> owned as left
      - right -> owned as right
      - left -> texts as left
      - right -> texts as right
      - left -> both as left
      - right -> both as right
      - left -> once as left
      - right -> once as right
"""
JOINED = {"pairs", "named", "owned", "texts", "both", "once"}
KEYS, BATCHES, EVENTS = 160, 16, 60


@cache
def plan() -> Plan:
    return compile_plan(load_text(PROJECT).resolved)


@cache
def batches() -> tuple[pa.RecordBatch, ...]:
    """Keys come in, then some of them change and go, most of them late ones: old pages stay, others empty and are cleared. Many
    rows meet each other by few texts; some have no field of a condition."""
    random, messages = np.random.default_rng(11), []
    for batch in range(BATCHES):
        for side in ("left", "right"):
            is_old = batch < 7
            keys = random.integers(0, KEYS, EVENTS) if is_old else KEYS - 1 - random.integers(0, 12, EVENTS // 3) ** 2
            opcodes = np.where(random.random(len(keys)) < (0.35 if batch > 8 else 0.1), "SD", "P")
            fields = zip(opcodes, keys, random.integers(-3, KEYS, len(keys)), random.integers(0, 6, len(keys)), strict=True)
            rows = [f"{o},N,{key},{x if x >= 0 else ''},{f't{text}' if text else ''}" for o, key, x, text in fields]
            messages += [Message(batch * 1_000_000, side, " | ".join(rows))]
        messages += [Message(batch * 1_000_000 + 2, "", "")]
    head = Head.of(plan())
    return tuple(head.decode(raw) for raw in raw_batches(Case(plan(), tuple(messages), ())))


@pytest.fixture(params=[2, 8])
def page_slots(request: pytest.FixtureRequest) -> Iterator[int]:
    """Pages, of rows and of keys, are small."""
    with under(small_pages(request.param)):
        yield int(request.param)


def indexes(pipeline: Pipeline) -> dict[str, MultiIndex]:
    """By window and side."""
    found = {}
    for name, page in pipeline._state.pages.items():
        for part, index in page.parts.items():
            if isinstance(index, MultiIndex):
                found[f"{name.partition('/')[2].partition('#')[0]} {part}"] = index
    return found


def is_unordered(pipeline: Pipeline) -> bool:
    """Whether a list of any join is not in order of arrival."""
    return any(bool((each.lists.links[:, BEFORE] == UNORDERED).any()) for each in indexes(pipeline).values())


@pytest.mark.parametrize("comes", Comes)
@pytest.mark.parametrize(("place", "page_slots"), [(14, 8), (34, 2), (34, 8)], indirect=["page_slots"])
def test_what_comes_after_a_restore_is_the_same(place: int, comes: Comes, page_slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    went = check_after_restore(plan(), batches(), place, comes, monkeypatch)
    assert {name.partition(" ")[0] for name in went.before} == JOINED
    assert sum(went.after.values()) < sum(went.before.values())


Event = tuple[str, str, int, int | None, str]
"""Side, opcode, key, and the fields of the conditions."""


@st.composite
def scripts(draw: st.DrawFn) -> list[list[Event]]:
    """Changes and deletes of few keys, in messages; fields of conditions change as often as not."""
    event = st.tuples(
        st.sampled_from(["left", "right"]),
        st.sampled_from(["P", "P", "P", "P", "SD"]),
        st.integers(0, 30),
        st.one_of(st.none(), st.integers(0, 30), st.integers(0, 2)),
        st.sampled_from(["", "a", "b", "c"]),
    )
    return draw(st.lists(st.lists(event, min_size=1, max_size=25), min_size=2, max_size=8))


def messages_of(script: list[list[Event]]) -> list[pa.RecordBatch]:
    head, messages = Head.of(plan()), []
    for number, events in enumerate(script):
        for side in ("left", "right"):
            rows = [f"{o},N,{key},{'' if x is None else x},{s}" for of, o, key, x, s in events if of == side]
            messages += [Message(number * 1_000_000, side, " | ".join(rows))] if rows else []
        messages += [Message(number * 1_000_000 + 2, "", "")]
    return [head.decode(raw) for raw in raw_batches(Case(plan(), tuple(messages), ()))]


@given(scripts(), st.integers(0, 30), tunings(), st.booleans(), st.integers(1, 4))
def test_any_changes_after_any_restore(script: list[list[Event]], place: int, tuning: Tuning, comes: bool, parts: int) -> None:
    """Of rows that are absent as of others; `comes`: pages come after steps, too. Outputs come in parts."""
    with under(tuning), pytest.MonkeyPatch.context() as patch:
        if not comes:
            only_at_use(patch)
        pieces, whole = messages_of(script), Pipeline.fresh(plan())
        place %= len(pieces)
        fed(pieces[:place], whole)
        frozen = whole.freeze()
        outputs, after = [], []
        for pages in (dict(frozen.pages()), Asked(dict(frozen.pages()))):
            restored = Pipeline.restore(plan(), frozen.header, pages, extra_rows_max=parts)
            made = [part for piece in unread(pieces, restored) for part in restored.parts(piece)]
            outputs.append(joined(made))
            after.append(snapshot_bytes(restored))
        assert outputs[0] == outputs[1]
        assert after[0] == after[1]


LARGE = """
project: large
queries:
  q:
    windows:
      facts: {type: source, index: empty, schema: "id*:int64,who:int64"}
      people: {type: source, index: empty, schema: "id*:int64,team:int64"}
      named: {type: join, kind: leftouter, conditions: {who: id}, outputs: {team: r_team}, publish: true}
    edges: [facts -> named as left, people -> named as right]
"""
ROWS = 40_000


@cache
def large_plan() -> Plan:
    return compile_plan(load_text(LARGE).resolved)


def rows_of(topic: str, rows: list[tuple[int, int]], offset: int) -> pa.RecordBatch:
    """Upserts to one topic at this offset, and ticks behind them."""
    text = " | ".join(f"P,N,{a},{b}" for a, b in rows)
    raw, tick = raw_batches(Case(large_plan(), (Message(offset, topic, text), Message(offset + 1, "", "")), ()))
    at = [each.set_column(2, "offset", pa.array([offset + n] * each.num_rows)) for n, each in enumerate((raw, tick))]
    return Head.of(large_plan()).decode(pa.concat_batches(at))


def all_rows() -> Iterator[pa.RecordBatch]:
    """Of each of 40,000 people, and a fact of each of these, person after person."""
    for number, topic in enumerate(("people", "facts")):
        for begin in range(0, ROWS, 10_000):
            yield rows_of(topic, [(each, each) for each in range(begin, begin + 10_000)], number * ROWS + begin)


@pytest.fixture(params=["folder", "database"])
def any_stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A snapshot of both sides, in ten pages each."""
    store = opened(request.param, tmp_path)
    with under(FEW_KEY_PAGES):
        yield filled(store, large_plan(), all_rows())
    store.close()


def test_a_restore_reads_what_it_needs(any_stored: Store) -> None:
    """The pages that are being filled; then, for a fact, its own page and that of the person; for a person, the facts too."""
    found = any_stored.get("g", "s")
    pages = Asked(found.pages)
    restored = Pipeline.restore(large_plan(), found.header, pages)
    assert pages.names == ["q/named#0", "q/named#0/left/9", "q/named#0/right/9"]
    made = restored.feed(rows_of("facts", [(5_000, 12_345)], 1_000_000))["q/named"]
    assert made.column("team").to_pylist() == [12_345, 5_000]
    read = ("left/1", "left/keys0", "right/1", "right/3", "right/keys0")
    assert sorted(pages.names[3:]) == [f"q/named#0/{page}" for page in read]
    made = restored.feed(rows_of("people", [(30_000, 7)], 1_000_002))["q/named"]
    assert (made.column("id").to_pylist(), made.column("team").to_pylist()) == ([30_000, 30_000], [7, 30_000])
    assert {"q/named#0/left/7", "q/named#0/right/7"} <= set(pages.names)
    for offset in range(1_000_004, 1_000_060, 2):
        restored.feed(rows_of("facts", [(1, 1)], offset))
    assert absent(restored) == {}
    assert len(set(pages.names)) == len(pages.names) == len(pages)


@pytest.mark.parametrize("budget", [200_000, 1 << 24])
def test_with_little_memory(budget: int, any_stored: Store, tmp_path: Path) -> None:
    """What does not fit stays in the store, or leaves again as soon as it came (SPEC G1)."""
    found, residence = any_stored.get("g", "s"), Budget(budget, tmp_path)
    restored = Pipeline.restore(large_plan(), found.header, found.pages, residence=residence)
    whole = Pipeline.restore(large_plan(), found.header, dict(found.pages))
    random = np.random.default_rng(2)
    for at in range(30):
        rows = [(int(a), int(b)) for a, b in random.integers(0, ROWS, (100, 2))]
        batch = rows_of("people" if at % 3 == 0 else "facts", rows, 1_000_000 + 2 * at)
        assert joined([restored.feed(batch)]) == joined([whole.feed(batch)])
    assert snapshot_bytes(restored) == snapshot_bytes(whole)
    assert (residence.counts()["away"] > 0) == (budget < 1 << 24)


def test_key_pages_do_not_depend_on_how_the_input_was_cut(page_slots: int) -> None:
    """Nor on which snapshots were taken before (law Cut)."""
    pieces, whole, again = list(batches()), Pipeline.fresh(plan()), Pipeline.fresh(plan())
    fed(pieces[:34], whole)
    for piece in pieces[:34]:
        fed(cut(piece, list(range(0, 200, 17))), again)
        snapshot_bytes(again)
    assert snapshot_bytes(whole) == snapshot_bytes(again)
    assert any("pairs#0/left/keys" in name for name, _ in again.freeze().pages())


@under(small_pages(4))
def test_rows_come_to_where_they_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages with rows of long lists come in any order, far from both ends of these: lists are put in order when they are walked."""
    pieces, whole, random = list(batches()), Pipeline.fresh(plan()), np.random.default_rng(1)
    fed(pieces[:34], whole)
    frozen = whole.freeze()
    only_at_use(monkeypatch)
    restored, expected = (
        Pipeline.restore(plan(), frozen.header, pages) for pages in (Asked(dict(frozen.pages())), dict(frozen.pages()))
    )
    for index in indexes(restored).values():
        pages = index.rows.pages
        assert pages.absent is not None
        for page in random.permutation(pages.absent.first(pages.absent.left)).tolist():
            pages.bring(page)
            index._admit()
    assert is_unordered(restored)
    assert not set(absent(restored)) & set(indexes(restored))
    assert fed(unread(pieces, restored), restored) == fed(unread(pieces, expected), expected)
    assert snapshot_bytes(restored) == snapshot_bytes(expected)


@pytest.mark.parametrize("missed", ["rows that meet", "order"])
@under(small_pages(8))
def test_the_law_bites(missed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that meet an event and are not brought are missed; and so is their order."""
    pieces, whole = list(batches()), Pipeline.fresh(plan())
    fed(pieces[:34], whole)
    frozen = whole.freeze()
    only_at_use(monkeypatch)
    restored, other = (Pipeline.restore(plan(), frozen.header, Asked(dict(frozen.pages()))) for _ in range(2))
    expected = fed(unread(pieces, other), other)
    if missed == "order":
        monkeypatch.setattr(kernels, "admit_all", kernels.fill_lists)
    else:
        monkeypatch.setattr(MultiIndex, "bring", lambda index, values: None)
    assert fed(unread(pieces, restored), restored)["q/texts"] != expected["q/texts"]
