"""Laws Cut and Crash where a restore leaves pages in the store: they come when they are asked for, and change no bit (SPEC G7)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from hotspare.engine.head.head import Head
from hotspare.engine.operators import aggregate_groups
from hotspare.engine.pipeline import Pipeline
from hotspare.engine.plan import Plan, compile_plan
from hotspare.engine.snapshot import KeyPageContent, RowPageContent
from hotspare.engine.state import absent_relation
from hotspare.engine.state.absent import AbsentPages
from hotspare.engine.state.relation import Relation
from hotspare.engine.state.row_pages import RowPages
from hotspare.engine.tuning import Tuning, under
from hotspare.errors import SnapshotDamaged
from hotspare.model.load import load_text
from hotspare.residence.budget import Budget
from hotspare.stores.contract import Store
from hotspare.stores.directory import DirectoryStore
from tests.cases.case import Case, Message, raw_batches
from tests.examples import examples
from tests.laws import core_scripts as scripts_of
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
from tests.laws.absent_kit import decoded as kit_decoded
from tests.laws.core_scripts import decoded, joined, scripts, snapshot_bytes
from tests.laws.test_crash_core import check_crash
from tests.tunings import tunings

pytestmark = pytest.mark.law

PLAIN = """
project: absent
queries:
  q:
    windows:
      source: {type: source, schema: "s*:string,id*:int64,value:double,t:string,g:string"}
      texts: {type: filter, condition: "value > 0"}
      numbers: {type: source, index: empty, schema: "id*:int64,value:int64"}
      kept: {type: copy, publish: true}
      again: {type: copy, publish: true}
      summed:
        type: calculate
        algorithm: Summary
        schema: "id*:int64,sum:double"
        inputs: {input: value}
        outputs: {sumOut: sum}
        publish: true
    edges: [source -> texts, source -> again, numbers -> kept, numbers -> summed]
