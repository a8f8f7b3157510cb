"""Refused rows are processed by columns, like good ones: the work in Python does not grow with their number."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType

import pyarrow as pa
import pytest

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.formats import arrow_block
from hotspare.projects.load import load_text
from hotspare.rows.batch import BAD_STREAM, MessageFormat
from tests.flow.head.messages import Message, raw

PROJECT = """
project: p
queries:
  cq:
    windows:
      given: {type: source, INDEX schema: "id*:int64,s:string,x:double,n:int32,t:stamp,m:money", publish: SEEN}
      made: {type: compute, index: empty, schema: "id*:int64,v:int64,w:double", outputs: {v: "EXPRESSION", w: x}, publish: true}
    edges: [given -> made]
"""
KEYED, ANY, INSERTS = "index: hash,", "opcodes: any, index: empty,", "opcodes: insert-only,"
ROW = "{opcode},n,{id},s{id},0.5,{n},7,1.25"


def calls(work: Callable[[], object]) -> int:
    """Returns the count of function calls, in Python and in C."""
    count = 0

    def seen(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def joined(rows: Iterable[str]) -> bytes:
    """Returns the rows, one per line; arrays as one array."""
    return "\n".join(rows).replace("]\n[", ",").encode()


@pytest.mark.parametrize(
    ("index", "seen", "expression", "row"),
    [
        (KEYED, "true", "n", ROW.format(opcode="u", id="{i}", n=1)),
        (KEYED, "true", "n", ROW.format(opcode="i", id="", n=1)),
        (KEYED, "true", "n", ROW.format(opcode="i", id="1", n=1)),
        (INSERTS, "true", "n", ROW.format(opcode="p", id="{i}", n=1)),
        (INSERTS, "false", "n", ROW.format(opcode="p", id="{i}", n=1)),
        (INSERTS, "true", "10 div n", ROW.format(opcode="i", id="{i}", n=0)),
        (INSERTS, "false", "10 div n", ROW.format(opcode="i", id="{i}", n=0)),
        (INSERTS, "true", "n * 9223372036854775807", ROW.format(opcode="i", id="{i}", n=5)),
        (INSERTS, "false", "n * 9223372036854775807", ROW.format(opcode="i", id="{i}", n=5)),
        (INSERTS, "true", "n", ROW.format(opcode="x", id="{i}", n=5)),
        (INSERTS, "true", "n", ROW.format(opcode="i", id="{i}", n="five{i}")),
        (INSERTS, "true", "n", ROW.format(opcode="i", id="{i}", n=99_999_999_999)),
        (INSERTS, "true", "n", ROW.format(opcode="i", id="{i}", n=5).replace("1.25", "1.23456")),
        (INSERTS, "true", "n", ROW.format(opcode="i", id="{i}", n=5).replace(",7,", ",2023-02-29,")),
        (INSERTS, "true", "n", "i,n,{i},too,few"),
        (INSERTS, "true", "n", 'i,n,{i},"a ""quoted"" word",0.5,five,7,1.25'),
        (INSERTS, "true", "n", '{{"id":{i},"n":"five{i}"}}'),
        (INSERTS, "true", "n", '{{"id":{i},"opcode":"x"}}'),
        (INSERTS, "true", "n", '{{"id":{i},"s":5}}'),
        (INSERTS, "true", "n", '{{"id" {i}}}'),
        (INSERTS, "true", "n", '{{"id":{i},"s":"cut'),
        (INSERTS, "true", "n", '[{{"id":{i},"n":"five{i}"}}]'),
        (INSERTS, "true", "n", '[{{"id":{i},"s":5}}]'),
    ],
)
def test_the_work_for_refused_rows_does_not_grow_with_their_number(index: str, seen: str, expression: str, row: str) -> None:
    text = PROJECT.replace("INDEX", index).replace("SEEN", seen).replace("EXPRESSION", expression)
    number = MessageFormat.JSON if row.startswith(("{", "[")) else MessageFormat.CSV
    plan = compile_plan(load_text(text).resolved)
    head, counts = Head.from_plan(plan), []
    for rows in (400, 100, 400):  # at first everything is loaded
        message = Message(0, joined(row.format(i=i) for i in range(rows)), number)
        pipeline = Pipeline.fresh(plan)
        refused = 0

        def work(message: Message = message, pipeline: Pipeline = pipeline) -> None:
            nonlocal refused
            refused = pipeline.feed(head.decode(raw([message])))[BAD_STREAM].num_rows

        counts.append(calls(work))
        assert refused >= rows - 1
    assert counts[2] - counts[1] < 100, counts


def test_refused_rows_of_blocks_add_no_work_per_message() -> None:
    """Each block is read by itself; refused rows of all blocks are processed together."""
    head = Head.from_plan(
        compile_plan(load_text(PROJECT.replace("INDEX", INSERTS).replace("SEEN", "true").replace("EXPRESSION", "n")).resolved)
    )

    def work(messages: int, opcode: int) -> int:
        columns = {"opcode": [opcode] * 9, "id": range(9), "s": ["s"] * 9, "x": [0.5] * 9, "n": [1] * 9, "t": [1] * 9, "m": [1] * 9}
        types = {"n": pa.int32(), "t": pa.timestamp("us"), "m": pa.decimal128(18, 4)}
        block = pa.RecordBatch.from_pydict({name: pa.array(values, types.get(name)) for name, values in columns.items()})
        given = raw([Message(0, arrow_block.encode(block), MessageFormat.ARROW)] * messages)
        return calls(lambda: head.decode(given))

    work(10, 9), work(10, 1)  # at first everything is loaded
    more = [work(messages, 9) - work(messages, 1) for messages in (10, 40)]
    assert abs(more[1] - more[0]) < 30, more
