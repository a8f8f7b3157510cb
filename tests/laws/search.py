"""A long search for graphs and changelogs that break a law: `python -m tests.laws.search --seed 1 --runs 1000`.

Each run makes a graph and a changelog from its seed. It checks all laws of `graph_laws`, the law Twin, the law Runner for tables
with any rows, and an aggregate that starts with existing input rows. Another graph runs in the simulation of a cluster, the law
Failover, and one whose windows keep many rows is restored with pages left in the store. A failing graph is shrunk and printed as a
project and a script. `--seed 17 --runs 1` repeats run 17.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TypeAlias

from hotspare.base.errors import ProjectError
from tests.laws.any_changelogs import Given, changelogs
from tests.laws.any_graphs import Graph, diamonds, graphs, idle
from tests.laws.graph_kit import TOPICS, fails_over
from tests.laws.graph_laws import broken, shrunk
from tests.laws.table_laws import tables_differ
from tests.laws.test_recent_input import differs as late_engine_differs
from tests.laws.twin_engine import TwinEngine
from tests.laws.unloaded_law import broken as breaks_where_absent
from tests.laws.unloaded_law import drawn as drawn_with_many_rows
from tests.laws.upgrade_kit import begins_otherwise

WINDOWS_MAX = 11

Check: TypeAlias = Callable[[Graph, Sequence[Given]], "str | None"]
"""Returns the law that does not hold; None: all do."""


@dataclass(frozen=True)
class Try:
    """A graph and a script to check, and the check."""

    graph: Graph
    script: list[Given]
    check: Check


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--windows", type=int, default=WINDOWS_MAX)
    asked = parser.parse_args()
    began, found, runs = time.monotonic(), 0, 0
    with ExitStack() as stack:
        twin, folder = stack.enter_context(TwinEngine()), Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for seed in range(asked.seed, asked.seed + asked.runs):
            if time.monotonic() - began > asked.seconds:
                break
            runs += 1
            for each in _tries(seed, asked.windows, twin, folder):
                why = each.check(each.graph, each.script)
                if why is not None:
                    found += 1
                    report(seed, each, why)
            if runs % 100 == 0:
                print(f"{runs} runs, {found} broke a law", flush=True)
    print(f"{runs} runs, {found} broke a law, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if found else 0


def _tries(seed: int, windows_max: int, twin: TwinEngine, folder: Path) -> Iterator[Try]:
    graph, script = drawn(seed, windows_max)
    yield Try(graph, script, lambda graph, script: broken(graph, script, Random(seed)))
    yield Try(graph, script, lambda graph, script: begins_otherwise(graph, script, Random(seed)))
    yield Try(graph, script, twin.differs)
    yield Try(graph, [], lambda graph, _: tables_differ(graph, seed))
    yield Try(graph, [], lambda *_: late_engine_differs(seed, Counter()))
    keeping, many = drawn_with_many_rows(seed)
    yield Try(keeping, many, lambda graph, script: breaks_where_absent(graph, script, Random(seed)))
    yield Try(drawn_for_clusters(seed, windows_max), [], lambda graph, _: fails_over(graph, seed, folder))


def drawn(seed: int, windows_max: int = WINDOWS_MAX) -> tuple[Graph, list[Given]]:
    """Returns the graph and the changelog of a seed; every third graph is a diamond, and one of six has idle sources."""
    random = Random(seed)
    graph = diamonds(random) if seed % 3 == 0 else idle(random) if seed % 6 == 1 else graphs(random, windows_max)
    return graph, changelogs(random, graph.sources)


def drawn_for_clusters(seed: int, windows_max: int = WINDOWS_MAX) -> Graph:
    """Returns the graph of a seed for a simulated cluster."""
    random = Random(seed)
    if seed % 6 == 1:
        return idle(random, TOPICS)
    return diamonds(random, TOPICS) if seed % 3 == 0 else graphs(random, windows_max, TOPICS)


def report(seed: int, tried: Try, why: str) -> None:
    kind = why.split(":")[0]

    def fails(smaller: Graph, fewer: list[Given]) -> bool:
        try:
            smaller.plan()
        except ProjectError:
            return False
        told = tried.check(smaller, fewer)
        return told is not None and told.split(":")[0] == kind

    smaller, fewer = shrunk(tried.graph, tried.script, fails)
    print(f"=== seed {seed}: {tried.check(smaller, fewer)}\n{smaller.text}---", flush=True)
    for given in fewer:
        print(given.text)
    print(flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
