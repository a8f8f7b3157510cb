"""Decisions about calls of user code: what a window refuses, where a core stops, and what the board of calls shows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hotspare.base.call_board import CallBoard, CallSlot, Cell, ShownCall, board_bytes
from hotspare.base.call_place import BEFORE_EVENTS, CallPlace, Decision, HangCause
from hotspare.base.errors import StateError
from hotspare.flow.carry_over import carried_over
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.flow.snapshot import decisions_of
from hotspare.projects.load import load_text
from hotspare.rows.batch import BAD_STREAM
from tests.cases.case import parse_case, raw_batches
from tests.laws.core_scripts import joined

PROJECT = """
project: p
queries:
  q:
    windows:
      given: {type: source, opcodes: any, schema: "id*:int64,x:int64"}
      next_to: {type: copy}
      coded:
        type: python
        events: create
        schema: "id*:int64,x:int64"
        code: |
          def create(data):
              return {"x": data["x"] + 1}
      columns:
        type: python-columns
        events: create
        schema: "id*:int64,x:int64"
        code: |
          def create(data):
              return {"x": [x.as_py() + 2 for x in data["x"]]}
      timed:
        type: custom
        index: empty
        schema: "id*:int64,x:int64"
        language: lua
        code: |
          local waiting = {}
          function create(data) waiting[#waiting + 1] = data end
          function heartbeat(context)
            local made = waiting
            waiting = {}
            return made
          end
    edges: [given -> next_to, given -> coded, given -> columns, given -> timed]
---
"""
GIVEN = """at 1 s given: I,N,1,10 | I,N,2,20
at 2 s tick
at 3 s given: U,N,1,11 | I,N,3,30
at 4 s tick
at 5 s given: D,N,1, | I,N,4,40
at 6 s tick
"""


@cache
def plan() -> Plan:
    return parse_case(PROJECT + GIVEN, "case").plan


def rows(text: str = GIVEN) -> pa.RecordBatch:

    return Head.from_plan(plan()).decode(pa.concat_batches(raw_batches(parse_case(PROJECT + text, "case"))))


def place(offset: int, index: int = 0, window: str = "q/coded", topic: str = "q/given") -> CallPlace:
    return CallPlace(topic, 0, offset, index, window, plan().window_versions.get(window, ""))


def decided(*places: CallPlace, cause: HangCause = HangCause.DEADLINE) -> list[Decision]:
    return [Decision(each, cause, number) for number, each in enumerate(places, 1)]


def bad_rows(outputs: dict[str, Any]) -> list[tuple[int, int, str, str, str]]:
    made = outputs[BAD_STREAM].to_pylist() if BAD_STREAM in outputs else []
    return [(each["hs:offset"], each["hs:index"], each["reason"], each["text"], each["window"]) for each in made]


def ids(outputs: dict[str, Any], window: str) -> list[int]:
    return outputs[window]["id"].to_pylist() if window in outputs else []


def test_a_decided_event_is_a_bad_event_of_its_window_alone() -> None:
    without = Pipeline.fresh(plan()).feed(rows())
    pipeline = Pipeline.fresh(plan())
    pipeline.set_decisions(decided(place(0, 1), cause=HangCause.MEMORY))
    made = pipeline.feed(rows())
    assert bad_rows(made) == [(0, 1, "code-memory", "I,2,20", "q/coded")]
    assert made[BAD_STREAM]["message"].to_pylist() == ["the code of the window takes too much memory for this event"]
    assert 2 not in ids(made, "q/coded")
    assert all(made[name].equals(without[name]) for name in ("q/next_to", "q/columns", "q/timed"))
    assert not pipeline.missing_decisions


def test_an_update_is_one_bad_event() -> None:
    """The old row of its block is dropped without one, as code is not called for it."""
    pipeline = Pipeline.fresh(plan())
    pipeline.set_decisions(decided(place(2), place(2, window="q/columns")))
    assert bad_rows(pipeline.feed(rows())) == [
        (2, 0, "code-deadline", "UB,1,11", "q/coded"),
        (2, 0, "code-deadline", "UB,1,11", "q/columns"),
    ]


def test_a_decided_tick_is_a_bad_event_without_text() -> None:
    pipeline = Pipeline.fresh(plan())
    pipeline.set_decisions(decided(place(1, window="q/timed"), place(3)))
    made = pipeline.feed(rows())
    assert bad_rows(made) == [(1, 0, "code-deadline", "", "q/timed")]
    assert set(made["q/timed"]["hs:offset"].to_pylist()) == {3, 5}
    assert not pipeline.missing_decisions


def test_after_three_decisions_the_window_refuses_every_event() -> None:
    pipeline = Pipeline.fresh(plan())
    pipeline.set_decisions(decided(place(0, 0), place(0, 1), place(2, 0), place(4, 0)))
    assert [each[:3] for each in bad_rows(pipeline.feed(rows()))] == [
        (0, 0, "code-deadline"),
        (0, 1, "code-deadline"),
        (2, 0, "code-deadline"),
        (2, 1, "code-quarantined"),
        (4, 0, "code-quarantined"),
        (4, 1, "code-quarantined"),
    ]
    assert len(decisions_of(pipeline.freeze().header)) == 4


def test_a_lifted_quarantine_ends_before_the_message() -> None:
    """The row that caused a decision stays refused. Three more decisions bring the quarantine back."""
    lifted = Decision(place(4, BEFORE_EVENTS), HangCause.LIFTED, 4)
    later = GIVEN + "at 7 s given: I,N,5,50 | I,N,6,60 | I,N,7,70 | I,N,8,80\n"
    again = [Decision(place(*at), HangCause.MEMORY, number) for number, at in enumerate(((6, 0), (6, 1), (6, 2)), 5)]
    pipeline = Pipeline.fresh(plan())
    pipeline.set_decisions([*decided(place(0, 0), place(0, 1), place(2, 0)), lifted, *again])
    made = pipeline.feed(rows(later))
    assert [each[:3] for each in bad_rows(made)] == [
        (0, 0, "code-deadline"),
        (0, 1, "code-deadline"),
        (2, 0, "code-deadline"),
        (2, 1, "code-quarantined"),
        (6, 0, "code-memory"),
        (6, 1, "code-memory"),
        (6, 2, "code-memory"),
        (6, 3, "code-quarantined"),
    ]
    assert made["q/coded"]["hs:offset"].to_pylist() == [4]


def test_a_core_stops_before_the_first_row_at_or_after_a_place_unless_it_has_passed_it() -> None:
    """The offset of a place at which a quarantine is lifted may have no row, as topics have other records than messages."""
    pipeline, lifted = Pipeline.fresh(plan()), place(3, BEFORE_EVENTS)
    pipeline.feed(rows().slice(0, 2))
    pipeline.stop_before([place(0), lifted])
    parts = pipeline.compute_parts(rows().slice(2).filter(pc.not_equal(rows().slice(2)["offset"], 3)))
    next(parts)
    assert next(parts) == {}
    assert pipeline.stopped_at == lifted
    assert pipeline.next_offsets == {(0, 0): 3}
    pipeline.set_decisions([Decision(lifted, HangCause.LIFTED, 1)])
    assert pipeline.stopped_at is None
    list(parts)
    assert not pipeline.missing_decisions


def test_decisions_about_a_window_that_an_upgrade_changed_refuse_nothing() -> None:
    """They still count as applied: the next upgrade may bring the window back as it was."""
    others = [
        replace(place(0, 0), version="0" * 12),
        replace(place(0, 1), version="0" * 12),
        replace(place(2, 0), version="1" * 12),
    ]
    pipeline = Pipeline.fresh(plan())
    pipeline.set_decisions(decided(*others, place(4, 0)))
    pipeline.stop_before(others)
    assert [each[:3] for each in bad_rows(pipeline.feed(rows()))] == [(4, 0, "code-deadline")]
    assert [each.place for each in decisions_of(pipeline.freeze().header)] == [*others, place(4, 0)]
    assert not pipeline.missing_decisions


def test_the_version_of_a_window_follows_its_code_and_modules() -> None:
    def versions(text: str) -> dict[str, str]:
        return dict(compile_plan(load_text(text).resolved).window_versions)

    text = PROJECT.partition("---")[0]
    changed = versions(text.replace('data["x"] + 1', 'data["x"] + 3'))
    assert {name for name, version in versions(text).items() if changed[name] != version} == {"q/coded"}
    described = versions(text.replace("next_to: {type: copy}", "next_to: {type: copy, description: hm}"))
    assert described == versions(text)


def test_heartbeats_in_quarantine_cause_nothing() -> None:
    pipeline = Pipeline.fresh(plan())
    pipeline.set_decisions(decided(*(place(0, index, "q/timed") for index in (0, 1)), place(1, window="q/timed")))
    made = pipeline.feed(rows())
    assert [each[2] for each in bad_rows(made)] == ["code-deadline"] * 3 + ["code-quarantined"] * 4
    assert "q/timed" not in made


def test_a_position_without_a_row_is_passed_at_the_next_row() -> None:
    """The row may be gone because the project changed, or because the topic no longer holds it."""
    pipeline = Pipeline.fresh(plan())
    pipeline.set_decisions(decided(place(0, 7), place(1, window="q/none"), place(0, topic="other")))
    assert bad_rows(pipeline.feed(rows())) == []
    assert [each.place for each in decisions_of(pipeline.freeze().header)] == [place(0, 7), place(1, window="q/none")]
    assert not pipeline.missing_decisions


def test_a_state_beyond_a_decision_reports_it_also_after_more_input() -> None:
    pipeline, known = Pipeline.fresh(plan()), decided(place(2))
    pipeline.feed(rows().slice(0, 4))
    pipeline.set_decisions(known)
    assert pipeline.missing_decisions == tuple(known)
    pipeline.feed(rows().slice(4))
    assert pipeline.missing_decisions == tuple(known)


def test_a_core_stops_before_a_place_until_it_is_decided() -> None:
    pipeline, taken = Pipeline.fresh(plan()), list[int]()
    pipeline.stop_before([place(2, 1), place(2, 1, "q/columns"), place(4, window="q/unknown")])
    parts = pipeline.compute_parts(rows(), lambda count: taken.append(count) or count)
    outputs = [next(parts), next(parts), next(parts)]
    assert taken == [4]
    assert outputs[1:] == [{}, {}]
    assert pipeline.stopped_at == place(2, 1)
    assert not pipeline.is_between_batches
    with pytest.raises(StateError):
        pipeline.freeze()
    pipeline.set_decisions(decided(place(2, 1)))
    assert pipeline.stopped_at is None  # of this place; the next part stops again, before that of the other window
    assert next(parts) == {}
    assert pipeline.stopped_at == place(2, 1, "q/columns")
    pipeline.pass_place(place(2, 1, "q/columns"))
    outputs += list(parts)
    assert pipeline.is_between_batches
    expected = Pipeline.fresh(plan())
    expected.set_decisions(decided(place(2, 1)))
    assert joined(outputs) == joined([expected.feed(rows())])


def test_it_stops_at_the_first_row_of_a_batch() -> None:
    pipeline = Pipeline.fresh(plan())
    pipeline.stop_before([place(0)])
    parts = pipeline.compute_parts(rows())
    assert next(parts) == {}
    assert not pipeline.is_between_batches
    pipeline.stop_before([])
    assert pipeline.stopped_at is None
    assert ids(joined(list(parts)), "q/coded")[:2] == [1, 2]


def test_all_parts_at_once_cannot_wait() -> None:
    pipeline = Pipeline.fresh(plan())
    pipeline.stop_before([place(2)])
    with pytest.raises(StateError, match="the core stops before window q/coded, event 0 of the message at offset 2"):
        pipeline.feed(rows())


def test_a_place_to_pass_is_a_step_without_limits() -> None:
    pipeline, slot, steps = Pipeline.fresh(plan()), _slot()[1], list[tuple[int, int]]()
    pipeline.attach_board(slot)
    pipeline.pass_place(place(2))

    def take(count: int) -> int:
        steps.append((count, slot.cells[Cell.IS_UNLIMITED]))
        return count

    outputs = list(pipeline.compute_parts(rows(), take))
    assert steps == [(3, 0), (1, 1), (5, 0)]
    assert joined(outputs) == joined([Pipeline.fresh(plan()).feed(rows())])


def test_topics_have_names() -> None:
    pipeline = Pipeline.fresh(plan())
    pipeline.name_topics(["prefix.p.q.given", "prefix.p.ticks"])
    pipeline.set_decisions(decided(place(0, topic="prefix.p.q.given"), place(2)))
    assert [each[:2] for each in bad_rows(pipeline.feed(rows()))] == [(0, 0)]


def test_snapshots_name_the_decisions_behind_them() -> None:
    pipeline, known = Pipeline.fresh(plan()), decided(place(0, 1), place(4), cause=HangCause.MEMORY)
    pipeline.set_decisions(known)
    pipeline.feed(rows().slice(0, 4))
    frozen = pipeline.freeze()
    assert decisions_of(frozen.header) == tuple(known[:1])
    header, pages = carried_over(plan(), plan(), frozen.header, dict(frozen.pages()))
    for restored in (Pipeline.restore(plan(), header, pages), Pipeline.restore(plan(), frozen.header, dict(frozen.pages()))):
        restored.set_decisions(known)
        assert not restored.missing_decisions
        assert bad_rows(restored.feed(rows().slice(4))) == [(4, 0, "code-memory", "D,1,11", "q/coded")]


class Recording(CallSlot):
    """A slot that keeps what its board shows when a call begins."""

    def __init__(self, board: CallBoard) -> None:
        super().__init__(board.slot(0).cells)
        self._board = board
        self.shown: list[ShownCall] = []

    def begin_call(self, row: int, rows: int = 1) -> None:
        super().begin_call(row, rows)
        self._keep()

    def begin_loop(self, rows: memoryview) -> None:
        super().begin_loop(rows)
        self.shown.pop()
        for number in range(len(rows)):
            self.cells[Cell.ROW] = number
            self._keep()
        self.cells[Cell.ROW] = 0

    def _keep(self) -> None:
        call = self._board.shown_call(0)
        assert call is not None
        self.shown.append(call)

    def positions(self, window: str) -> list[tuple[int, int, int]]:
        """Returns offset, index and count of rows of each call of a window's code."""
        node = plan().window_nodes[window]
        return [(*each.position[2:], each.rows) for each in self.shown if each.node == node]


def _slot() -> tuple[CallBoard, Recording]:
    board = CallBoard(memoryview(bytearray(board_bytes(1))))
    return board, Recording(board)


def test_the_board_shows_the_place_of_each_call() -> None:
    pipeline, (board, slot) = Pipeline.fresh(plan()), _slot()
    pipeline.attach_board(slot)
    watched = pipeline.feed(rows())
    events = [(0, 0, 1), (0, 1, 1), (2, 0, 1), (2, 1, 1), (4, 0, 1), (4, 1, 1)]
    assert slot.positions("q/coded") == events
    assert slot.positions("q/timed") == sorted([*events, *((offset, 0, 1) for offset in (1, 3, 5))])
    assert slot.positions("q/columns") == [(0, 0, 7)]  # with the old row of the update
    assert len({each.calls for each in slot.shown}) == len(slot.shown)
    assert board.shown_call(0) is None
    assert joined([watched]) == joined([Pipeline.fresh(plan()).feed(rows())])


def test_a_window_over_columns_calls_its_code_row_by_row() -> None:
    """The two rows of an update are two calls at one place."""
    pipeline, (_, slot) = Pipeline.fresh(plan()), _slot()
    pipeline.attach_board(slot)
    pipeline.row_by_row([place(0, window="q/columns")])
    made = pipeline.feed(rows())
    assert slot.positions("q/columns") == [(o, i, 1) for o, i in ((0, 0), (0, 1), (2, 0), (2, 0), (2, 1), (4, 0), (4, 1))]
    assert joined([made]) == joined([Pipeline.fresh(plan()).feed(rows())])


def test_user_code_is_not_in_the_head() -> None:
    text = """
project: p
queries:
  q:
    windows:
      given: {type: source, index: empty, schema: "id*:int64,x:int64"}
      kept: {type: filter, index: empty, condition: x > 1}
      columns:
        type: python-columns
        index: empty
        schema: "id*:int64,x:int64"
        events: create
        code: "def create(data): return {'x': data['x']}"
    edges: [given -> kept, kept -> columns]
"""
    made = compile_plan(load_text(text).resolved)
    assert [[window.window for window in chain] for chain in made.head_chains] == [["given", "kept"]]
    assert {made.nodes[i].window for i in made.code_nodes} == {"q/columns"}
