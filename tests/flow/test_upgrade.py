"""The state that a changed project keeps from the one before it, window by window (SPEC A44, Z6)."""

from __future__ import annotations

import json

import pytest

from hotspare.base.errors import ProjectChanged, SnapshotDamaged, UsageError
from hotspare.flow.carry_over import carried_over
from hotspare.flow.head.head import Head
from hotspare.flow.numbering import NUMBERING, numbering_of
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.flow.semantics import SEMANTICS
from hotspare.flow.upgrade import Fate, Past, StreamFate, Upgrade, compare, lineages
from hotspare.projects.load import load_text
from tests.cases.case import Case, Message, raw_batches

PROJECT = """
project: shop
queries:
  q:
    singletons: included
    windows:
      orders: {type: source, opcodes: any, schema: 'id*:int64,x:int64'}
      dear: {type: filter, condition: x > 5, publish: true}
      recent: {type: copy, retention: {bycount_sliding: 3}, publish: true}
      short: {type: copy, retention: {bytime_sliding: 2 seconds}, publish: true}
      counted: {type: functional, schema: 'id*:int64,x:int64,n:int64', functions: {n: eventCounter()}, publish: true}
    edges: [orders -> dear, dear -> recent, orders -> short, recent -> counted]
"""


def plan(*changes: tuple[str, str]) -> Plan:
    text = PROJECT
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return compile_plan(load_text(text).resolved)


def changed(*changes: tuple[str, str], past: Past = Past.CUT) -> Upgrade:
    return compare(plan(), plan(*changes), past)


def fates(found: Upgrade) -> dict[str, Fate]:
    return {each.window.window: each.fate for each in found.windows}


def streams(found: Upgrade) -> dict[str, StreamFate]:
    return {name.removeprefix("q/"): fate for name, fate in found.streams.items()}


def test_what_determines_no_output_changes_nothing() -> None:
    for text in ("description: other\nproject: shop", "project: shop"):
        assert changed(("project: shop", text)).is_unchanged


def test_a_window_that_changes_takes_along_all_that_follow_it() -> None:
    found = changed(("x > 5", "x > 6"))
    assert fates(found) == {
        "orders": Fate.KEPT,
        "dear": Fate.NONE,
        "recent": Fate.EMPTY,
        "short": Fate.KEPT,
        "counted": Fate.EMPTY,
    }
    assert streams(found) == {
        "dear": StreamFate.CHANGED,
        "recent": StreamFate.CHANGED,
        "short": StreamFate.SAME,
        "counted": StreamFate.CHANGED,
        "bad": StreamFate.CHANGED,
    }
    reasons = {each.window.window: each.reasons for each in found.windows}
    assert reasons["dear"] == ("condition was x > 5 (spark-sql), is x > 6 (spark-sql)",)
    assert reasons["counted"] == ("it follows q/recent, which changed",)
    assert found.realigned == {"q/dear", "q/recent", "q/counted", "bad"}


def test_what_topics_hold_from_the_beginning_is_computed_anew() -> None:
    found = changed(("x > 5", "x > 6"), past=Past.WHOLE)
    assert fates(found)["recent"] is Fate.RECOMPUTED
    assert found.has_recomputed
    assert not changed(("bytime_sliding: 2 seconds", "bytime_sliding: 2000 milliseconds"), past=Past.WHOLE).has_recomputed


def test_what_lacks_a_field_by_now_is_read_by_nobody_again() -> None:
    """Each older message would be a bad event, so nothing can be recomputed from the topic."""
    before = plan()
    after = plan(
        (
            "orders: {type: source, opcodes: any, schema: 'id*:int64,x:int64'}",
            "orders: {type: source, opcodes: any, schema: 'id*:int64,x:int64,y:string'}",
        )
    )
    raw = raw_batches(Case(before, tuple(MESSAGES[:3]), ()))
    refused = [Pipeline.fresh(after).feed(Head.from_plan(after).decode(each)) for each in raw]
    assert refused and all(set(made) == {"bad"} for made in refused)
    found = compare(before, after, Past.WHOLE)
    assert not found.has_recomputed
    assert fates(found)["orders"] is Fate.EMPTY
    reasons = {each.window.window: each.reasons for each in found.windows}
    assert "messages on the topic of q/orders lack fields that it has now" in reasons["orders"]
    assert compare(after, before, Past.WHOLE).has_recomputed, "a field less keeps nobody from reading it"


