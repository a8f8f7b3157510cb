"""Law of cascades (SPEC K10): a downstream project gives the outputs that it would give if its input were the upstream outputs, at
the times of their causes, and heartbeats. This holds however transactions, messages and batches were cut, and whichever engine
committed them when."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.inbound_role import InboundRole
from hotspare.bus.contract import TICK, Outgoing, Partition
from hotspare.bus.memory import MemoryBus
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.formats import arrow_block
from hotspare.formats.csv.rows import CsvStyle, row_texts
from hotspare.ha.outputs.blocks import MessageSizes
from hotspare.ha.rules.settings import OutputStream
from hotspare.model.types import Field, FieldType, KeyRole
from hotspare.projects.load import load_text
from hotspare.rows.batch import BEAT, EVENT_FORMATS, TEXT_FORMATS, MessageFormat, without_causes
from hotspare.runners.contract import BatchLimits, SourceTopic
from hotspare.runners.local import read_recorded

pytestmark = pytest.mark.law

MS = 1_000
BEFORE = """
project: before
heartbeat: 100 milliseconds
queries:
  q:
    windows:
      rows: {type: source, opcodes: any, schema: "id*:int64,x:double,t:string"}
      recent: {type: copy, retention: {bytime_sliding: 300 milliseconds}, publish: true, beats: included}
    edges: [rows -> recent]
"""
BEHIND = """
project: behind
heartbeat: 200 milliseconds
queries:
  q:
    windows:
      read: {type: source, opcodes: any, schema: "id*:int64,x:double,t:string"READS}
      own: {type: source, schema: "id*:int64,x:double,t:string", opcodes: insert-only, index: empty}
      held: {type: copy, retention: {bytime_sliding: 500 milliseconds}, publish: true}
      counted: {type: aggregate, schema: "t*:string,n:int64,s:double", outputs: {n: ESP_aCount(), s: ESP_aSum(x)}, publish: true}
      pulsed: {type: filter, condition: x > 0, pulse: 400 milliseconds, publish: true}
      both: {type: union, index: empty, publish: true}
    edges: [read -> held, held -> counted, read -> pulsed, read -> both, own -> both]
