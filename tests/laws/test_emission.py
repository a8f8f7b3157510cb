"""Law of pulses: the output at a pulse is the changes since the last one, folded in plain Python (SPEC A2, A17); however it is
cut."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from hotspare.rows.tuning import Tuning
from tests.cases.case import Case, Message, raw_batches
from tests.examples import examples
from tests.laws.core_scripts import decoded, joined
from tests.laws.model_windows import OPCODES, SECOND
from tests.laws.test_cut import check_page_sizes, cut, fed, in_batches
from tests.laws.test_joins import check_restart
from tests.tunings import tunings

pytestmark = pytest.mark.law

PULSE_US = 3 * SECOND
PROJECT = """
project: p
retention_tracking: "{tracking}"
queries:
  q:
    windows:
      source: {{type: source, opcodes: any, schema: "id*:int64,s:string,x:double"}}
      few: {{type: copy, retention: {{bycount_sliding: 2}}, publish: true}}
      few_held: {{type: copy, retention: {{bycount_sliding: 2}}, publish: true, pulse: 3 seconds}}
      few_new: {{type: copy, retention: {{bycount_sliding: 2}}, publish: true, pulse: 3 seconds, output: insert-only}}
      few_collapsed: {{type: copy, retention: {{bycount_sliding: 2}}, publish: true, updates: collapsed}}
      few_promised: {{type: copy, retention: {{bycount_sliding: 2}}, publish: true, produces: insert-only}}
      brief: {{type: copy, retention: {{bytime_sliding: 2 seconds}}, publish: true}}
      brief_held: {{type: copy, retention: {{bytime_sliding: 2 seconds}}, publish: true, pulse: 3 seconds}}
      told: {{type: filter, index: empty, condition: "ESP_OPCODE <> 'UB'", publish: true}}
      told_held: {{type: filter, index: empty, condition: "ESP_OPCODE <> 'UB'", publish: true, pulse: 3 seconds}}
      stream: {{type: source, opcodes: any, index: empty, schema: "id*:int64,s:string,x:double", publish: true}}
      stream_held: {{type: copy, index: empty, publish: true, pulse: 3 seconds}}
      behind: {{type: copy, publish: true}}
    edges: [source -> few, source -> few_held, source -> few_new, source -> few_collapsed, source -> few_promised, source -> brief,
            source -> brief_held, source -> told, source -> told_held, few_held -> behind, stream -> stream_held]
