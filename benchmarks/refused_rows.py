"""What a refused row costs beside a good one: from messages to output batches, head and core, in one process.

Each path by which a row is refused is fed with rows of which all are refused, and the same windows with rows of which none is, in
the same format. Medians over repetitions, taken in turn, in microseconds of processor time per row. The last line tells the way
that costs most; the exit status is 1 where that is more than the goal.

    python -m benchmarks.refused_rows [--rows 60000] [--repeat 5] [--goal 2.0] [--only WORDS]
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import fastavro
import pyarrow as pa
from benchmarks._messages import raw

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.formats import arrow_block
from hotspare.projects.load import load_text
from hotspare.rows.batch import BAD_STREAM, MessageFormat

SCHEMA = "id*:int64,user:string,price:double,size:int32,at:stamp"
KEYED = f"""
project: keyed
queries:
  cq:
    windows:
      given: {{type: source, opcodes: any, schema: "{SCHEMA}", publish: true}}
      kept: {{type: copy, index: empty}}
    edges: [given -> kept]
"""
PASSED = f"""
project: passed
queries:
  cq:
    windows:
      given: {{type: source, index: empty, opcodes: insert-only, schema: "{SCHEMA}", publish: true}}
      kept: {{type: copy, index: empty}}
    edges: [given -> kept]
"""
COMPUTED = f"""
project: computed
queries:
  cq:
    windows:
      given: {{type: source, index: empty, opcodes: insert-only, schema: "{SCHEMA}", publish: SEEN}}
      made: {{type: compute, schema: "id*:int64,user:string,n:int64", outputs: {{user: user, n: EXPRESSION}}, publish: true}}
    edges: [given -> made]
"""
MESSAGE_ROWS = 100
Row: TypeAlias = Callable[[int], Any]


def good(i: int) -> str:
    return f"i,n,{i},user{i % 1000},{i % 977}.25,{i % 50 + 10},{1_700_000_000_000_000 + i}"


def dated(i: int, day: int) -> str:
    """With a day of February for the time."""
    return f"{good(i).rpartition(',')[0]},2023-02-{day} 10:{i % 60:02}:00"


def mixed(i: int) -> dict[str, Any]:
    """What Arrow's parser refuses in every second row, and takes in the others."""
    return {"user": i} if i % 2 else {"opcode": "x"}


def quoted(i: int) -> str:
    return f'i,n,{i},"us""er{i % 1000}",{i % 977}.25,{i % 50 + 10},{1_700_000_000_000_000 + i}'


def member(i: int) -> dict[str, Any]:
    """The same as an object or record."""
    event = {"id": i, "user": f"user{i % 1000}", "price": i % 977 + 0.25, "size": i % 50 + 10, "at": 1_700_000_000_000_000 + i}
    return {"opcode": "i", "flags": "n", **event}


def changed(**others: object) -> Row:
    return lambda i: member(i) | others


def computed(expression: str, seen: str) -> str:
    return COMPUTED.replace("EXPRESSION", expression).replace("SEEN", seen)


def in_csv(rows: Sequence[str]) -> bytes:
    return "\n".join(rows).encode("latin-1")


def in_lines(rows: Sequence[dict[str, Any]]) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def in_array(rows: Sequence[dict[str, Any]]) -> bytes:
    return json.dumps(rows).encode()


def cut_short(rows: Sequence[dict[str, Any]]) -> bytes:
    """Lines that are no JSON."""
    return "\n".join(json.dumps(row).replace('": ', '" ', 1) for row in rows).encode()


def in_avro(rows: Sequence[dict[str, Any]]) -> bytes:
    types = {"opcode": "string", "flags": "string", "id": "long", "user": "string", "price": "double", "size": "long", "at": "long"}
    record = {"type": "record", "name": "event", "fields": [{"name": name, "type": type_} for name, type_ in types.items()]}
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(record), rows)
    return sink.getvalue()


def in_arrow(rows: Sequence[dict[str, Any]]) -> bytes:
    codes = [row | {"opcode": {"i": 1}.get(row["opcode"], 9), "flags": 1} for row in rows]
    types = {"opcode": pa.uint8(), "flags": pa.uint8(), "size": pa.int32(), "at": pa.timestamp("us")}
    columns = {name: pa.array([row[name] for row in codes], types.get(name)) for name in codes[0]}
    return arrow_block.encode(pa.RecordBatch.from_pydict(columns))


@dataclass(frozen=True)
class Way:
    """How rows are refused: `before` is fed first and not measured."""

    name: str
    project: str
    wrong: Row
    right: Row = good
    before: Row | None = None
    pack: Callable[[Sequence[Any]], bytes] = in_csv
    format: MessageFormat = MessageFormat.CSV
    pack_wrong: Callable[[Sequence[Any]], bytes] | None = None


