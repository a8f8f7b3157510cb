"""Random input for the engine core: one project that has every stateful window, and scripts of messages and ticks for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pyarrow as pa
from hypothesis import strategies as st

from hotspare.engine.head import Head
from hotspare.engine.pipeline import Pipeline
from hotspare.engine.plan import Plan, compile_plan
from hotspare.model.load import load_text
from tests.cases.case import Case, Message, raw_batches

PROJECT = """
project: everything
queries:
  cq:
    windows:
      loose: {type: source, index: empty, schema: "id*:string,at:stamp,x:double,s:string"}
      keyed: {type: source, schema: "id*:string,at:stamp,x:double,s:string"}
      made: {type: copy, retention: {bycount_sliding: 3}}
      jumped: {type: copy, retention: {bycount_jumping: 3}}
      slid: {type: copy, retention: {bytime_sliding: 2 seconds}}
      slid_by_event: {type: copy, retention: {bytime_sliding: 2 seconds, field: at}}
      jumped_by_time: {type: copy, retention: {bytime_jumping: 2 seconds}}
      jumped_by_event: {type: copy, retention: {bytime_jumping: 2 seconds, field: at}}
      looked_back: {type: copy, retention: {bytime_jumping_lookback: 1 second, unit: minute}}
      counted: {type: functional, schema: "id*:string,x:double,n:int64", functions: {n: eventCounter()}}
      newest:
        type: calculate
        algorithm: Summary
        schema: "id*:string,x:double,sum:double,css:double,least:double"
        parameters: {windowLength: 3}
        inputs: {input: x}
        outputs: {sumOut: sum, cssOut: css, minOut: least}
      all:
        type: calculate
        algorithm: Summary
        schema: "id*:string,x:double,sum:int64,css:double"
        inputs: {input: x}
        outputs: {sumOut: sum, cssOut: css}
    edges: [loose -> made, loose -> jumped, loose -> slid, loose -> slid_by_event, loose -> jumped_by_time,
            keyed -> jumped_by_event, keyed -> looked_back, slid -> counted, made -> newest, keyed -> all]
"""


@cache
def plan() -> Plan:
    return compile_plan(load_text(PROJECT).resolved)


def _rows() -> st.SearchStrategy[str]:
    field = st.tuples(
        st.sampled_from(["I", "I", "P", "P", "U", "D", "SD"]),
        st.sampled_from(["N", "N", "N", "P"]),
        st.sampled_from(["a", "b", "c", "d", "e", ""]),
        st.one_of(st.integers(0, 8_000_000).map(str), st.just("")),
        st.sampled_from(["", "0.1", "0.7", "-3", "1e300", "12.25", "wrong"]),
        st.text("xyzé", max_size=3),
    )
    return st.lists(field.map(",".join), min_size=1, max_size=4).map(" | ".join)


@st.composite
def scripts(draw: st.DrawFn) -> Case:
    """Messages for both sources and ticks; append times rise mostly, and fall now and then, as clocks do."""
    messages: list[Message] = []
    time_us = 1_000_000
    for _ in range(draw(st.integers(1, 14))):
        time_us += draw(st.sampled_from([0, 1, 300_000, 900_000, 2_500_000, 30_000_000, -400_000]))
        source = draw(st.sampled_from(["loose", "loose", "keyed", ""]))
        messages.append(Message(max(time_us, 0), source, draw(_rows()) if source else ""))
    messages.append(Message(time_us + 5_000_000, "", ""))
    return Case(plan(), tuple(messages), ())


def decoded(case: Case) -> pa.RecordBatch:
    """All rows of a script, in order of arrival."""
    return Head.of(case.plan).decode(pa.concat_batches(raw_batches(case)))


def joined(outputs: Sequence[dict[str, pa.RecordBatch]]) -> dict[str, pa.Table]:
    """The outputs of each stream, whatever batches they came in."""
    names = sorted({name for by in outputs for name in by})
    return {name: pa.Table.from_batches([by[name] for by in outputs if name in by]).combine_chunks() for name in names}


def snapshot_bytes(pipeline: Pipeline) -> bytes:
    frozen = pipeline.freeze()
    return frozen.header + b"".join(name.encode() + page for name, page in frozen.pages())
