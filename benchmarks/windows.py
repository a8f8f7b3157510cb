"""Throughput of each window type in the engine core, by the number of keys: decoded batches in, output batches out, one core, warm.

Prints events per second of processor time, medians over repetitions, next to the goal of a type that has one; the last line counts
the goals met. Keys are groups of an aggregate, rows of a copy, partitions of a pattern, entries of a table in user code; a type
without keys has one line. A line is repeated until it has taken `--seconds`, so that all of them take less than 15 minutes. A type
adds its line to CASES.

    python -m benchmarks.windows [--only aggregate] [--keys 1 1000 1000000] [--events 1000000] [--batch 100000] [--repeat 3]
                                 [--seconds 10]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from benchmarks._decoded import events_of
from benchmarks.core_throughput import JOINED, batch_of, batches, run

from hotspare.base.interpreter import freeze_existing_objects, keep_freed_memory
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text

KEYS = (1, 1_000, 1_000_000)
INSERT, UPSERT = 1, 3
_SCHEMA = 'schema: "id*:int64,key:int64,x:double"'
_INSERTS = f"type: source, index: empty, opcodes: insert-only, {_SCHEMA}"
_SOURCE = f"type: source, index: empty, opcodes: any, {_SCHEMA}"


@dataclass(frozen=True)
class Case:
    """A measured project. `ids`: keys of the rows, from the events' numbers and the count of keys. A project with two topics gets
    the events of the join of `benchmarks.core_throughput`, or with `circles` positions among 10,000 circles. `tags`: texts that an
    additional field has in turn. `goal`: in millions of events a second."""

    project: str
    opcode: int = INSERT
    ids: Callable[[np.ndarray, int], np.ndarray] = lambda numbers, keys: numbers
    has_keys: bool = True
    tags: tuple[str, ...] = ()
    circles: bool = False
    goal: float = 0.0

    def given(self, events: int, batch: int, keys: int) -> tuple[Plan, list[pa.RecordBatch]]:
        plan = compile_plan(load_text(self.project).resolved)
        if self.circles:
            return plan, list(_positions(plan, events, batch))
        if len(plan.entries) > 1:
            return plan, list(batches(plan, events, batch, self.opcode, keys))
        return plan, list(self._events(plan, events, batch, keys))

    def _events(self, plan: Plan, events: int, batch: int, keys: int) -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng(1)
        for begin in range(0, events, batch):
            numbers = np.arange(begin, begin + batch)
            columns = [self.ids(numbers, keys), numbers * 7919 % keys, np.round(random.random(batch) * 1000, 2)]
            if self.tags:
                columns.append(np.array(self.tags)[numbers % len(self.tags)])
            yield events_of(plan, [pa.array(column) for column in columns], np.full(batch, self.opcode, np.uint8), begin)


def _positions(plan: Plan, events: int, batch: int) -> Iterator[pa.RecordBatch]:
    """Yields circles of radius 3 on a grid of 100 x 100, 10 apart, and events anywhere among them: one of four is in one."""
    circles, random = np.arange(10_000), np.random.default_rng(1)
    yield batch_of(plan, 1, circles, [circles, circles % 100 * 10.0, circles // 100 * 10.0], UPSERT, [0, 10_000], 0)
    for number, begin in enumerate(range(0, events, batch)):
        offsets = 1 + begin + np.arange(batch) + number
        values = [offsets, random.random(batch) * 1000, random.random(batch) * 1000]
        yield batch_of(plan, 0, offsets, values, INSERT, [int(offsets[-1]) + 1, 10_001 + number], begin)


def _coded(type_: str, code: str) -> str:
    """Returns a project with user code that is called for each event."""
    lines = "".join(f"          {line}\n" for line in code.strip("\n").split("\n"))
    window = f'      coded:\n        type: {type_}\n        index: empty\n        schema: "id*:int64,key:int64,x:double"\n'
    rest = "        events: made\n        copy: [id, key]\n        use: [key, x]\n"
    rest += f"        state-bytes-max: {256 << 20}\n        code: |\n{lines}"
    return _project(_INSERTS, window + rest, "source -> coded")


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
        ),
        goal=1.0,
    ),
    "aggregate: count, sum, of the newest 100,000 rows": Case(
        _project(
            _INSERTS,
            "      newest: {type: copy, retention: {bycount_sliding: 100000}}\n"
            '      sums: {type: aggregate, schema: "key*:int64,n:int64,sum:double",'
            " outputs: {n: ESP_aCount(), sum: ESP_aSum(x)}}",
            "source -> newest, newest -> sums",
        ),
        goal=1.0,
    ),
    "aggregate: sum, of the newest 20 rows of each key": Case(
        _project(
            _INSERTS,
            "      newest: {type: copy, retention: {bycount_sliding: 20, by: [key]}}\n"
            '      sums: {type: aggregate, schema: "key*:int64,sum:double", outputs: {sum: ESP_aSum(x)}}',
            "source -> newest, newest -> sums",
        ),
        goal=1.0,
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
        ),
        goal=1.0,
    ),
    "join: a stream with 10,000 rows": Case(JOINED, has_keys=False, goal=2.0),
    "filter": Case(
        _project(_INSERTS, "      some: {type: filter, index: empty, condition: x < 500}", "source -> some"), has_keys=False
    ),
    "compute": Case(
        _project(
            _INSERTS,
            '      made: {type: compute, schema: "id*:int64,y:double,z:int64", outputs: {y: x * 2 + 1, z: key % 10}}\n',
            "source -> made",
        ),
        has_keys=False,
    ),
    "functional": Case(
        _project(
            _INSERTS,
            '      made: {type: functional, schema: "id*:int64,y:double", functions: {y: {functions: "product(sum($x, 1), 2)"}}}',
            "source -> made",
        ),
        has_keys=False,
    ),
    "calculate: Summary of the newest 20 rows": Case(
        _project(
            _INSERTS,
            '      sums: {type: calculate, algorithm: Summary, index: empty, schema: "id*:int64,s:double",'
            " parameters: {windowLength: 20}, inputs: {input: x}, outputs: {sumOut: s}}",
            "source -> sums",
        ),
        has_keys=False,
    ),
    "pattern: every low, then a high one, by key": Case(
        _project(
            _INSERTS,
            '      pairs: {type: pattern, index: empty, schema: "n*:int64,key:int64,low:double,high:double",'
            " patterns: {pair: {index: [key],"
            " events: {a: {source: source, condition: x < 500}, b: {source: source, condition: x >= 500}},"
            ' logic: "fby{1 hour}(a, b)", outputs: {key: a.key, low: a.x, high: b.x}}}}',
            "source -> pairs",
        ),
        goal=0.5,
    ),
    "remove-state": Case(
        _project(
            _SOURCE,
            "      kept: {type: copy}\n      log: {type: remove-state, remove: [deletes], log_fields: added}",
            "source -> kept, kept -> log",
        ),
        UPSERT,
        _BY_KEY,
    ),
    "counter": Case(
        _project(_INSERTS, "      gauge: {type: counter, count_interval: 10 seconds}", "source -> gauge"), has_keys=False, goal=0.5
    ),
    "transpose: wide, four tags": Case(
        _project(
            _INSERTS.replace("x:double", "x:double,tag:string"),
            "      wide: {type: transpose, mode: wide, tag: tag, tags: [a, b, c, d], values: [x], group_by: [key]}",
            "source -> wide",
        ),
        tags=("a", "b", "c", "d"),
        goal=0.5,
    ),
    "geofence: 10,000 circles": Case(
        """
