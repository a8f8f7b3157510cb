"""The head: decodes any raw message, elementwise, and runs stateless windows."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import ProjectError
from hotspare.expressions import compiled
from hotspare.expressions.tree import Tree
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.formats import arrow_block
from hotspare.formats.csv.decode import CsvOptions
from hotspare.model.events import Flag, Opcode
from hotspare.model.project import Publication, WindowId
from hotspare.projects.load import load_text
from hotspare.projects.resolve import resolve
from hotspare.rows.batch import MessageFormat, RowKind, decoded_schema
from hotspare.windows.shared.contract import BadReason
from hotspare.windows.shared.expressions import expression_mistakes
from tests.flow.head.messages import PRICED, READINGS, TRADES, Message, project, raw

READINGS_TOPIC, TRADES_TOPIC = 0, 1
PLAIN = Head.build(resolve(project()))
CHAINED_PLAN = compile_plan(resolve(project()))
CHAINED = Head.from_plan(CHAINED_PLAN)


def block(**columns: pa.Array) -> bytes:
    return arrow_block.encode(pa.RecordBatch.from_pydict(columns))


BLOCK = block(
    opcode=pa.array([1, 1, 9]),
    flags=pa.array([1, 1, 1]),
    id=pa.array([1, 4, 5]),
    price=pa.array([50.0, 0.0, 1.0]),
    name=pa.array(["1", "2", "3"]),
)
TRADE_ROWS = [
    b"i,n,1,50,7",
    b"i,n,2,0,7",
    b"i,n,3,50,7",
    b"u,n,4,5,7",
    b"i,n,4,50,x",
    b"d,n,5,50,8",
    b"i,n,,50,8",
    b"ub,n,6,50,8",
    b"ub,n,,50,8",
    b"i,n,6,20,9\ni,n,7,nonsense,9\n\ni,n,8,30,10",
    b'i,n,9,40,"11"',
    b"",
]
MESSAGES = st.one_of(
    st.sampled_from([None, *TRADE_ROWS]).map(lambda v: Message(TRADES_TOPIC, v)),
    st.sampled_from([None, b"i,n,a,5", b"p,n,b,2024-01-01", b"i,n", b"\xff", b"i,n,a,5\nd,n,a,\n"]).map(
        lambda v: Message(READINGS_TOPIC, v)
    ),
    st.sampled_from([BLOCK, BLOCK[:40], b"", b"x"]).map(lambda v: Message(TRADES_TOPIC, v, MessageFormat.ARROW)),
    st.just(Message(TRADES_TOPIC, b"?", 7)),
    st.binary(max_size=6).map(lambda v: Message(READINGS_TOPIC, v, partition=3)),
)


@pytest.mark.parametrize("head", [PLAIN, CHAINED], ids=["decoding", "with a chain"])
@given(messages=st.lists(MESSAGES, max_size=10), data=st.data())
def test_cut(head: Head, messages: list[Message], data: st.DataObject) -> None:
    """Law Cut for the head: decode(a + b) is decode(a) + decode(b)."""
    whole = raw(messages)
    decoded = head.decode(whole)
    decoded.validate(full=True)
    assert decoded.schema == head.schema
    cut = data.draw(st.integers(0, len(messages)))
    parts = [head.decode(whole.slice(0, cut)), head.decode(whole.slice(cut))]
    assert pa.Table.from_batches(parts).to_pylist() == decoded.to_pylist()


@given(messages=st.lists(MESSAGES, max_size=8))
def test_rows_stand_in_order_and_every_tick_is_one(messages: list[Message]) -> None:
    rows = CHAINED.decode(raw(messages)).to_pylist()
    places = [(row["offset"], row["index"]) for row in rows]
    assert places == sorted(set(places))
    ticks = {row["offset"]: row["index"] for row in rows if row["kind"] == RowKind.TICK}
    assert ticks == {offset: 0 for offset, m in enumerate(messages) if m.value is None}
    for row in rows:
        source = messages[row["offset"]]
        assert (row["topic"], row["partition"], row["time_us"]) == (source.topic, source.partition, 1_000 * row["offset"])
        content = {RowKind.EVENT: f"e{row['topic']}", RowKind.BAD: "bad"}.get(RowKind(row["kind"]))
        assert [name for name in ("e0", "e1", "bad") if row[name] is not None] == ([content] if content else [])


def test_decoded_rows_are_what_the_contract_says() -> None:
    head = PLAIN
    assert head.schema == decoded_schema([READINGS, TRADES])
    rows = head.decode(
        raw([Message(1, b"i,n,1,2.5,x\nu,p,2,,\nq,n,3,1,x"), Message(0, b"d,r,a,7"), Message(1, None), Message(0, b"")], 40)
    ).to_pylist()
    shape = [(r["topic"], r["offset"], r["index"], r["kind"], r["opcode"], r["flags"]) for r in rows]
    assert shape == [
        (1, 40, 0, RowKind.EVENT, Opcode.INSERT, Flag.NORMAL),
        (1, 40, 1, RowKind.EVENT, Opcode.UPDATE, Flag.PARTIAL),
        (1, 40, 2, RowKind.BAD, 0, 0),
        (0, 41, 0, RowKind.EVENT, Opcode.DELETE, Flag.RETENTION),
        (1, 42, 0, RowKind.TICK, 0, 0),
    ]
    assert rows[0]["e1"] == {"id": 1, "price": 2.5, "name": "x"}
    assert rows[1]["e1"] == {"id": 2, "price": None, "name": None}
    assert rows[2]["bad"] == {
        "reason": "opcode",
        "message": "window cq/trades, row 2: 'q' is not an opcode (i, u, p, d, sd)",
        "text": "q,n,3,1,x",
        "window": "cq/trades",
    }


def test_no_messages_are_no_rows() -> None:
    assert [batch.num_rows for batch in PLAIN(raw([]))] == [0]


def test_a_batch_of_many_small_messages_is_decoded_at_once() -> None:
    """The rows equal those of one block."""
    lines = [f"i,n,{i},{i / 7},name{i % 5}".encode() for i in range(2_000)]
    many, one = PLAIN.decode(raw([Message(1, line) for line in lines])), PLAIN.decode(raw([Message(1, b"\n".join(lines))]))
    assert many.column("e1") == one.column("e1")
    assert one.column("index").to_pylist() == list(range(2_000))


def test_it_travels() -> None:
    messages = [Message(1, row) for row in TRADE_ROWS]
    twin = pickle.loads(pickle.dumps(CHAINED))
    assert twin == CHAINED
    assert twin.decode(raw(messages)).equals(CHAINED.decode(raw(messages)))


def test_it_needs_neither_numba_nor_spark() -> None:
    """The head starts in Spark's workers, where loading them would cost a second."""
    code = (
        "import pickle, sys; head = pickle.load(sys.stdin.buffer); import hotspare.flow.head.head;"
        "print(sorted(m for m in ('numba', 'pyspark') if m in sys.modules))"
    )
    source = Path(__file__).parents[3] / "src"
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(CHAINED), env={"PYTHONPATH": str(source)}, capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == "[]"