"""
AGGREGATES = """
      grouped:
        type: aggregate
        schema: "g*:string,n:int64,total:double,most:double,last:string"
        outputs: {n: ESP_aCount(), total: ESP_aSum(value), most: ESP_aMax(value), last: ESP_aLast(t)}
        publish: true
      by_value:
        type: aggregate
        schema: "value*:int64,n:int64,ids:string"
        outputs: {n: ESP_aCount(), ids: "ESP_aCat(id, ';')"}
        publish: true
    edges: [source -> grouped, kept -> by_value, """
PROJECT = PLAIN.replace("\n    edges: [", AGGREGATES)
KEYS, BATCHES, EVENTS = 600, 14, 270


@cache
def plan() -> Plan:
    return compile_plan(load_text(PROJECT).resolved)


@cache
def batches() -> tuple[pa.RecordBatch, ...]:
    """Keys come in, then some of them change and go, most of them late ones: old pages stay, others empty and are cleared."""
    random, messages = np.random.default_rng(5), []
    for batch in range(BATCHES):
        keys = random.integers(0, KEYS, EVENTS) if batch < 6 else KEYS - 1 - random.integers(0, 24, EVENTS) ** 2
        opcodes = np.where(random.random(EVENTS) < (0.4 if batch > 8 else 0.1), "SD", "P")
        texts = [_text(i, opcode, key) for i, (opcode, key) in enumerate(zip(opcodes, keys, strict=True))]
        numbers = [f"{o},N,{key},{i + batch}" for i, (o, key) in enumerate(zip(opcodes, keys[::-1], strict=True))]
        messages += [Message(batch * 1_000_000, "source", " | ".join(texts))]
        messages += [Message(batch * 1_000_000 + 1, "numbers", " | ".join(numbers)), Message(batch * 1_000_000 + 2, "", "")]
    head = Head.of(plan())
    return tuple(head.decode(raw) for raw in raw_batches(Case(plan(), tuple(messages), ())))


def _text(i: int, opcode: str, key: int) -> str:
    """An event; sums of a tenth of the groups need more words than most."""
    value = "1e300" if key % 200 < 20 and i % 3 == 0 else f"{i}.5"
    return f"{opcode},N,t{key % 7},{key},{value},{'x' * (i % 5)},g{key % 200}"


@pytest.fixture(params=[1, 8, 64])
def page_slots(request: pytest.FixtureRequest) -> Iterator[int]:
    """Pages, of rows and of keys, are small."""
    with under(small_pages(request.param)):
        yield int(request.param)


def count_absent(pipeline: Pipeline) -> int:
    return sum(absent(pipeline).values())


@examples(0.35)
@given(scripts(), tunings(key_pages_min=1))
def test_a_restart_after_every_message(case: Case, tuning: Tuning) -> None:
    with under(tuning), pytest.MonkeyPatch.context() as patch:
        restore = Pipeline.restore
        patch.setattr(Pipeline, "restore", lambda plan, header, pages: restore(plan, header, Asked(pages)))
        check_crash(case)


@pytest.mark.parametrize(
    ("place", "page_slots"), [(5, 8), (5, 64), (20, 1), (20, 8), (20, 64), (33, 8), (33, 64)], indirect=["page_slots"]
)
def test_what_comes_after_a_restore_is_the_same(place: int, page_slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    went = check_after_restore(plan(), batches(), place, Comes.AT_USE, monkeypatch)
    assert sum(went.before.values()) > 3
    assert sum(went.after.values()) < sum(went.before.values())


BESIDE = """
project: beside
queries:
  q:
    windows:
      cars: {type: source, schema: "id*:int64,plane:string,tag:string,x:double,y:double"}
      areas: {type: source, schema: "id*:int64,edge:string,r:double"}
      wide: {type: transpose, mode: wide, tag: tag, tags: [a, b, c], values: [x, y], group_by: [plane], publish: true}
      recent: {type: transpose, index: empty, mode: wide, tag: tag, tags: [a, b], values: [y], group_by: [plane],
               clear_timeout: 2 seconds, publish: true}
      fence: {type: geofence, geometry: {data: edge, radius_field: r, radius: 2}, position: {x: x, y: y},
              outputs: {id: area, number: no}, publish: true}
      seen: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,plane:string,tag:string,y:double"}
    edges: [cars -> wide, seen -> recent, cars -> fence, areas -> fence]
"""


@pytest.mark.parametrize("comes", Comes)
@pytest.mark.parametrize(("place", "page_slots"), [(12, 8), (25, 2)], indirect=["page_slots"])
def test_what_stands_beside_rows(place: int, comes: Comes, page_slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of transposed rows, with a timeout and without, and how many areas a position meets: the same law."""
    random, of, messages = np.random.default_rng(8), compile_plan(load_text(BESIDE).resolved), list[Message]()
    for batch in range(14):
        rows, seen = [], []
        for i in range(60):
            plane, tag, id_ = f"p{random.integers(80)}", "abcd"[random.integers(4)], random.integers(120)
            opcode = "SD" if random.random() < 0.15 else "P"
            rows.append(f"{opcode},N,{id_},{plane},{tag},{random.integers(30)},{random.integers(30)}")
            seen.append(f"I,N,{60 * batch + i},{plane},{tag},{i}.5")
        areas = [f"P,N,{random.integers(9)},{random.integers(30)} {random.integers(30)},6" for _ in range(4)]
        time_us = 1_000_000 * batch + (3_000_000 if batch > 10 else 0)
        messages += [Message(time_us, "areas", " | ".join(areas)), Message(time_us, "cars", " | ".join(rows))]
        messages += [Message(time_us, "seen", " | ".join(seen)), Message(time_us + 1, "", "")]
    went = check_after_restore(of, kit_decoded(of, messages), place, comes, monkeypatch)
    assert {"wide groups", "recent groups", "fence results"} <= set(went.before)


def test_groups_in_pages_that_are_cleared_are_read(monkeypatch: pytest.MonkeyPatch, page_slots: int) -> None:
    """Before an aggregate clears an absent page, it is there: what the test above goes through."""
    pieces, whole, brought = list(batches()), Pipeline.fresh(plan()), 0
    fed(pieces[:20], whole)
    frozen = whole.freeze()
    only_at_use(monkeypatch)
    bring = absent_relation.bring_to_clear

    def counted(pages: RowPages) -> None:
        nonlocal brought
        before = pages.absent.left if pages.absent is not None else 0
        bring(pages)
        brought += before - (pages.absent.left if pages.absent is not None else 0)

    monkeypatch.setattr(aggregate_groups, "bring_to_clear", counted)
    restored = Pipeline.restore(plan(), frozen.header, Asked(dict(frozen.pages())))
    fed(unread(pieces, restored), restored)
    assert (brought > 0) == (page_slots > 1)  # a page of one slot has no gaps


def test_pages_come_by_and_by(page_slots: int) -> None:
    """After a while none is absent, whatever comes; and what was not read is read once."""
    pieces, whole = list(batches()), Pipeline.fresh(plan())
    fed(pieces[:20], whole)
    frozen = whole.freeze()
    pages = Asked(dict(frozen.pages()))
    restored = Pipeline.restore(plan(), frozen.header, pages)
    assert count_absent(restored) > 3
    left = count_absent(restored)
    last = max(restored.next_offsets.values())
    for number in range(2 * len(pages)):
        restored.feed(a_tick(last + number))
        assert count_absent(restored) <= left
        left = count_absent(restored)
        if not left:
            break
    assert left == 0
    assert len(set(pages.names)) == len(pages.names) == len(pages)


@cache
def head() -> Head:
    return Head.of(plan())


def a_tick(offset: int) -> pa.RecordBatch:
    raw = raw_batches(Case(plan(), (Message(90_000_000 + offset, "", ""),), ()))
    batch = pa.concat_batches(raw)
    batch = batch.set_column(batch.schema.get_field_index("offset"), "offset", pa.array([offset] * batch.num_rows))
    return head().decode(batch)


LARGE = """
project: large
queries:
  q:
    windows:
      numbers: {type: source, index: empty, schema: "id*:int64,value:int64"}
      kept: {type: copy, publish: true}
    edges: [numbers -> kept]
"""
ROWS = 40_000


@cache
def large_plan() -> Plan:
    return compile_plan(load_text(LARGE).resolved)


def numbers(keys: list[int], offset: int) -> pa.RecordBatch:
    """A batch of upserts."""
    (raw,) = raw_batches(Case(large_plan(), (Message(offset, "numbers", " | ".join(f"P,N,{key},{offset}" for key in keys)),), ()))
    return Head.of(large_plan()).decode(raw.set_column(2, "offset", pa.array([offset])))


@pytest.mark.parametrize("slots", [1, 8, 64])
def test_key_pages_do_not_tell_what_rows_stand_in(slots: int) -> None:
    """Rows of a copy of an indexed window stand in a queue at first: until they are many when a step begins (law Cut)."""
    with under(replace(small_pages(slots), late_index_rows_max=100)):
        _check_key_pages_of_a_queue()


def _check_key_pages_of_a_queue() -> None:
    chained = compile_plan(load_text(LARGE.replace("index: empty, ", "")).resolved)
    at_once, by_and_by = Pipeline.fresh(chained), Pipeline.fresh(chained)
    for pipeline, rows_max in ((at_once, 300), (by_and_by, 30)):
        for _ in pipeline.parts(numbers(list(range(300)), 0), take=partial(min, rows_max)):
            pass
    rows = [cast(Relation, each._state.pages["q/kept#0"].parts["rows"]) for each in (at_once, by_and_by)]
    assert [each._queue is not None for each in rows] == [True, False]
    assert snapshot_bytes(at_once) == snapshot_bytes(by_and_by)
    assert any("kept#0/rows/keys" in name for name, _ in at_once.freeze().pages())


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Store]:
    """A snapshot `s` of rows whose keys rise, in ten pages, in a folder that is read page by page."""
    with under(FEW_KEY_PAGES):
        yield _filled(opened("folder", tmp_path))


