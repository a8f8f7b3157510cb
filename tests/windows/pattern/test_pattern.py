"""Pattern window (SPEC A30, A15): refused events, inactive patterns, and the cost of open matches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from hotspare.table.loops import slots
from hotspare.table.multi_index import MultiIndex
from hotspare.windows.pattern.operator import MATCHES
from tests.cases.case import Case, Message, raw_batches
from tests.windows.join.test_join import lines_of

SECOND = 1_000_000


def plan_of(pattern: str, more: str = "", source: str = "index: empty, opcodes: insert-only") -> Plan:
    return compile_plan(
        load_text(f"""
project: p
queries:
  q:
    windows:
      s: {{type: source, {source}, schema: "id*:int64,k:int64,x:int64,text:string"}}
      found:
        type: pattern
        index: empty
        schema: "key*:int64,first:int64,last:int64"
        {more}
        patterns:
          one: {pattern}
    edges: [s -> found]
""").resolved
    )


def rows(*events: str) -> list[Message]:
    return [Message((i + 1) * SECOND, "s", event) for i, event in enumerate(events)] + [Message(99 * SECOND, "", "")]


OUTPUTS = "outputs: {first: a.id, last: b.id}"


def test_an_event_on_which_an_expression_fails_is_bad_and_takes_no_part() -> None:
    events = "{a: {source: s, condition: 10 div x = 5 and v = k}, b: {source: s, condition: x > 100 and w = k}}"
    made = lines_of(
        plan_of(f"{{events: {events}, logic: 'fby(a, b)', {OUTPUTS}}}"), rows("I,N,1,7,2,", "I,N,2,7,0,", "I,N,3,7,200,")
    )
    assert made["q/found"] == ["I,N,0,1,3"]
    assert len(made["bad"]) == 1
    assert '"I,2,7,0,",q/found' in made["bad"][0]


def test_what_fails_for_an_open_match_is_bad_and_not_that_event() -> None:
    events = "{a: {source: s, condition: x < 9 and v = x}, b: {source: s, condition: x >= 9 and (x - v) div v >= 1}}"
    plan = plan_of(f"{{events: {events}, logic: 'fby(a, b)', {OUTPUTS}}}")
    made = lines_of(plan, rows("I,N,1,7,0,", "I,N,2,7,3,", "I,N,3,7,9,"))
    assert made["q/found"] == ["I,N,0,2,3"]
    assert len(made["bad"]) == 1
    assert '"I,3,7,9,",q/found' in made["bad"][0]


def test_a_side_is_evaluated_only_where_the_parts_before_it_are_true() -> None:
    events = "{a: {source: s, condition: v = k}, b: {source: s, condition: x <> 0 and v < 100 div x}}"
    plan = plan_of(f"{{events: {events}, logic: 'fby(a, b)', {OUTPUTS}}}")
    assert "bad" not in lines_of(plan, rows("I,N,1,7,0,", "I,N,2,7,0,", "I,N,3,7,4,"))


def test_texts_are_compared_with_variables_in_every_way() -> None:
    events = "{a: {source: s, condition: x = 1 and t = text}, b: {source: s, condition: x = 2 and text > t and t <> 'm'}}"
    plan = plan_of(f"{{events: {events}, logic: 'fby(a, b)', {OUTPUTS}}}")
    made = lines_of(plan, rows("I,N,1,0,1,k | I,N,2,0,1,m | I,N,3,0,1,z", "I,N,4,0,2,n"))
    assert made["q/found"] == ["I,N,0,1,4"]


@pytest.mark.parametrize("more", ["active: false", ""])
def test_what_is_inactive_takes_no_events(more: str) -> None:
    off = "" if more else "active: false, "
    plan = plan_of(f"{{{off}events: {{a: {{source: s}}, b: {{source: s}}}}, logic: 'fby(a, b)', {OUTPUTS}}}", more)
    assert lines_of(plan, rows("I,N,1,0,0,", "I,N,2,0,0,")) == {}


def test_events_that_are_no_inserts_are_bad() -> None:
    """SPEC A15."""
    plan = plan_of(f"{{events: {{a: {{source: s}}, b: {{source: s}}}}, logic: 'fby(a, b)', {OUTPUTS}}}", source="index: hash")
    made = lines_of(plan, rows("P,N,1,0,0,", "P,N,1,0,1,", "I,N,2,0,0,"))
    assert made["q/found"] == ["I,N,0,1,2"]
    assert [line.split(",")[2] for line in made["bad"]] == ["not-insert", "not-insert"]


FLAT = "{a: {source: s, condition: x = 0 and v = k}, b: {source: s, condition: x = 1 and v = k}}"


def fed(plan: Plan, batches: int, keys: int, per_batch: int) -> tuple[Pipeline, MultiIndex]:
    """Feeds events with random keys: a begins a match, and a later tick ends it."""
    pipeline, random = Pipeline.fresh(plan), np.random.default_rng(5)
    for batch in range(batches):
        text = " | ".join(
            f"I,N,{i},{k},{x},{k}" for i, (k, x) in enumerate(random.integers((0, 0), (keys, 2), (per_batch, 2)).tolist())
        )
        time = (batch + 1) * SECOND
        case = Case(plan, (Message(time, "s", text), Message(time + 1, "", "")), ())
        raw = pa.concat_batches(raw_batches(case))
        at = raw.schema.get_field_index("offset")
        raw = raw.set_column(at, raw.schema.field(at), pa.array(np.asarray(raw["offset"]) + 2 * batch, raw.schema.field(at).type))
        pipeline.feed(Head.from_plan(plan).decode(raw))
    (page,) = [page for page in pipeline._state.pages.values() if MATCHES in page.parts]
    matches = page.parts[MATCHES]
    assert isinstance(matches, MultiIndex)
    return pipeline, matches


def test_keys_that_come_and_go_leave_nothing() -> None:
    plan = plan_of(f"{{events: {FLAT}, logic: 'fby{{3 seconds}}(a, b)', {OUTPUTS}}}")
    _, few = fed(plan, 10, 10**12, 200)
    _, many = fed(plan, 60, 10**12, 200)
    assert many.live <= few.live * 1.3
    assert int(many.rows.pages.rows.state[slots.HIGH]) <= int(few.rows.pages.rows.state[slots.HIGH]) + 2
    assert len(many.lists.by_condition.table) <= 4 * len(few.lists.by_condition.table)
