"""Refusals by single windows in a step: a window refuses all that a position causes in it if the group has decided so because a
call of user code did not end, or if the engine itself fails there (`flow.poison`).

A decision is applied at the first row of its partition at or after its position. The state lists the decisions that it applied, in
that order; two states with equal lists and equal rows behind them are equal, however the rows were cut. After three decisions about
a window its code is not called any more, and all its further rows are bad events, until a decision lifts this quarantine. A window
that an upgrade changed is another one: decisions about what it was do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from hotspare.base.call_board import CallSlot
from hotspare.base.call_place import CallPlace, Decision, HangCause, decisions_left
from hotspare.flow.plan import Node, Plan
from hotspare.flow.poison import Poison
from hotspare.flow.project_state import PartitionKey, State
from hotspare.model.events import Opcode
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.chunk import NO_BOARD, NO_END, Chunk, Int64s, Positions, Timeline
from hotspare.rows.ordering import first_row_from, row_at
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.table.strings import StringTable
from hotspare.windows.shared.keyed import bad_events

_REASON = {
    HangCause.DEADLINE: BadReason.CODE_DEADLINE,
    HangCause.MEMORY: BadReason.CODE_MEMORY,
    HangCause.CRASH: BadReason.CODE_CRASH,
}
_REASONS = (*_REASON.values(), BadReason.CODE_QUARANTINED, BadReason.POISON)
_CAUSES = [(str(reason), reason.sentence) for reason in _REASONS]
_QUARANTINED, _POISON = (_REASONS.index(reason) for reason in (BadReason.CODE_QUARANTINED, BadReason.POISON))
_NOT_REFUSED = -1


@dataclass(frozen=True, slots=True)
class CodeCalls:
    """How a core calls user code. `slot`: where it shows its calls. `topics`: the number of each topic by name. `decisions`: those
    of the group, by number. `row_by_row`: the nodes of windows over columns that call their code for one row at a
    time."""

    slot: CallSlot = NO_BOARD
    topics: Mapping[str, int] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    row_by_row: frozenset[int] = frozenset()
    failed: tuple[Poison, ...] = ()
    """The rows that nodes refuse because the engine fails on them."""

    def partition_of(self, place: CallPlace) -> PartitionKey | None:
        """Returns the partition of a place; None if the project does not read the topic."""
        topic = self.topics.get(place.topic)
        return None if topic is None else (topic, place.partition)

    def is_passed(self, place: CallPlace, state: State) -> bool:
        """Whether the state has passed the position."""
        key = self.partition_of(place)
        passed = None if key is None else state.passed.get(key)
        return passed is not None and (passed.offset, passed.index) >= (place.offset, place.index)

    def missing_decisions(self, state: State) -> tuple[Decision, ...]:
        """Returns the decisions about positions that the state has passed without applying them."""
        if not self.decisions:
            return ()
        applied = {each.place for each in state.decisions}
        return tuple(each for each in self.decisions if each.place not in applied and self.is_passed(each.place, state))


@dataclass(frozen=True, slots=True)
class RefusedRanks:
    """The rows of a step that one window refuses. `reasons`: by rank, a number in _REASONS, or _NOT_REFUSED."""

    reasons: Int64s

    @classmethod
    def none_of(cls, rows: int) -> RefusedRanks:
        """Returns the refusals of a step of `rows` rows in which none is refused."""
        return cls(np.full(rows, _NOT_REFUSED, np.int64))

    def with_poison(self, rank: int) -> RefusedRanks:
        """Returns these refusals and that of the row at `rank`, on which the engine fails."""
        reasons = self.reasons.copy()
        _replace(reasons[rank : rank + 1], _NOT_REFUSED, _POISON)
        return RefusedRanks(reasons)

    def without_refused(
        self, node: Node, inputs: Sequence[Chunk | None], strings: StringTable
    ) -> tuple[list[Chunk | None], BadEvents]:
        """Returns the rows that the window does not refuse, by input (None without rows), and the bad events of the others. The old
        row of an update block has none."""
        schemas = [each.schema for each in node.operator.inputs] or [node.operator.schema]
        kept, bad = list[Chunk | None](), NO_BAD_EVENTS
        for chunk, schema in zip(inputs, schemas, strict=True):
            refused = np.empty(0, np.int64) if chunk is None else self._rows_in(chunk.rank)
            if chunk is None or not len(refused):
                kept.append(chunk)
                continue
            others = np.setdiff1d(np.arange(len(chunk)), refused, assume_unique=True)
            kept.append(chunk.copied_rows(others) if len(others) else None)
            told = np.setdiff1d(refused, np.flatnonzero(chunk.opcode == Opcode.UPDATE_BLOCK) + 1, assume_unique=True)
            bad += bad_events(Refusals.from_causes(told, self.reasons[chunk.rank[told]], _CAUSES), chunk, schema, strings)
        return kept, bad.by_rank().of_window(node.window) if len(bad) else bad

    def without_beats(self, node: Node, timeline: Timeline) -> tuple[Timeline, BadEvents]:
        """Returns the timeline without the heartbeats that the window refuses, and a bad event without text for each decided one at
        which time makes the window act. Heartbeats in quarantine have none: they would be as many as seconds."""
        beats, end = timeline.heartbeat_rank, timeline.end_rank
        refused = self._rows_in(beats)
        is_end_refused = end != NO_END and len(self._rows_in(np.array([end]))) == 1
        if not len(refused) and not is_end_refused:
            return timeline, NO_BAD_EVENTS
        clock, told = node.operator.clock, set[int]()
        if clock.has_ticks:
            told.update(beats[refused].tolist())
        if is_end_refused and (clock.has_ticks or clock.has_event_time):
            told.add(end)
        ranks = np.array(sorted(told), np.int64)
        ranks = ranks[self.reasons[ranks] != _QUARANTINED]
        bad = NO_BAD_EVENTS
        if len(ranks):
            refusals = Refusals.from_causes(ranks, self.reasons[ranks], _CAUSES)
            bad = BadEvents(ranks, (refusals.reason, refusals.message, pa.repeat("", len(ranks)))).of_window(node.window)
        return replace(timeline, heartbeat_rank=np.delete(beats, refused), end_rank=NO_END if is_end_refused else end), bad

    def _rows_in(self, ranks: Int64s) -> Int64s:
        """Returns the indexes in `ranks` of those that the window refuses."""
        return np.flatnonzero(self.reasons[ranks] != _NOT_REFUSED)


NO_DECISIONS = CodeCalls()


def decisions_in_step(
    plan: Plan, state: State, calls: CodeCalls, positions: Positions
) -> tuple[tuple[Decision, ...], dict[int, RefusedRanks]]:
    """Returns the decisions that a step over rows at `positions` applies, in their order, and what nodes refuse in it."""
    if not calls.decisions and not state.decisions and not calls.failed:
        return (), {}
    passes = sorted(_passes(state, calls, positions), key=lambda each: (each.rank, each.decision.number))
    rows = len(positions.topics)
    before, new = dict[int, list[HangCause]](), dict[int, list[_Pass]]()
    for decision in state.decisions:
        if (node := plan.node_of(decision.place)) is not None:
            before.setdefault(node, []).append(decision.cause)
    for each in passes:
        if (node := plan.node_of(each.decision.place)) is not None:
            new.setdefault(node, []).append(each)
    nodes = {node for node, causes in before.items() if not decisions_left(causes)} | new.keys()
    refused = {node: _refused(before.get(node, []), new.get(node, []), rows) for node in sorted(nodes)}
    for poison in calls.failed:
        rank = row_at(positions, *poison.position)
        if poison.node is not None and rank >= 0:
            refused[poison.node] = refused.get(poison.node, RefusedRanks.none_of(rows)).with_poison(rank)
    return tuple(each.decision for each in passes), refused


@dataclass(frozen=True, slots=True)
class _Pass:
    """A decision, and the first row of its partition at or after its position. `is_exact`: whether that row is at the position."""

    decision: Decision
    rank: int
    is_exact: bool


def _passes(state: State, calls: CodeCalls, positions: Positions) -> Iterator[_Pass]:
    applied = {each.place for each in state.decisions}
    for decision in calls.decisions:
        place = decision.place
        key = calls.partition_of(place)
        if key is None or place in applied or calls.is_passed(place, state):
            continue
        rank = first_row_from(positions, *key, place.offset, place.index)
        if rank >= 0:
            is_exact = (positions.offsets.item(rank), positions.indexes.item(rank)) == (place.offset, place.index)
            yield _Pass(decision, rank, is_exact)


def _refused(before: Sequence[HangCause], passes: Sequence[_Pass], rows: int) -> RefusedRanks:
    """Returns what a window refuses in a step of `rows` rows. `before`: the causes of earlier decisions about it; `passes`: the
    decisions of this step, by rank."""
    reasons, causes = np.full(rows, _NOT_REFUSED if decisions_left(before) else _QUARANTINED, np.int64), list(before)
    for each in passes:
        cause, was_left = each.decision.cause, decisions_left(causes)
        causes.append(cause)
        if cause is HangCause.LIFTED:
            _replace(reasons[each.rank :], _QUARANTINED, _NOT_REFUSED)
        elif was_left:
            if each.is_exact:  # of several at one position the first gives the reason
                _replace(reasons[each.rank : each.rank + 1], _NOT_REFUSED, _REASONS.index(_REASON[cause]))
            if not decisions_left(causes):
                _replace(reasons[each.rank :], _NOT_REFUSED, _QUARANTINED)
    return RefusedRanks(reasons)


def _replace(reasons: Int64s, old: int, new: int) -> None:
    """Replaces `old` by `new` in place."""
    reasons[reasons == old] = new