"""
FIRST = compile_plan(load_text(BEFORE).resolved)
READING = compile_plan(load_text(BEHIND.replace("READS", ", reads: before/q/recent")).resolved)
PLAIN = compile_plan(load_text(BEHIND.replace("READS", "")).resolved)
Given = tuple[int, list[tuple[str, int, int]]]
"""Append time in milliseconds, and events: opcode, key, value; an empty list is a tick."""
STREAM, OUT = "q/recent", "p.before.q.recent.O"
OWN = "p.behind.q.own.I"
EVENTS = st.tuples(st.sampled_from("iupd"), st.integers(1, 4), st.integers(-2, 3))


@st.composite
def scripts(draw: st.DrawFn) -> list[Given]:
    script, time = [], 1_000
    for _ in range(draw(st.integers(1, 25))):
        time += draw(st.sampled_from([0, 3, 40, 100, 350]))
        script.append((time, draw(st.one_of(st.just([]), st.lists(EVENTS, min_size=1, max_size=4)))))
    return script


@dataclass
class Timed:
    """A bus whose append times are set by the test."""

    now_us: int = 0
    bus: MemoryBus = field(init=False)

    def __post_init__(self) -> None:
        self.bus = MemoryBus(lambda: self.now_us)

    def append(self, topic: str, time_us: int, messages: list[Outgoing]) -> None:
        client = self.bus.client("any")
        self.now_us = time_us
        if topic not in client.topics():
            client.create_topic(topic)
        client.append(Partition(topic), messages)


def write(bus: Timed, topic: str, script: list[Given]) -> None:
    for time, events in script:
        text = "".join(f"{opcode},n,{key},{value},t{key % 2}\n" for opcode, key, value in events).encode()
        bus.append(topic, time * MS, [Outgoing(text) if events else TICK])


def run(plan: Plan, bus: Timed, topics: tuple[SourceTopic, ...], limit: int = 10_000) -> dict[str, pa.Table]:
    """Returns the outputs of a project for the messages on its topics."""
    pipeline, made = Pipeline.fresh(plan), dict[str, list[pa.RecordBatch]]()
    pipeline.set_partitions([(i, 0) for i in range(len(topics))])
    for decoded in read_recorded(bus.bus.client("reader"), topics, Head.from_plan(plan), BatchLimits(messages_max=limit)):
        for stream, rows in pipeline.feed(decoded).items():
            made.setdefault(stream, []).append(rows)
    return {stream: pa.Table.from_batches(rows) for stream, rows in made.items()}


def texts(outputs: dict[str, pa.Table]) -> dict[str, list[str]]:
    """Returns the outputs without their numbers, which refer to positions of other topics."""
    return {
        stream: [text for batch in table.to_batches() for text in row_texts(batch, CsvStyle.EXACT)]
        for stream, table in outputs.items()
    }


def blocks(format_: MessageFormat) -> OutputStream:
    return OutputStream(STREAM, OUT, format=format_)


def each_row(format_: MessageFormat) -> OutputStream:
    """Returns a stream with a message for each output."""
    return OutputStream(STREAM, OUT, format=format_, message_key=(Field("id", FieldType.INT64, KeyRole.KEY),))


def commit(bus: Timed, outputs: pa.Table, cuts: list[int], rows_max: int, form: OutputStream, delay_us: int) -> None:
    """Commits outputs as active engines do, in transactions that end at `cuts`, long after the causes."""
    whole, sizes = outputs.combine_chunks().to_batches()[0], MessageSizes(rows_max)
    ends = sorted({min(cut, len(whole)) for cut in cuts} | {len(whole)})
    for begin, end in zip([0, *ends], ends, strict=False):
        if end > begin:
            made = sizes.split_messages([whole.slice(begin, end - begin)], form, 1, arrow_block)
            bus.append(OUT, 10**15 + delay_us * end, [message for block in made for message in block.messages])


def as_input(bus: Timed, topic: str, outputs: pa.Table) -> None:
    """Publishes the outputs as a publisher would: the oracle."""
    (whole,) = outputs.combine_chunks().to_batches()
    lines, times = row_texts(without_causes(whole), CsvStyle.EXACT), whole.column("hs:time").to_pylist()
    opcodes, before = whole.column("hs:opcode").to_pylist(), 0
    for line, opcode, time_us in zip(lines, opcodes, times, strict=True):
        if opcode == BEAT:
            bus.append(topic, time_us, [TICK])
        elif before != 6:
            word, _, values = line.split(",", 2)
            bus.append(topic, time_us, [Outgoing(f"{'u' if opcode == 6 else word},n,{values}\n".encode())])
        before = opcode


@given(
    script=scripts(),
    own=scripts(),
    cuts=st.lists(st.integers(1, 40), max_size=6),
    rows_max=st.integers(1, 9),
    form=st.sampled_from([*(blocks(each) for each in EVENT_FORMATS), *(each_row(each) for each in sorted(TEXT_FORMATS))]),
    limit=st.sampled_from([1, 3, 1_000]),
    delay_us=st.sampled_from([0, 7, 10**9]),
)
def test_a_cascade_equals_the_quiet_run_however_it_was_cut(
    script: list[Given], own: list[Given], cuts: list[int], rows_max: int, form: OutputStream, limit: int, delay_us: int
) -> None:
    bus, plain = Timed(), Timed()
    write(bus, "in", script)
    outputs = run(FIRST, bus, (SourceTopic("in"),), limit).get(STREAM)
    if outputs is None:
        return
    commit(bus, outputs, cuts, rows_max, form, delay_us)
    as_input(plain, "read", outputs)
    inserts = [(time, [("i", *event[1:]) for event in events]) for time, events in own]
    for each in (bus, plain):
        write(each, OWN, inserts)
    topics = (SourceTopic(OWN), SourceTopic(OUT, kind=InboundRole.OUTPUTS))
    assert [str(source) for source in READING.resolved.sources] == ["q/own", "q/read"]
    found = texts(run(READING, bus, topics, limit))
    assert found == texts(run(PLAIN, plain, (SourceTopic(OWN), SourceTopic("read"))))


def test_time_passes_behind_where_nothing_is_put_out() -> None:
    """Each heartbeat causes a beat: the downstream window evicts a row by its age, without any other message."""
    bus = Timed()
    write(bus, "in", [(1_000, [("i", 1, 2)]), *((1_000 + 100 * i, []) for i in range(1, 12))])
    outputs = run(FIRST, bus, (SourceTopic("in"),))[STREAM]
    beats = [t for t, o in zip(outputs["hs:time"].to_pylist(), outputs["hs:opcode"].to_pylist(), strict=True) if o == BEAT]
    assert beats == [(1_000 + 100 * i) * MS for i in range(1, 12)]
    commit(bus, outputs, [], 100, blocks(MessageFormat.ARROW), 1)
    write(bus, OWN, [(10_000, [])])
    held = texts(run(READING, bus, (SourceTopic(OWN), SourceTopic(OUT, kind=InboundRole.OUTPUTS))))["q/held"]
    assert [line.split(",")[0] for line in held] == ["I", "D"]


def test_a_partial_update_stays_one_behind() -> None:
    """A window without rows passes events unchanged: the downstream window keeps the fields that an update lacks."""
    schema = '"id*:int64,x:double,t:string"'
    first = f"{{type: source, opcodes: any, schema: {schema}, index: empty, publish: true, beats: included}}"
    second = f"{{type: source, opcodes: any, schema: {schema}, reads: before/q/recent}}"
    both = f"{{read: {second}, held: {{type: copy, publish: true}}}}"
    before, behind = (
        compile_plan(load_text(text).resolved)
        for text in (
            f"project: before\nqueries: {{q: {{windows: {{recent: {first}}}}}}}",
            f"project: behind\nqueries: {{q: {{windows: {both}, edges: [read -> held]}}}}",
        )
    )
    bus = Timed()
    for row in (b"i,n,1,5,a\n", b"u,p,1,,b\n"):
        bus.append("in", MS, [Outgoing(row)])
    commit(bus, run(before, bus, (SourceTopic("in"),))[STREAM], [], 100, blocks(MessageFormat.ARROW), 1)
    held = texts(run(behind, bus, (SourceTopic(OUT, kind=InboundRole.OUTPUTS),)))["q/held"]
    assert [line.replace(" ", "") for line in held] == ["I,N,1,5,a", "UB,N,1,5,b", "D,N,1,5,a"]
