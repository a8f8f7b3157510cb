"""Law of new rows: windows with `emit: new` emit the rows of a plain model of docs/alerts.md, however the input is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from tests.cases.case import Case, Message
from tests.examples import examples
from tests.laws.core_scripts import decoded, joined, snapshot_bytes
from tests.laws.model_windows import SECOND, Event, Index, Limits, Refused, Row
from tests.laws.test_cut import cut, fed, in_batches
from tests.laws.test_joins import check_restart
from tests.laws.test_relations import as_text

pytestmark = pytest.mark.law

RETENTIONS: dict[str, tuple[str, Limits | None]] = {
    "few": ("{bycount_sliding: 3, by: [s]}", Limits("bycount_sliding", 3, by=(2,), evicts_first=True)),
    "late": ("{bycount_sliding: 3, by: [s], evict: after}", Limits("bycount_sliding", 3, by=(2,))),
    "all": ("{bycount_sliding: 3}", Limits("bycount_sliding", 3, evicts_first=True)),
    "jump": ("{bycount_jumping: 3}", Limits("bycount_jumping", 3, evicts_first=True)),
    "brief": ("{bytime_sliding: 2 seconds}", Limits("bytime_sliding", 2 * SECOND)),
    "event": ("{bytime_sliding: 2 seconds, field: at}", Limits("bytime_sliding", 2 * SECOND, by_event=True, evicts_first=True)),
}
WINDOWS = ("stats", "high", "quotient", "joined")
WINDOW = """
      {name}: {{type: copy, retention: {retention}}}
      {name}_stats: {{type: aggregate, emit: new, publish: true, schema: "s*:string,n:int64,total:int64",
                    outputs: {{n: count(*), total: ESP_aSum(x)}}}}
      {name}_table: {{type: aggregate, schema: "s*:string,n:int64,total:int64", outputs: {{n: count(*), total: ESP_aSum(x)}}}}
      {name}_high: {{type: filter, emit: new, publish: true, condition: "total > 3"}}
      {name}_quotient: {{type: compute, emit: new, publish: true, schema: "id*:int64,y:int64", outputs: {{y: 6 div x}}}}
      {name}_joined: {{type: join, kind: inner, conditions: {{x: id}}, emit: new, publish: true, outputs: {{s: l_s, other: r_s}}}}
"""
EDGES = "rows -> {0} -> {0}_stats, {0} -> {0}_table -> {0}_high, {0} -> {0}_quotient, {0} -> {0}_joined, others -> {0}_joined"
Made = dict[str, list[tuple[Any, ...]]]


@cache
def plan(opcodes: str) -> Plan:
    windows = "".join(WINDOW.format(name=name, retention=text) for name, (text, _) in RETENTIONS.items())
    edges = ", ".join(EDGES.format(name) for name in RETENTIONS)
    return compile_plan(
        load_text(f"""
project: p
queries:
  q:
    windows:
      rows: {{type: source, schema: "id*:int64,x:int64,s:string,at:stamp"{opcodes}}}
      others: {{type: source, opcodes: any, schema: "id*:int64,x:int64,s:string,at:stamp"}}{windows}
    edges: [{edges}]
