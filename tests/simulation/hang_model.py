"""An exhaustive check of the rule for calls of user code that do not end, within small bounds.

The module extends a copy of the model of promotion and publishing (docs/simulation.md). The model has no time: any call at a hang
place may exceed its deadline, at any engine and start. Each order of the steps is explored, breadth first, so a trace is shortest.

Input: events 1..N of one partition. Event n is an output of stream A; every second event is an output of stream B also; a silent
event is an output of neither. A decided event is an output of stream C alone, as a bad event. The state of an engine follows from
its position and the decisions that it applied. Each output contains the decisions applied before it, as chained digests would.

Checked in every state:

- Each stream has the outputs that the decisions on the bus require, once and in order.
- No commit has a lower epoch than the one before it.
- An engine whose outputs differ from those committed lacks a decision. Otherwise it would end as diverged without a fault.
- Each engine publishes all outputs alone while all others are paused for ever, both if its calls exceed the deadline and if not.

    python -m tests.simulation.hang_model --hangs 1,2 --silent 1 --epochs 1     # all states
    python -m tests.simulation.hang_model --engines 3 --walks 1000 --seed 7     # random walks within larger bounds
    python -m tests.simulation.hang_model --bug all                             # the planted errors, each with its trace
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple


class Role(StrEnum):
    """The role of an engine."""

    DOWN = "-"
    JOINING = "J"
    STANDBY = "S"
    PROMOTING = "P"
    ACTIVE = "A"
    ENDED = "F"
    """Ended for ever; only a planted error ends an engine so."""


class Call(StrEnum):
    """The state of an engine's call at a hang place."""

    NONE = ""
    RUNNING = "r"
    RECORDED = "t"
    """The watch recorded the attempt and has not ended the engine yet."""
    FETCHED = "f"
    """The engine has fetched the event, and computes earlier ones or is stopped before the call."""


class Retain(StrEnum):
    """The condition under which older snapshots and input may be deleted. A snapshot that lacks a known decision never counts."""

    ATTEMPTS = "attempts"
    """No undecided attempt lies before the snapshot, or output beyond the snapshot is committed."""
    OUTPUT = "output"
    """Output beyond the snapshot is committed."""
    POSITION = "position"
    """A position at or beyond the snapshot is committed. Then each commit has the active engine's position, and the decider
    compares positions."""


class Ends(StrEnum):
    """Whether calls at hang places end."""

    SOMETIMES = "sometimes"
    """A call may exceed its deadline, at any engine and start. Without a deadline it ends."""
    NEVER = "never"


class Restore(StrEnum):
    """The confirmed snapshot that a starting engine restores. An engine that cannot read one restores an older one."""

    NEWEST = "newest"
    ANY = "any"


class Joining(StrEnum):
    """Whether other steps may occur between the steps of a start."""

    AT_ONCE = "at-once"
    STEPS = "steps"


class Deletion(StrEnum):
    """Whether a collector is paused between its look and its deletion."""

    AT_ONCE = "at-once"
    LATER = "later"


class Engine(NamedTuple):
    """The state of an engine. Sets of hang places are bit masks.

    `pos`, `base`: the positions of its state and of the snapshot that it restored. `applied`: the decisions that its state
    applied. `known`: the committed sequences and position that it read or committed last. `attempted`, `decided`: the places
    with two attempts and with a decision, as it read them last. `passes`: the places that it computes without a deadline.
    `blamed`: the places with an attempt under the engine's name, for the planted error that counts them.
    """

    role: str = Role.DOWN
    step: str = ""
    pos: int = 0
    base: int = 0
    applied: int = 0
    known: tuple[int, int, int, int] = (0, 0, 0, 0)
    seen: int = 0
    epoch: int = 0
    producer: int = 0
    attempted: int = 0
    decided: int = 0
    call: str = Call.NONE
    passes: int = 0
    blamed: int = 0


