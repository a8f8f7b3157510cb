"""Two projects in one simulated group that share no stream: `q/a` ends with the old one, and `q/b` begins with the changed one.

No committed output of one project has a position for the other. So each must learn from the other's stream which input is answered.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hotspare.flow.semantics import SEMANTICS
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupTopics
from hotspare.ha.rules.upgrading import CutOverKind, ProjectVersion, StateSource
from tests.simulation.beside import ENGINES, Both, Row
from tests.simulation.fast_core import FastCore, FastCores
from tests.simulation.kits import fast_kit
from tests.simulation.script import Script
from tests.simulation.upgrades import CHANGED, KEPT, NEW, OLD
from tests.simulation.world import SETTINGS, project

STREAMS = {OLD: KEPT, NEW: CHANGED}


class FirstStreamCore(FastCore):
    def _process(self, row: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield from (each for each in super()._process(row) if each[0] == KEPT)


class SecondStreamCore(FastCore):
    def _process(self, row: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield from (each for each in super()._process(row) if each[0] == CHANGED)


@dataclass
class Apart(Both):
    @classmethod
    def begin(cls, folder: Path) -> Apart:
        script = Script(folder, *ENGINES, settings=replace(SETTINGS, project_poll_ms=40))
        cores = {OLD: FastCores(kind=FirstStreamCore), NEW: FastCores(kind=SecondStreamCore)}
        return cls(script, random.Random(1), fast_kit().topics, cores=cores)

    def offer(self) -> None:
        identity = project(NEW)
        version = ProjectVersion(
            identity.hash, SEMANTICS, identity.document, self.known.cut_overs + 1, StateSource.ORIGIN, frozenset({CHANGED})
        )
        fates = {"added_streams": frozenset({CHANGED}), "removed_streams": frozenset({KEPT})}
        self.decide(CutOverKind.OFFER, replace(version, changed_streams=frozenset(STREAMS.values()), **fates))
        self.allowed = (OLD, NEW)

    def _topics(self, name: str) -> GroupTopics:
        whole = fast_kit().topics
        return replace(whole, outbound=tuple(each for each in whole.outbound if each.stream == STREAMS[name]))

    def events(self, turns: int, *names: str) -> None:
        """Publishes events while these engines run, or all."""
        for turn in range(turns):
            if turn % 3 == 0:
                self.script.publish(2 * turn, 2 * turn)
            self.script.turn(*names)

    def until_standby(self, name: str) -> None:
        self.script.until(lambda: self.script.role(name) is Role.STANDBY)

    def rows(self, name: str) -> list[Row]:
        """Returns the outputs of a project's stream."""
        return list(self.script.world.observer.rows.get(STREAMS[name], ()))

    def unanswered(self, name: str, before: Sequence[Row]) -> list[Row]:
        """Returns a project's outputs for the input after the last that another project answered, without numbers and digests."""
        newest, whole = {row[1:3]: row[3] for row in before}, self.reference(name)[STREAMS[name]]
        through = max((i for i, row in enumerate(whole) if row[3] <= newest.get(row[1:3], -1)), default=-1)  # type: ignore[operator]
        return [bare(row) for row in whole[through + 1 :]]


def bare(row: Row) -> Row:
    return (*row[1:6], *row[7:])