def test_options_are_those_of_their_topic() -> None:
    head = Head.build(
        resolve(project()), {WindowId("cq", "trades"): CsvOptions(delimiter=";", opcode=Opcode.INSERT, flags=Flag.NORMAL)}
    )
    rows = head.decode(raw([Message(1, b"1;2.5;a,b"), Message(0, b"i,n,a,5")])).to_pylist()
    assert [row["kind"] for row in rows] == [RowKind.EVENT, RowKind.EVENT]
    assert rows[0]["e1"]["name"] == "a,b"


def test_the_chain_is_that_of_the_plan() -> None:
    chain = tuple(WindowId("cq", name) for name in ("trades", "large", "halves"))
    assert CHAINED_PLAN.head_chains == ((), chain)
    assert CHAINED.schema == decoded_schema([READINGS, PRICED])


def test_mistakes_of_a_chain_are_those_of_its_windows() -> None:
    broken = project()
    query = broken.queries[0]
    windows = tuple(
        w if w.name != "large" else type(w)(name="large", condition=type(w.condition)("priec > 1", w.condition.dialect))
        for w in query.windows
    )  # type: ignore[union-attr]
    resolved = resolve(type(broken)("p", (type(query)("cq", windows, query.edges),)))
    with pytest.raises(ProjectError, match="unknown field priec"):
        compile_plan(resolved)