class World(NamedTuple):
    """The state of all engines, bus, coordination and store.

    `log`: the committed sequence of each stream, and the committed position. `last`: the epoch of the last commit. `attempts`:
    the count of attempts by place, at most 2. `snapshots`: (position, applied decisions, whether confirmed). `floor`: the
    position up to which input and older snapshots are deleted; `plan`: the floor that a paused collector sets next, or 0.
    `crashes`, `lost`, `late`, `writes`: the remaining crashes, lost answers to commits, late fences and snapshots. `wrong`: the
    error on the bus, or "".
    """

    engines: tuple[Engine, ...]
    log: tuple[int, int, int, int] = (0, 0, 0, 0)
    last: int = 0
    decisions: int = 0
    attempts: tuple[int, ...] = ()
    producer: int = 0
    epoch: int = 0
    snapshots: frozenset[tuple[int, int, bool]] = frozenset({(0, 0, True)})
    floor: int = 0
    plan: int = 0
    crashes: int = 0
    lost: int = 0
    late: int = 0
    writes: int = 0
    wrong: str = ""


class Policy(StrEnum):
    """How the calls of an engine behave that has to publish everything alone."""

    PASS = "pass"
    HANG = "hang"


@dataclass(frozen=True)
class Bounds:
    """`hangs`: the events whose calls may exceed the deadline. `silent`: the events that cause no output."""

    engines: int = 2
    events: int = 3
    hangs: tuple[int, ...] = (2,)
    silent: tuple[int, ...] = (2,)
    crashes: int = 1
    epochs: int = 2
    lost: int = 1
    late: int = 1
    writes: int = 2
    retain: Retain = Retain.OUTPUT
    ends: Ends = Ends.SOMETIMES
    deletion: Deletion = Deletion.LATER
    restore: Restore = Restore.NEWEST
    joining: Joining = Joining.STEPS


Move = tuple[str, World]


class Violation(Exception):
    pass


