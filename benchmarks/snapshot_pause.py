"""The longest pause of a step while a large window grows, is frozen and is written: memory to memory, in real time (SPEC Z4).

A keyed window is filled in small steps, and then updated at a steady rate: 90 % of the updates on 1 % of the keys, afterwards all
uniformly. Every few seconds a snapshot is taken and written to a folder in the background, as an engine does.

The pause is the wall time of the longest step, all of its work included. The written share is the largest of any snapshot but the
first, of the bytes of the whole. Resident memory is what the process has beyond what it had before the first row; the state is as
large as a whole snapshot. Other load on the machine shows in the pause. `of processor time` does not count it, and neither does
`blocked`: the longest time in a step that neither ran nor waited for a processor, so that it waited for the writer. `--busy` adds
such load: processes that compute without a pause. `--no-yield`: the writer does not yield to steps, as an engine's does.

    python -m benchmarks.snapshot_pause [--keys 6000000] [--rate 50000] [--seconds 60] [--busy 0]
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from benchmarks._decoded import events_of

from hotspare.base.interpreter import freeze_existing_objects, shorten_switch_interval
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.flow.snapshot import FrozenProjectState
from hotspare.ha.effects.snapshots import reporting_progress
from hotspare.projects.load import load_text
from hotspare.rows.chunk import Int64s
from hotspare.stores.directory import DirectoryStore

FIELDS = 13
PROJECT = f"""
project: large
queries:
  cq:
    windows:
      incoming: {{type: source, opcodes: any, index: empty, schema: "id*:int64,{",".join(f"f{i}:double" for i in range(FIELDS))}"}}
      kept: {{type: copy}}
    edges: [incoming -> kept]
"""
STEP_S = 0.05
YIELD_S = 0.05
UPSERT = 3
HOT_SHARE, HOT_KEYS = 0.9, 100
"""The share of updates on hot keys; each HOT_KEYS-th key is hot."""


def batch_of(plan: Plan, keys: Int64s, begin: int, values: pa.Array) -> pa.RecordBatch:
    """Returns upserts of these keys at offsets from `begin` on."""
    fields = [pa.array(keys), *[values.slice(i, len(keys)) for i in range(FIELDS)]]
    return events_of(plan, fields, np.full(len(keys), UPSERT, np.uint8), begin)


def queued_s() -> float:
    """Returns the seconds for which this thread was ready to run and waited for a processor."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


@dataclass
class Snapshots:
    """Writes snapshots one at a time in the background. `shares`: the new part of each; `state_bytes`: the size of the last."""

    folder: Path
    step: threading.Lock
    """Held during each step; the writer waits for it before each page."""
    yields: bool
    shares: list[float] = field(default_factory=list)
    state_bytes: int = 0
    count: int = 0
    _writer: threading.Thread | None = None
    _failure: list[BaseException] = field(default_factory=list)

    @property
    def is_writing(self) -> bool:
        return self._writer is not None and self._writer.is_alive()

    def begin(self, frozen: FrozenProjectState) -> None:
        self.count += 1
        self._writer = threading.Thread(target=self._write, args=(f"s{self.count}", self.count, frozen))
        self._writer.start()

    def wait(self) -> None:
        if self._writer is not None:
            self._writer.join()
        if self._failure:
            raise self._failure[0]

    def _write(self, name: str, order: int, frozen: FrozenProjectState) -> None:
        try:
            store, pages = DirectoryStore(self.folder), self.folder / "g" / "pages"
            before = {path.name for path in pages.iterdir()} if pages.is_dir() else set()
            contents = reporting_progress(frozen.contents(), self._yield_to_steps)
            info = store.write_candidate("g", name, "e", order, frozen.header, contents)
            new = sum(path.stat().st_size for path in pages.iterdir() if path.name not in before)
            self.shares.append(new / info.bytes_total)
            self.state_bytes = info.bytes_total
            store.confirm("g", name)
            store.prune_snapshots("g", 2)
        except BaseException as error:
            self._failure.append(error)

    def _yield_to_steps(self) -> None:
        if self.yields and self.step.acquire(timeout=YIELD_S):
            self.step.release()


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Runs processes that compute during the block."""
    begun = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in begun:
            each.kill()
            each.wait()


@dataclass
class Phase:
    """Measurements of a phase: the longest step by the clock and by the thread's processor time, late steps, peak memory."""

    pause_s: float = 0.0
    took_s: list[float] = field(default_factory=list)
    processor_s: float = 0.0
    blocked_s: float = 0.0
    freeze_s: float = 0.0
    late: int = 0
    steps: int = 0
    resident: int = 0


