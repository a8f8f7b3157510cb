"""Law of slots: the outputs of one slot fold to the window's rows with that slot, after every event (SPEC A34)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.plan import compile_plan
from hotspare.projects.load import load_text
from tests.cases.case import Case, Message
from tests.examples import examples
from tests.laws.model_windows import Event, Index, Limits, Refused, Row, folded
from tests.laws.test_cut import fed
from tests.laws.test_every_window import decoded
from tests.laws.test_relations import Given, as_text, run, scripts

pytestmark = pytest.mark.law

PROJECT = """
project: p
queries:
  q:
    windows:
      w0: {{type: source, opcodes: any, schema: "id*:int64,x:int64,s:string,at:stamp"{source}}}
      kept: {{type: copy, splitter: "{splitter}"{kept}, publish: true}}
      none: {{type: copy, index: empty, publish: true}}
      one: {{type: copy, index: empty, publish: true}}
      two: {{type: filter, index: empty, condition: "true", publish: true}}
    edges: [w0 -> kept, kept -> none slot 0, kept -> one slot 1, kept -> two slot 2]
"""
SLOTS = {"none": 0, "one": 1, "two": 2}
SPLITTERS = {
    "x": lambda row: row[1],
    "x = 2": lambda row: None if row[1] is None else int(row[1] == 2),
    "id - 1": lambda row: row[0] - 1,
    "case when s = 'a' then -1 else x end": lambda row: -1 if row[2] == "a" else row[1],
    "6 div x": lambda row: None if not row[1] else int(6 / row[1]),
}


@given(st.sampled_from(sorted(SPLITTERS)), st.sampled_from([None, 1, 3]), scripts())
def test_slots(splitter: str, newest: int | None, script: list[Given]) -> None:
    kept = "" if newest is None else f", retention: {{bycount_sliding: {newest}}}"
    plan = compile_plan(load_text(PROJECT.format(source="", splitter=splitter, kept=kept)).resolved)
    made, _ = run(plan, script)
    table = Index(None if newest is None else Limits("bycount_sliding", newest))
    source = Index()
    rows: dict[str, dict[int, Row]] = {name: {} for name in SLOTS}
    for offset, (time, events) in enumerate(script):
        for index, event in enumerate(events):
            for resolved in _taken(source, event, time):
                _taken(table, resolved, time)
            for name, slot in SLOTS.items():
                folded(rows[name], made.get((offset, index), {}).get(name, []))
                has = {key: row for key, (row, _) in table.rows.items() if SPLITTERS[splitter](row) in (slot, -1)}
                assert rows[name] == has, (name, offset, index)


def _taken(index: Index, event: Event, time: int) -> list[Event]:
    try:
        made = index.take(event, time)
    except Refused as refused:
        made = refused.made
    return [each for at, each in enumerate(made) if not (at and made[at - 1].opcode == "UB")]


@examples(0.35)
@given(st.sampled_from(sorted(SPLITTERS)), scripts())
def test_cut(splitter: str, script: list[Given]) -> None:
    """Law Cut: slots follow from rows."""
    plan = compile_plan(load_text(PROJECT.format(source="", splitter=splitter, kept="")).resolved)
    case = Case(plan, tuple(Message(time, "w0" if events else "", " | ".join(map(as_text, events))) for time, events in script), ())
    rows = decoded(case)
    assert fed(case, [rows.slice(i, 1) for i in range(rows.num_rows)]) == fed(case, [rows])