class Model:
    def __init__(self, bounds: Bounds, bug: str = "") -> None:
        self.bounds, self.bug = bounds, bug
        self.outputs = lru_cache(None)(self._outputs)
        self.place = lru_cache(None)(self._place)
        self.places = lru_cache(None)(self._places)
        self.sequences = lru_cache(None)(self._sequences)
        self.agrees = lru_cache(None)(self._agrees)
        self._alone: dict[tuple[World, Policy], str] = {}

    def start(self) -> World:
        b = self.bounds
        return World(
            engines=(Engine(),) * b.engines,
            attempts=(0,) * len(b.hangs),
            crashes=b.crashes,
            lost=b.lost,
            late=b.late,
            writes=b.writes,
        )

    # --- outputs and states --------------------------------------------------------------------------------------

    def _place(self, event: int) -> int:
        """Returns the bit of the hang place at the event; 0 without one."""
        return 1 << self.bounds.hangs.index(event) if event in self.bounds.hangs else 0

    def _places(self, pos: int) -> int:
        """Returns the hang places at or before the position."""
        return sum(self.place(event) for event in self.bounds.hangs if event <= pos)

    def _outputs(self, pos: int, applied: int) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Returns the outputs of streams A, B and C that a state has caused, as (event, decisions applied)."""
        streams: tuple[list[tuple[int, int]], ...] = ([], [], [])
        for event in range(1, pos + 1):
            output = (event, applied & self.places(event))
            if self.place(event) & applied:
                streams[2].append(output)
            elif event not in self.bounds.silent:
                streams[0].append(output)
                if event % 2 == 0:
                    streams[1].append(output)
        return tuple(tuple(stream) for stream in streams)

    def _sequences(self, pos: int, applied: int) -> tuple[int, int, int, int]:
        a, b, c = self.outputs(pos, applied & self.places(pos))
        return len(a), len(b), len(c), pos

    def _agrees(self, pos: int, applied: int, log: tuple[int, ...], decisions: int) -> bool:
        """Whether the outputs of a state equal those committed, as far as both go."""
        own, due = self.outputs(pos, applied), self.outputs(self.bounds.events, decisions)
        return all(o[: min(len(o), n)] == d[: min(len(o), n)] for o, d, n in zip(own, due, log, strict=False))

    def missing(self, e: Engine, decisions: int) -> int:
        """Returns the decisions that the engine's state passed without applying them."""
        return decisions & self.places(e.pos) & ~e.applied

    def is_beyond(self, known: tuple[int, ...], own: tuple[int, ...]) -> bool:
        """Whether something is committed that lies beyond a state with the sequences `own`."""
        if self.bounds.retain is Retain.POSITION:
            return known[3] > own[3]
        return any(k > o for k, o in zip(known[:3], own, strict=False))

    def is_committed(self, w: World, pos: int, applied: int) -> bool:
        """Whether all outputs before a snapshot are committed and equal its own, so that it may be confirmed."""
        is_reached = all(n <= m for n, m in zip(self.sequences(pos, applied)[:3], w.log, strict=False))
        return is_reached and self.agrees(pos, applied, w.log, w.decisions)

    def restorable(self, w: World, decided: int) -> list[tuple[int, int]]:
        """Returns the confirmed snapshots that are not void for an engine that knows the decisions `decided`, the newest last."""
        found = [(pos, applied) for pos, applied, is_confirmed in w.snapshots if is_confirmed]
        return sorted((pos, applied) for pos, applied in found if not decided & self.places(pos) & ~applied)

    # --- the steps of one engine ---------------------------------------------------------------------------------

    def moves(self, w: World, i: int, alone: Policy | None = None) -> Iterator[Move]:
        """Yields (name, world) for each next step of engine `i`. The last one leads to progress if the engine is alone."""
        e = w.engines[i]
        if e.role == Role.ENDED:
            return
        if e.role in (Role.DOWN, Role.JOINING):
            yield from self.join(w, i, e, alone)
            return
        if alone is None and e.role in (Role.STANDBY, Role.ACTIVE) and w.writes and e.pos >= w.floor:
            yield from self.write(w, i, e)
        if e.role == Role.STANDBY:
            yield from self.stand_by(w, i, e, alone)
        if e.role == Role.PROMOTING:
            yield from self.promote(w, i, e)
        if e.role == Role.ACTIVE:
            yield from self.publish(w, i, e, alone)
        yield from self.compute(w, i, e, alone)

    def write(self, w: World, i: int, e: Engine) -> Iterator[Move]:
        if (e.pos, e.applied) not in {(pos, applied) for pos, applied, _ in w.snapshots}:
            new = w._replace(snapshots=w.snapshots | {(e.pos, e.applied, False)}, writes=w.writes - 1)
            yield f"{i} writes candidate {e.pos}", new

    def join(self, w: World, i: int, e: Engine, alone: Policy | None) -> Iterator[Move]:
        """Yields the steps of a start: it reads attempts, then decisions, then chooses a snapshot."""
        order = ["attempts", "decisions", "snapshot"]
        if self.bug == "attempts-after-snapshot":
            order = ["decisions", "snapshot", "attempts"]
        if self.bug == "decisions-after-snapshot":
            order = ["attempts", "snapshot", "decisions"]
        if self.bug == "decisions-after-computing":
            order = ["attempts", "snapshot"]
        if self.bounds.joining is Joining.AT_ONCE:
            found = [("", w)]
            for k in range(len(order)):
                found = [m for _, each in found for m in self.joined(each, i, each.engines[i], order, k, alone)]
            yield from ((f"{i} starts from snapshot {x.engines[i].pos}", x) for _, x in found)
        else:
            yield from self.joined(w, i, e, order, int(e.step or 0), alone)

    def joined(self, w: World, i: int, e: Engine, order: list[str], k: int, alone: Policy | None) -> Iterator[Move]:
        is_last = k + 1 == len(order)
        nxt = e._replace(role=Role.STANDBY if is_last else Role.JOINING, step="" if is_last else str(k + 1))
        if order[k] == "attempts":
            yield f"{i} starts: reads attempts", self.put(w, i, nxt._replace(attempted=self.stops(w)))
        if order[k] == "decisions":
            f = self.checked(nxt._replace(decided=w.decisions))
            yield f"{i} starts: reads decisions", self.put(w, i, f)
        if order[k] == "snapshot":
            usable = self.restorable(w, 0 if self.bug == "void-restored" else e.decided)
            for pos, applied in usable if self.bounds.restore is Restore.ANY and alone is None else usable[-1:]:
                f = nxt._replace(pos=pos, base=pos, applied=applied, known=self.sequences(pos, applied), seen=w.epoch)
                yield f"{i} starts: restores snapshot {pos}", self.put(w, i, f)

    def stops(self, w: World) -> int:
        """Returns the places before which the attempts require a stop."""
        if self.bug == "attempts-by-engine":
            return sum(1 << k for k in range(len(self.bounds.hangs)) if sum(e.blamed >> k & 1 for e in w.engines) >= 2)
        return sum(1 << k for k, count in enumerate(w.attempts) if count >= 2)

    def compute(self, w: World, i: int, e: Engine, alone: Policy | None) -> Iterator[Move]:
        """Yields the next steps of the engine's core. What it fetched it may compute although the input is deleted since."""
        at = e.pos + 1
        place = self.place(at)
        if e.call in (Call.RUNNING, Call.RECORDED):
            yield from self.in_call(w, i, e, place, alone)
        elif at > self.bounds.events or (e.pos < w.floor and not e.call):
            return
        elif not place:
            yield f"{i} computes {at}", self.put(w, i, e._replace(pos=at))
        elif not e.call:
            yield f"{i} fetches {at}", self.put(w, i, e._replace(call=Call.FETCHED))
        elif e.decided & place:
            yield f"{i} refuses {at}, as decided", self.put(w, i, e._replace(pos=at, applied=e.applied | place, call=Call.NONE))
        elif e.passes & place:
            if self.bounds.ends is Ends.SOMETIMES:
                f = self.checked(e._replace(pos=at, passes=e.passes & ~place, call=Call.NONE))
                yield f"{i} computes {at} without a deadline", self.put(w, i, f)
        elif not e.attempted & place:
            yield f"{i} calls the code for {at}", self.put(w, i, e._replace(call=Call.RUNNING))
        elif e.role == Role.ACTIVE:
            yield from self.decide(w, i, e, place, alone)

    def in_call(self, w: World, i: int, e: Engine, place: int, alone: Policy | None) -> Iterator[Move]:
        at = e.pos + 1
        if self.bounds.ends is Ends.SOMETIMES and alone is not Policy.HANG:
            yield f"{i}'s call for {at} ends", self.put(w, i, self.checked(e._replace(pos=at, call=Call.NONE)))
        if alone is Policy.PASS:
            return
        if e.call == Call.RUNNING:
            k = self.bounds.hangs.index(at)
            count = w.attempts[k] if self.bug == "restarts-not-counted" else min(2, w.attempts[k] + 1)
            new = w._replace(attempts=(*w.attempts[:k], count, *w.attempts[k + 1 :]))
            blamed = e.blamed | place if self.bug == "attempts-by-engine" else 0
            yield f"{i}'s watch records an attempt at {at}", self.put(new, i, e._replace(call=Call.RECORDED, blamed=blamed))
        else:
            yield f"{i}'s watch ends it", self.put(w, i, Engine(blamed=e.blamed))

    def checked(self, e: Engine) -> Engine:
        """Returns the engine after a change of its state or of the decisions it knows: it leaves if its state is void."""
        if self.bug in ("void-kept", "decisions-after-computing"):
            return e
        return Engine(blamed=e.blamed) if self.missing(e, e.decided) else e

    def stand_by(self, w: World, i: int, e: Engine, alone: Policy | None) -> Iterator[Move]:
        if self.bug == "agreeing-spares":
            yield from self.depose(w, i, e)
        if e.attempted != self.stops(w):
            yield f"{i} reads attempts", self.put(w, i, e._replace(attempted=self.stops(w)))
        if e.decided != w.decisions and self.bug != "agreeing-spares":
            f = self.checked(e._replace(decided=w.decisions))
            yield f"{i} reads decisions{'' if f.role == Role.STANDBY else ', is void and leaves'}", self.put(w, i, f)
        if e.seen != w.epoch:
            yield f"{i} sees epoch {w.epoch}", self.put(w, i, e._replace(seen=w.epoch))
        elif w.epoch < self.bounds.epochs or alone:
            won = e._replace(role=Role.PROMOTING, step="won", epoch=w.epoch + 1, seen=w.epoch + 1)
            yield f"{i} wins epoch {w.epoch + 1}", self.put(w, i, won)._replace(epoch=w.epoch + 1)

    def depose(self, w: World, i: int, e: Engine) -> Iterator[Move]:
        """Two spares whose outputs are equal to each other and differ from those committed end the active engine as wrong."""
        if self.agrees(e.pos, e.applied, w.log, w.decisions):
            return
        for j, other in enumerate(w.engines):
            if j != i and other.role == Role.STANDBY and not self.agrees(other.pos, other.applied, w.log, w.decisions):
                for k, active in enumerate(w.engines):
                    if active.role == Role.ACTIVE and active.producer == w.producer:
                        yield f"{i} and {j} depose {k}", self.put(w, k, active._replace(role=Role.ENDED))

    def promote(self, w: World, i: int, e: Engine) -> Iterator[Move]:
        if e.step == "won":
            if self.bug == "decided-before-fence":
                yield from self.decide_early(w, i, e)
            fenced = e._replace(step="fenced", producer=w.producer + 1)
            yield f"{i} fences", self.put(w, i, fenced)._replace(producer=w.producer + 1)
        elif e.step == "fenced":
            f = self.checked(e._replace(step="read", known=w.log, decided=w.decisions))
            what = f"{i} reads progress {self.told(w)}" + (", is void and leaves" if f.role == Role.DOWN else "")
            yield what, self.put(w, i, f)
        elif e.step == "read":
            if self.bug == "decided-before-recheck":
                yield from self.decide_early(w, i, e)
            is_late = w.epoch != e.epoch
            role = Role.STANDBY if is_late else Role.ACTIVE
            f = e._replace(role=role, step="", producer=0 if is_late else e.producer)
            yield f"{i} becomes {role.name.lower()}", self.put(w, i, f)

    def told(self, w: World) -> str:
        decided = [event for k, event in enumerate(self.bounds.hangs) if w.decisions >> k & 1]
        return f"A{w.log[0]} B{w.log[1]} C{w.log[2]}, decided {decided}"

    def publish(self, w: World, i: int, e: Engine, alone: Policy | None) -> Iterator[Move]:
        if alone is None:
            yield f"{i} gives the role up", self.put(w, i, e._replace(role=Role.STANDBY, step="", producer=0))
        own = self.sequences(e.pos, e.applied)
        if not self.is_due(e, own):
            if e.epoch != w.epoch:
                yield f"{i} sees epoch {w.epoch}, becomes standby", self.put(w, i, e._replace(role=Role.STANDBY, producer=0))
            return
        if e.producer != w.producer:
            yield self.fenced(w, i, e)
            return
        yield from self.commit(w, i, e, f"{i} commits to {e.pos}", e.decided, alone)

    def is_due(self, e: Engine, own: tuple[int, int, int, int]) -> bool:
        floor = self.sequences(e.base, e.applied)
        width = 4 if self.bounds.retain is Retain.POSITION else 3
        return any(o > max(k, f) for o, k, f in zip(own[:width], e.known, floor, strict=False))

    def fenced(self, w: World, i: int, e: Engine) -> Move:
        again = w.epoch == e.epoch
        role = Role.PROMOTING if again else Role.STANDBY
        f = e._replace(role=role, step="won" if again else "", producer=0)
        return f"{i} is fenced, becomes {role.name.lower()}", self.put(w, i, f)

    def commit(self, w: World, i: int, e: Engine, what: str, decided: int, alone: Policy | None) -> Iterator[Move]:
        """Yields the results of a fenced transaction with all outputs before the engine's position and the decisions `decided`."""
        new = self.committed(w, e, decided)
        yield what, self.put(new, i, e._replace(known=new.log, decided=decided))
        if alone is None and w.lost:
            unsure = e._replace(role=Role.PROMOTING, step="won", producer=0)
            yield f"{what}, answer lost", self.put(new._replace(lost=w.lost - 1), i, unsure)
            yield f"{what} is lost", self.put(w._replace(lost=w.lost - 1), i, unsure)

    def committed(self, w: World, e: Engine, decided: int) -> World:
        """Returns the world after the engine's transaction, with what is wrong on the bus."""
        own, base = self.sequences(e.pos, e.applied), self.sequences(e.base, e.applied)
        log = tuple(max(n, o) for n, o in zip(e.known, own, strict=True))
        new = w._replace(log=log, last=e.epoch, decisions=w.decisions | decided)
        wrong = self.contradiction(w, new.decisions)
        for name, k, b, o, due, mine in zip(
            "ABC", e.known, base, own, self.outputs(self.bounds.events, new.decisions), self.outputs(e.pos, e.applied), strict=False
        ):
            if k != w.log["ABC".index(name)]:
                wrong = wrong or f"stream {name}: doubled or lost"
            if o > k and b > k:
                wrong = wrong or f"stream {name}: output {k + 1} is lost"
            if o > k and mine[k:o] != due[k:o]:
                wrong = wrong or f"stream {name}: outputs {k + 1} to {o} contradict the decisions"
        if e.epoch < w.last:
            wrong = wrong or f"epoch {e.epoch} commits after epoch {w.last}"
        return new._replace(wrong=wrong)

    def contradiction(self, w: World, decisions: int) -> str:
        before, after = (self.outputs(self.bounds.events, d) for d in (w.decisions, decisions))
        for name, n, x, y in zip("ABC", w.log, before, after, strict=False):
            if x[:n] != y[:n]:
                return f"stream {name}: a decision contradicts outputs 1 to {n}"
        return ""

    def decide(self, w: World, i: int, e: Engine, place: int, alone: Policy | None) -> Iterator[Move]:
        """Yields the steps of an active engine that is stopped before an undecided place."""
        own = self.sequences(e.pos, e.applied)
        if self.is_beyond(e.known, own) and self.bug != "decided-without-look":
            yield f"{i} may pass {e.pos + 1}: output beyond is committed", self.put(w, i, e._replace(passes=e.passes | place))
            return
        what = f"{i} decides {e.pos + 1}"
        if self.bug == "decided-outside-transaction":
            new = w._replace(decisions=w.decisions | place, wrong=self.contradiction(w, w.decisions | place))
            yield what, self.put(new, i, e._replace(decided=e.decided | place))
        elif e.producer != w.producer:
            yield self.fenced(w, i, e)
        else:
            yield from self.commit(w, i, e, what, e.decided | place, alone)

    def decide_early(self, w: World, i: int, e: Engine) -> Iterator[Move]:
        place = self.place(e.pos + 1)
        if (
            e.call != Call.FETCHED
            or not place & e.attempted & ~e.decided
            or self.is_beyond(e.known, self.sequences(e.pos, e.applied))
        ):
            return
        what = f"{i} decides {e.pos + 1} early"
        if self.bug == "decided-before-fence":
            new = w._replace(decisions=w.decisions | place, wrong=self.contradiction(w, w.decisions | place))
            yield what, self.put(new, i, e._replace(decided=e.decided | place))
        elif e.producer == w.producer:
            new = self.committed(w, e, e.decided | place)
            yield what, self.put(new, i, e._replace(known=new.log, decided=e.decided | place))

    # --- faults and housekeeping ---------------------------------------------------------------------------------

    def faults(self, w: World) -> Iterator[Move]:
        for i, e in enumerate(w.engines):
            if e.role not in (Role.DOWN, Role.JOINING, Role.ENDED) and w.crashes:
                yield f"{i} crashes", self.put(w._replace(crashes=w.crashes - 1), i, Engine(blamed=e.blamed))
        if w.late:
            yield "a late fence arrives", w._replace(producer=w.producer + 1, late=w.late - 1)
        for pos, applied, is_confirmed in sorted(w.snapshots):
            if not is_confirmed and self.is_committed(w, pos, applied):
                kept = w.snapshots - {(pos, applied, False)} | {(pos, applied, True)}
                yield f"snapshot {pos}{' with decisions' if applied else ''} is confirmed", w._replace(snapshots=kept)
        if w.plan:
            kept = frozenset(s for s in w.snapshots if s[0] >= w.plan)
            yield f"all before {w.plan} is deleted", w._replace(floor=w.plan, plan=0, snapshots=kept)
            return
        for pos in sorted({pos for pos, _ in self.collectable(w) if pos > w.floor}):
            if self.bounds.deletion is Deletion.LATER:
                yield f"a collector finds that all before {pos} may be deleted", w._replace(plan=pos)
            else:
                kept = frozenset(s for s in w.snapshots if s[0] >= pos)
                yield f"all before {pos} is deleted", w._replace(floor=pos, snapshots=kept)

    def collectable(self, w: World) -> Iterator[tuple[int, int]]:
        """Yields the snapshots before which everything may be deleted."""
        for pos, applied in self.restorable(w, 0 if self.bug == "collector-counts-void" else w.decisions):
            own = self.sequences(pos, applied)
            attempted = sum(1 << k for k, count in enumerate(w.attempts) if count) & ~w.decisions & self.places(pos)
            is_beyond = any(n > o for n, o in zip(w.log[:3], own, strict=False))
            allowed = {
                Retain.OUTPUT: is_beyond,
                Retain.ATTEMPTS: is_beyond or not attempted,
                Retain.POSITION: w.log[3] >= pos,
            }[self.bounds.retain]
            if allowed or self.bug == "collector-ignores-attempts":
                yield pos, applied

    @staticmethod
    def put(w: World, i: int, e: Engine) -> World:
        return w._replace(engines=(*w.engines[:i], e, *w.engines[i + 1 :]))

    # --- what must hold ------------------------------------------------------------------------------------------

    def check(self, w: World) -> None:
        if w.wrong:
            raise Violation(w.wrong)
        for i, e in enumerate(w.engines):
            if e.role == Role.ENDED:
                raise Violation(f"engine {i} is deposed, but it computes correctly")
            differs = e.role != Role.DOWN and not self.agrees(e.pos, e.applied, w.log, w.decisions)
            if differs and not self.missing(e, w.decisions):
                raise Violation(f"engine {i} differs from what is committed, and lacks no decision")

    def stuck(self, w: World, i: int, policy: Policy) -> str:
        """Returns the reason why engine `i` does not publish everything while all others are paused for ever; "" if it does."""
        if self.bounds.ends is Ends.NEVER and policy is Policy.PASS:
            return ""
        others = w.engines[:i] + w.engines[i + 1 :]
        blamed = tuple(Engine(blamed=e.blamed) for e in others) if self.bug == "attempts-by-engine" else ()
        w = w._replace(engines=(w.engines[i], *blamed), snapshots=frozenset(s for s in w.snapshots if s[2]), plan=0)
        if (w, policy) not in self._alone:
            self._alone[w, policy] = self._stuck(w, policy)
        return self._alone[w, policy]

    def _stuck(self, w: World, policy: Policy) -> str:
        for _ in range(30 * self.bounds.events + 60):
            if w.wrong:
                return w.wrong
            e = w.engines[0]
            if w.log[:3] == self.sequences(self.bounds.events, w.decisions)[:3]:
                return ""
            if e.role not in (Role.DOWN, Role.JOINING) and e.pos < w.floor and not e.call:
                w = self.put(w, 0, Engine(blamed=e.blamed))  # it cannot read on, so it is started again
            options = list(self.moves(w, 0, policy))
            if not options:
                return "it has no next step"
            w = options[-1][1] if e.role != Role.STANDBY else options[self.preferred(options)][1]
        return "it does not end"

    @staticmethod
    def preferred(options: list[Move]) -> int:
        """Returns the index of the step that a standby takes if it is alone: it reads and is promoted before it computes."""
        for k, (name, _) in enumerate(options):
            if any(word in name for word in ("reads", "sees", "wins")):
                return k
        return -1

    def next_worlds(self, w: World) -> list[Move]:
        return [m for i in range(self.bounds.engines) for m in self.moves(w, i)] + list(self.faults(w))

    def check_all(self, w: World) -> None:
        self.check(w)
        for i in range(self.bounds.engines):
            for policy in Policy:
                if why := self.stuck(w, i, policy):
                    raise Violation(f"engine {i} alone, whose calls {policy}, does not publish everything: {why}")

    def explore(self, limit: int = 12_000_000) -> tuple[int, str, list[str]]:
        """Returns (states, violation, shortest trace) of all reachable states, breadth first."""
        first = self.start()
        seen, parent, frontier = {self.canonical(first)}, {first: None}, [first]
        while frontier and len(seen) < limit:
            following = []
            for w in frontier:
                try:
                    self.check_all(w)
                except Violation as v:
                    return len(seen), str(v), self.trace(parent, w)
                for name, nxt in self.next_worlds(w):
                    key = self.canonical(nxt)
                    if key not in seen:
                        seen.add(key)
                        parent[nxt] = (w, name)
                        following.append(nxt)
            frontier = following
        return len(seen), "limit reached" if frontier else "", []

    def walk(self, walks: int, seed: int) -> tuple[int, str, list[str]]:
        """Returns (steps, violation, trace) of random walks, for bounds that are too large to exhaust."""
        steps = 0
        for k in range(walks):
            rng = random.Random(seed + k)
            w, trace = self.start(), []
            while (options := self.next_worlds(w)) and len(trace) < 400:
                name, w = rng.choice(options)
                trace.append(name)
                steps += 1
                try:
                    self.check_all(w)
                except Violation as v:
                    return steps, f"seed {seed + k}: {v}", trace
        return steps, "", []

    @staticmethod
    def canonical(w: World) -> World:
        return w._replace(engines=tuple(sorted(w.engines)))

    @staticmethod
    def trace(parent: dict, w: World) -> list[str]:
        steps = []
        while parent[w] is not None:
            w, name = parent[w]
            steps.append(name)
        return steps[::-1]


