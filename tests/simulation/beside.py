"""A simulated group with engines of two projects: the role moves between the two, engines are killed and paused.

Stream `q/a` is the same in both projects, `q/b` is not, and in some groups the changed project reads one topic more. Each input is
answered on `q/b` by one of the two. If the publishing project changes, the other one's outputs continue right after the newest.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from hotspare.flow.numbering import NUMBERING
from hotspare.flow.semantics import SEMANTICS
from hotspare.ha.effects.upgrading import agreement, record_cut_over
from hotspare.ha.rules.joining import restorable
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupTopics, InboundTopic
from hotspare.ha.rules.upgrading import Agreement, CutOver, CutOverKind, ProjectVersion, StateSource
from tests.simulation.checkers import Violation
from tests.simulation.fast_core import FastCores
from tests.simulation.kits import fast_kit
from tests.simulation.recorded import Recorded
from tests.simulation.script import Script
from tests.simulation.upgrades import CHANGED, CORES, KEPT, NEW, OLD
from tests.simulation.world import GROUP, SETTINGS, project

ENGINES = {"a0": OLD, "a1": OLD, "b0": NEW, "b1": NEW}
TOPICS_SHARED = 2
PATIENCE_MS = 250
"""After this time every engine knows that an engine is able, or that a decision was made."""
Row = tuple[object, ...]


@dataclass
class Both:
    """`topics`: the inputs and outputs of the changed project. `allowed`: the projects whose engines may start."""

    script: Script
    rng: random.Random
    topics: GroupTopics
    allowed: tuple[str, ...] = (OLD,)
    ran: dict[str, str] = field(default_factory=dict)
    leads_since: tuple[str, int] = (OLD, 0)
    awake_since: dict[str, int] = field(default_factory=dict)
    """By door, for engines that could have the role."""
    in_role: set[str] = field(default_factory=set)
    cores: Mapping[str, FastCores] = field(default_factory=lambda: CORES)

    @classmethod
    def make(cls, folder: Path, seed: int) -> Both:
        script, topics = Script(folder, *ENGINES, settings=replace(SETTINGS, project_poll_ms=40)), fast_kit().topics
        if seed % 2:
            topics = replace(topics, inbound=(*topics.inbound, InboundTopic("in2")))
        return cls(script, random.Random(seed), topics)

    # --- the operator ----------------------------------------------------------------------------------------------------------

    @property
    def known(self) -> Agreement:
        found = agreement(self.script.world.coordination.client("people"), GROUP)
        assert found is not None
        return found

    def decide(self, kind: CutOverKind, version: ProjectVersion) -> None:
        record_cut_over(self.script.world.coordination.client("people"), GROUP, self.known, CutOver(kind, version))
        leads = self._name(self.known.leading)
        if leads != self.leads_since[0]:
            self.leads_since = (leads, self.script.world.now_ms)

    def offer(self) -> None:
        """Offers the changed project, from a snapshot of the old one, or from the origin."""
        identity, snapshot = project(NEW), None
        if self.rng.random() < 0.7:
            snapshot = next(iter(restorable(self.script.world.store.list(self.known.leading.snapshot_group(GROUP)))), None)
        begin = StateSource.ORIGIN if snapshot is None else StateSource.SNAPSHOT
        version = ProjectVersion(identity.hash, SEMANTICS, identity.document, self.known.cut_overs + 1, begin, frozenset({CHANGED}))
        version = replace(version, changed_streams=frozenset({CHANGED}), topics_shared=TOPICS_SHARED)
        self.decide(CutOverKind.OFFER, version)
        self.allowed = (OLD, NEW)
        if snapshot is not None:
            store = self.script.world.store
            stored = store.get(self.known.leading.snapshot_group(GROUP), snapshot.name)
            header = json.dumps({**json.loads(stored.header), NUMBERING: {CHANGED: None}}).encode()
            assert self.known.other is not None
            place = self.known.other.snapshot_group(GROUP)
            store.write_candidate(place, snapshot.name, snapshot.engine, snapshot.order, header, stored.pages.items())
            store.confirm(place, snapshot.name)

    def lead(self, name: str) -> None:
        """Gives this project the lead, and requests the role for one of its spares, if it has any."""
        known = self.known
        wanted = known.other if known.other is not None and self._name(known.other) == name else known.leading
        if wanted is not known.leading:
            self.decide(CutOverKind.LEAD, wanted)
        spares = [p.name for p in self.script.world.processes.values() if ENGINES[p.name] == name and p.engine.role is Role.STANDBY]
        if spares:
            self.script.world.coordination.client("people").request_switchover(GROUP, self.rng.choice(spares))

    def settle(self) -> None:
        self.decide(CutOverKind.SETTLE, self.known.leading)
        self.allowed = (self._name(self.known.leading),)

    def _name(self, version: ProjectVersion) -> str:
        return OLD if version.hash == project(OLD).hash else NEW

    # --- engines ---------------------------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        world = self.script.world
        world.identity, world.cores = project(ENGINES[name]), {name: self.cores[ENGINES[name]]}
        world.topics = self._topics(ENGINES[name])
        process = world.start(name)
        process.may_be_refused = lambda: True  # its project may no longer take part when it joins
        self.ran[process.door] = ENGINES[name]

    def live(self, turns: int) -> None:
        """Publishes events, and kills, pauses and starts engines."""
        world, rng = self.script.world, self.rng
        for _ in range(turns):
            if rng.random() < 0.3:
                self.script.publish(rng.randrange(100))
            name = rng.choice(list(ENGINES))
            if name not in world.processes:
                if rng.random() < 0.3 and ENGINES[name] in self.allowed:
                    self.start(name)
            elif rng.random() < 0.02:
                world.kill(name)
            elif rng.random() < 0.02:
                world.pause(name, rng.choice([5, 80, 200, 900]))
            self.turn()
            self.turn()

    def turn(self) -> None:
        self.script.turn()
        self.check_roles()

    def until(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            self.check_roles()
            return condition()

        self.script.until(holds)

    def until_out(self, name: str) -> None:
        """Turns until the newest outputs that a project computes are delivered."""
        due = {stream: _bare(rows[-1]) for stream, rows in self.reference(name).items() if rows}
        self.until(lambda: all(self._has(stream, row) for stream, row in due.items()))

    def _has(self, stream: str, row: Row) -> bool:
        return any(_bare(each) == row for each in self.script.world.observer.rows.get(stream, [])[-100:])

    def _asks_again(self, leads: str) -> bool:
        """Requests the switch-over again if none is pending: one to a sleeping engine expires. Returns False."""
        if self.script.world.coordination.client("people").requested_successor(GROUP) is None:
            self.lead(leads)
        return False

    def _plays(self, names: Collection[str], *roles: Role) -> bool:
        """Whether one of these engines has one of these roles."""
        return any(p.name in names and p.engine.role in roles for p in self.script.world.processes.values())

    # --- checks ----------------------------------------------------------------------------------------------------------------

    def check_roles(self) -> None:
        """Checks that no engine differs, and that none takes the role while the leading project has an able engine."""
        world, now_ms = self.script.world, self.script.world.now_ms
        able = {p.door: p for p in world.processes.values() if p.engine.role in (Role.STANDBY, Role.ACTIVE) and p.is_ready(now_ms)}
        self.awake_since = {door: self.awake_since.get(door, now_ms) for door in able}
        in_role = {p.door for p in world.processes.values() if p.engine.role in (Role.PROMOTING, Role.ACTIVE)}
        for process in world.processes.values():
            if process.engine.role is Role.DIVERGED or (process.state is not None and process.state.differences):
                raise Violation(f"{process.door} differs: {process.state.differences if process.state else ''}")
        leads, since_ms = self.leads_since
        for door in in_role - self.in_role:
            living = [d for d, ms in self.awake_since.items() if d != door and self.ran[d] == leads and ms <= now_ms - PATIENCE_MS]
            if self.ran[door] != leads and living and since_ms <= now_ms - PATIENCE_MS:
                raise Violation(f"{door} takes the role, though {leads} leads and {living[0]} lives")
        self.in_role = in_role

    def reference(self, name: str) -> Mapping[str, Sequence[Row]]:
        world = self.script.world
        kit = replace(fast_kit(), cores=self.cores[name], topics=self._topics(name))
        return Recorded(kit, world.outside).reference(world.settings.skew_max_ms)

    def _topics(self, name: str) -> GroupTopics:
        return self.topics if name == NEW else fast_kit().topics

    def check_outputs(self) -> None:
        observer = self.script.world.observer
        rows = observer.rows[KEPT]
        if rows != list(self.reference(OLD)[KEPT])[: len(rows)]:
            raise Violation(f"stream {KEPT} is not what it would have been without an upgrade")
        owners = [self.ran[observer.epoch_owner[output.epoch]] for output in observer.outputs.get(CHANGED, ())]
        by_project = zip(owners, observer.rows.get(CHANGED, ()), strict=True)
        whole = {name: [_bare(row) for row in self.reference(name)[CHANGED]] for name in (OLD, NEW)}
        before: list[Row] = []
        for name, piece in groupby(by_project, key=lambda each: each[0]):
            came = [_bare(row) for _, row in piece]
            _check_piece(name, before, came, whole[name])
            before += came

    def end(self, leads: str) -> None:
        """Settles on one project, and checks that all its outputs are delivered."""
        for name, its in ENGINES.items():
            if name not in self.script.world.processes and its == leads:
                self.start(name)
        spares = [name for name, its in ENGINES.items() if its == leads]
        self.until(lambda: self._plays(spares, Role.STANDBY, Role.ACTIVE))
        self.until(lambda: self._plays(spares, Role.ACTIVE) or self._asks_again(leads))
        self.settle()
        self.script.publish(*range(20))
        self.until_out(leads)
        self.check_outputs()


def _check_piece(name: str, before: Sequence[Row], came: Sequence[Row], whole: Sequence[Row]) -> None:
    """Checks that a project's outputs between two changes are contiguous in its outputs for the whole input. They must begin right
    after the previous ones, by the position of one of the newest outputs."""
    at = whole.index(came[0]) if came[0] in whole else None
    if at is None or list(whole[at : at + len(came)]) != list(came):
        raise Violation(f"stream {CHANGED}: {len(came)} outputs of {name} are no piece of what it makes of the input")
    if not before:
        if at:
            raise Violation(f"stream {CHANGED} begins with output {at + 1} of {name}")
        return
    newest = {_partition(row): row for row in before}
    places = {
        key: 1 + max((i for i, row in enumerate(whole) if _partition(row) == key and row[:5] <= last[:5]), default=-1)
        for key, last in newest.items()
    }
    if not places[_partition(before[-1])] <= at <= max(places.values()):
        raise Violation(f"stream {CHANGED}: {name} goes on with its output {at + 1}, between {places} it should")


def _bare(row: Row) -> Row:
    """Returns the row without its number and its digest, which depend on how the state began."""
    return (*row[1:6], *row[7:])


def _partition(row: Row) -> tuple[object, object]:
    return row[0], row[1]


def run(seed: int, folder: Path) -> str:
    """Returns the error in the run of a seed, or ""."""
    found = Both.make(folder, seed)
    rng = found.rng
    try:
        found.start("a0")
        found.live(rng.randrange(20, 150))
        found.offer()
        found.live(rng.randrange(20, 150))
        leads = OLD
        for _ in range(rng.randrange(0, 4)):
            leads = NEW if leads == OLD else OLD
            found.lead(leads)
            found.live(rng.randrange(20, 250))
        found.end(leads)
    except (Violation, AssertionError) as error:
        return f"seed {seed}: {error}"
    finally:
        found.script.world.close()
    return ""
