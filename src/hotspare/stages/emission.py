"""The stage after a window of any type: which of its results are emitted, and when (SPEC A17).

    window ──► refuse non-inserts ──► choose new rows ──► hold until the next pulse ──► keep inserts ──► out

If a window is declared to produce only inserts, anything else is a bad event.

With `emit: new` only new rows are emitted, as inserts (`new_rows`). If the `Newness` of the window type is EVENTS, its operator has
chosen these rows already, and this stage passes them.

Pulses are heartbeats: the first one in each interval, counted from 1970. So they are at the same place of the input in every
engine, however far apart ticks are, and without input too. The interval in which the window begins has no pulse; its results are
emitted at the first pulse after it. Changes since the last pulse are emitted folded: each key has one change, an insert, an update
block with the values of the last pulse, or a delete of these. A row that was inserted and removed again is not emitted. Keys are in
the order of their first change; the flags are those of the newest one. With retention tracking (SPEC A2) changes by retention are
folded separately: a key has at most two changes, in the order that leads from the old row to the new one.

Folding needs old values, so inserts alone and events as they are published wait in order, and are emitted unchanged. A window that
collapses its updates and declares no pulse has a pulse at each heartbeat.

Held changes are a relation: pages, an index by key, and a list in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from hotspare.base.errors import Mistake, ProjectError
from hotspare.model.events import Opcode
from hotspare.model.project import AcceptedOpcodes, Emit, RetentionTracking
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import FieldType, Schema
from hotspare.model.window_type import Newness, type_of
from hotspare.rows.changelog import Changelog, Opcodes
from hotspare.rows.chunk import Chunk, Int64s, Timeline, by_retention
from hotspare.rows.partition_clock import NO_TIME
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.stages.loops import held as k
from hotspare.table.lanes import coded_columns
from hotspare.table.loops import relation as relation_kernels
from hotspare.table.loops import slots
from hotspare.table.loops.outputs import due_heartbeats
from hotspare.table.pages import Counters, Page, Pending
from hotspare.table.relation import Relation, Resolution, Shape
from hotspare.table.strings import StringTable
from hotspare.windows.shared.contract import BadReason, Clock, Operator, OperatorInput, OperatorResult
from hotspare.windows.shared.keyed import bad_events, refusals
from hotspare.windows.shared.new_rows import NewRows, inserts_of

HELD, PULSE, PENDING, UNSEEN = "held", "pulse", "pending", "unseen"
"""Parts of the page: held changes; system time of the last pulse; the work in progress; keys in the results that were not emitted.
"""
_POLICY = relation_kernels.Policy(relation_kernels.COUNT_SLIDING, 2**62, 1, 0, 0)
"""The policy of a relation whose rows are in order of arrival, and are removed only by a pulse."""
_INSERT = np.uint8(Opcode.INSERT)


@dataclass(slots=True)
class _PendingBatch:
    """A batch in progress: a chunk, and the ranks of pulses still due. `counts` int64[2]: the applied and the refused events;
    `refused` int64[., 2]: row and REFUSED_ number of each refused event. `is_releasing`: whether changes of the first of these
    pulses are being emitted.
    """

    chunk: Chunk
    pulses: list[int]
    counts: Int64s
    refused: Int64s
    is_releasing: bool = False


class EmissionOperator(Operator):
    """Decides which results of a window are emitted, and when. Its one input is the results of the window; `schema` is the same."""

    def __init__(
        self, window: ResolvedWindow, inputs: Sequence[OperatorInput], heartbeat_us: int, tracking: RetentionTracking
    ) -> None:
        super().__init__(window, inputs)
        emission, given = window.window.emission, self.inputs[0].changelog
        self._checks = emission.produces is AcceptedOpcodes.INSERT_ONLY and given.opcodes is not Opcodes.INSERTS
        made = given.inserts() if self._checks else given
        self._chooses = emission.emit is Emit.NEW and type_of(window.window).newness is Newness.KEYS
        self._new = NewRows(self.schema) if self._chooses and made.opcodes is Opcodes.RESOLVED else None
        if self._chooses and made.opcodes is Opcodes.PUBLISHED:
            raise _new_rows_unknown_error(window)
        made = made.inserts() if self._chooses else made
        self._only_inserts = emission.output is AcceptedOpcodes.INSERT_ONLY and made.opcodes is not Opcodes.INSERTS
        self._pulse_us = emission.pulse_interval_us(heartbeat_us)
        self._first_us = 0 if emission.pulse_us else self._pulse_us
        """Microseconds before the first time at which an earlier pulse is assumed. One interval if updates are only collapsed, so
        that the first heartbeat is a pulse, too.
        """
        self._folds = made.opcodes is Opcodes.RESOLVED
        self.clock = Clock.TICKS if self._pulse_us else Clock.NONE
        self.output_changelog: Changelog = made.inserts() if self._only_inserts else made
        self._shape = _shape(self.schema, (2 if tracking is RetentionTracking.OFF else 3) if self._folds else 0)
        keys = self.schema.key_indexes if self._folds else (0,)
        self._keys = np.array(keys, np.int64)
        self._doubles = tuple(at for at in self.schema.key_indexes if self.schema.fields[at].type is FieldType.DOUBLE)

    @property
    def is_passthrough(self) -> bool:
        return not (self._checks or self._chooses or self._only_inserts or self._pulse_us)

    def open(self) -> Page:
        page = Page({UNSEEN: self._new.create_unseen_index()} if self._new is not None else {})
        if self._pulse_us:
            pulse = Counters(1)
            pulse.values[0] = NO_TIME
            page.parts |= {HELD: _relation(self.schema, self._shape), PULSE: pulse, PENDING: Pending[_PendingBatch]()}
        return page

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        (chunk,) = inputs
        bad, until = NO_BAD_EVENTS, None
        if self._checks and len(chunk):
            chunk, bad = self._refuse_non_inserts(chunk, strings)
        if self._new is not None and len(chunk):
            chunk = self._new.select_new_rows(cast(Relation, page.parts[UNSEEN]), chunk, timeline)
        elif self._chooses and len(chunk):
            chunk = inserts_of(chunk, ~by_retention(chunk))
        if self._pulse_us:
            pending = cast(Pending[_PendingBatch], page.parts[PENDING])
            work = pending.work
            if work is None:
                pending.work = work = self._start_batch(page, chunk, timeline)
            made, until = self._run_pulses(cast(Relation, page.parts[HELD]), work, 3 * len(chunk) + timeline.extra_rows_max)
            bad += self._refused(work, strings)
            if until is None:
                pending.work = None
            chunk = made
        if self._only_inserts and len(chunk):
            chunk = chunk.copied_rows(np.flatnonzero(chunk.opcode == _INSERT))
        return OperatorResult(chunk, bad.by_rank(), until)

    def _refuse_non_inserts(self, chunk: Chunk, strings: StringTable) -> tuple[Chunk, BadEvents]:
        """Returns the inserts, and bad events for all other events, which the window was declared never to make. An update block is
        one bad event, with its new row.
        """
        is_insert = chunk.opcode == _INSERT
        broken = ~is_insert
        broken[np.flatnonzero(chunk.opcode == Opcode.UPDATE_BLOCK) + 1] = False
        rows = np.flatnonzero(broken)
        why = [(str(BadReason.NOT_INSERT), "the window is declared to produce only inserts")]
        bad = bad_events(Refusals.from_causes(rows, np.zeros(len(rows), np.int64), why), chunk, self.schema, strings)
        return chunk.copied_rows(np.flatnonzero(is_insert)), bad

    def _start_batch(self, page: Page, chunk: Chunk, timeline: Timeline) -> _PendingBatch:
        beats, last = timeline.heartbeat_rank, cast(Counters, page.parts[PULSE]).values
        pulses = np.empty(len(beats), np.int64)
        if last[0] == NO_TIME and len(timeline.time_us):
            last[0] = timeline.time_us[0] - self._first_us
        pulses = pulses[: due_heartbeats(beats, timeline.time_us, last[0], self._pulse_us, pulses)]
        if len(pulses):
            last[0] = timeline.time_us[pulses[-1]]
        chunk = chunk.with_plain_doubles(self._doubles) if self._folds else chunk
        return _PendingBatch(chunk, pulses.tolist(), np.zeros(k.COUNTS_WIDTH, np.int64), np.empty((len(chunk), 2), np.int64))

    def _run_pulses(self, relation: Relation, work: _PendingBatch, rows_max: int) -> tuple[Chunk, int | None]:
        """Holds the changes of a batch, and emits them at its pulses. Returns about `rows_max` emitted rows, and the rank of the
        pulse that has more rows, or None.
        """
        made: list[Chunk] = []
        until: int | None = None
        while until is None:
            if work.is_releasing:
                made.append(self._release_changes(relation, work.pulses[0], rows_max))
                rows_max -= len(made[-1])
                if relation.live:
                    until = work.pulses[0]
                    break
                del work.pulses[0]
                work.is_releasing = False
            end = int(work.chunk.rank.searchsorted(work.pulses[0], "right")) if work.pulses else len(work.chunk)
            self._hold_changes(relation, work, end)
            if not work.pulses:
                break
            work.is_releasing = True
        relation.release_outputs()
        return _joined(made, len(self.schema)), until

    def _hold_changes(self, relation: Relation, work: _PendingBatch, until: int) -> None:
        chunk, at = work.chunk, int(work.counts[k.AT])
        if at >= until:
            return
        first = int(relation.pages.rows.state[slots.ARRIVALS]) - at
        numbers = np.arange(first, first + len(chunk)).reshape(-1, 1) if not self._folds else chunk.lanes[:0]
        events = k.EventArrays(chunk.opcode, chunk.flags, chunk.lanes, chunk.valid, self._keys, numbers)
        while True:
            rows = relation.pages.rows
            if self._folds:
                state = k.fold_events(rows, _POLICY, self._shape, events, np.int64(until), work.refused, work.counts)
            else:
                state = k.append_events(rows, _POLICY, self._shape, events, np.int64(until), work.counts)
            if state == k.DONE:
                return
            relation.pages.make_room()

    def _release_changes(self, relation: Relation, rank: int, rows_max: int) -> Chunk:
        room = max(0, min(rows_max, k.ENTRY_ROWS_MAX * relation.live))
        size, width = room + k.ENTRY_ROWS_MAX, len(self.schema)
        opcode, flags = np.empty(size, np.uint8), np.empty(size, np.uint8)
        lanes, valid = np.empty((size, width), np.int64), np.empty((size, width), np.bool_)
        count = int(
            k.release_entries(
                relation.pages.rows, _POLICY, self._shape, k.ReleasedRows(opcode, flags, lanes, valid), np.int64(room)
            )
        )
        return Chunk(np.full(count, rank, np.int64), opcode[:count], flags[:count], lanes[:count], valid[:count])

    def _refused(self, work: _PendingBatch, strings: StringTable) -> BadEvents:
        """Returns bad events for the changes with a null key, which belong to no row, and removes them from `work`."""
        told = work.refused[: int(work.counts[k.REFUSED])].copy()
        work.counts[k.REFUSED] = 0
        return refusals(Resolution(_NOTHING_MADE, told[:, 0], told[:, 1]), work.chunk, self.schema, strings)


def _new_rows_unknown_error(window: ResolvedWindow) -> ProjectError:
    message = f"window {window.id} has emit: new, but it emits events as they are published, and which of them are new is unknown"
    hint = f"give window {window.id} or its source an index such as pi_HASH, or make the source insert-only"
    return ProjectError(str(window.id), [Mistake(window.window.place, message, hint)])


_NOTHING_MADE: Int64s = np.empty((0, 5), np.int64)


def _shape(schema: Schema, images: int) -> k.EntryShape:
    width = len(schema)
    has = images * width if images else width
    return k.EntryShape(width, images, has, has + max(images, 1))


def _relation(schema: Schema, shape: k.EntryShape) -> Relation:
    """Returns an empty relation for held changes, with the columns that the kernels use."""
    codes = tuple(image * shape.width + at for image in range(max(shape.images, 1)) for at in coded_columns(schema))
    if not shape.images:
        return Relation(Shape(shape.width + k.EVENT_FIELDS, (shape.width + k.EVENT_FIELDS - 1,), codes), _POLICY)
    return Relation(Shape(shape.flags + shape.images - 1, schema.key_indexes, codes), _POLICY)


def _joined(chunks: Sequence[Chunk], width: int) -> Chunk:
    """Returns the chunks as one, in order; an empty chunk with `width` fields if there are no rows."""
    filled = [chunk for chunk in chunks if len(chunk)]
    whole = filled[0] if filled else Chunk.empty(width)
    for chunk in filled[1:]:
        whole = whole.joined(chunk)
    return whole
