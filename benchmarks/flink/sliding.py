"""Sum and average of the newest 20 rows of each of 1,000 keys, beside Flink 2.3: both read one CSV file, on one core, warm.

Flink is given SQL (`job.py` beside this file): OVER the 19 rows before, parallelism 1, its default heap state, objects reused, no
checkpoints. It needs Java 17, and PyFlink in an environment of its own, outside this repository, which is made once:

    python3.11 -m venv /tmp/flink && /tmp/flink/bin/pip install apache-flink==2.3.0
    python -m benchmarks.flink.sliding [--flink /tmp/flink] [--events 2000000] [--runs 3] [--core 0] [--files]

hotspare does what `hotspare replay` does with the `local` runner (`own.py`). What is counted is processor time of all threads, from
the first byte of the file to its end, with garbage collection; events per second of it, medians. Starting a process or a JVM, and
the first run, which compiles, are not counted. Without --files neither writes what it makes: Flink's `blackhole` takes it, hotspare
publishes it nowhere. With it both write CSV. Flink then writes a row per event, with the sum up to it; hotspare the whole
changelog, four rows per event once a key has its 20 rows: new and old value when the row comes, and again when the oldest leaves.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

KEYS = 1_000
_WARM_SHARE = 4
_JOB = Path(__file__).parent / "job.py"
_OWN = (sys.executable, "-m", "benchmarks.flink.own")


def write_events(path: Path, events: int) -> None:
    """Rows `id,key,x` without a header."""
    random, numbers = np.random.default_rng(1), np.arange(events)
    keys, values = numbers * 7919 % KEYS, np.round(random.random(events) * 1000, 2)
    with path.open("w") as file:
        file.writelines(f"{n},{k},{x}\n" for n, k, x in zip(numbers.tolist(), keys.tolist(), values.tolist(), strict=True))


def measured(command: Sequence[str], core: int, sink: str, files: Sequence[Path], runs: int) -> list[tuple[float, float]]:
    """Seconds of processor time and by the clock of each run of a program on one core."""
    asked = ["taskset", "-c", str(core), *command, sink, *map(str, files), str(runs)]
    done = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [(each["seconds"], each["clock"]) for each in told]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flink", type=Path, default=Path("/tmp/flink"), help="environment with PyFlink")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    parser.add_argument("--files", action="store_true", help="both write what they make")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        warm, events = Path(folder) / "warm.csv", Path(folder) / "events.csv"
        write_events(warm, asked.events // _WARM_SHARE)
        write_events(events, asked.events)
        rates: dict[str, float] = {}
        for name, command in (("hotspare", _OWN), ("Flink", (str(asked.flink / "bin" / "python"), str(_JOB)))):
            sink = str(Path(folder) / f"{name}.out") if asked.files else ""
            found = measured(command, asked.core, sink, (warm, events), asked.runs)
            rates[name] = asked.events / statistics.median(seconds for seconds, _ in found)
            by_clock = asked.events / statistics.median(clock for _, clock in found)
            print(f"{name}: {rates[name] / 1e6:.2f} M events/s of processor time, {by_clock / 1e6:.2f} M by the clock", flush=True)
        print(f"hotspare / Flink: {rates['hotspare'] / rates['Flink']:.1f}")


if __name__ == "__main__":
    main()