""").resolved
    )


ANY, STREAM = ", opcodes: any", ", opcodes: insert-only, index: empty"
Step = tuple[int, str, list[Event]]
"""Time, window and events; a tick has no window and no events."""


@st.composite
def scripts(draw: st.DrawFn, opcodes: Sequence[str]) -> list[Step]:
    values = st.tuples(
        st.sampled_from([-4, 0, 1, 2, 3, 4]),
        st.sampled_from(["a", "a", "b", "c"]),
        st.integers(1, 12).map(lambda i: i * SECOND // 2),
    )
    script: list[Step] = []
    time, number = SECOND, 0
    for _ in range(draw(st.integers(1, 24))):
        time += draw(st.sampled_from([1, 300_000, 900_000]))
        source = draw(st.sampled_from(["rows", "rows", "rows", "rows", "others", ""]))
        if not source:
            time = (time // SECOND + 1) * SECOND
        events = []
        for _ in range(draw(st.integers(1, 3)) if source else 0):
            number += 1
            opcode = draw(st.sampled_from(opcodes if source == "rows" else ["P", "P", "D"]))
            key = number if opcode == "I" else draw(st.integers(1, 4))
            events.append(Event(opcode, frozenset("N"), (key, *draw(values))))
        script.append((time, source, events))
    return [*script, ((time // SECOND + 9) * SECOND, "", [])]


def case_of(opcodes: str, script: list[Step]) -> Case:
    return Case(
        plan(opcodes), tuple(Message(time, source, " | ".join(map(as_text, events))) for time, source, events in script), ()
    )


def alerts_of(case: Case) -> Made:
    """Returns the outputs of each window, in order; checks that each is an insert without flags."""
    found: Made = {}
    for name, batch in Pipeline.fresh(case.plan).feed(decoded(case)).items():
        for row in batch.to_pylist() if name != "bad" else ():
            assert (row["hs:opcode"], row["hs:flags"]) == (1, 1), name
            cause = (row["hs:topic"], row["hs:offset"], row["hs:index"])
            values = tuple(value for column, value in row.items() if not column.startswith("hs:"))
            found.setdefault(name.removeprefix("q/"), []).append((cause, *values))
    return found


@dataclass
class Entering:
    """Keys in a result, and those of them that were not emitted, because no event caused their entry."""

    rows: dict[Any, Any] = field(default_factory=dict)
    unseen: set[Any] = field(default_factory=set)

    def change(self, key: Any, row: Any | None, *, is_event: bool) -> bool:
        """Updates the row of a key, None if it has none; returns whether the row is emitted."""
        entered = key not in self.rows
        if row is None:
            self.rows.pop(key, None)
            self.unseen.discard(key)
            return False
        self.rows[key] = row
        if is_event and (entered or key in self.unseen):
            self.unseen.discard(key)
            return True
        if entered:
            self.unseen.add(key)
        return False


@dataclass
class Plain:
    """The windows downstream of one retention."""

    limits: Limits | None
    table: Index
    rows: dict[int, Row] = field(default_factory=dict)
    others: dict[int, Row] = field(default_factory=dict)
    high: Entering = field(default_factory=Entering)
    quotient: Entering = field(default_factory=Entering)
    joined: Entering = field(default_factory=Entering)
    made: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def take(self, cause: tuple[int, int, int], events: list[Event]) -> None:
        """Processes the outputs of the window with retention for one event or tick."""
        rest = list(events)
        while rest:
            event = rest.pop(0)
            if event.opcode == "UB":
                old = rest.pop(0).row
                self._put(cause, event.row, old, evicted=None)
            elif event.opcode == "I":
                self._put(cause, event.row, None, evicted=None)
            elif "R" in event.flags and rest and "R" not in rest[0].flags and self._of_one_group(event, rest):
                came = rest.pop(0)
                self._put(cause, came.row, rest.pop(0).row if came.opcode == "UB" else None, evicted=event.row)
            else:
                self._drop(event.row)
                self._group(cause, event.row[2], is_event="R" not in event.flags)

    def _of_one_group(self, event: Event, rest: list[Event]) -> bool:
        came = rest[0]
        return came.row[2] == event.row[2] and (came.opcode == "I" or rest[1].row[2] != came.row[2])

    def _put(self, cause: tuple[int, int, int], row: Row, old: Row | None, *, evicted: Row | None) -> None:
        if old is not None and old[2] != row[2]:
            del self.rows[old[0]]
            self._group(cause, old[2], is_event=True)
        if evicted is not None:
            self._drop(evicted)
        self.rows[row[0]] = row
        self._group(cause, row[2], is_event=True)
        self._tell("stats", cause, (row[2], *self._totals(row[2])))
        quotient = None if row[1] == 0 else (row[0], int(6 / row[1]))
        if self.quotient.change(row[0], quotient, is_event=True):
            self._tell("quotient", cause, quotient)
        self._join(cause, [row])

    def _drop(self, row: Row) -> None:
        del self.rows[row[0]]
        self.quotient.change(row[0], None, is_event=False)
        self.joined.change(row[0], None, is_event=False)

    def _totals(self, group: str) -> tuple[int, int]:
        found = [row[1] for row in self.rows.values() if row[2] == group]
        if self.limits is not None and self.limits.evicts_first and self.limits.kind.startswith("bycount"):
            held = len(found) if self.limits.by else len(self.rows)
            assert held <= self.limits.limit, "the window holds more rows than its limit"
        return len(found), sum(found)

    def _group(self, cause: tuple[int, int, int], group: str, *, is_event: bool) -> None:
        count, total = self._totals(group)
        row = (group, count, total) if count and total > 3 else None
        if self.high.change(group, row, is_event=is_event):
            self._tell("high", cause, row)

    def take_other(self, cause: tuple[int, int, int], events: list[Event]) -> None:
        for event in events:
            if event.opcode == "D":
                self.others.pop(event.row[0], None)
            else:
                self.others[event.row[0]] = event.row
        self._join(cause, sorted(self.rows.values()))

    def _join(self, cause: tuple[int, int, int], rows: Sequence[Row]) -> None:
        for row in rows:
            other = self.others.get(row[1])
            joined = None if other is None else (row[0], row[2], other[2])
            if self.joined.change(row[0], joined, is_event=True):
                self._tell("joined", cause, joined)

    def _tell(self, window: str, cause: tuple[int, int, int], row: tuple[Any, ...] | None) -> None:
        assert row is not None
        self.made.setdefault(window, []).append((cause, *row))


def expected(opcodes: str, script: list[Step]) -> Made:
    found: Made = {}
    for name, (_, limits) in RETENTIONS.items():
        plain = Plain(limits, Index(limits))
        for window, rows in _run(plain, opcodes, script):
            found[f"{name}_{window}"] = rows
    return found


def _run(plain: Plain, opcodes: str, script: list[Step]) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    source, others, offsets = Index(), Index(), [0, 0]
    for time, window, events in script:
        for number, event in enumerate(events):
            at = 0 if window == "rows" else 1
            index = [source, others][at]
            try:
                given = [event] if window == "rows" and opcodes == STREAM else index.take(event, time)
            except Refused:
                continue
            cause = (at, offsets[at], number)
            if window == "others":
                plain.take_other(cause, [each for i, each in enumerate(given) if i == 0])
                continue
            plain.table.begin(time)
            for each in [each for i, each in enumerate(given) if i == 0]:
                plain.take(cause, plain.table.take(each, time))
        if not window:
            plain.table.begin(time)
            plain.take((0, offsets[0], 0), plain.table.beat(time))
            offsets = [offset + 1 for offset in offsets]
        else:
            offsets[window == "others"] += 1
    yield from plain.made.items()


def by_cause(made: Made) -> dict[str, list[tuple[Any, ...]]]:
    """Sorts joined rows: those of one event of the other side are emitted in the order of their arrival."""
    return {name: sorted(rows) if name.endswith("_joined") else rows for name, rows in made.items()}


def topics_in_order(case: Case) -> list[str]:
    return [source.window for source in case.plan.resolved.sources]


def check(opcodes: str, script: list[Step]) -> None:
    case = case_of(opcodes, script)
    swap: Callable[[int], int] = (lambda at: at) if topics_in_order(case)[0] == "rows" else (lambda at: 1 - at)
    made = {name: [((swap(cause[0]), *cause[1:]), *values) for cause, *values in rows] for name, rows in alerts_of(case).items()}
    assert by_cause(made) == by_cause(expected(opcodes, script))


OPCODES = ["I", "I", "I", "P", "P", "D"]


@examples(2)
@given(scripts(OPCODES))
def test_what_is_new_of_a_table(script: list[Step]) -> None:
    check(ANY, script)


@given(scripts(["I"]))
def test_what_is_new_of_a_stream(script: list[Step]) -> None:
    check(STREAM, script)


@examples(0.5)
@given(scripts(OPCODES), st.lists(st.integers(0, 90), max_size=40), st.integers(1, 4))
def test_cut(script: list[Step], places: list[int], extra_rows_max: int) -> None:
    """Law Cut, in parts of any size: an evicted row and the one that evicted it stay one change."""
    case = case_of(ANY, script)
    rows = decoded(case)
    whole = fed(case, [rows])
    assert fed(case, cut(rows, places)) == whole
    assert in_batches(case, cut(rows, places), extra_rows_max)[:2] == whole


CHAIN = """
project: p
queries:
  q:
    windows:
      rows: {type: source, schema: "id*:int64,s:string"}
      newest: {type: copy, retention: {bytime_sliding: 2 seconds}}
      counts: {type: aggregate, schema: "s*:string,n:int64", outputs: {n: count(*)}}
      last: {type: copy, retention: {bycount_sliding: 9}}
      sizes: {type: aggregate, schema: "n*:int64,keys:int64", outputs: {keys: count(*)}, publish: true}
      alerts: {type: aggregate, emit: new, schema: "n*:int64,keys:int64", outputs: {keys: count(*)}, publish: true}
    edges: [rows -> newest -> counts -> last -> sizes, last -> alerts]
