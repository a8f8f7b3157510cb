"""The limit of one value is the same in windows with and without variables, for any number of events at once (SPEC A24)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from hotspare.expressions.compiled import VALUE_TOO_LONG
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from tests.cases.case import Case, Message, raw_batches
from tests.laws.test_cut import cut

MILLION = 'repeat("ab", 500000)'
PROJECT = """
project: p
queries:
  q:
    windows:
      s: {{type: source, index: empty, opcodes: insert-only, schema: "id*:int64,times:int64"}}
      c:
        type: compute
        index: empty
        schema: "id*:int64,size:string"
        initialize: {{code: integer n = 0}}
        outputs: {{size: {{esp: '{code}'}}}}
    edges: [s -> c]
"""
MADE = f"if times > 16 then return {' & '.join([MILLION] * 17)} return string(times)"


def plan_of(code: str) -> Plan:
    return compile_plan(load_text(PROJECT.format(code=code)).resolved)


@pytest.mark.parametrize("code", [MADE, f"n = n + 1 {MADE}"], ids=["columns", "one after the other"])
@pytest.mark.parametrize("places", [[], [1, 2, 3]], ids=["together", "each alone"])
def test_a_text_that_no_message_could_carry_is_a_bad_event(code: str, places: list[int]) -> None:
    plan = plan_of(code)
    case = Case(plan, (Message(0, "s", "I,N,1,1 | I,N,2,17 | I,N,3,2 | I,N,4,18"),), ())
    rows = Head.from_plan(plan).decode(pa.concat_batches(raw_batches(case)))
    pipeline, made, bad = Pipeline.fresh(plan), [], []
    for piece in cut(rows, places):
        outputs = pipeline.feed(piece)
        made += outputs["q/c"].column("size").to_pylist() if "q/c" in outputs else []
        bad += outputs["bad"].column("message").to_pylist() if "bad" in outputs else []
    assert made == ["1", "2"]
    assert len(bad) == 2
    assert all(VALUE_TOO_LONG in message for message in bad)


@pytest.mark.parametrize("code", [MADE, f"n = n + 1 {MADE}"], ids=["columns", "one after the other"])
def test_so_many_that_an_array_could_not_hold_them_are_bad_events_each(code: str) -> None:
    """Together they have more than 2 GiB; each fails or passes by itself."""
    plan = plan_of(code)
    case = Case(plan, (Message(0, "s", " | ".join(f"I,N,{number},17" for number in range(128))),), ())
    outputs = Pipeline.fresh(plan).feed(Head.from_plan(plan).decode(pa.concat_batches(raw_batches(case))))
    assert outputs.keys() == {"bad"}
    assert outputs["bad"].column("reason").to_pylist() == ["expression"] * 128
