"""State larger than memory: updates of a keyed window, four times as large as its process's memory, next to the same in memory.

A keyed window is filled, then updated: first 90 % of the updates on 1 % of the keys, then all uniformly. Each run has a process of
its own; the one with a budget runs in a memory cgroup, if the machine permits. Both must emit the same outputs: the digests of the
output streams are compared.

Rows are numbers. With `--texts` they have a name of 40 bytes, the same at each update of a key. They also have a fragment of a
thousand bytes, different each time.

`local`: messages of CSV, which the head decodes, and outputs as CSV, as in the local runner and `hotspare replay`. `core`: decoded
batches to outputs, the kernels alone. Making the input is not counted.

    python -m benchmarks.residence [--texts] [--state-mb 4096] [--limit-mb 1024] [--memory-mb 640] [--events 1000000]
                                   [--way local|core]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks._decoded import events_of

from hotspare.base.interpreter import freeze_existing_objects, keep_freed_memory
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.formats.csv.rows import CsvStyle, row_texts
from hotspare.host.kernels import load_kernels
from hotspare.projects.load import load_text
from hotspare.rows.batch import RAW_SCHEMA
from hotspare.rows.chunk import Int64s
from hotspare.table.page_cache.open import page_cache_for

FIELDS = 40
FRAGMENT_BYTES = 1_000
PROJECT = """
project: large
queries:
  cq:
    windows:
      incoming: {{type: source, opcodes: any, index: empty, schema: "id*:int64,{fields}"}}
      kept: {{type: copy}}
    edges: [incoming -> kept]
