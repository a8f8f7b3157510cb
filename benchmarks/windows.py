"""Throughput of each window type in the engine core, by the number of keys: decoded batches in, output batches out, one core, warm.

Events per second of processor time, medians over repetitions. Keys are groups of an aggregate, rows of a copy; others do not
ask. A type adds its line to CASES.

    python -m benchmarks.windows [--only aggregate] [--keys 1 1000 1000000] [--events 1000000] [--batch 100000] [--repeat 3]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from benchmarks._decoded import events_of
from benchmarks.core_throughput import JOINED, batches, rates, run

from hotspare.engine.plan import Plan, compile_plan
from hotspare.model.load import load_text

KEYS = (1, 1_000, 1_000_000)
INSERT, UPSERT = 1, 3
_SOURCE = 'type: source, index: empty, schema: "id*:int64,key:int64,x:double"'
_INSERTS = f"{_SOURCE}, opcodes: insert-only"


@dataclass(frozen=True)
class Case:
    """`ids`: keys of the rows, by the numbers of events and how many keys there are. A project with two topics gets the events of
    the join of `benchmarks.core_throughput`."""

    project: str
    opcode: int = INSERT
    ids: Callable[[np.ndarray, int], np.ndarray] = lambda numbers, keys: numbers

    def given(self, events: int, batch: int, keys: int) -> tuple[Plan, list[pa.RecordBatch]]:
        plan = compile_plan(load_text(self.project).resolved)
        if len(plan.entries) > 1:
            return plan, list(batches(plan, events, batch, self.opcode, keys))
        return plan, list(self._events(plan, events, batch, keys))

    def _events(self, plan: Plan, events: int, batch: int, keys: int) -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng(1)
        for begin in range(0, events, batch):
            numbers = np.arange(begin, begin + batch)
            columns = [self.ids(numbers, keys), numbers * 7919 % keys, np.round(random.random(batch) * 1000, 2)]
            yield events_of(plan, [pa.array(column) for column in columns], np.full(batch, self.opcode, np.uint8), begin)


def _project(source: str, windows: str, edges: str) -> str:
    return f"project: p\nqueries:\n  q:\n    windows:\n      source: {{{source}}}\n{windows}\n    edges: [{edges}]\n"


_BY_KEY: Callable[[np.ndarray, int], np.ndarray] = lambda numbers, keys: numbers * 7919 % keys  # noqa: E731
CASES: dict[str, Case] = {
    "aggregate: count, sum, average": Case(
        _project(
            _INSERTS,
            '      sums: {type: aggregate, schema: "key*:int64,n:int64,sum:double,average:double",'
            " outputs: {n: ESP_aCount(), sum: ESP_aSum(x), average: ESP_aAve(x)}}",
            "source -> sums",
        )
    ),
    "aggregate: count, sum, of the newest 100,000 rows": Case(
        _project(
            _INSERTS,
            "      newest: {type: copy, retention: {bycount_sliding: 100000}}\n"
            '      sums: {type: aggregate, schema: "key*:int64,n:int64,sum:double",'
            " outputs: {n: ESP_aCount(), sum: ESP_aSum(x)}}",
            "source -> newest, newest -> sums",
        )
    ),
    "aggregate: least, greatest, of the newest 100,000 rows": Case(
        _project(
            _INSERTS,
            "      newest: {type: copy, retention: {bycount_sliding: 100000}}\n"
            '      extremes: {type: aggregate, schema: "key*:int64,low:double,high:double",'
            " outputs: {low: ESP_aMin(x), high: ESP_aMax(x)}}",
            "source -> newest, newest -> extremes",
        )
    ),
    "copy": Case(_project(_SOURCE, "      kept: {type: copy}", "source -> kept"), UPSERT, _BY_KEY),
    "union": Case(
        _project(
            _INSERTS,
            "      low: {type: filter, index: empty, condition: x < 500}\n"
            "      high: {type: filter, index: empty, condition: x >= 500}\n"
            "      all: {type: union, index: empty}",
            "source -> low, source -> high, low -> all, high -> all",
        )
    ),
    "join: a stream with 10,000 rows": Case(JOINED),
}
"""What is measured, by window type; everything in the project counts."""


def measure(case: Case, events: int, batch: int, keys: int, repeat: int) -> str:
    plan, given = case.given(2 * events, batch, keys)
    warm = len(given) // 2
    counted = sum(part.num_rows for part in given[warm:])
    runs = [run(plan, given, warm) for _ in range(repeat)]
    return f"{rates(runs, counted)}, {statistics.median(n for _, n in runs) / counted:.2f} outputs per event"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument("--keys", type=int, nargs="+", default=KEYS)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    for name, case in CASES.items():
        if name.startswith(options.only):
            for keys in options.keys:
                print(f"{name}; {keys:,} keys: {measure(case, options.events, options.batch, keys, options.repeat)}", flush=True)


if __name__ == "__main__":
    main()
