"""hotspare's side of `benchmarks.flink.sliding`: `hotspare replay` of a project equal to Flink's job, in one process, warm.

For each line that it reads it runs once, and prints a line of JSON.

    python -m benchmarks.flink.own SINK WARM EVENTS

SINK is a file for CSV, or "" for none: then outputs are computed without a subscriber.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from hotspare.adapters.files.output_rows import FileStyle
from hotspare.base.interpreter import freeze_existing_objects
from hotspare.cli.replaying.plan import ReplayRequest, prepare_replay
from hotspare.cli.replaying.run import run_local

PROJECT = """
project: sliding
queries:
  q:
    windows:
      source:
        type: source
        index: empty
        opcodes: insert-only
        schema: "id*:int64,k:int64,x:double"
        connectors:
          in: {kind: fs, direction: publish,
               properties: {fsname: events.csv, fstype: csv, addcsvopcode: "true", addcsvflags: normal}}
      newest: {type: copy, retention: {bycount_sliding: 20, by: [k]}}
      sums:
        type: aggregate
        schema: "k*:int64,total:double,average:double"
        outputs: {total: ESP_aSum(x), average: ESP_aAve(x)}
    edges: [source -> newest -> sums]
"""


def run(project: Path, events: str, sink: str) -> tuple[float, float]:
    """Returns the seconds of processor time, and by the clock."""
    request = ReplayRequest(
        project=project,
        texts=(),
        home=None,
        inputs={"q/source": events},
        outputs={"q/sums": sink} if sink else {},
        bad=Path("/dev/null"),
        times={},
        header_rows=None,
        messages_max=5_000,
        style=FileStyle(),
    )
    freeze_existing_objects()
    busy, begin = time.process_time(), time.monotonic()
    run_local(prepare_replay(request))
    return time.process_time() - busy, time.monotonic() - begin


def main() -> None:
    sink, warm, events = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "sliding.yaml"
        project.write_text(PROJECT)
        run(project, warm, sink)
        for _ in sys.stdin:
            seconds, clock = run(project, events, sink)
            print(json.dumps({"seconds": seconds, "clock": clock}), flush=True)


if __name__ == "__main__":
    main()
