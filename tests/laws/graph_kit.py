"""Law Failover over random graphs: a graph in the simulation of a cluster, with kills, pauses, promotions and lying services.

A graph runs SCALE times as fast as it is written, so that its seconds pass within the milliseconds of a simulated run.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

from tests.laws.any_changelogs import messages
from tests.laws.any_graphs import Graph
from tests.simulation.kits import CoreKit
from tests.simulation.run import run_seed

SCALE = 50
TOPICS = 2
"""The number of topics to which a simulated world publishes."""
_NUMBERS = 100
"""The count of numbers that it publishes; each represents a message."""


class GraphKit(CoreKit):
    """A graph of two source windows, and messages that a seed draws."""

    def __init__(self, graph: Graph, seed: int) -> None:
        super().__init__(replace(graph, scale=SCALE).plan())
        self._messages = messages(Random(seed), _NUMBERS)

    def encode(self, number: int) -> bytes:
        return self._messages[number]


def fails_over(graph: Graph, seed: int, folder: Path) -> str | None:
    """Returns the failure of the simulated run of a seed; None if the delivered outputs are those of an uninterrupted run."""
    return run_seed(seed, folder, kit=GraphKit(graph, seed)).failure or None