JSON = MessageFormat.JSON
TIMES = "size * 9223372036854775807"
WAYS = (
    Way("key exists", KEYED, good, lambda i: "p" + good(i)[1:], good),
    Way("key unknown", KEYED, lambda i: "u" + good(i)[1:]),
    Way("key null", KEYED, lambda i: good(i).replace(f"i,n,{i},", "i,n,,")),
    Way("not an insert, core", PASSED, lambda i: "p" + good(i)[1:]),
    Way("not an insert, head", computed("size", "false"), lambda i: "p" + good(i)[1:]),
    Way("division by zero, core", computed("id div (size - 7)", "true"), lambda i: good(i).replace(f",{i % 50 + 10},", ",7,")),
    Way("division by zero, head", computed("id div (size - 7)", "false"), lambda i: good(i).replace(f",{i % 50 + 10},", ",7,")),
    Way("overflow, core", computed(TIMES, "true"), good, lambda i: good(i).replace(f",{i % 50 + 10},", ",1,")),
    Way("overflow, head", computed(TIMES, "false"), good, lambda i: good(i).replace(f",{i % 50 + 10},", ",1,")),
    Way("text is no number", computed("cast(user as bigint)", "true"), good, lambda i: good(i).replace("user", "")),
    Way("no number in a field", PASSED, lambda i: good(i).replace(".25,", ".x,")),
    Way("beyond int32", PASSED, lambda i: good(i).replace(f",{i % 50 + 10},", f",{99_999_999_999 + i},")),
    Way("no such day", PASSED, lambda i: dated(i, 29), lambda i: dated(i, 28)),
    Way("unknown opcode", PASSED, lambda i: "x" + good(i)[1:]),
    Way("too few fields", PASSED, lambda i: good(i).rpartition(",")[0]),
    Way("backslash, no number", PASSED, lambda i: good(i).replace("user", "us\\,er").replace(".25,", ".x,")),
    Way("backslash, opcode", PASSED, lambda i: "x" + good(i)[1:].replace("user", "us\\er")),
    Way("quotes, no number", PASSED, lambda i: quoted(i).replace(".25,", ".x,"), quoted),
    Way("quote misplaced", PASSED, lambda i: good(i).replace("user", '"us"er')),
    Way("not UTF-8", PASSED, lambda i: good(i).replace("user", "us\xffer")),
    Way("JSON, no number", PASSED, changed(price="x"), changed(price="1.25"), None, in_lines, JSON),
    Way("JSON, unknown opcode", PASSED, changed(opcode="x"), member, None, in_lines, JSON),
    Way("JSON, number for a string", PASSED, changed(user=5), member, None, in_lines, JSON),
    Way("JSON, number or opcode", PASSED, lambda i: member(i) | mixed(i), member, None, in_lines, JSON),
    Way("JSON, array, no number", PASSED, changed(price="x"), changed(price="1.25"), None, in_array, JSON),
    Way("JSON, array, unknown opcode", PASSED, changed(opcode="x"), member, None, in_array, JSON),
    Way("no JSON", PASSED, changed(), member, None, in_lines, JSON, cut_short),
    Way("Avro, beyond int32", PASSED, changed(size=1 << 40), member, None, in_avro, MessageFormat.AVRO),
    Way("Avro, unknown opcode", PASSED, changed(opcode="x"), member, None, in_avro, MessageFormat.AVRO),
    Way("Arrow, unknown opcode", PASSED, changed(opcode="x"), member, None, in_arrow, MessageFormat.ARROW),
)


def messages(way: Way, row: Row, rows: int, first_offset: int) -> pa.RecordBatch:
    """Messages of MESSAGE_ROWS rows each."""
    pack = way.pack_wrong if way.pack_wrong is not None and row is way.wrong else way.pack
    values = [pack([row(i) for i in range(at, min(at + MESSAGE_ROWS, rows))]) for at in range(0, rows, MESSAGE_ROWS)]
    return raw(values, way.format, first_offset)


def cost_us(plan: Plan, row: Row, way: Way, rows: int) -> tuple[float, int]:
    """Microseconds per row, and how many were refused."""
    head, pipeline = Head.of(plan), Pipeline.fresh(plan)
    if way.before is not None:
        pipeline.feed(head.decode(messages(way, way.before, rows, 0)))
    given = messages(way, row, rows, rows)
    begin = time.process_time()
    outputs = pipeline.feed(head.decode(given))
    for batch in outputs.values():
        arrow_block.encode(batch)
    seconds = time.process_time() - begin
    return seconds / rows * 1e6, outputs[BAD_STREAM].num_rows if BAD_STREAM in outputs else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--goal", type=float, default=2.0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    worst, where = 0.0, "none"
    for way in (way for way in WAYS if options.only in way.name):
        plan = compile_plan(load_text(way.project).resolved)
        cost_us(plan, way.right, way, 1_000)
        cost_us(plan, way.wrong, way, 1_000)
        right, wrong = [], []
        for _ in range(options.repeat):
            us, refused = cost_us(plan, way.right, way, options.rows)
            assert refused == 0, way.name
            right.append(us)
            us, refused = cost_us(plan, way.wrong, way, options.rows)
            assert refused == options.rows, way.name
            wrong.append(us)
        one, other = statistics.median(right), statistics.median(wrong)
        worst, where = max((worst, where), (other / one, way.name))
        print(f"{way.name:28} good {one:6.2f} us  refused {other:6.2f} us  {other / one:5.1f} times", flush=True)
    print(f"worst: {worst:.1f} times, {where}; the goal is {options.goal:.1f}")
    return int(worst > options.goal)


if __name__ == "__main__":
    sys.exit(main())
