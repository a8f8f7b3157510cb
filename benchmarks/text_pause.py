"""The longest pause of a step while millions of texts are inserted into windows and deleted: memory to memory.

A keyed window is filled with rows whose keys are different texts, each with a second text. Then rows are deleted and others, with
new texts, inserted, until all rows are replaced several times. So strings that nothing holds must be collected all the time. Every
few seconds a snapshot is frozen, and held for a while, as an engine does that writes it.

A pause is a step's time of the thread's own processor, all of its work included: other load on the machine does not count. The wall
time is printed next to it. Resident memory is what the process has beyond what it had before the first row; the text is that of the
existing rows.

    python -m benchmarks.text_pause [--keys 2000000] [--churn 2] [--step 2500]
"""

from __future__ import annotations

import argparse
import gc
import time
from dataclasses import dataclass

import numpy as np
import psutil
import pyarrow as pa
from benchmarks._decoded import events_of

from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.flow.snapshot import FrozenProjectState
from hotspare.projects.load import load_text
from hotspare.rows.chunk import Int64s

PROJECT = """
project: texts
queries:
  cq:
    windows:
      incoming: {type: source, opcodes: any, index: empty, schema: "id*:string,name:string,amount:int64"}
      kept: {type: copy}
    edges: [incoming -> kept]
"""
UPSERT, SAFE_DELETE = 3, 5
FROZEN_EVERY, FROZEN_STEPS = 400, 100
"""A snapshot is frozen every FROZEN_EVERY steps, and held for FROZEN_STEPS."""
LONGEST_TOLD = 5


@dataclass
class Steps:
    """The steps of a phase: processor time and wall time of each, in seconds, and the peak memory in bytes."""

    processor_s: list[float]
    wall_s: list[float]
    resident: int = 0

    def told(self, name: str, base: int) -> str:
        longest = " ".join(f"{seconds * 1e3:.1f}" for seconds in sorted(self.processor_s)[: -1 - LONGEST_TOLD : -1])
        median = sorted(self.processor_s)[len(self.processor_s) // 2]
        return (
            f"{name:8} {len(self.processor_s)} steps, median {median * 1e3:.2f} ms, longest {longest} ms of processor time, "
            f"{max(self.wall_s) * 1e3:.1f} ms by the clock, {(self.resident - base) / 1e6:.0f} MB"
        )


def batch_of(plan: Plan, numbers: Int64s, opcode: np.ndarray, begin: int) -> pa.RecordBatch:
    """Returns events of the rows with these numbers, at offsets from `begin` on."""
    ids = pa.array([f"account {number:012d}" for number in numbers.tolist()])
    names = pa.array([f"holder {number * 7919 % 999_983:06d}-{number}" for number in numbers.tolist()])
    return events_of(plan, [ids, names, pa.array(numbers)], opcode, begin)


class Run:
    """A pipeline that is fed step by step; rows are numbered."""

    def __init__(self, step: int) -> None:
        self.plan = compile_plan(load_text(PROJECT).resolved)
        self.pipeline = Pipeline.fresh(self.plan)
        self._step, self._offset, self._fed = step, 0, 0
        self._frozen: FrozenProjectState | None = None
        self._process = psutil.Process()

    def phase(self, inserts: Int64s, deletes: Int64s) -> Steps:
        """Inserts and deletes these, a step's worth of both together."""
        steps = Steps([], [])
        each = self._step // 2 if len(deletes) else self._step
        for at in range(0, len(inserts), each):
            come, go = inserts[at : at + each], deletes[at : at + each]
            opcode = np.repeat([UPSERT, SAFE_DELETE], [len(come), len(go)]).astype(np.uint8)
            self._feed(batch_of(self.plan, np.concatenate([come, go]), opcode, self._offset), steps)
        return steps

    def _feed(self, batch: pa.RecordBatch, steps: Steps) -> None:
        self._offset += batch.num_rows
        self._fed += 1
        begin, processor = time.perf_counter(), time.thread_time()
        self.pipeline.feed(batch)
        if self._fed % FROZEN_EVERY == 0:
            self._frozen = self.pipeline.freeze()
        steps.processor_s.append(time.thread_time() - processor)
        steps.wall_s.append(time.perf_counter() - begin)
        if self._fed % FROZEN_EVERY == FROZEN_STEPS:
            self._frozen = None
        if self._fed % 50 == 0:
            steps.resident = max(steps.resident, self._process.memory_info().rss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=2_000_000, help="rows, each with two texts of its own")
    parser.add_argument("--churn", type=int, default=2, help="how often all rows are replaced")
    parser.add_argument("--step", type=int, default=2_500, help="events of a step")
    options = parser.parse_args()
    Run(options.step).phase(np.arange(300_000), np.arange(0))  # compiled and warm
    gc.collect()
    base = psutil.Process().memory_info().rss
    run, keys = Run(options.step), options.keys
    grown = run.phase(np.arange(keys), np.empty(0, np.int64))
    print(grown.told("growth", base), flush=True)
    order = np.random.default_rng(3).permutation(keys)
    gone = np.concatenate([order + keys * round_ for round_ in range(options.churn)])
    churned = run.phase(np.arange(keys, keys * (1 + options.churn)), gone)
    print(churned.told("churn", base), flush=True)
    text_mb = keys * len("account 000000000000" + "holder 000000-0000000") / 1e6
    pause_ms = max(max(each.processor_s) for each in (grown, churned)) * 1e3
    print(
        f"pause_ms_max {pause_ms:.1f} of processor time, resident_mb {(churned.resident - base) / 1e6:.0f}, text_mb {text_mb:.0f}"
    )


if __name__ == "__main__":
    main()
