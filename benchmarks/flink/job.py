"""The job in Flink SQL that `benchmarks.flink.sliding` runs, in Flink's own environment.

For each line that it reads it runs once, and prints a line of JSON.

    job.py SINK WARM EVENTS

SINK is a folder for CSV, or "" for Flink's sink that drops rows; WARM and EVENTS are files. WARM is run before the first line is
read, in the same JVM, so that its code is compiled. The processor time of a run is that of the whole JVM: reading, state, garbage
collection.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyflink.java_gateway import get_gateway
from pyflink.table import EnvironmentSettings, TableEnvironment

_TICKS_PER_SECOND = 100
_EVENTS = """CREATE TEMPORARY TABLE events (id BIGINT, k BIGINT, x DOUBLE, came AS PROCTIME())
 WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')"""
_SUMS = "CREATE TEMPORARY TABLE sums (k BIGINT, total DOUBLE, average DOUBLE) WITH ({options})"
_OVER = "OVER (PARTITION BY k ORDER BY came ROWS BETWEEN 19 PRECEDING AND CURRENT ROW)"
_JOB = f"INSERT INTO sums SELECT k, SUM(x) {_OVER}, AVG(x) {_OVER} FROM events"


def jvm_seconds() -> float:
    """Returns the processor time of the JVM in which the job runs."""
    pid = get_gateway().jvm.java.lang.ProcessHandle.current().pid()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def run(path: str, sink: str) -> tuple[float, float]:
    """Returns the seconds of processor time, and by the clock."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for option, value in {"parallelism.default": "1", "pipeline.object-reuse": "true"}.items():
        tables.get_config().set(option, value)
    options = f"'connector' = 'filesystem', 'path' = '{sink}', 'format' = 'csv'" if sink else "'connector' = 'blackhole'"
    tables.execute_sql(_EVENTS.format(path=path))
    tables.execute_sql(_SUMS.format(options=options))
    busy, begin = jvm_seconds(), time.monotonic()
    tables.execute_sql(_JOB).wait()
    return jvm_seconds() - busy, time.monotonic() - begin


def main() -> None:
    sink, warm, events = sys.argv[1:]
    run(warm, sink)
    for _ in sys.stdin:
        seconds, clock = run(events, sink)
        print(json.dumps({"seconds": seconds, "clock": clock}), flush=True)


if __name__ == "__main__":
    main()
