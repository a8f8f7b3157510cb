"""Sum and average of the newest 20 rows of each of 1,000 keys, next to Flink 2.3: both read one CSV file, on one core, warm.

Flink gets SQL (`job.py` in this folder): OVER the 19 rows before, parallelism 1, its default heap state, objects reused, no
checkpoints. It needs Java 17, and PyFlink in an environment of its own, which is created in the user's cache if it does not exist.

    python -m benchmarks.flink.sliding [--flink FOLDER] [--events 2000000] [--runs 5] [--core 0] [--files]

hotspare does what `hotspare replay` does with the `local` runner (`own.py`). Both processes are started, and run a file of a
quarter of the length, before anything is counted; then they take turns. The processor time of all threads counts, from compiling
the job or the project to the end of the file, with garbage collection. The rates are events per second of it, medians; the time by
the clock is printed next to it. Without --files neither writes its outputs: Flink's `blackhole` takes them, hotspare publishes them
nowhere. With it both write CSV. Flink then writes a row per event, with the sum up to it. hotspare writes the whole changelog, four
rows per event once a key has its 20 rows: new and old value when the row arrives, and again when the oldest is evicted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from hotspare.runners.spark.jars import cache_folder

KEYS = 1_000
PYFLINK = "apache-flink==2.3.0"
_WARM_SHARE = 4
_JOB = Path(__file__).parent / "job.py"
_OWN = (sys.executable, "-m", "benchmarks.flink.own")


def write_events(path: Path, events: int) -> None:
    """Writes rows `id,key,x` without a header."""
    random, numbers = np.random.default_rng(1), np.arange(events)
    keys, values = numbers * 7919 % KEYS, np.round(random.random(events) * 1000, 2)
    with path.open("w") as file:
        file.writelines(f"{n},{k},{x}\n" for n, k, x in zip(numbers.tolist(), keys.tolist(), values.tolist(), strict=True))


@contextmanager
def turns(command: Sequence[str], core: int, sink: str, files: Sequence[Path]) -> Iterator[Callable[[], tuple[float, float]]]:
    """Yields a program on one core, warm: each call is a run and returns seconds of processor time and by the clock."""
    asked = ["taskset", "-c", str(core), *command, sink, *map(str, files)]
    with subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None and stdout is not None

        def turn() -> tuple[float, float]:
            stdin.write("\n")
            stdin.flush()
            for line in stdout:
                if line.startswith("{"):
                    said = json.loads(line)
                    return said["seconds"], said["clock"]
            raise RuntimeError(f"{command[0]} ended")

        try:
            yield turn
        finally:
            stdin.close()


def environment(folder: Path) -> Path:
    """Returns the Python of an environment with PyFlink, which is created if there is none."""
    python = folder / "bin" / "python"
    done = folder / f"has-{PYFLINK}"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", PYFLINK], check=True)
        done.touch()
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flink", type=Path, default=cache_folder().parent / "flink-venv", help="environment with PyFlink")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    parser.add_argument("--files", action="store_true", help="both write what they make")
    asked = parser.parse_args()
    commands = {"hotspare": _OWN, "Flink": (str(environment(asked.flink)), str(_JOB))}
    print(f"{asked.events:,} events, {KEYS:,} keys, core {asked.core}, {'CSV' if asked.files else 'nothing'} written, {PYFLINK}")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        warm, events = Path(folder) / "warm.csv", Path(folder) / "events.csv"
        write_events(warm, asked.events // _WARM_SHARE)
        write_events(events, asked.events)
        started = {
            name: stack.enter_context(
                turns(command, asked.core, str(Path(folder) / f"{name}.out") if asked.files else "", (warm, events))
            )
            for name, command in commands.items()
        }
        found = [{name: turn() for name, turn in started.items()} for _ in range(asked.runs)]
    rates: dict[str, float] = {}
    for name in commands:
        rates[name], by_clock = (asked.events / statistics.median(run[name][i] for run in found) / 1e6 for i in (0, 1))
        print(f"{name}: {rates[name]:.2f} M events/s of processor time, {by_clock:.2f} M by the clock")
    print(f"hotspare / Flink: {rates['hotspare'] / rates['Flink']:.1f}")


if __name__ == "__main__":
    main()
