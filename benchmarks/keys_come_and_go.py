"""Millions of keys that come and go: the memory of the process, through every kind of window that keeps something.

The project and its rounds are those of the law (`tests/laws/keys_come_and_go.py`): each round brings keys that never came before,
with texts of their own, through copies with retention by time and by count, aggregates, joins, patterns, transposition, pulses,
people's code in Lua and in Python, and deletes them while time passes. Told are the bytes of a snapshot, what the process has
resident, and what of it Arrow holds, after each tenth of the keys. The exit status is 0 where the last two tenths hold no more than
the second, but for a tenth of it.

    python -m benchmarks.keys_come_and_go [--keys 5000000] [--rounds 50]
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pyarrow as pa
from tests.laws.keys_come_and_go import PROJECT, rounds, state_bytes

from hotspare.base.interpreter import keep_freed_memory, pass_over_what_is_there
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.projects.load import load_text

_TOLD = 10
_GROWTH_MAX = 1.1


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=50)
    asked = parser.parse_args()
    plan = compile_plan(load_text(PROJECT).resolved)
    keep_freed_memory()  # as an engine does, and passes over what is there
    pass_over_what_is_there()
    pipeline = Pipeline.fresh(plan)
    each, told = asked.keys // asked.rounds, max(1, asked.rounds // _TOLD)
    sizes: list[int] = []
    for number in rounds(plan, pipeline, each, asked.rounds):
        if (number + 1) % told:
            continue
        state, of_arrow = state_bytes(pipeline), pa.total_allocated_bytes() >> 20
        sizes.append(resident_bytes())
        said = f"snapshot {state:,} B, resident {sizes[-1] >> 20:,} MiB, of Arrow {of_arrow:,} MiB"
        print(f"{(number + 1) * each:>12,} keys: {said}", flush=True)
    growth = max(sizes[-2:]) / sizes[1]
    print(f"resident, of what it was after the second tenth: {growth:.3f}")
    sys.exit(growth > _GROWTH_MAX)


if __name__ == "__main__":
    main()
