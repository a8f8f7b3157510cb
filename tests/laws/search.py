"""A long search for graphs and changelogs that break a law: `python -m tests.laws.search --seed 1 --runs 1000`.

Each run makes a graph and a changelog from its seed and checks all laws of `graph_laws`. What breaks one is made as small as it
gets and printed as a project and a script. `--seed 17 --runs 1` repeats run 17.
"""

from __future__ import annotations

import argparse
import time
from random import Random

from hotspare.errors import ProjectError
from tests.laws.any_changelogs import Given, changelogs
from tests.laws.any_graphs import Graph, diamonds, graphs
from tests.laws.graph_laws import broken, shrunk

WINDOWS_MAX = 11


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--windows", type=int, default=WINDOWS_MAX)
    asked = parser.parse_args()
    began, found, runs = time.monotonic(), 0, 0
    for seed in range(asked.seed, asked.seed + asked.runs):
        if time.monotonic() - began > asked.seconds:
            break
        runs += 1
        graph, script = drawn(seed, asked.windows)
        why = broken(graph, script, Random(seed))
        if why is not None:
            found += 1
            report(seed, graph, script, why)
        if runs % 100 == 0:
            print(f"{runs} graphs, {found} broke a law", flush=True)
    print(f"{runs} graphs, {found} broke a law, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if found else 0


def drawn(seed: int, windows_max: int = WINDOWS_MAX) -> tuple[Graph, list[Given]]:
    """The graph and the changelog of a seed; every third graph is a diamond."""
    random = Random(seed)
    graph = diamonds(random) if seed % 3 == 0 else graphs(random, windows_max)
    return graph, changelogs(random, graph.sources)


def report(seed: int, graph: Graph, script: list[Given], why: str) -> None:
    kind = why.split(":")[0]

    def fails(smaller: Graph, fewer: list[Given]) -> bool:
        try:
            smaller.plan()
        except ProjectError:
            return False
        told = broken(smaller, fewer, Random(seed))
        return told is not None and told.split(":")[0] == kind

    smaller, fewer = shrunk(graph, script, fails)
    print(f"=== seed {seed}: {broken(smaller, fewer, Random(seed))}\n{smaller.text}---", flush=True)
    for given in fewer:
        print(given.text)
    print(flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
