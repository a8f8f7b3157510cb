"""Compares `evict: before` with `evict: after`, over one source -> copy -> aggregate, in the engine core.

Prints events per second of processor time, medians over interleaved repetitions, and outputs per event, for windows of the newest
rows of all and of each key. With `after` the aggregate changes a group for the new row and a group for the evicted one. With
`before` it changes one group once if both belong to it: always with one key, or counted by key; of 1,001 rows of several keys
never.

    python -m benchmarks.evict_order [--keys 1 1000] [--events 1000000] [--batch 100000] [--repeat 5]
"""

from __future__ import annotations

import argparse
import statistics

from benchmarks.core_throughput import run
from benchmarks.windows import Case

from hotspare.base.interpreter import freeze_existing_objects, keep_freed_memory

RETENTIONS = {"the newest 1,001 rows": "bycount_sliding: 1001", "the newest 20 rows of each key": "bycount_sliding: 20, by: [key]"}
ORDERS = ("before", "after")
PROJECT = """
project: p
queries:
  q:
    windows:
      source: {{type: source, index: empty, opcodes: insert-only, schema: "id*:int64,key:int64,x:double"}}
      newest: {{type: copy, retention: {{{retention}, evict: {order}}}}}
      sums:
        type: aggregate
        schema: "key*:int64,n:int64,sum:double"
        outputs: {{n: ESP_aCount(), sum: ESP_aSum(x)}}
        publish: true
    edges: [source -> newest -> sums]
"""


def measure(retention: str, events: int, batch: int, keys: int, repeat: int) -> dict[str, tuple[float, float]]:
    """Returns millions of events per second and outputs per event, by order."""
    cases = {order: Case(PROJECT.format(retention=retention, order=order)) for order in ORDERS}
    given = {order: case.given(2 * events, batch, keys) for order, case in cases.items()}
    freeze_existing_objects()
    seconds: dict[str, list[float]] = {order: [] for order in ORDERS}
    outputs = dict.fromkeys(ORDERS, 0)
    for _ in range(repeat):
        for order, (plan, pieces) in given.items():
            took, outputs[order] = run(plan, pieces, len(pieces) // 2)
            seconds[order].append(took)
    return {order: (events / statistics.median(seconds[order]) / 1e6, outputs[order] / events) for order in ORDERS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, nargs="+", default=(1, 1_000))
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    keep_freed_memory()  # as an engine does, with `freeze_existing_objects`
    print(f"{'window':32} {'keys':>6} {'evict':>7} {'M events/s':>11} {'outputs':>8}", flush=True)
    for name, retention in RETENTIONS.items():
        for keys in options.keys:
            for order, (rate, outputs) in measure(retention, options.events, options.batch, keys, options.repeat).items():
                print(f"{name:32} {keys:>6,} {order:>7} {rate:>11.2f} {outputs:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
