"""Runs the measurements one after another, each in a process of its own, and shows the command that repeats it: `make bench`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NOT_MEASUREMENTS = frozenset({"kill_loop"})
"""Programs in this folder that `make bench` leaves out; they have targets of their own."""


def names() -> list[str]:
    return sorted(p.stem for p in HERE.glob("[a-z]*.py") if p.stem not in NOT_MEASUREMENTS)


def main(chosen: list[str]) -> int:
    """Runs the measurements called `chosen`, or all; the exit status is that of the first one that failed."""
    unknown = sorted(set(chosen) - set(names()))
    if unknown:
        sys.stderr.write(f"no such measurement: {', '.join(unknown)}; there are {', '.join(names())}\n")
        return 2
    first_failure = 0
    for name in chosen or names():
        print(f"\n$ python -m benchmarks.{name}", flush=True)
        status = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=HERE.parent, check=False).returncode
        if status:
            print(f"{name} ended with status {status}", flush=True)
        first_failure = first_failure or status
    return first_failure


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
