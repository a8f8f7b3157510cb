"""Traced events of an engine are lines of its log (SPEC A40)."""

from __future__ import annotations

import io
import json

import pyarrow as pa

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.host.definition import PipelineFactory
from hotspare.projects.load import load_text
from hotspare.rows.batch import BAD_STREAM
from hotspare.telemetry.log import Log
from tests.cases.case import Case, Message, raw_batches

PROJECT = """
project: p
queries:
  q:
    trace: [s]
    windows: {s: {type: source, opcodes: any, schema: "id*:int64,name:string"}, c: {type: copy}}
    edges: [s -> c]
"""


def test_each_event_of_a_traced_window_is_a_line_also_after_a_restore(lines: io.StringIO) -> None:
    plan = compile_plan(load_text(PROJECT).resolved)
    messages = (Message(1, "s", "I,N,1,a"), Message(2, "s", "U,N,1,b"))
    decoded = Head.from_plan(plan).decode(pa.concat_batches(raw_batches(Case(plan, messages, ()))))
    factory = PipelineFactory(plan, Log().bind(engine="e1"))
    core = factory.fresh()
    core.feed(pa.Table.from_batches([decoded.slice(0, 1)]))
    frozen = core.freeze()
    factory.restore(frozen.header, dict(frozen.pages())).feed(pa.Table.from_batches([decoded.slice(1, 1)]))
    found = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert {(line["event"], line["engine"], line["window"]) for line in found} == {("trace", "e1", "q/s")}
    assert [line["row"] for line in found] == ["I,N,1,a", "UB,N,1,b", "D,N,1,a"]


REFUSING = """
project: p
queries:
  q:
    windows:
      s: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,x:int64"}
      c: {type: compute, index: empty, schema: "id*:int64,y:int64", outputs: {y: 100 div x}}
      k: {type: copy, publish: true}
    edges: [s -> c, c -> k]
"""


def test_an_engine_that_traces_tells_bad_events_as_the_others_of_its_group_do() -> None:
    """The project is the same one, so the digests have to be: a traced window runs in the core, others may run in the head."""
    plain, traced = (
        compile_plan(load_text(t).resolved) for t in (REFUSING, REFUSING.replace("    windows", "    trace: [c]\n    windows"))
    )
    assert plain.project_hash == traced.project_hash
    bad = []
    for plan in (plain, traced):
        decoded = Head.from_plan(plan).decode(pa.concat_batches(raw_batches(Case(plan, (Message(1, "s", "I,N,1,0"),), ()))))
        bad.append(Pipeline.fresh(plan).feed(decoded)[BAD_STREAM].to_pylist())
    assert bad[0] == bad[1]
