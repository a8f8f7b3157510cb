"""Runs many seeds on all cores: `make sim-campaign RUNS=100000 SEED=1`; before them, weeks in the life of a group.

Prints its progress and speed, for each finding the line that repeats it, and at the end what its runs covered. Exits with 1 if
there was a finding.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.coverage import lines
from tests.simulation.parallel import Share, pool, spread, weeks_of
from tests.simulation.planting import Groups
from tests.simulation.weeks import MINUTE_MS

_CHUNK = 50
_REPORT_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="sim-campaign", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1, help="the first seed; the others follow it")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="as many processes; all cores if not given")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no more runs after so long")
    parser.add_argument("--weeks", type=int, default=8, help="how many weeks of an idle and of a steady group; 0: none")
    kinds = parser.add_mutually_exclusive_group()
    for kind in (each for each in Groups if each is not Groups.ONE):
        name, what = f"--{kind.name.lower()}", f"runs of {kind.value}"
        kinds.add_argument(name, dest="groups", action="store_const", const=kind, help=what)
    options = parser.parse_args()
    groups = options.groups or Groups.ONE
    total, started = Share(), time.monotonic()
    reported = started
    print(f"{options.runs} runs from seed {options.seed} on, in {options.workers} processes", flush=True)
    grown = 0
    with pool(options.workers) as executor:
        grown = _weeks(executor, options.weeks, options.seed)
        for share in spread(executor, options.seed, options.runs, _CHUNK, groups=groups):
            total.add(share)
            for outcome in share.failed:
                print(f"FOUND with seed {outcome.seed}: {outcome.failure}\n  repeat with: {outcome.repeat}", flush=True)
            if time.monotonic() - reported > _REPORT_S:
                reported = time.monotonic()
                print(_line(total, options.runs, reported - started), flush=True)
            if time.monotonic() - started > 60 * options.minutes:
                break
    print(_line(total, options.runs, time.monotonic() - started))
    if total.covered:
        print("\n".join(lines(total.covered)))
    return 1 if total.failed or grown else 0


def _weeks(executor: ProcessPoolExecutor, weeks: int, seed: int) -> int:
    """Returns the count of findings in the weeks of an idle group and of one with an event every half an hour."""
    groups = {0: "idle", 30 * MINUTE_MS: "steady"} if weeks else {}
    running = {name: executor.submit(weeks_of, weeks, event_every_ms, seed) for event_every_ms, name in groups.items()}
    found = {name: result for name, future in running.items() if (result := future.result())}
    for name, result in found.items():
        print(f"FOUND in {weeks} weeks of a group that is {name}: {result}", flush=True)
        print(f"  repeat with: make sim-campaign RUNS=0 SEED={seed} ARGS='--weeks {weeks}'", flush=True)
    if weeks and not found:
        print(f"{weeks} weeks of an idle group and of a steady one: nothing grew", flush=True)
    return len(found)


def _line(total: Share, runs: int, seconds: float) -> str:
    per_second = total.runs / max(seconds, 1e-9)
    found = f"{len(total.failed)} findings" if total.failed else "no finding"
    work = f"{total.steps:,} steps, {total.commits:,} commits, {total.delivered:,} outputs"
    return f"{total.runs:,} of {runs:,} runs, {found}; {per_second:.1f} runs/s; {work}; longest healing {total.longest} steps"


if __name__ == "__main__":
    sys.exit(main())