@pytest.fixture(params=["folder", "database"])
def any_stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """The same, also in a store that is read as one on a server is."""
    store = opened(request.param, tmp_path)
    with under(FEW_KEY_PAGES):
        yield _filled(store)
    store.close()


def _filled(store: Store) -> Store:
    pieces = (numbers(list(range(begin, begin + 10_000)), begin) for begin in range(0, ROWS, 10_000))
    return filled(store, large_plan(), pieces)


def test_a_restore_reads_what_it_needs(any_stored: Store) -> None:
    """The page that is being filled, then the one with the key that is asked for, and one after each step."""
    found = any_stored.get("g", "s")
    pages = Asked(found.pages)
    restored = Pipeline.restore(large_plan(), found.header, pages)
    of_rows = [name for name in pages if name.rpartition("/")[2].isdecimal()]
    assert len(of_rows) == 10
    assert pages.names == ["q/kept#0", "q/kept#0/rows/9"]
    made = restored.feed(numbers([5_000], 50_000))["q/kept"]
    assert made.column("value").to_pylist() == [50_000, 0]
    assert pages.names[2:] == ["q/kept#0/rows/keys0", "q/kept#0/rows/1"]
    for offset in range(50_001, 50_020):
        restored.feed(numbers([5_000], offset))
    assert count_absent(restored) == 0
    assert len(set(pages.names)) == len(pages.names) == len(pages)


