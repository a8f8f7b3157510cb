"""A simulated group that changes to another project, and back, while engines are killed and paused.

Stream `q/a` is the same in both projects, `q/b` is not. Each project's outputs on `q/b` must be a contiguous piece of its outputs
for the whole input. There may be no gap and no repetition within the piece, whichever engines published it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from hotspare.flow.semantics import SEMANTICS
from hotspare.ha.effects.upgrading import agreement, record_cut_over
from hotspare.ha.rules.upgrading import CutOver, CutOverKind, ProjectVersion
from hotspare.rows.batch import RowKind
from tests.simulation.checkers import Violation
from tests.simulation.fast_core import EXPIRY_US, HEARTBEAT_US, FastCore, FastCores
from tests.simulation.kits import fast_kit
from tests.simulation.recorded import Recorded
from tests.simulation.script import Script
from tests.simulation.world import GROUP, project

ENGINES = ("e0", "e1", "e2")
KEPT, CHANGED = "q/a", "q/b"
OLD, NEW = "project", "changed"
Rows = Sequence[tuple[object, ...]]


class ChangedCore(FastCore):
    """A core whose stream `q/b` has every event with a value that 3 does not divide, and no expired events."""

    def _process(self, row: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
        before = dict(self.sequences), dict(self.digests), dict(self.last_ids)
        made = [each for each in super()._process(row) if each[0] == KEPT]
        for mine, was in zip((self.sequences, self.digests, self.last_ids), before, strict=True):
            mine[CHANGED] = was[CHANGED]  # type: ignore[index]
        if row[5] == RowKind.EVENT and row[6] % 3:
            made.append(self._put(CHANGED, row, {CHANGED: 0}, self.count, self.total))
        yield from made


CORES = {OLD: FastCores(), NEW: FastCores(kind=ChangedCore)}
assert HEARTBEAT_US < EXPIRY_US


@dataclass
class Upgraded:
    """`ran`: the project of each life of an engine."""

    script: Script
    rng: random.Random
    runs: str = OLD
    ran: dict[str, str] = field(default_factory=dict)

    def start(self, name: str) -> None:
        world = self.script.world
        world.identity, world.cores = project(self.runs), dict.fromkeys(ENGINES, CORES[self.runs])
        self.ran[world.start(name).door] = self.runs

    def live(self, turns: int) -> None:
        """Publishes events, and kills, pauses and starts engines."""
        world, rng = self.script.world, self.rng
        for _ in range(turns):
            if rng.random() < 0.3:
                self.script.publish(rng.randrange(100))
            name = rng.choice(ENGINES)
            if name not in world.processes:
                if rng.random() < 0.3:
                    self.start(name)
            elif rng.random() < 0.02:
                world.kill(name)
            elif rng.random() < 0.02:
                world.pause(name, rng.choice([5, 80, 200]))
            self.script.turn()
            self.script.turn()

    def upgrade(self, to: str, unseen: str = "") -> None:
        """Kills all engines at once and changes the group's project. `unseen`: an engine that sleeps on unnoticed."""
        for name in list(self.script.world.processes):
            if name != unseen:
                self.script.world.kill(name)
        client = self.script.world.coordination.client("world")
        known = agreement(client, GROUP)
        if known is not None:
            identity = project(to)
            version = ProjectVersion(
                identity.hash, SEMANTICS, identity.document, known.cut_overs + 1, renumbered_streams=frozenset({CHANGED})
            )
            known = record_cut_over(client, GROUP, known, CutOver(CutOverKind.OFFER, version))
            for kind in (CutOverKind.LEAD, CutOverKind.SETTLE):
                known = record_cut_over(client, GROUP, known, CutOver(kind, version))
            self.runs = to

    def reference(self, name: str) -> dict[str, Rows]:
        world = self.script.world
        recorded = Recorded(replace(fast_kit(), cores=CORES[name]), world.outside)
        return dict(recorded.reference(world.settings.skew_max_ms))

    def finish(self) -> None:
        for name in ENGINES:
            if name not in self.script.world.processes:
                self.start(name)
        due = self.reference(self.runs)
        self.script.until(lambda: all(self._has(stream, rows[-1]) for stream, rows in due.items() if rows))
        self._check_kept()
        self._check_changed()

    def _has(self, stream: str, row: tuple[object, ...]) -> bool:
        return any(each[1:] == row[1:] for each in self.script.world.observer.rows.get(stream, [])[-200:])

    def _check_kept(self) -> None:
        rows = self.script.world.observer.rows[KEPT]
        if rows != list(self.reference(OLD)[KEPT])[: len(rows)]:
            raise Violation(f"stream {KEPT} is not what it would have been without an upgrade")

    def _check_changed(self) -> None:
        observer = self.script.world.observer
        owners = [self.ran[observer.epoch_owner[output.epoch]] for output in observer.outputs.get(CHANGED, ())]
        by_project = zip(owners, observer.rows.get(CHANGED, ()), strict=True)
        for name, piece in groupby(by_project, key=lambda each: each[0]):
            rows, whole = [row[1:] for _, row in piece], [row[1:] for row in self.reference(name)[CHANGED]]
            at = whole.index(rows[0]) if rows[0] in whole else 0
            if whole[at : at + len(rows)] != rows:
                raise Violation(f"stream {CHANGED}: {len(rows)} outputs of {name} are no piece of what it makes of the input")


def run(seed: int, folder: Path) -> str:
    """Returns the error in the run of a seed, or ""."""
    rng = random.Random(seed)
    found = Upgraded(Script(folder, *ENGINES), rng)
    try:
        found.live(rng.randrange(20, 200))
        for to in (NEW, OLD, NEW)[: rng.randrange(1, 4)]:
            found.upgrade(to)
            found.live(rng.randrange(20, 200))
        found.finish()
    except (Violation, AssertionError) as error:
        return f"seed {seed}: {error}"
    finally:
        found.script.world.close()
    return ""