"""


@cache
def chain() -> Plan:
    return compile_plan(load_text(CHAIN).resolved)


@examples(0.5)
@given(st.lists(st.tuples(st.integers(0, 3), st.text("abc", max_size=14)), min_size=1, max_size=5), st.integers(1, 4))
def test_updates_that_retention_caused_stay_whole_in_parts(steps: list[tuple[int, str]], extra_rows_max: int) -> None:
    """The old row of an update has the flag of an evicted row, but is not one: a part may not end between the two rows."""
    time, number, messages = 0, 0, []
    for seconds, texts in [*steps, (3, "")]:
        time += seconds * SECOND
        rows = [f"I,N,{number + place},{text}" for place, text in enumerate(texts)]
        number += len(rows)
        messages.append(Message(time, "rows" if rows else "", " | ".join(rows)))
    case = Case(chain(), tuple(messages), ())
    pipeline = Pipeline.fresh(case.plan, extra_rows_max=extra_rows_max)
    outputs = list(pipeline.compute_parts(decoded(case), lambda _: 1))
    assert (joined(outputs), snapshot_bytes(pipeline)) == fed(case, [decoded(case)])


@examples(0.2)
@given(scripts(OPCODES))
def test_restored_at_each_message(script: list[Step]) -> None:
    """Law Crash, of the core: keys that were not emitted are in the snapshot."""
    case = case_of(ANY, script)
    for place in range(len(script)):
        check_restart(case, place)


@examples(0.5)
@given(scripts(["I"]))
def test_shards(script: list[Step]) -> None:
    """If retention is by group, shards that each have some of the groups emit the same alerts."""
    windows = ("few_stats", "few_high", "few_quotient", "late_stats", "late_high", "late_quotient")
    whole = alerts_of(case_of(STREAM, script))
    parts: list[Made] = []
    for groups in ("a", "bc"):
        chosen = [(time, window, [e for e in events if window != "rows" or e.row[2] in groups]) for time, window, events in script]
        parts.append(alerts_of(case_of(STREAM, [step for step in chosen if not step[1] or step[2]])))
    for name in windows:
        values = sorted(row[1:] for row in whole.get(name, []))
        assert sorted(row[1:] for part in parts for row in part.get(name, [])) == values