def test_windows_come_and_go() -> None:
    found = changed(
        ("      short:", "      again: {type: copy, publish: true}\n      short:"),
        ("orders -> dear,", "orders -> dear, orders -> again,"),
        ("{bycount_sliding: 3}, publish: true}", "{bycount_sliding: 3}}"),
    )
    assert (fates(found)["again"], streams(found)["again"]) == (Fate.EMPTY, StreamFate.NEW)
    assert (fates(found)["recent"], streams(found)["recent"]) == (Fate.KEPT, StreamFate.ENDS)
    gone = changed(("orders -> short, ", "dear -> short, "))
    assert fates(gone)["short"] is Fate.EMPTY
    found = compare(plan(("      counted:", "      last:"), ("-> counted", "-> last")), plan(), Past.CUT)
    assert found.windows[-1].fate is Fate.GONE
    assert str(found.windows[-1].window) == "q/last"


def test_what_time_causes_depends_on_the_heartbeats() -> None:
    """The state is kept; which tick causes an output may change."""
    found = changed(("project: shop", "project: shop\nheartbeat: 500 milliseconds"))
    assert set(fates(found).values()) == {Fate.KEPT}
    assert streams(found)["short"] is StreamFate.CHANGED
    assert streams(found)["recent"] is StreamFate.SAME


def test_a_new_source_window_comes_last_by_its_name() -> None:
    more = "      {}: {{type: source, opcodes: any, schema: 'id*:int64'}}\n      dear:"
    found = changed(("      dear:", more.format("zebra")))
    assert not found.refusals
    assert [str(window) for window in found.new_topics] == ["q/zebra"]
    assert (streams(found)["dear"], streams(found)["short"]) == (StreamFate.SAME, StreamFate.CHANGED)
    (refusal,) = changed(("      dear:", more.format("ants"))).refusals
    assert "other numbers" in refusal
    gone = compare(plan(("      dear:", more.format("zebra"))), plan(), Past.CUT)
    assert not gone.refusals
    assert [str(window) for window in gone.removed_topics] == ["q/zebra"]


def test_another_projects_name_or_topic_is_refused() -> None:
    assert "not a new version" in changed(("project: shop", "project: store")).refusals[0]
    before, after = plan(("type: source, opcodes: any", "type: source, reads: far/q/w, opcodes: insert-only, index: hash")), plan()
    assert "another topic" in compare(before, after, Past.CUT).refusals[0]


@pytest.mark.parametrize(("past", "fate"), [(Past.WHOLE, Fate.RECOMPUTED), (Past.CUT, Fate.EMPTY)])
def test_no_state_of_other_semantics_is_kept_and_no_stream_compared(past: Past, fate: Fate) -> None:
    found = compare(plan(), plan(), past, SEMANTICS - 1)
    assert set(fates(found).values()) == {fate, Fate.NONE}
    assert {reason for each in found.windows for reason in each.reasons} == {
        "windows have other semantics in this version of hotspare"
    }
    assert set(streams(found).values()) == {StreamFate.CHANGED}


def test_a_snapshot_of_other_semantics_gives_positions_and_numbers_but_no_rows() -> None:
    header, pages, pipeline = snapshot(plan(), 6)
    other = json.dumps(json.loads(header) | {"semantics": SEMANTICS + 1}).encode()
    carried = Pipeline.restore(plan(), *carried_over(plan(), plan(), other, pages))
    assert carried.sequences == pipeline.sequences
    fresh = Pipeline.fresh(plan()).freeze()
    assert dict(carried.freeze().pages()) == dict(fresh.pages())
    kept = Pipeline.restore(plan(), *carried_over(plan(), plan(), header, pages))
    assert dict(kept.freeze().pages()) == dict(pipeline.freeze().pages()) != dict(fresh.pages())


