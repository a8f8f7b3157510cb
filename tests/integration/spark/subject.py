"""A process that runs the `ordered` runner, for tests that kill it: prints its events on standard output, one JSON line each.

python -m tests.integration.spark.subject BUS_URL PLACE ROWS
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

import psutil
import pyarrow as pa

from hotspare.flow.head.head import Head
from hotspare.flow.plan import compile_plan
from hotspare.projects.load import load_text
from hotspare.projects.resolve import resolve
from hotspare.rows.batch import NextInput
from hotspare.runners.contract import HeadPlace, RunnerEnd, RunnerInput, SourceTopic

PROJECT = """
project: subject
queries:
  q:
    singletons: included
    windows:
      rows:
        type: source
        schema: id*:int64,x:double,name:string
        opcodes: insert-only
        index: empty
        publish: true
"""
TOPICS = (SourceTopic("rows"),)


def head() -> Head:
    return Head.from_plan(compile_plan(resolve(load_text(PROJECT).project)))


def say(what: str, **more: Any) -> None:
    print(json.dumps({"what": what, **more}), flush=True)


class Tally:
    """Checks that every message arrives once, in order, with all its rows."""

    def __init__(self, rows_wanted: int) -> None:
        self.rows = 0
        self.batches = 0
        self.next_offset = 0
        self.mistakes = 0
        self._wanted = rows_wanted

    def take(self, table: pa.Table, _: NextInput) -> None:
        offsets = table.column("offset").combine_chunks()
        runs = pa.compute.run_end_encode(offsets)
        seen = runs.values.to_pylist()
        self.mistakes += seen != list(range(self.next_offset, self.next_offset + len(seen)))
        self.next_offset = seen[-1] + 1
        self.batches += 1
        self.rows += table.num_rows
        if self.rows >= self._wanted:
            self._report()

    def _report(self) -> None:
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        children = []
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # the planners are ending
                children.append({"pid": child.pid, "line": " ".join(child.cmdline())[-60:]})
        say("rows", rows=self.rows, batches=self.batches, mistakes=self.mistakes, peak_kib=peak_kib, children=children)


def main() -> None:
    import pyarrow.compute  # noqa: F401 - Tally uses it

    from hotspare.runners.spark.ordered import OrderedRunner

    url, place, rows = sys.argv[1], HeadPlace(sys.argv[2]), int(sys.argv[3])
    over = threading.Event()
    signal.signal(signal.SIGINT, lambda _number, _frame: over.set())

    def on_end(end: RunnerEnd) -> None:
        say("end", cause=end.cause.value, error=str(end.error or ""))
        over.set()

    runner = OrderedRunner(RunnerInput(url, TOPICS, head(), place), Tally(rows).take, on_end)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    runner.start({})
    session = runner.session
    say("started", pid=os.getpid(), jvm=session.jvm.pid, scratch=str(session.scratch), before_kib=before_kib)
    over.wait()
    runner.stop()
    say("stopped", left=[p.pid for p in psutil.Process().children(recursive=True)])


if __name__ == "__main__":
    main()