"""
STEP_ROWS = 5_000
UPSERT = 3
HOT_SHARE, HOT_KEYS = 0.9, 100
"""The share of updates on hot keys; each HOT_KEYS-th key is hot."""
STREAM = "cq/kept"
GROUPS = Path("/sys/fs/cgroup")


class Numbers:
    """Rows of integers."""

    fields = ",".join(f"f{i}:int64" for i in range(FIELDS))
    row_bytes = 9 * (FIELDS + 1) + 8
    """Without the index."""

    def __init__(self) -> None:
        self._values = np.random.default_rng(7).integers(0, 1_000, 1 << 16)
        self._texts = [f"P,N,{{}},{','.join(map(str, self._values[i : i + FIELDS].tolist()))}" for i in range(997)]

    def columns(self, keys: Int64s, begin: int) -> list[pa.Array]:
        """Returns the values of rows after the first `begin` rows."""
        return [pa.array(self._values[i : i + len(keys)]) for i in range(FIELDS)]

    def lines(self, keys: Int64s, begin: int) -> list[str]:
        return [self._texts[(begin + i) % 997].format(key) for i, key in enumerate(keys.tolist())]


class Texts:
    """Rows that are mostly texts."""

    fields = "name:string,fragment:string,at:int64"
    row_bytes = FRAGMENT_BYTES + 40 + 9 * 4 + 8

    def __init__(self) -> None:
        self._letters = np.random.default_rng(7).integers(97, 123, 1 << 16).astype(np.uint8).tobytes().decode()

    def _rows(self, keys: Int64s, begin: int) -> tuple[list[str], list[str]]:
        names = [f"customer {key * 2654435761 % 2**32:010d} of the street {key % 9973:04d}" for key in keys.tolist()]
        places = range(begin, begin + len(keys))
        fragments = [f"{{event:{at:012d};{self._letters[at * 31 % 60_000 :][: FRAGMENT_BYTES - 20]}}}" for at in places]
        return names, fragments

    def columns(self, keys: Int64s, begin: int) -> list[pa.Array]:
        """Returns the values of rows after the first `begin` rows."""
        names, fragments = self._rows(keys, begin)
        return [pa.array(names), pa.array(fragments), pa.array(np.arange(begin, begin + len(keys)))]

    def lines(self, keys: Int64s, begin: int) -> list[str]:
        rows = zip(keys.tolist(), *self._rows(keys, begin), strict=True)
        return [f"P,N,{key},{name},{fragment},{begin + i}" for i, (key, name, fragment) in enumerate(rows)]


class Feed:
    """Makes batches of upserts and takes them one after the other; measures the time to take them."""

    def __init__(self, plan: Plan, pipeline: Pipeline, way: str, rows: Numbers | Texts) -> None:
        self._plan, self._pipeline, self._way, self._rows = plan, pipeline, way, rows
        self._head = Head.from_plan(plan)
        self.taken = 0
        """The count of events taken."""

    def take(self, keys: Int64s, way: str = "") -> float:
        """Takes a batch and returns the seconds that it took."""
        way, begin = way or self._way, self.taken
        self.taken += len(keys)
        if way == "core":
            fields = [pa.array(keys), *self._rows.columns(keys, begin)]
            batch = events_of(self._plan, fields, np.full(len(keys), UPSERT, np.uint8), begin)
            before = time.perf_counter()
            self._pipeline.feed(batch)
            return time.perf_counter() - before
        raw = self._messages(keys, begin)
        before = time.perf_counter()
        for made in self._pipeline.compute_parts(self._head.decode(raw)):
            for rows in made.values():
                row_texts(rows, CsvStyle.EXACT)
        return time.perf_counter() - before

    def _messages(self, keys: Int64s, begin: int) -> pa.RecordBatch:
        values = [line.encode() for line in self._rows.lines(keys, begin)]
        count = len(values)
        columns = {
            "topic": pa.array(np.zeros(count, np.int32)),
            "partition": pa.array(np.zeros(count, np.int32)),
            "offset": pa.array(np.arange(begin, begin + count)),
            "time_us": pa.array(np.full(count, begin)),
            "value": pa.array(values, pa.binary()),
        }
        arrays = [
            columns[field.name].cast(field.type) if field.name in columns else pa.array([_plain(field)] * count, field.type)
            for field in RAW_SCHEMA
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)


def _plain(field: pa.Field) -> object:
    return 0 if pa.types.is_integer(field.type) else None


def filling(keys: int) -> Iterator[Int64s]:
    order = np.random.default_rng(5).permutation(keys)
    for begin in range(0, keys, STEP_ROWS):
        yield order[begin : begin + STEP_ROWS]


def updates(keys: int, events: int, hot_share: float) -> Iterator[Int64s]:
    random = np.random.default_rng(11)
    for _ in range(events // STEP_ROWS):
        chosen = random.integers(0, keys, STEP_ROWS)
        yield np.where(random.random(STEP_ROWS) < hot_share, chosen - chosen % HOT_KEYS, chosen)


def measured(options: argparse.Namespace) -> dict[str, object]:
    """Measures in this process, with its budget or none."""
    keep_freed_memory()
    rows = Texts() if options.texts else Numbers()
    plan = compile_plan(load_text(PROJECT.format(fields=rows.fields)).resolved)
    load_kernels(plan.resolved)
    residence = page_cache_for(options.memory_mb << 20, options.folder)
    pipeline = Pipeline.fresh(plan) if residence is None else Pipeline.fresh(plan, residence=residence)
    feed, keys = Feed(plan, pipeline, options.way, rows), (options.state_mb << 20) // rows.row_bytes
    freeze_existing_objects()
    found: dict[str, object] = {"keys": keys}
    found["fill"] = keys / sum(feed.take(each, "core") for each in filling(keys))
    for name, share, events in (("hot", HOT_SHARE, options.events), ("uniform", 0.0, options.events // 10)):
        for each in updates(keys, events // 5, share):  # loads the requested pages into memory
            feed.take(each)
        begin, pages = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        took = [feed.take(each) for each in updates(keys, events, share)]
        now = resource.getrusage(resource.RUSAGE_SELF)
        found[name] = len(took) * STEP_ROWS / sum(took)
        found[f"{name}_step_ms_max"] = max(took) * 1e3
        found[f"{name}_waits"] = now.ru_majflt - pages.ru_majflt
        found[f"{name}_s"] = time.perf_counter() - begin
    if pipeline.sequences[STREAM] != keys + 2 * (feed.taken - keys):
        raise SystemExit(f"{pipeline.sequences[STREAM]} outputs of {feed.taken} events")
    memory = {what: size >> 20 for what, size in pipeline.memory_by_kind.items()}
    return found | {"memory": memory, "digest": pipeline.digests[STREAM], "rss_mb_max": now.ru_maxrss >> 10}


@contextlib.contextmanager
def memory_group(limit_mb: int) -> Iterator[Path | None]:
    """Yields a cgroup that processes may enter; None if none can be created."""
    own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    places = [GROUPS / "memory" / path.lstrip("/") for _, kinds, path in own if kinds == "memory"] + [GROUPS / "memory", GROUPS]
    for place in places:
        group = place / f"hotspare-residence-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            name = next(name for name in ("memory.limit_in_bytes", "memory.max") if (group / name).exists())
            (group / name).write_text(str(limit_mb << 20))
        except (OSError, StopIteration):
            group.rmdir()
            continue
        try:
            yield group
        finally:
            with contextlib.suppress(OSError):
                group.rmdir()
        return
    yield None


def run(options: argparse.Namespace, memory_mb: int, group: Path | None) -> dict[str, object]:
    """Measures in a process of its own, in the cgroup."""
    command = [sys.executable, "-m", "benchmarks.residence", "--child", "--memory-mb", str(memory_mb), "--way", options.way]
    command += ["--state-mb", str(options.state_mb), "--events", str(options.events), "--folder", str(options.folder)]
    command += ["--texts"] if options.texts else []
    enter = "" if group is None else f"echo $$ > {group}/cgroup.procs && "
    done = subprocess.run(["sh", "-c", f'{enter}exec "$@"', "sh", *command], stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode:
        raise SystemExit(f"the process with {memory_mb or 'all'} MB ended with {done.returncode}")
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def told(name: str, found: dict[str, object]) -> str:
    numbers = " ".join(f"{key} {value:,.0f}" if isinstance(value, float) else f"{key} {value}" for key, value in found.items())
    return f"{name:9} {numbers}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", action="store_true", help="rows that are mostly texts, in place of numbers")
    parser.add_argument("--state-mb", type=int, default=4096)
    parser.add_argument("--limit-mb", type=int, default=1024, help="of the process with a budget")
    parser.add_argument("--memory-mb", type=int, default=640, help="its budget")
    parser.add_argument("--events", type=int, default=1_000_000, help="of hot updates; of uniform ones a tenth")
    parser.add_argument("--way", choices=("local", "core"), default="local")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options)))
        return
    whole = run(options, 0, None)
    print(told("in memory", whole), flush=True)
    with memory_group(options.limit_mb) as group:
        little = run(options, options.memory_mb, group)
        within = f"in a cgroup of {options.limit_mb} MB" if group is not None else "without a cgroup"
    print(told("budget", little), within, flush=True)
    if whole["digest"] != little["digest"]:
        raise SystemExit("the outputs differ")
    hot, uniform = (float(str(little[name])) / float(str(whole[name])) for name in ("hot", "uniform"))
    print(f"hot_ratio {hot:.2f} uniform_ratio {uniform:.3f}")


if __name__ == "__main__":
    main()
