"""The seeds that found the planted bugs the last time, so that a test need not search for each of them again.

python -m tests.simulation.found [NAME ...]     search for these bugs, and write the table; without names, for all whose seed
                                                no longer finds any
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.simulation.parallel import pool, share_of, spread
from tests.simulation.planted import PLANTED
from tests.simulation.run import Outcome

SEEDS = 1_000
TABLE = Path(__file__).with_name("found.json")


def known() -> dict[str, int]:
    seeds: dict[str, int] = json.loads(TABLE.read_text(encoding="utf-8"))
    return seeds


def found_before(planted: str) -> Outcome | None:
    """Returns what the recorded seed finds; None if it no longer finds the bug, as after any change of what a run draws."""
    seed = known().get(planted)
    failed = share_of(seed, 1, planted).failed if seed else []
    return failed[0] if failed else None


def search(workers: ProcessPoolExecutor, planted: str) -> Outcome | None:
    """Returns the outcome of the first seed that finds the bug."""
    return next((share.failed[0] for share in spread(workers, 1, SEEDS, chunk=5, planted=planted) if share.failed), None)


def main(names: list[str]) -> None:
    seeds = known()
    with pool() as workers:
        for name in names or [each for each in PLANTED if found_before(each) is None]:
            outcome = search(workers, name)
            print(f"{name}: {outcome.seed if outcome else 'not found'}", flush=True)
            if outcome:
                seeds[name] = outcome.seed
    seeds = {name: seed for name, seed in sorted(seeds.items()) if name in PLANTED}
    TABLE.write_text(json.dumps(seeds, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
