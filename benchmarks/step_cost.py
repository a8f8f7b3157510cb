"""Processor time of one step through the reference chain, and of a replay of a large file: where an engine's time goes.

A step takes as many rows as arrive at once in a live engine, 1 to 1,000, each a CSV message, followed by a tick. Its parts: decode
(CSV to columns), head (the rest of the head), step (merge, windows, numbering) and, within it, each window; then the outputs, as an
Arrow block and as CSV. The chain's 30 minutes of retention are full. A replay reads a file of events and writes all outputs as
text, by the command `hotspare replay`; its time includes the start of the process.

With `--against PATH` another tree of hotspare is measured in turn with this one, each in processes of its own, and medians over the
rounds are compared. Times are of the processor, but load on the machine still makes caches colder.

    python -m benchmarks.step_cost [--rows 1 10 100 1000] [--steps 300] [--replay 1000000] [--against PATH] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.core_throughput import EVENT_GAP_US, INSERT, REFERENCE, WINDOW_ROWS, batches

from hotspare.base.interpreter import keep_freed_memory
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.formats.csv.decode import decode_rows
from hotspare.formats.outputs import encode_outputs
from hotspare.projects.load import load_text
from hotspare.rows.batch import RAW_SCHEMA, MessageFormat

ROOT = Path(__file__).parents[1]
PARTS = ("decode", "head", "step", "arrow", "csv")
Times = dict[str, float]
"""Milliseconds by part, and by window."""


def raw_batches(rows: int, first: int) -> Iterator[pa.RecordBatch]:
    """Yields raw batches of `rows` messages and a tick, from row number `first` of the chain's input on."""
    offset = 2 * first  # a batch has at most twice as many offsets as rows
    while True:
        numbers = range(first, first + rows)
        values = [b"I,N,,%d.25,%d" % (number, number % 10_000) for number in numbers]
        columns = (
            np.zeros(rows + 1, np.int32),
            np.zeros(rows + 1, np.int32),
            np.arange(offset, offset + rows + 1),
            np.array([*numbers, first + rows]) * EVENT_GAP_US,
            np.arange(rows + 1) == rows,
            np.zeros(rows + 1, np.int8),
            [*values, b""],
        )
        arrays = [pa.array(column, field.type) for column, field in zip(columns, RAW_SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)
        first, offset = first + rows, offset + rows + 1


def measure(sizes: Sequence[int], steps: int) -> dict[str, Times]:
    """Returns the medians by number of rows: by part, and by window."""
    keep_freed_memory()  # as an engine does
    plan = compile_plan(load_text(REFERENCE).resolved)
    found: dict[str, Times] = {}
    for spans, timed in ((defaultdict[str, list[int]](list), plan), _timed(plan)):
        head, pipeline, first = Head.from_plan(timed), Pipeline.fresh(timed), WINDOW_ROWS
        for batch in batches(timed, WINDOW_ROWS, 100_000, INSERT, 2**62):
            pipeline.feed(batch)
        for rows in sizes:
            given = raw_batches(rows, first)
            for step in range(steps + steps // 4):
                if step == steps // 4:
                    spans.clear()
                _one_step(next(given), head, pipeline, spans)
            first += rows * (steps + steps // 4)
            names = PARTS if timed is plan else [str(window.id) for window in plan.resolved.windows]
            medians = {name: statistics.median(spans[name]) / 1e6 for name in names}
            found.setdefault(str(rows), {}).update(medians)
    for each in found.values():
        each["head"] -= each["decode"]
    return found


def _one_step(raw: pa.RecordBatch, head: Head, pipeline: Pipeline, spans: dict[str, list[int]]) -> None:
    values = raw.column("value").slice(0, raw.num_rows - 1)
    marks = [time.process_time_ns()]
    decode_rows(values, head.topics[0].schema, head.topics[0].options)
    marks.append(time.process_time_ns())
    decoded = head(raw)
    marks.append(time.process_time_ns())
    made = [outputs for batch in decoded for outputs in pipeline.compute_parts(batch)]
    for format_ in (MessageFormat.ARROW, MessageFormat.CSV):
        marks.append(time.process_time_ns())
        for outputs in made:
            for rows in outputs.values():
                encode_outputs(rows, format_)
    marks.append(time.process_time_ns())
    for name, begin, end in zip(PARTS, marks, marks[1:], strict=False):
        spans[name].append(end - begin)


def _timed(plan: Plan) -> tuple[defaultdict[str, list[int]], Plan]:
    """Returns the plan with windows that record the time of each call, and where they record it."""
    spans = defaultdict[str, list[int]](list)

    def timed(operator: Any) -> Any:
        process, name, found = operator.process_chunks, str(operator.id), copy(operator)

        def process_chunks(*args: Any) -> Any:
            begin = time.process_time_ns()
            result = process(*args)
            spans[name].append(time.process_time_ns() - begin)
            return result

        found.process_chunks = process_chunks
        return found

    return spans, replace(plan, nodes=tuple(replace(node, operator=timed(node.operator)) for node in plan.nodes))


def replay_seconds(events: int) -> float:
    """Returns the processor time of a replay of `events` events with all outputs written."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "project.yaml").write_text(REFERENCE)
        with (folder / "in.csv").open("w") as file:
            file.writelines(f"I,N,,{number}.25,{number % 10_000}\n" for number in range(events))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "hotspare", "replay", "project.yaml", "--in", "cq/incoming=in.csv"]
        subprocess.run([*command, "--out", "cq/outgoing=out.csv"], cwd=folder, check=True, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def in_tree(tree: Path, options: argparse.Namespace) -> dict[str, Times]:
    """Measures the sources of a tree in a process of its own; the benchmark itself is that of this tree."""
    path = os.pathsep.join((str(tree / "src"), str(ROOT)))
    sizes = [str(rows) for rows in options.rows]
    command = [sys.executable, "-m", "benchmarks.step_cost", "--child", "--steps", str(options.steps), "--rows", *sizes]
    command += ["--replay", str(options.replay)]
    run = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    found: dict[str, Times] = json.loads(run.stdout)
    return found


def medians(rounds: Sequence[dict[str, Times]]) -> dict[str, Times]:
    return {rows: {name: statistics.median(each[rows][name] for each in rounds) for name in rounds[0][rows]} for rows in rounds[0]}


def show(found: dict[str, Times], title: str) -> None:
    print(title)
    for rows, times in found.items():
        if rows == "replay":
            print(f"  replay: {times['seconds']:.2f} s")
            continue
        whole = sum(times[name] for name in ("head", "step", "arrow"))
        parts = ", ".join(f"{name} {times[name]:.3f}" for name in PARTS)
        windows = ", ".join(f"{name} {ms:.3f}" for name, ms in times.items() if name not in PARTS)
        print(f"  {rows:>5} rows: {whole:.3f} ms without decoding ({parts}); windows: {windows}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--replay", type=int, default=1_000_000, help="events of the replay; 0 for none")
    parser.add_argument("--against", type=Path, help="another tree, measured in turn with this one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        found = measure(options.rows, options.steps)
        if options.replay:
            found["replay"] = {"seconds": replay_seconds(options.replay)}
        print(json.dumps(found))
        return
    trees = [ROOT, *([options.against.resolve()] if options.against else [])]
    rounds: dict[Path, list[dict[str, Times]]] = {tree: [] for tree in trees}
    for _ in range(options.rounds):
        for tree in trees:
            rounds[tree].append(in_tree(tree, options))
    for tree in trees:
        show(medians(rounds[tree]), str(tree))


if __name__ == "__main__":
    main()