SMALL = Bounds(events=2, hangs=(1,), silent=(1,), crashes=0, epochs=1, lost=0, late=0, writes=0, joining=Joining.AT_ONCE)
_TWO_EPOCHS = replace(SMALL, epochs=2)
_ONE_SNAPSHOT = replace(SMALL, writes=1)

PLANTED: Mapping[str, Bounds] = {
    "decided-outside-transaction": _TWO_EPOCHS,
    "decided-before-fence": _TWO_EPOCHS,
    "decided-before-recheck": replace(_TWO_EPOCHS, hangs=(2,), silent=(2,)),
    "decided-without-look": _TWO_EPOCHS,
    "void-restored": _ONE_SNAPSHOT,
    "void-kept": _TWO_EPOCHS,
    "agreeing-spares": replace(SMALL, engines=3),
    "restarts-not-counted": SMALL,
    "attempts-by-engine": SMALL,
    "decisions-after-computing": _TWO_EPOCHS,
    "decisions-after-snapshot": _ONE_SNAPSHOT,
    "collector-ignores-attempts": replace(_ONE_SNAPSHOT, retain=Retain.ATTEMPTS, deletion=Deletion.AT_ONCE),
    "collector-trusts-attempts": replace(_ONE_SNAPSHOT, retain=Retain.ATTEMPTS, restore=Restore.ANY),
    "collector-counts-void": _ONE_SNAPSHOT,
}
"""Errors of the rule, and the smallest known bounds within which each is found."""

