"""The first minutes of a user: `make demo` from a fresh clone under an empty HOME, with nothing compiled, unpacked or cached.

Prints the seconds until the first output is published and until the demo has ended, and the memory of the processes that compile
kernels: the most that one had, and that all had at once. It downloads what `make demo` downloads. Run it with nothing else on the
machine.

    python -m benchmarks.first_minute [--target demo] [--args "--kills 4"]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from hotspare.base.errors import HotspareError
from hotspare.bus.contract import Partition
from hotspare.bus.naming import outbound_topic
from hotspare.demo.scenario import PREFIX
from hotspare.demo.site import embedded
from hotspare.operate.groups import existing_bus

ROOT = Path(__file__).parents[1]
COMPILING = "hotspare.host.kernels"
_LOOK_S = 0.1
_NOT_INHERITED = ("HOME", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")


@dataclass
class Seen:
    """The facts that a run showed: the seconds until the first output, None before it, and the peaks in bytes."""

    first_output_s: float | None = None
    largest_process: int = 0
    all_processes: int = 0


class Watch(threading.Thread):
    """Looks at the demo's bus and at the processes that compile, until `ended` is set."""

    def __init__(self, folder: Path, begin: float) -> None:
        super().__init__(daemon=True)
        self._folder, self._begin = folder, begin
        self.ended, self.seen = threading.Event(), Seen()

    def run(self) -> None:
        while not self.ended.wait(_LOOK_S):
            sizes = compiling_bytes()
            self.seen.largest_process = max(self.seen.largest_process, *sizes, 0)
            self.seen.all_processes = max(self.seen.all_processes, sum(sizes))
            if self.seen.first_output_s is None and has_outputs(self._folder):
                self.seen.first_output_s = time.monotonic() - self._begin


def compiling_bytes() -> list[int]:
    """Returns the resident memory of each process that compiles kernels."""
    found = psutil.process_iter(["cmdline", "memory_info"])
    return [
        each.info["memory_info"].rss for each in found if each.info["memory_info"] and COMPILING in (each.info["cmdline"] or ())
    ]


def has_outputs(folder: Path) -> bool:
    """Whether the demo that has its files in `folder` has published an output."""
    for demo in folder.glob("hotspare-demo-*"):
        with ExitStack() as stack, suppress(HotspareError):  # there is no bus yet, or no topic
            bus = existing_bus(stack, embedded(demo).bus_url)
            return bus.end_offset(Partition(outbound_topic(PREFIX, "memory", "memory", "totals"))) > 0
    return False


def run(target: str, arguments: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        clone, home, temporary = (Path(name) / each for each in ("clone", "home", "tmp"))
        home.mkdir()
        temporary.mkdir()
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        inherited = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
        begin = time.monotonic()
        watch = Watch(temporary, begin)
        watch.start()
        env = {**inherited, "HOME": str(home), "TMPDIR": str(temporary)}
        status = subprocess.run(["make", target, f"ARGS={arguments}"], cwd=clone, env=env, check=False).returncode
        ended_s = time.monotonic() - begin
        watch.ended.set()
        watch.join()
    first = watch.seen.first_output_s
    print(f"first output after {'-' if first is None else f'{first:.0f} s'}, done after {ended_s:.0f} s with status {status}")
    largest, together = watch.seen.largest_process / 2**20, watch.seen.all_processes / 2**20
    print(f"compiling took {largest:.0f} MiB in one process, {together:.0f} MiB in all at once")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="demo")
    parser.add_argument("--args", default="", help="arguments of the demo")
    options = parser.parse_args()
    run(options.target, options.args)


if __name__ == "__main__":
    main()
