"""The state of groups in a transpose window, and the projects that it refuses (SPEC A32)."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pytest

from hotspare.base.errors import ProjectError
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.projects.load import load_text
from hotspare.rows.tuning import Tuning, tuning_override
from hotspare.table.relation import Relation
from hotspare.windows.transpose.operator import GROUPS
from tests.cases.case import Case, Message, raw_batches

PROJECT = """
project: p
queries:
  q:
    windows:
      given:
        {{type: source, index: empty, {source}, schema: "id*:int64,g:int64,tag:string,x:double,a_x:double,b_x:int64"}}
      made: {{type: transpose, {options}}}
    edges: [given -> made]
"""
WIDE = "mode: wide, tag: tag, tags: [z], values: [x]"


@tuning_override(Tuning(page_slots=16))
def test_groups_that_come_and_go_take_no_memory_in_the_end() -> None:
    options = f"index: empty, {WIDE}, group_by: [g], clear_timeout: 1 second"
    plan = compile_plan(load_text(PROJECT.format(source="opcodes: insert-only", options=options)).resolved)
    messages: list[Message] = []
    for second in range(0, 60, 2):
        rows = " | ".join(f"I,N,{i},{i},z,1,," for i in range(100 * second, 100 * second + 100))
        messages += [Message(second * 1_000_000, "given", rows), Message((second + 1) * 1_000_000, "", "")]
    pipeline, head = Pipeline.fresh(plan), Head.from_plan(plan)
    groups = cast(Relation, pipeline._state.pages["q/made#0"].parts[GROUPS])
    most = 0
    for raw in raw_batches(Case(plan, tuple(messages), ())):
        pipeline.feed(head.decode(pa.concat_batches([raw])))
        most = max(most, groups.pages.slots_used)
    assert groups.live == 0
    assert most <= 16 * 20


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("opcodes: insert-only", "mode: wide, tag: x, tags: [a], values: [x]", "the tag field x of window made is double"),
        ("opcodes: insert-only", "mode: wide, tag: tag, tags: [a, a], values: [x]", "window made names the tag a twice"),
        ("opcodes: insert-only", "mode: wide, tag: tag, tags: [a], values: [id]", "makes columns of the field id, which is a key"),
        ("opcodes: insert-only", "mode: wide, tag: tag, tags: [a], values: [y]", "window made uses the unknown field 'y'"),
        ("opcodes: insert-only", "mode: wide, tag: tag, tags: [a b], values: [x]", "has a field name 'a b_x'"),
        ("opcodes: insert-only", f"{WIDE}, group_by: [x]", "groups by the field x, of which it makes columns"),
        ("opcodes: insert-only", "mode: wide, tag: tag, values: [x]", "has no tags"),
        ("opcodes: insert-only", "mode: long, tag: t, tags: [a, b], values: [x]", "are of several types: double, int64"),
        ("opcodes: insert-only", "mode: long, tag: t, tags: [a, c], values: [x]", "looks for the field 'c_x'"),
        ("opcodes: insert-only", "mode: long, tag: t, tags: [a], values: [x], group_by: [g]", "is long and has fields to group by"),
        ("opcodes: any", f"index: empty, {WIDE}", "has the index pi_EMPTY"),
        ("opcodes: insert-only", f"{WIDE}, clear_timeout: soon", "clear-timeout: 'soon' is not a duration"),
    ],
)
def test_what_cannot_be_transposed_is_refused(source: str, options: str, said: str) -> None:
    with pytest.raises(ProjectError) as caught:
        compile_plan(load_text(PROJECT.format(source=source, options=options)).resolved)
    assert any(said in mistake.message for mistake in caught.value.mistakes), caught.value.mistakes