class Run:
    """A pipeline that is fed step by step."""

    def __init__(self, folder: Path, interval_s: float, *, yields: bool) -> None:
        self.plan = compile_plan(load_text(PROJECT).resolved)
        self.pipeline = Pipeline.fresh(self.plan)
        self._step = threading.Lock()
        self.snapshots = Snapshots(folder, self._step, yields)
        self._interval_s, self._offset = interval_s, 0
        self._random = np.random.default_rng(5)
        self._values = pa.array(self._random.random(1 << 16))
        self._process = psutil.Process()

    def feed(self, keys: Int64s, phase: Phase, *, freezes: bool) -> None:
        batch = batch_of(self.plan, keys, self._offset, self._values)
        self._offset += len(keys)
        begin, processor, queued = time.perf_counter(), time.thread_time(), queued_s()
        with self._step:
            self.pipeline.feed(batch)
            if freezes:
                frozen = self.pipeline.freeze()
                phase.freeze_s = max(phase.freeze_s, time.perf_counter() - begin)
                self.snapshots.begin(frozen)
        took_s = time.perf_counter() - begin
        phase.took_s.append(took_s)
        phase.pause_s = max(phase.pause_s, took_s)
        processor_s = time.thread_time() - processor
        phase.processor_s = max(phase.processor_s, processor_s)
        phase.blocked_s = max(phase.blocked_s, took_s - processor_s - (queued_s() - queued))
        phase.steps += 1
        phase.resident = max(phase.resident, self._process.memory_info().rss)

    def phase(self, chosen: Iterator[Int64s], *, is_paced: bool) -> Phase:
        """Feeds all of `chosen`; begins a snapshot every interval, if the previous one is written."""
        phase, begin = Phase(), time.monotonic()
        taken = begin
        for number, keys in enumerate(chosen):
            ahead = begin + number * STEP_S - time.monotonic()
            if is_paced and ahead > 0:
                time.sleep(ahead)
            phase.late += is_paced and ahead < -STEP_S
            freezes = time.monotonic() - taken >= self._interval_s and not self.snapshots.is_writing
            taken = time.monotonic() if freezes else taken
            self.feed(keys, phase, freezes=freezes)
        self.snapshots.wait()
        return phase

    def filling(self, keys: int, step: int) -> Iterator[Int64s]:
        order = self._random.permutation(keys)
        for begin in range(0, keys, step):
            yield order[begin : begin + step]

    def updates(self, keys: int, step: int, seconds: float, hot_share: float) -> Iterator[Int64s]:
        for _ in range(round(seconds / STEP_S)):
            hot = self._random.random(step) < hot_share
            chosen = self._random.integers(0, keys, step)
            yield np.where(hot, chosen - chosen % HOT_KEYS, chosen)


def told(name: str, phase: Phase, shares: list[float]) -> str:
    p99_s = float(np.quantile(phase.took_s, 0.99))
    written = " ".join(f"{share:.3f}" for share in shares)
    longest = (
        f"longest {phase.pause_s * 1e3:.1f} ms, p99 {p99_s * 1e3:.1f} ms, of processor time {phase.processor_s * 1e3:.1f} ms, "
    )
    longest += f"blocked {phase.blocked_s * 1e3:.1f} ms"
    return (
        f"{name:8} {phase.steps} steps, {longest}, with a freeze {phase.freeze_s * 1e3:.1f} ms, {phase.late} late, "
        f"{phase.resident / 1e6:.0f} MB, written {written}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=6_000_000)
    parser.add_argument("--rate", type=int, default=50_000, help="updates a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each kind of updates")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between snapshots")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute next to it")
    parser.add_argument("--no-yield", action="store_true", help="the writer of snapshots does not wait for steps")
    options = parser.parse_args()
    with busy_processes(options.busy):
        measure(options)


def measure(options: argparse.Namespace) -> None:
    step = max(1, round(options.rate * STEP_S))
    folder = Path(tempfile.mkdtemp(prefix="hotspare-pause-"))
    try:
        run = Run(folder / "warm", 0.0, yields=not options.no_yield)
        run.phase(run.filling(100_000, step), is_paced=False)
        run = Run(folder / "store", options.interval, yields=not options.no_yield)
        shorten_switch_interval()
        freeze_existing_objects()
        base = psutil.Process().memory_info().rss
        grown = run.phase(run.filling(options.keys, step), is_paced=False)
        run.feed(np.arange(1), Phase(), freezes=True)
        run.snapshots.wait()
        print(told("growth", grown, run.snapshots.shares), flush=True)
        phases: dict[str, Phase] = {}
        hot_share_max = hot_ratio = 0.0
        for name, hot_share in (("hot", HOT_SHARE), ("uniform", 0.0)):
            run.snapshots.shares.clear()
            phase = phases[name] = run.phase(run.updates(options.keys, step, options.seconds, hot_share), is_paced=True)
            shares = list(run.snapshots.shares)
            ratio = (phase.resident - base) / run.snapshots.state_bytes
            if name == "hot":
                hot_share_max, hot_ratio = max(shares, default=0.0), ratio
            print(f"{told(name, phase, shares)}, resident {ratio:.2f} of {run.snapshots.state_bytes / 1e6:.0f} MB", flush=True)
        pause_ms = max(each.pause_s for each in (grown, phases["hot"], phases["uniform"])) * 1e3
        print(f"pause_ms_max {pause_ms:.1f} written_share {hot_share_max:.3f} resident_ratio {hot_ratio:.2f}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
