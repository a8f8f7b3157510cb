"""What a refused row costs beside a good one: from messages in CSV to output batches, head and core, in one process.

Each path by which a row is refused is fed with rows of which all are refused, and the same windows with rows of which none is.
Medians over repetitions, taken in turn, in microseconds of processor time per row.

    python -m benchmarks.refused_rows [--rows 60000] [--repeat 5] [--goal 2.0]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from hotspare.engine.batch import BAD_STREAM, RAW_SCHEMA, MessageFormat
from hotspare.engine.codec import arrow_block
from hotspare.engine.head import Head
from hotspare.engine.pipeline import Pipeline
from hotspare.engine.plan import Plan, compile_plan
from hotspare.model.load import load_text

SCHEMA = "id*:int64,user:string,price:double,size:int32,at:stamp"
KEYED = f"""
project: keyed
queries:
  cq:
    windows:
      given: {{type: source, schema: "{SCHEMA}", publish: true}}
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
Row = Callable[[int], str]


def good(i: int) -> str:
    return f"i,n,{i},user{i % 1000},{i % 977}.25,{i % 50 + 10},{1_700_000_000_000_000 + i}"


def computed(expression: str, seen: str) -> str:
    return COMPUTED.replace("EXPRESSION", expression).replace("SEEN", seen)


@dataclass(frozen=True)
class Way:
    """How rows are refused: `before` is fed first and not measured."""

    name: str
    project: str
    wrong: Row
    right: Row = good
    before: Row | None = None


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
    Way("unknown opcode", PASSED, lambda i: "x" + good(i)[1:]),
    Way("too few fields", PASSED, lambda i: good(i).rpartition(",")[0]),
)


def raw(row: Row, rows: int, first_offset: int) -> pa.RecordBatch:
    """Messages of MESSAGE_ROWS rows each."""
    texts = ["\n".join(row(i) for i in range(at, min(at + MESSAGE_ROWS, rows))) for at in range(0, rows, MESSAGE_ROWS)]
    count = len(texts)
    columns: Sequence[Sequence[object]] = (
        [0] * count,
        [0] * count,
        range(first_offset, first_offset + count),
        range(first_offset, first_offset + count),
        [False] * count,
        [MessageFormat.CSV] * count,
        [text.encode() for text in texts],
    )
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, RAW_SCHEMA, strict=True)], schema=RAW_SCHEMA)


def cost_us(plan: Plan, row: Row, way: Way, rows: int) -> tuple[float, int]:
    """Microseconds per row, and how many were refused."""
    head, pipeline = Head.of(plan), Pipeline.fresh(plan)
    if way.before is not None:
        pipeline.feed(head.decode(raw(way.before, rows, 0)))
    given = raw(row, rows, rows)
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
    missed = 0
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
        missed += other > options.goal * one
        print(f"{way.name:24} good {one:6.2f} us  refused {other:6.2f} us  {other / one:5.1f} times", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