def outputs(plan: Plan, messages: list[Message]) -> tuple[list[object], list[object]]:
    """Returns the outputs of `kept` and the bad events, without ordinals and digests."""
    pipeline = Pipeline.fresh(plan)
    pipeline.set_partitions({(1, 0)})
    found = pipeline.feed(Head.from_plan(plan).decode(raw([*messages, Message(1, None)])))
    kept, bad = (found[name].to_pylist() if name in found else [] for name in ("cq/kept", "bad"))
    shape = [(r["hs:offset"], r["hs:index"], r["hs:opcode"], r["hs:flags"], r["id"], r["half"], r["size"]) for r in kept]
    return shape, bad


@given(rows=st.lists(st.sampled_from(TRADE_ROWS[:5] + TRADE_ROWS[6:]), max_size=6))
def test_windows_in_the_head_do_what_they_do_in_the_core(rows: list[bytes]) -> None:
    """Publishing a window moves those behind it into the core; other outputs do not change, nor any byte of the bad events."""
    messages = [Message(1, row) for row in rows]
    in_head = compile_plan(resolve(project()))
    in_core = compile_plan(resolve(project(filter_published=Publication.PUBLISHED)))
    assert in_head.head_chains[1] and not in_core.head_chains[1][2:]
    assert outputs(in_head, messages) == outputs(in_core, messages)


def test_reasons_are_those_of_the_core() -> None:
    rows = CHAINED.decode(raw([Message(1, b"i,n,,50,8\ni,n,1,0,8\ni,n,4,50,x\nu,n,6,50,8")])).to_pylist()
    reasons = [(row["bad"]["reason"], row["bad"]["window"]) for row in rows]
    assert reasons == [
        (BadReason.NULL_KEY, "cq/trades"),
        (BadReason.EXPRESSION, "cq/large"),
        (BadReason.EXPRESSION, "cq/halves"),
        (BadReason.NOT_INSERT, "cq/trades"),
    ]
    last = {
        "reason": BadReason.NOT_INSERT,
        "message": "the window takes inserts only; set opcodes: any to take updates and deletes",
        "text": "U,6,50.0,8",
        "window": "cq/trades",
    }
    assert rows[-1]["bad"] == last


def test_the_place_of_a_message_stays_when_its_last_event_is_dropped() -> None:
    """The input's position and time do not depend on what the head drops."""
    rows = CHAINED.decode(
        raw([Message(1, b"i,n,1,1,8"), Message(1, b"i,n,1,50,8\ni,n,2,1,8"), Message(1, b"i,n,2,1,8\ni,n,1,50,8")])
    )
    shape = [(row["offset"], row["index"], row["kind"]) for row in rows.to_pylist()]
    assert shape == [
        (0, 0, RowKind.DROPPED),
        (1, 0, RowKind.EVENT),
        (1, 1, RowKind.DROPPED),
        (2, 1, RowKind.EVENT),
    ]


@pytest.mark.parametrize("head", [PLAIN, CHAINED], ids=["decoding", "with a chain"])
def test_only_a_message_of_several_rows_says_which_one_is_bad(head: Head) -> None:
    good, wrong = b"i,n,1,50,7", b"q,n,1,50,7"
    values = [wrong, good, good + b"\n" + wrong, wrong + b"\n" + wrong]
    rows = head.decode(raw([Message(TRADES_TOPIC, value) for value in values])).to_pylist()
    sentences = [row["bad"]["message"].partition(":")[0] for row in rows if row["bad"] is not None]
    assert sentences == [f"window cq/trades{number}" for number in ("", ", row 1", ", row 0", ", row 1")]


def test_an_expression_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the project, its plan and its head share one parse."""
    text = """
project: once
queries:
  cq:
    windows:
      source: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,x:double"}
      some: {type: filter, index: empty, condition: "x > 1 and x < 4711"}
      made: {type: compute, index: empty, schema: "id*:int64,y:double", outputs: {y: x * 4711}}
      kept: {type: copy}
    edges: [source -> some -> made -> kept]
"""
    read: list[str] = []
    parse = compiled.parse

    def noting(expression: str, *rest: object) -> Tree:
        read.append(expression)
        return parse(expression, *rest)

    monkeypatch.setattr(compiled, "parse", noting)
    plan = compile_plan(load_text(text, expressions=expression_mistakes).resolved)
    assert Head.from_plan(plan).decode(raw([Message(0, b"i,n,1,2")])).num_rows == 1
    assert read == ["x > 1 and x < 4711", "x * 4711"]
