"""Many seeds on all cores: `make sim-campaign RUNS=100000 SEED=1`.

It says how far it is and how fast, and of a finding the one line that repeats it. It ends with 1 where there was a finding.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.simulation.parallel import Share, pool, spread

_CHUNK = 50
_REPORT_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="sim-campaign", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1, help="the first seed; the others follow it")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="as many processes; all cores if not given")
    options = parser.parse_args()
    total, started = Share(), time.monotonic()
    reported = started
    print(f"{options.runs} runs from seed {options.seed} on, in {options.workers} processes", flush=True)
    with pool(options.workers) as executor:
        for share in spread(executor, options.seed, options.runs, _CHUNK):
            total.add(share)
            for outcome in share.failed:
                print(f"FOUND with seed {outcome.seed}: {outcome.failure}\n  repeat with: {outcome.repeat}", flush=True)
            if time.monotonic() - reported > _REPORT_S:
                reported = time.monotonic()
                print(_line(total, options.runs, reported - started), flush=True)
    print(_line(total, options.runs, time.monotonic() - started))
    return 1 if total.failed else 0


def _line(total: Share, runs: int, seconds: float) -> str:
    per_second = total.runs / max(seconds, 1e-9)
    found = f"{len(total.failed)} findings" if total.failed else "no finding"
    work = f"{total.steps:,} steps, {total.commits:,} commits, {total.delivered:,} outputs"
    return f"{total.runs:,} of {runs:,} runs, {found}; {per_second:.1f} runs/s; {work}; longest healing {total.longest} steps"


if __name__ == "__main__":
    sys.exit(main())