def test_lineages_are_those_of_earlier_releases() -> None:
    """Two versions of hotspare in one group find the same streams unchanged."""
    assert lineages(plan()).streams["q/dear"][:16] == "86f22d41aae086c5"


# --- the state -----------------------------------------------------------------------------------------------------------------

MESSAGES = [Message(1_000_000 + i, "orders", f"I,N,{i},{i}") for i in range(12)]


def run(of: Plan, pipeline: Pipeline, messages: list[Message], begin: int = 0) -> dict[str, list[tuple[int, int]]]:
    """Returns by stream the sequences and the fields `id` of the outputs."""
    found: dict[str, list[tuple[int, int]]] = {}
    for raw in raw_batches(Case(of, tuple(messages), ()))[begin:]:
        for stream, made in pipeline.feed(Head.from_plan(of).decode(raw)).items():
            rows = made.to_pydict()
            found.setdefault(stream, []).extend(zip(rows["hs:sequence"], rows.get("id", rows["hs:sequence"]), strict=True))
    return found


def snapshot(of: Plan, count: int) -> tuple[bytes, dict[str, bytes], Pipeline]:
    pipeline = Pipeline.fresh(of)
    run(of, pipeline, MESSAGES[:count])
    frozen = pipeline.freeze()
    return frozen.header, dict(frozen.pages()), pipeline


def test_kept_windows_have_their_rows_and_others_none() -> None:
    before, after = plan(), plan(("bycount_sliding: 3", "bycount_sliding: 2"))
    header, pages, old = snapshot(before, 9)
    carried, contents = carried_over(before, after, header, pages)
    assert numbering_of(carried) == {"bad": None, "q/counted": None, "q/recent": None}
    assert json.loads(carried)["upgraded_from"] == before.project_hash
    assert len(contents) == len(dict(contents.items())) == len(list(contents))
    new = Pipeline.restore(after, carried, contents)
    assert (new.next_offsets, new.time_us) == (old.next_offsets, old.time_us)
    expected, made = run(before, old, MESSAGES, 9), run(after, new, MESSAGES, 9)
    assert made["q/dear"] == expected["q/dear"]
    assert made["q/short"] == expected["q/short"]
    assert [each for _, each in made["q/recent"]] == [9, 10, 11, 9], "the rows of before are gone"


def test_streams_of_before_go_on_with_the_numbers_that_their_topics_have() -> None:
    before, after = plan(), plan(("x > 5", "x > 6"))
    header, pages, _ = snapshot(before, 9)
    content = json.loads(header)
    content[NUMBERING] = {"q/short": 40, "q/dear": -1, "q/recent": None}
    carried, _ = carried_over(before, after, json.dumps(content).encode(), pages)
    found = {name: at["sequence"] for name, at in json.loads(carried)["streams"].items()}
    assert (found["q/short"], found["q/dear"], found["q/recent"]) == (49, 2, 3)
    assert numbering_of(carried) == {"bad": None, "q/counted": None, "q/dear": None, "q/recent": None}


def test_a_snapshot_of_another_project_or_without_a_page_is_refused() -> None:
    before = plan()
    header, pages, _ = snapshot(before, 3)
    with pytest.raises(ProjectChanged):
        carried_over(plan(("x > 5", "x > 6")), before, header, pages)
    with pytest.raises(UsageError, match="cannot continue"):
        carried_over(before, plan(("project: shop", "project: store")), header, pages)
    with pytest.raises(SnapshotDamaged):
        carried_over(before, before, b"{}", pages)
    del pages["q/short#0"]
    with pytest.raises(SnapshotDamaged, match="lacks q/short#0"):
        carried_over(before, before, header, pages)
