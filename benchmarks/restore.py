"""From a restart to the first output, by the size of the state: a keyed window of values that do not compress, or with
`--window aggregate` the groups of an aggregate, with `--window copy` also the window that it is a copy of; in a folder or, with
`--store redis`, in a Redis server that is started for it and keeps what it has in memory alone.

Snapshots are written by one process and restored by another, which has everything loaded that it runs. Files of the snapshot are
not in the page cache; the first event asks for a key that has not been touched since it came. With `--memory-mb` the state has a
budget. Goal (SPEC G7): the last number at most twice the first, and 200 ms. `--kept`: snapshots stay there, and are used again.

    python -m benchmarks.restore [--sizes-mb 10,1024,8192] [--memory-mb 0] [--window keyed]
        [--store folder] [--folder /tmp | --kept FOLDER]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks._decoded import events_of
from benchmarks.residence import FIELDS, PROJECT, ROW_BYTES, UPSERT

from hotspare.engine.kernels.relation import INSERT
from hotspare.engine.pipeline import Pipeline
from hotspare.engine.plan import Plan, compile_plan
from hotspare.engine.rows.chunk import Int64s
from hotspare.engine.warm import warm_up
from hotspare.interpreter import pass_over_what_is_there
from hotspare.model.load import load_text
from hotspare.residence.open import residence_for
from hotspare.stores.open import open_store
from hotspare.testing.server_process import ServerProcess, free_ports

STEP_ROWS = 20_000
SUMS = 8
_SUMMED = ",".join(f"f{i}:int64" for i in range(SUMS))
GROUPED = f"""
project: grouped
queries:
  cq:
    windows:
      incoming: {{type: source, index: empty, opcodes: insert-only, schema: "id*:int64,g:int64,{_SUMMED}"}}
      kept:
        type: aggregate
        schema: "g*:int64,{_SUMMED}"
        outputs: {{{", ".join(f"f{i}: ESP_aSum(f{i})" for i in range(SUMS))}}}
    edges: [incoming -> kept]
"""


@dataclass(frozen=True, slots=True)
class Subject:
    """A project that is restored. `row_bytes` of what it keeps for each key of its window `cq/kept`; `fields`: so many
    values of up to `most`."""

    project: str
    row_bytes: int
    opcode: int
    keys: int
    fields: int
    most: int


SUBJECTS = {
    "keyed": Subject(PROJECT, ROW_BYTES, UPSERT, 1, FIELDS, 2**63 - 1),
    "copy": Subject(PROJECT.replace("index: empty, ", ""), 2 * ROW_BYTES, UPSERT, 1, FIELDS, 2**63 - 1),
    "aggregate": Subject(GROUPED, 9 * (3 + 5 * SUMS) + 8, int(INSERT), 2, SUMS, 2**61),
}
"""`copy` is one of a window that has an index, too. A sum is its result, how many values it has, and three words."""


def batch_of(plan: Plan, subject: Subject, keys: Int64s, begin: int) -> pa.RecordBatch:
    values = np.random.default_rng(begin).integers(-subject.most, subject.most, (subject.fields, len(keys)))
    fields = [*[pa.array(keys)] * subject.keys, *[pa.array(row) for row in values]]
    return events_of(plan, fields, np.full(len(keys), subject.opcode, np.uint8), begin)


def write(url: str, subject: Subject, size_mb: int) -> None:
    """A confirmed snapshot of a state of that size."""
    plan = compile_plan(load_text(subject.project).resolved)
    pipeline, keys = Pipeline.fresh(plan), (size_mb << 20) // subject.row_bytes
    for begin in range(0, keys, STEP_ROWS):
        pipeline.feed(batch_of(plan, subject, np.arange(begin, min(keys, begin + STEP_ROWS)), begin))
    frozen, store = pipeline.freeze(), open_store(url)
    store.put("g", "s", "e", 1, frozen.header, frozen.contents())
    store.confirm("g", "s")


def forget_cache(folder: Path) -> None:
    """Of the files below: what is read of them next comes from the disk."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def restored(url: str, folder: Path, subject: Subject, memory_mb: int) -> dict[str, float]:
    """Milliseconds to the first output, and the most memory."""
    warm_up()
    plan = compile_plan(load_text(subject.project).resolved)
    first = batch_of(plan, subject, np.array([17]), 1 << 40)
    open_store(url).list("other")  # what a first call loads
    pass_over_what_is_there()  # as an engine does before it joins
    forget_cache(folder)
    begin = time.perf_counter()
    stored = open_store(url).get("g", "s")
    residence = residence_for(memory_mb << 20, folder)
    if residence is None:
        pipeline = Pipeline.restore(plan, stored.header, stored.pages)
    else:
        pipeline = Pipeline.restore(plan, stored.header, stored.pages, residence=residence)
    made = pipeline.feed(first)
    took = time.perf_counter() - begin
    if len(made["cq/kept"]) != 2:
        raise SystemExit("the key was not found")
    return {"ready_ms": took * 1e3, "rss_mb_max": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def child(*arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks.restore", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


@contextlib.contextmanager
def snapshot_store(options: argparse.Namespace, size_mb: int) -> Iterator[tuple[str, Path]]:
    """Where a snapshot of that size is, and a folder for what a process needs."""
    if options.kept is not None:
        folder = options.kept / options.window / str(size_mb)
        if not folder.exists():
            folder.mkdir(parents=True)
            child("--url", folder.as_uri(), "--window", options.window, "--write", str(size_mb))
        yield folder.as_uri(), folder
        return
    folder = Path(tempfile.mkdtemp(prefix="hotspare-restore-", dir=options.folder))
    try:
        with redis_in(folder) if options.store == "redis" else contextlib.nullcontext(folder.as_uri()) as url:
            child("--url", url, "--window", options.window, "--write", str(size_mb))
            yield url, folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def redis_in(folder: Path) -> Iterator[str]:
    """The URL of a server without a disk."""
    (port,) = free_ports(1)
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
    server = ServerProcess("redis", command, folder)
    server.launch()
    try:
        server.wait_for_word("Ready to accept", 30)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes-mb", default="10,1024,8192", help="of the state, the least first")
    parser.add_argument("--memory-mb", type=int, default=0, help="budget of the state; 0: none")
    parser.add_argument("--window", choices=sorted(SUBJECTS), default="keyed")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--kept", type=Path, help="a folder in which snapshots stay")
    parser.add_argument("--store", choices=["folder", "redis"], default="folder")
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--write", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--restore", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write is not None:
        write(options.url, SUBJECTS[options.window], options.write)
        return
    if options.restore:
        print(json.dumps(restored(options.url, options.folder, SUBJECTS[options.window], options.memory_mb)))
        return
    ready = []
    for size_mb in map(int, options.sizes_mb.split(",")):
        with snapshot_store(options, size_mb) as (url, folder):
            how = ["--window", options.window, "--memory-mb", str(options.memory_mb)]
            told = child("--url", url, "--folder", str(folder), "--restore", *how)
        found = json.loads(told)
        print(f"{size_mb} MB: ready after {found['ready_ms']:.0f} ms, at most {found['rss_mb_max']:.0f} MB resident", flush=True)
        ready.append((f"{size_mb}mb" if size_mb < 1024 else f"{size_mb >> 10}gb", found["ready_ms"]))
    print(" ".join(f"ready_ms_{name} {took:.0f}" for name, took in (ready[0], ready[-1])))


if __name__ == "__main__":
    main()