project: fences
queries:
  q:
    windows:
      source: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,x:double,y:double"}
      zones: {type: source, opcodes: any, schema: "zone*:int64,x:double,y:double"}
      fence:
        type: geofence
        coordinates: cartesian
        geometry: {x: x, y: y, radius: 3}
        position: {x: x, y: y}
        outputs: {id: where}
    edges:
      - source -> fence as position
      - zones -> fence as geometry
""",
        has_keys=False,
        circles=True,
    ),
    "splitter: two ways": Case(
        _project(
            f'{_INSERTS}, splitter: "if(x < 500, 0, 1)"',
            "      low: {type: copy, index: empty}\n      high: {type: copy, index: empty}",
            "source -> low slot 0, source -> high slot 1",
        ),
        has_keys=False,
    ),
    "lua: a table by key": Case(
        _coded(
            "lua",
            """
local sums = {}
function made(data, context)
  local sum = (sums[data.key] or 0.0) + data.x
  sums[data.key] = sum
  return {x = sum}
end
""",
        )
    ),
    "python: a dict by key": Case(
        _coded(
            "python",
            """
sums = {}

def made(data, context):
    sums[data["key"]] = total = sums.get(data["key"], 0.0) + data["x"]
    return {"x": total}
""",
        ),
        goal=0.2,
    ),
    "python-columns": Case(
        _project(
            _INSERTS,
            """      scaled:
        type: python-columns
        index: empty
        schema: "id*:int64,key:int64,x:double"
        events: scale
        code: |
          import pyarrow.compute as pc

          def scale(data):
              return {"x": pc.multiply(data["x"], 2.0)}""",
            "source -> scaled",
        ),
        has_keys=False,
        goal=1.0,
    ),
}
"""The measured cases, by window type; everything in the project counts."""


def measure(case: Case, events: int, batch: int, keys: int, repeat: int, seconds: float) -> tuple[float, float]:
    """Returns millions of events per second, and outputs per event."""
    plan, given = case.given(2 * events, batch, keys)
    warm = len(given) // 2
    counted = sum(part.num_rows for part in given[warm:])
    freeze_existing_objects()
    runs: list[tuple[float, int]] = []
    begin = time.monotonic()
    while not runs or (len(runs) < repeat and time.monotonic() - begin < seconds):
        runs.append(run(plan, given, warm))
    return statistics.median(counted / each for each, _ in runs) / 1e6, runs[0][1] / counted


def row(name: str, keys: str, rate: str, goal: str, met: str, outputs: str) -> str:
    return f"{name:58} {keys:>9} {rate:>10} {goal:>6} {met:>4} {outputs:>9}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument("--keys", type=int, nargs="+", default=KEYS)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="after which a line is not repeated again")
    options = parser.parse_args()
    keep_freed_memory()  # as an engine does, with `freeze_existing_objects`
    print(row("window", "keys", "M events/s", "goal", "met", "outputs"), flush=True)
    with_goal = met = 0
    for name, case in CASES.items():
        if not name.startswith(options.only):
            continue
        for keys in options.keys if case.has_keys else options.keys[:1]:
            rate, outputs = measure(case, options.events, options.batch, keys, options.repeat, options.seconds)
            is_met = rate >= case.goal
            goal, said = (f"{case.goal:.1f}", "yes" if is_met else "NO") if case.goal else ("", "")
            with_goal, met = with_goal + bool(case.goal), met + bool(case.goal and is_met)
            print(row(name, f"{keys:,}" if case.has_keys else "", f"{rate:.2f}", goal, said, f"{outputs:.2f}"), flush=True)
    print(f"goals met {met} of {with_goal}")


if __name__ == "__main__":
    main()