HARMLESS: Mapping[str, Bounds] = {"attempts-after-snapshot": replace(_ONE_SNAPSHOT, joining=Joining.STEPS)}
"""Changes of the rule that are not errors."""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("engines", "events", "crashes", "epochs", "lost", "late", "writes"):
        p.add_argument(f"--{name}", type=int)
    for name in ("hangs", "silent"):
        p.add_argument(f"--{name}", type=lambda text: tuple(int(n) for n in text.split(",") if n), help="events, such as 1,3")
    for name, kind in (("retain", Retain), ("ends", Ends), ("deletion", Deletion), ("restore", Restore), ("joining", Joining)):
        p.add_argument(f"--{name}", type=kind, choices=tuple(kind))
    p.add_argument("--bug", default="", choices=("", "all", *PLANTED, *HARMLESS))
    p.add_argument("--walks", type=int, default=0, help="random walks instead of all states")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--limit", type=int, default=12_000_000, help="states after which the search ends")
    return p


def main() -> None:
    given = vars(parser().parse_args())
    bug, walks, seed, limit = (given.pop(name) for name in ("bug", "walks", "seed", "limit"))
    changes = {name: value for name, value in given.items() if value is not None}
    for each in (*PLANTED, *HARMLESS) if bug == "all" else (bug,):
        bounds = (PLANTED | HARMLESS).get(each, Bounds())
        model = Model(replace(bounds, **changes), each)
        count, violation, trace = model.walk(walks, seed) if walks else model.explore(limit)
        what = f"{count:,} {'steps' if walks else 'states'}, {violation or 'no violation'}"
        print(f"{each or 'as designed'}: {what}, {len(trace)} steps" if trace else f"{each or 'as designed'}: {what}", flush=True)
        for k, step in enumerate(trace):
            print(f"  {k + 1:2} {step}")


if __name__ == "__main__":
    main()
