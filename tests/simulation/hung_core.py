"""The small core of the simulation with user code: the calls for some events may not end, and the group may decide to refuse these.

The value of an event names its kind. A decided event yields another output than an undecided one, or none; so does any event with
user code in quarantine. Some events of either kind cause no output at all, so that committed sequences do not show who has passed
them; later outputs show it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Protocol

import pyarrow as pa

from hotspare.base.call_place import CallPlace, Decision, HangCause, decisions_left
from hotspare.rows.batch import RowKind
from tests.simulation.fast_core import PART_ROWS_MAX, FastCore, FastCores, FastFrozen

TOPICS = ("in0", "in1")
WINDOW = "q/code"
KIND_VALUES = 1_000
"""The value of an event with user code is this times its kind, plus a value as of other events."""
_REFUSED = -2
_MASK = 0xFFFFFF


class EventKind(IntEnum):
    PLAIN = 0
    """Calls no user code that may hang."""
    TOLD = 1
    """Has outputs as plain events have; if decided, one bad event instead."""
    SILENT = 2
    """Has no output, but later ones depend on it; if decided, one bad event."""
    MUTE = 3
    """Has no output either way, but later ones depend on whether it was decided."""


class UserCode(Protocol):
    """The calls of user code of one engine."""

    def call(self, place: CallPlace, *, is_unlimited: bool) -> None:
        """Returns when the call ends; never, if it does not end. `is_unlimited`: no watch ends the engine meanwhile."""


def hung_kind(row: Sequence[int]) -> EventKind:
    """Returns the kind of a row that waits for its turn."""
    return EventKind(row[6] // KIND_VALUES) if row[5] == RowKind.EVENT else EventKind.PLAIN


def is_at_or_after(place: CallPlace, other: CallPlace) -> bool:
    """Whether `place` is in the partition of `other`, and not before it."""
    is_same = (place.topic, place.partition) == (other.topic, other.partition)
    return is_same and (place.offset, place.index) >= (other.offset, other.index)


def place_of(topic: int, partition: int, offset: int) -> CallPlace:
    return CallPlace(TOPICS[topic], partition, offset, 0, WINDOW)


@dataclass
class HungCore(FastCore):
    """A small core that calls user code."""

    code: UserCode | None = None
    """None: all calls end at once, as those of the reference."""
    applied: list[Decision] = field(default_factory=list)
    """The decisions that the state has."""
    _decisions: Mapping[CallPlace, Decision] = field(default_factory=dict)
    _stops: frozenset[CallPlace] = frozenset()
    _unlimited: frozenset[CallPlace] = frozenset()
    _waits_at: CallPlace | None = None

    # --- what the group tells the core -----------------------------------------------------------------------------------------

    def set_decisions(self, decisions: Sequence[Decision]) -> None:
        self._decisions = {each.place: each for each in decisions}

    @property
    def missing_decisions(self) -> tuple[Decision, ...]:
        return tuple(each for each in self._decisions.values() if each not in self.applied and self._has_passed(each.place))

    def _has_passed(self, place: CallPlace) -> bool:
        return place.offset < self.positions.get((TOPICS.index(place.topic), place.partition), 0)

    def stop_before(self, places: Collection[CallPlace]) -> None:
        self._stops = frozenset(places)

    def pass_place(self, place: CallPlace) -> None:
        self._unlimited |= {place}

    def row_by_row(self, places: Collection[CallPlace]) -> None:
        raise AssertionError(f"no window over columns: {places}")

    @property
    def stopped_at(self) -> CallPlace | None:
        is_open = self._waits_at in self._stops - self._unlimited and self._waits_at not in self._decisions
        return self._waits_at if is_open else None

    # --- computing -------------------------------------------------------------------------------------------------------------

    def compute_parts(self, decoded: pa.RecordBatch, take: Callable[[int], int]) -> Iterator[Mapping[str, pa.RecordBatch]]:
        self._take(decoded)
        take(max(1, decoded.num_rows))
        self.is_between_batches = False
        rows: dict[str, list[tuple[int, ...]]] = {}
        queues = list(self._waiting.values())
        while all(queues):
            earliest = min(queues, key=lambda queue: queue[0])
            if rows and self._stop_at(earliest[0]) is not None:
                yield {name: self.batch_of(name, outputs) for name, outputs in rows.items()}
                rows = {}
            yield from self._until_free(earliest[0])
            place = place_of(*earliest[0][1:4])
            is_called = hung_kind(earliest[0]) is not EventKind.PLAIN and not self._is_refused(earliest[0])
            if self.code is not None and is_called:
                self.code.call(place, is_unlimited=place in self._unlimited)
            for stream, row in self._process(earliest.popleft()):
                rows.setdefault(stream, []).append(row)
                if sum(map(len, rows.values())) == PART_ROWS_MAX:
                    yield {name: self.batch_of(name, outputs) for name, outputs in rows.items()}
                    rows = {}
        self.is_between_batches = True
        yield {name: self.batch_of(name, outputs) for name, outputs in rows.items()}

    def _stop_at(self, row: tuple[int, ...]) -> CallPlace | None:
        """Returns the place before which the core stops if `row` is the next one."""
        before = place_of(*row[1:4])
        own = (each for each in self._stops - self._unlimited if each not in self._decisions and not self._has_passed(each))
        return min((each for each in own if is_at_or_after(before, each)), default=None)

    def _until_free(self, row: tuple[int, ...]) -> Iterator[Mapping[str, pa.RecordBatch]]:
        while (place := self._stop_at(row)) is not None:
            self._waits_at = place
            yield {}
        self._waits_at = None

    def _new_lifts(self, row: tuple[int, ...]) -> list[Decision]:
        """Returns the decisions that lift a quarantine at `row` or at a missing row before it."""
        lifts = (each for each in self._decisions.values() if each.cause is HangCause.LIFTED and each not in self.applied)
        return [each for each in lifts if is_at_or_after(place_of(*row[1:4]), each.place) and not self._has_passed(each.place)]

    def _is_refused(self, row: tuple[int, ...]) -> bool:
        """Whether the window refuses a row that has user code: by a decision about it, or in quarantine."""
        causes = [each.cause for each in (*self.applied, *self._new_lifts(row))]
        return place_of(*row[1:4]) in self._decisions or not decisions_left(causes)

    def _process(self, row: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
        self.applied += self._new_lifts(row)
        yield from super()._process(row)

    def at_event(self, row: tuple[int, ...], ordinals: dict[str, int]) -> Iterator[tuple[str, tuple[int, ...]]]:
        kind, decision = hung_kind(row), self._decisions.get(place_of(*row[1:4]))
        is_refused = kind is not EventKind.PLAIN and self._is_refused(row)
        if decision is not None:
            self.applied.append(decision)
        if is_refused:
            if kind is not EventKind.MUTE:
                yield self._put("q/b", row, ordinals, self.count, _REFUSED)
        elif kind in (EventKind.PLAIN, EventKind.TOLD):
            yield from super().at_event(row, ordinals)
        else:
            self.total = self.total * 3 + row[6] + self.salt & _MASK

    # --- snapshots -------------------------------------------------------------------------------------------------------------

    def freeze(self) -> FastFrozen:
        frozen = super().freeze()
        applied = [[*_fields(each.place), each.cause.value, each.number] for each in self.applied]
        return replace(frozen, header=json.dumps({**json.loads(frozen.header), "decisions": applied}).encode())


def _fields(place: CallPlace) -> tuple[str, int, int, int, str]:
    return place.topic, place.partition, place.offset, place.index, place.window


@dataclass(frozen=True)
class HungCores(FastCores):
    """Creates the cores of an engine; `code`: its calls of user code."""

    kind: type[FastCore] = HungCore
    code: UserCode | None = None

    def fresh(self) -> FastCore:
        return self._with_code(super().fresh())

    def _restored(self, state: dict[str, Any], window: list[list[int]]) -> FastCore:
        core = self._with_code(super()._restored(state, window))
        core.applied = [Decision(CallPlace(*each[:5]), HangCause(each[5]), each[6]) for each in state["decisions"]]
        return core

    def _with_code(self, core: FastCore) -> HungCore:
        assert isinstance(core, HungCore)
        core.code = self.code
        return core