def test_the_first_snapshot_after_a_restore_writes_what_is_new(any_stored: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = any_stored
    found = stored.get("g", "s")
    restored = Pipeline.restore(large_plan(), found.header, found.pages)
    restored.feed(numbers([5_000], 50_000))
    encoded: list[str] = []
    for content in (RowPageContent, KeyPageContent):
        encode = content.encode
        monkeypatch.setattr(content, "encode", lambda each, encode=encode: encoded.append(str(each.page.number)) or encode(each))
    frozen = restored.freeze()
    stored.put("g", "t", "e", 2, frozen.header, frozen.contents())
    assert encoded == ["9"]
    again = stored.get("g", "t")
    whole = Pipeline.restore(large_plan(), again.header, again.pages)
    assert snapshot_bytes(whole) == snapshot_bytes(restored)


def test_pages_stay_while_they_may_be_asked_for(stored: Store, tmp_path: Path) -> None:
    """The snapshot is discarded, and what nobody names collected: not what an engine still reads (law Crash)."""
    found = stored.get("g", "s")
    restored = Pipeline.restore(large_plan(), found.header, found.pages)
    stored.discard("g", "s")
    DirectoryStore(tmp_path / "store").keep("g", 1)
    made = restored.feed(numbers(list(range(0, ROWS, 50)), 50_000))["q/kept"]
    assert made.num_rows == 2 * ROWS // 50
    assert count_absent(restored) == 0
    del restored, found
    DirectoryStore(tmp_path / "store").keep("g", 1)
    assert list((tmp_path / "store" / "g" / "pages").iterdir()) == list((tmp_path / "store" / "g" / "claims").iterdir()) == []


def test_damage_that_is_found_late_ends_the_engine(stored: Store, tmp_path: Path) -> None:
    """By an error that says so, never by a wrong row; and the snapshot counts as damaged from then on."""
    found = stored.get("g", "s")
    restored = Pipeline.restore(large_plan(), found.header, found.pages)
    restored.feed(numbers([5_000], 50_000))
    for file in (tmp_path / "store" / "g" / "pages").iterdir():
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    with pytest.raises(SnapshotDamaged, match="is damaged"):
        restored.feed(numbers([30_000], 50_001))
    with pytest.raises(SnapshotDamaged):
        stored.get("g", "s")


def test_a_page_that_is_gone_is_found_at_once(stored: Store, tmp_path: Path) -> None:
    for file in (tmp_path / "store" / "g" / "pages").iterdir():
        if file.stat().st_size > 10_000:
            file.unlink()
            break
    with pytest.raises(SnapshotDamaged, match="is damaged"):
        stored.get("g", "s")


@pytest.mark.parametrize("budget", [200_000, 1 << 24])
def test_with_little_memory(budget: int, any_stored: Store, tmp_path: Path) -> None:
    """What does not fit stays in the store, or leaves again as soon as it came (SPEC G1)."""
    found, residence = any_stored.get("g", "s"), Budget(budget, tmp_path)
    restored = Pipeline.restore(large_plan(), found.header, found.pages, residence=residence)
    whole = Pipeline.restore(large_plan(), found.header, dict(found.pages))
    keys = np.random.default_rng(2).integers(0, ROWS, 6_000).tolist()
    for at in range(60):
        batch = numbers(keys[at * 100 : at * 100 + 100], 60_000 + at)
        assert joined([restored.feed(batch)]) == joined([whole.feed(batch)])
    assert snapshot_bytes(restored) == snapshot_bytes(whole)
    assert (residence.counts()["away"] > 0) == (budget < 1 << 24)


def test_the_law_bites() -> None:
    """A page that is not brought is missed."""
    pieces, plain = list(batches()), compile_plan(load_text(PLAIN).resolved)
    with under(small_pages(8)), pytest.MonkeyPatch.context() as patch:
        whole = Pipeline.fresh(plain)
        fed(pieces[:20], whole)
        frozen = whole.freeze()
        restored, other = (Pipeline.restore(plain, frozen.header, Asked(dict(frozen.pages()))) for _ in range(2))
        expected = fed(unread(pieces, other), other)
        only_at_use(patch)
        patch.setattr(AbsentPages, "asked", lambda each, lanes: [])
        found = fed(unread(pieces, restored), restored)
        assert all(found[name] != expected[name] for name in ("q/texts", "q/again", "q/kept"))


GROUPED = """
project: grouped
queries:
  q:
    windows:
      numbers: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,value:int64"}
      groups:
        type: aggregate
        schema: "value*:int64,n:int64,most:int64"
        outputs: {n: ESP_aCount(), most: ESP_aMax(id)}
        publish: true
    edges: [numbers -> groups]
"""


@under(FEW_KEY_PAGES)
def test_an_aggregate_reads_groups_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `test_a_restore_reads_what_it_needs`; and a page that is not brought is missed."""
    grouped, topic = compile_plan(load_text(GROUPED).resolved), itertools.count()

    def inserts(values: Sequence[int]) -> pa.RecordBatch:
        offset = next(topic)
        rows = " | ".join(f"I,N,{value + offset},{value}" for value in values)
        (raw,) = raw_batches(Case(grouped, (Message(offset, "numbers", rows),), ()))
        return Head.of(grouped).decode(raw.set_column(2, "offset", pa.array([offset])))

    whole = Pipeline.fresh(grouped)
    whole.feed(inserts(range(ROWS)))
    frozen = whole.freeze()
    pages = Asked(dict(frozen.pages()))
    restored, other = (Pipeline.restore(grouped, frozen.header, each) for each in (pages, Asked(pages.pages)))
    assert pages.names == ["q/groups#0", "q/groups#0/groups/9"]
    one = inserts([5_000])
    assert restored.feed(one)["q/groups"].column("n").to_pylist() == [2, 1]
    assert pages.names[2:] == ["q/groups#0/groups/keys0", "q/groups#0/groups/1"]
    monkeypatch.setattr(AbsentPages, "asked", lambda each, lanes: [])
    assert other.feed(one)["q/groups"].column("n").to_pylist() == [1]


def test_scripts_leave_pages_absent() -> None:
    """The scripts that the law is tried on restore windows whose pages are absent."""
    messages = [Message(1_000_000 * i, "loose", f"P,N,k{i},0,{i},s") for i in range(2, 12)] + [Message(90_000_000, "", "")]
    case = Case(scripts_of.plan(), tuple(messages), ())
    with under(small_pages(2, pages_min=1)):
        pipeline = Pipeline.fresh(case.plan)
        pipeline.feed(decoded(case))
        frozen = pipeline.freeze()
        assert count_absent(Pipeline.restore(case.plan, frozen.header, Asked(dict(frozen.pages())))) > 0