"""


@cache
def plan(tracking: str) -> Plan:
    return compile_plan(load_text(PROJECT.format(tracking=tracking)).resolved)


class Event(NamedTuple):
    """`cause`: (topic, offset) of the message."""

    cause: tuple[int, int]
    opcode: str
    flags: int
    row: tuple[Any, ...]


class Change(NamedTuple):
    by_retention: bool
    flags: int
    old: tuple[Any, ...] | None
    new: tuple[Any, ...] | None

    def told(self, cause: tuple[int, int]) -> list[Event]:
        opcode = "UB" if self.old and self.new else "I"
        made = [Event(cause, opcode, self.flags, self.new)] if self.new else []
        return made + ([Event(cause, "D", self.flags, self.old)] if self.old else [])


@dataclass
class Fold:
    """Changes of each key since the last pulse."""

    tracking: bool
    keys: dict[int, list[Change]] = field(default_factory=dict)

    def take(self, key: int, change: Change) -> None:
        changes = [*self.keys.get(key, []), change if self.tracking else change._replace(by_retention=False)]
        while len(changes) > 1 and changes[-1].by_retention == changes[-2].by_retention:
            before, newest = changes[-2:]
            changes[-2:] = [newest._replace(old=before.old)]
        if len(changes) > 2:
            first, second, third = changes
            changes = [second._replace(old=first.old), third]
        changes = [each for each in changes if each.old is not None or each.new is not None]
        if changes:
            self.keys[key] = changes
        else:
            self.keys.pop(key, None)

    def let_go(self, cause: tuple[int, int]) -> list[Event]:
        made = [event for changes in self.keys.values() for change in changes for event in change.told(cause)]
        self.keys.clear()
        return made


def events_of(table: Any) -> list[Event]:
    if table is None:
        return []
    rows = table.to_pylist()
    return [Event((r["hs:topic"], r["hs:offset"]), OPCODES[r["hs:opcode"]], r["hs:flags"], (r["id"], r["s"], r["x"])) for r in rows]


def pulses_of(case: Case, interval_us: int) -> list[tuple[int, int]]:
    """Returns the ticks, as (topic, offset), at which there is a pulse: at each time the first topic's tick is the heartbeat. The
    first interval is that of the first message; a window without its own pulse has one at each heartbeat, including the first."""
    found, offsets, beat = [], [0, 0], -1
    pulse = -1 if interval_us == SECOND else case.messages[0].time_us // interval_us
    names = [source.window for source in case.plan.resolved.sources]
    for message in case.messages:
        if message.source:
            offsets[names.index(message.source)] += 1
            continue
        if message.time_us // SECOND > beat:
            beat = message.time_us // SECOND
            if message.time_us // interval_us > pulse:
                pulse = message.time_us // interval_us
                found.append((0, offsets[0]))
        offsets = [offset + 1 for offset in offsets]
    return found


def order_of(case: Case) -> dict[tuple[int, int], int]:
    """Returns the order of messages: (topic, offset) to a number."""
    offsets = [0, 0]
    names = [source.window for source in case.plan.resolved.sources]
    found: dict[tuple[int, int], int] = {}
    for message in case.messages:
        for topic in [names.index(message.source)] if message.source else [0, 1]:
            found[topic, offsets[topic]] = len(found)
            offsets[topic] += 1
    return found


def held(case: Case, made: list[Event], interval_us: int, tracking: bool) -> list[Event]:
    """Returns the outputs for resolved events."""
    order, fold, out = order_of(case), Fold(tracking), []
    at = 0
    for pulse in pulses_of(case, interval_us):
        while at < len(made) and order[made[at].cause] <= order[pulse]:
            event, after = made[at], made[at + 1 : at + 2]
            is_pair = event.opcode == "UB"
            old = after[0].row if is_pair else event.row if event.opcode == "D" else None
            new = None if event.opcode == "D" else event.row
            fold.take(event.row[0], Change(bool(event.flags & 4), event.flags, old, new))
            at += 2 if is_pair else 1
        out += fold.let_go(pulse)
    return out


def waited(case: Case, made: list[Event], interval_us: int) -> list[Event]:
    """Returns the outputs for other events."""
    order, out, at = order_of(case), [], 0
    for pulse in pulses_of(case, interval_us):
        while at < len(made) and order[made[at].cause] <= order[pulse]:
            out.append(made[at]._replace(cause=pulse))
            at += 1
    return out


@st.composite
def cases(draw: st.DrawFn) -> Case:
    row = st.tuples(
        st.sampled_from(["I", "P", "P", "P", "D", "SD"]),
        st.sampled_from(["1", "1", "2", "3", "4"]),
        st.sampled_from(["", "a", "bb"]),
        st.sampled_from(["", "0.5", "-0.0"]),
    )
    texts = st.lists(row.map(lambda r: f"{r[0]},N,{r[1]},{r[2]},{r[3]}"), min_size=1, max_size=5).map(" | ".join)
    time, messages = SECOND, [Message(SECOND, "", "")]
    for _ in range(draw(st.integers(1, 20))):
        time += draw(st.sampled_from([1, 300_000, 900_000, 2_600_000]))
        source = draw(st.sampled_from(["source", "source", "stream", "", ""]))
        messages.append(Message(time, source, draw(texts) if source else ""))
    return Case(plan(draw(st.sampled_from(["off", "on"]))), (*messages, Message(time + 9 * SECOND, "", "")), ())


@examples(1.6)
@given(cases())
def test_what_happened_between_two_pulses_leaves_folded(case: Case) -> None:
    pipeline = Pipeline.fresh(case.plan)
    out = {name: events_of(table) for name, table in joined([pipeline.feed(decoded(case))]).items() if name != "bad"}
    tracking = case.plan.resolved.project.retention_tracking.value == "on"
    few, brief = out.get("q/few", []), out.get("q/brief", [])
    few_held = held(case, few, PULSE_US, tracking)
    assert out.get("q/few_held", []) == few_held
    assert out.get("q/behind", []) == few_held
    assert out.get("q/few_new", []) == [event for event in few_held if event.opcode == "I"]
    assert out.get("q/few_collapsed", []) == held(case, few, SECOND, tracking)
    assert out.get("q/brief_held", []) == held(case, brief, PULSE_US, tracking)
    assert out.get("q/few_promised", []) == [event for event in few if event.opcode == "I"]
    assert out.get("q/stream_held", []) == waited(case, out.get("q/stream", []), PULSE_US)


@examples(0.5)
@given(cases(), st.lists(st.integers(0, 90), max_size=60), st.integers(1, 5))
def test_cut(case: Case, places: list[int], extra_rows_max: int) -> None:
    """Law Cut, in parts of any size."""
    rows = decoded(case)
    whole = fed(case, [rows])
    assert fed(case, cut(rows, places)) == whole
    assert in_batches(case, cut(rows, places), extra_rows_max)[:2] == whole


@examples(0.15)
@given(cases(), st.lists(st.integers(0, 60), max_size=12), tunings())
def test_page_sizes(case: Case, places: list[int], tuning: Tuning) -> None:
    check_page_sizes(case, decoded(case), places, tuning)


@examples(0.35)
@given(cases(), st.integers(0, 60))
def test_restart(case: Case, place: int) -> None:
    """Law Crash, of the core: waiting events are in the snapshot."""
    check_restart(case, place)


def test_pulses_come_without_input_and_take_as_many_parts_as_they_need() -> None:
    """A pulse has 30,000 rows."""
    rows = " | ".join(f"P,N,{i},a,0.5" for i in range(30_000))
    ticks = [Message(time, "", "") for time in (SECOND, 2 * SECOND, 9 * SECOND)]
    messages = (ticks[0], Message(2 * SECOND, "source", rows), *ticks[1:])
    case = Case(plan("off"), messages, ())
    pipeline = Pipeline.fresh(case.plan, extra_rows_max=1000)
    parts = [part for raw in raw_batches(case) for part in pipeline.compute_parts(Head.from_plan(case.plan).decode(raw))]
    held_rows = [part["q/few_collapsed"].num_rows for part in parts if "q/few_collapsed" in part]
    assert sum(held_rows) == 2
    told = [part["q/told_held"].num_rows for part in parts if "q/told_held" in part]
    assert sum(told) == 30_000
    assert max(told) <= 1000 + 3
