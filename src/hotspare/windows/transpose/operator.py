"""Transpose window (SPEC A32): turns rows with one tag each into rows with columns for all tags, or the reverse.

Wide: each row that is inserted or updated is one observation of its group: the values of its tag become those of the group, null
ones as well. The row is emitted under its own key, with the newest values of all tags of its group. A row with another tag, or
none, observes nothing and is emitted with the current values of the group. A delete carries the values that were emitted for its
row, and does not change the group.

    given: input rows, if they arrive as published ─► groups: newest values ─► rows: output rows

Groups are a relation (`_TagGroups`). With a timeout it evicts groups that had no row for that time, at heartbeats.

Long: each row is emitted as one row per tag, an update block as one update block per tag. Only an index of input rows is kept, if
needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from hotspare.model.events import Flag, Opcode
from hotspare.model.project import IndexType
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import FieldType, Schema
from hotspare.rows import tuning
from hotspare.rows.changelog import Keys, Opcodes
from hotspare.rows.chunk import Bools, Chunk, Int64s, Timeline
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents
from hotspare.table.lanes import CODED
from hotspare.table.loops import relation as k
from hotspare.table.loops.columns import pick_columns
from hotspare.table.pages import Page, Pending
from hotspare.table.relation import KEEP_ALL, Relation, Shape
from hotspare.table.strings import StringTable
from hotspare.table.unloaded import LoadMode
from hotspare.windows.shared.contract import Clock, Operator, OperatorInput, OperatorResult
from hotspare.windows.shared.keyed import refusals, relation_of, resolved_events
from hotspare.windows.shared.rowwise import GIVEN, ROWS, clear_partial_flags, needs_index_error, unresolved_input_error
from hotspare.windows.transpose.declaration import Mode, TransposeWindow

_EMPTY_TEXT = pa.array([""], pa.string())


GROUPS, PENDING = "groups", "pending"
"""Parts of the page, in addition to the indexes of input and of output rows: the newest values of groups, and work that waits for
room.
"""
_NO_BEATS: Int64s = np.empty(0, np.int64)


@dataclass(slots=True)
class _PendingBatch:
    """A batch in progress: resolved rows; the count of processed ones, or, in mode long, of rows emitted for them; ranks of
    heartbeats that remain.
    """

    chunk: Chunk
    at: int
    beats: list[int]


class TransposeOperator(Operator):
    non_row_parts = frozenset({GROUPS})

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        declared = cast(TransposeWindow, window.window)
        (given,) = self.inputs
        changes = given.changelog
        self._is_keyed = declared.index is not IndexType.EMPTY
        if not self._is_keyed and changes.opcodes is Opcodes.PUBLISHED:
            raise unresolved_input_error(window)
        self._is_wide = declared.mode is Mode.WIDE
        if self._is_wide and not self._is_keyed and changes.opcodes is Opcodes.RESOLVED:
            raise needs_index_error(window, "keeps the newest values of groups", "read inserts only")
        self._entry = given.schema
        is_published = changes.opcodes is Opcodes.PUBLISHED
        self._resolves = is_published or (not self._is_wide and self._is_keyed and changes.keys is Keys.ANY)
        self._resolved = changes.computed_from()
        self._keeps = self._is_wide and self._is_keyed and not changes.is_distinct
        self.output_changelog = changes.indexed() if self._is_keyed else changes
        self._tags = pa.array(declared.tags, pa.string())
        if self._is_wide:
            self.clock = Clock.TICKS if declared.clear_timeout_us else Clock.NONE
            by, timeout_us = declared.group_by, declared.clear_timeout_us
            self._groups = _TagGroups(given.schema, declared.tag, len(declared.tags), declared.values, by, timeout_us)
        else:
            names = [[f"{tag}_{value}" for value in declared.values] for tag in declared.tags]
            self._sources = np.array([[given.schema.index[name] for name in row] for row in names], np.int64)
        self._first = len(self.schema) - (len(declared.wide_names) if self._is_wide else 2 + len(declared.values))
        picks = [given.schema.index.get(f.name, -1) for f in self.schema.fields]
        self._picks = np.array([at if i < self._first else -1 for i, at in enumerate(picks)], np.int64)

    def open(self) -> Page:
        page = Page({PENDING: Pending[_PendingBatch]()})
        if self._resolves:
            page.parts[GIVEN] = relation_of(self._entry)
        if self._is_wide:
            page.parts[GROUPS] = self._groups.relation()
        if self._keeps:
            page.parts[ROWS] = relation_of(self.schema, given=self._resolved)
        return page

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        pending = cast("Pending[_PendingBatch]", page.parts[PENDING])
        bad, work = NO_BAD_EVENTS, pending.work
        if work is None:
            chunk, bad = self._given(page, inputs[0], timeline, strings)
            beats = timeline.heartbeat_rank.tolist() if self.clock is Clock.TICKS else []
            work = _PendingBatch(chunk, 0, beats)
        rows_max = 3 * len(inputs[0]) + timeline.extra_rows_max
        if self._is_wide:
            made, refused, until = self._wide(page, work, timeline, strings, rows_max)
            bad += refused
        else:
            made, until = self._long(work, strings, rows_max)
        pending.work = None if until is None else work
        return OperatorResult(made, bad.by_rank(), until)

    def _given(self, page: Page, chunk: Chunk, timeline: Timeline, strings: StringTable) -> tuple[Chunk, BadEvents]:
        """Returns the events, resolved if needed, and bad events for those that the index refuses."""
        if not self._resolves:
            return clear_partial_flags(chunk) if self._is_keyed else chunk, NO_BAD_EVENTS
        return resolved_events(page.parts[GIVEN], chunk, timeline, self._entry, strings)

    def _laid_out(self, chunk: Chunk) -> Chunk:
        """Returns rows of the window's schema with the fields that pass through; the others are not set yet."""
        lanes = np.empty((len(chunk), len(self.schema)), np.int64)
        valid = np.empty((len(chunk), len(self.schema)), np.bool_)
        pick_columns(chunk.lanes, chunk.valid, self._picks, lanes, valid)
        return Chunk(chunk.rank, chunk.opcode, chunk.flags, lanes, valid, chunk.is_whole)

    def _wide(
        self, page: Page, work: _PendingBatch, timeline: Timeline, strings: StringTable, rows_max: int
    ) -> tuple[Chunk, BadEvents, int | None]:
        """Processes rows and heartbeats in mode wide. Returns outputs, bad events, and the rank of the heartbeat at which more
        groups are to be evicted, or None.
        """
        made: list[Chunk] = []
        bad, chunk, groups = NO_BAD_EVENTS, work.chunk, cast(Relation, page.parts[GROUPS])
        while True:
            limit = int(chunk.rank.searchsorted(work.beats[0], "right")) if work.beats else len(chunk)
            while work.at < limit:
                end = min(limit, work.at + self._groups.rows_max)
                end += int(chunk.opcode[end - 1] == Opcode.UPDATE_BLOCK)
                some, refused = self._observed(page, chunk.between(work.at, end), timeline, strings)
                made.append(some)
                bad, work.at = bad + refused, end
            if not work.beats:
                return self._joined(made), bad, None
            if not _evict_expired_groups(groups, work.beats[0], timeline, rows_max):
                return self._joined(made), bad, work.beats[0]
            del work.beats[0]

    def _joined(self, chunks: Sequence[Chunk]) -> Chunk:
        if len(chunks) < 2:
            return chunks[0] if chunks else Chunk.empty(len(self.schema))
        names = ("rank", "opcode", "flags", "lanes", "valid")
        rank, opcode, flags, lanes, valid = (np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in names)
        return Chunk(rank, opcode, flags, lanes, valid)

    def _observed(self, page: Page, given: Chunk, timeline: Timeline, strings: StringTable) -> tuple[Chunk, BadEvents]:
        chunk, quiet = self._laid_out(given), Timeline(timeline.time_us, _NO_BEATS)
        groups, tags = cast(Relation, page.parts[GROUPS]), strings.intern(self._tags)[0]
        if not self._keeps:
            chunk.lanes[:, self._first :], chunk.valid[:, self._first :] = self._groups.observe(groups, given, quiet, tags, strings)
            return chunk, NO_BAD_EVENTS
        relation = cast(Relation, page.parts[ROWS])
        resolution = relation.resolve_chunk(chunk, quiet)
        rows, slots = resolution.arrived_rows()
        bad = refusals(resolution, given, self._entry, strings)
        if len(rows):
            lanes, valid = self._groups.observe(groups, given.copied_rows(rows), quiet, tags, strings)
            relation.lanes[slots, self._first :], relation.valid[slots, self._first :] = lanes, valid
        return relation.settle(resolution), bad

    def _long(self, work: _PendingBatch, strings: StringTable, rows_max: int) -> tuple[Chunk, int | None]:
        """Returns about `rows_max` output rows, and the rank of the next output row; None if no more rows remain."""
        chunk, tags = work.chunk, len(self._tags)
        end = min(work.at + max(rows_max, 2), len(chunk) * tags)
        numbers, rows = _by_tag(chunk, np.arange(work.at, end), tags)
        if end < len(chunk) * tags and len(rows) and chunk.opcode[rows[-1]] == Opcode.UPDATE_BLOCK:
            numbers, rows, end = numbers[:-1], rows[:-1], end - 1
        work.at = end
        some = chunk.copied_rows(rows)
        made = self._laid_out(some)
        made.lanes[:, self._first], made.lanes[:, self._first + 1] = numbers, strings.intern(self._tags)[0][numbers]
        made.valid[:, self._first : self._first + 2] = True
        for i in range(self._sources.shape[1]):
            at, column = self._sources[numbers, i], self._first + 2 + i
            made.lanes[:, column] = some.lanes[np.arange(len(rows)), at]
            made.valid[:, column] = some.valid[np.arange(len(rows)), at]
        return made, None if end == len(chunk) * tags else int(chunk.rank[end // tags])


def _by_tag(chunk: Chunk, places: Int64s, tags: int) -> tuple[Int64s, Int64s]:
    """Returns the number of the tag and of the row for the outputs numbered `places`. Outputs are ordered by row, then by tag; an
    update block has its new row and its old row for each tag.
    """
    is_new = chunk.opcode == Opcode.UPDATE_BLOCK
    first = places // tags
    first -= np.concatenate(([False], is_new[:-1]))[first]
    rest = places - first * tags
    is_block = is_new[first]
    return np.where(is_block, rest // 2, rest), np.where(is_block, first + rest % 2, first)


def _evict_expired_groups(groups: Relation, beat: int, timeline: Timeline, rows_max: int) -> bool:
    """Evicts groups that expire at heartbeat `beat`, at most `rows_max` of them. Returns whether no expired group is left."""
    if not groups.is_done:
        return groups.continue_change(rows_max).until is None
    nothing = Chunk.empty(groups.shape.width)
    return groups.change(nothing, Timeline(timeline.time_us, np.array([beat])), None, rows_max).until is None


class _TagGroups:
    """Reads and updates the newest values of groups by tag. The groups themselves are a `Relation` with a row per group.

    An observed row is a partial upsert of its group. Null in a partial upsert keeps the old value, so a number for each tag has
    bits for its null values. A group may be null in any group field: a number in the key has bits for these, too.

        group fields | null bits | tag 1: values | tag 2: values ... | tag 1: null bits | tag 2 ...
    """

    def __init__(
        self, given: Schema, tag: str, tags: int, values: tuple[str, ...], group_by: tuple[str, ...], limit_us: int
    ) -> None:
        """Plans the rows of groups for input rows of the schema `given`. `tag`: the field with the tag; `tags`: the number of tags.
        Groups without a row for `limit_us` microseconds are evicted; 0: never.
        """
        self._tag = given.index[tag]
        self._tags = tags
        self._values = [given.index[name] for name in values]
        self._by = [given.index[name] for name in group_by]
        types = [f.type for f in given.fields]
        self._coded = [types[i] in CODED for i in self._by]
        self._doubles = tuple(i for i in self._by if types[i] is FieldType.DOUBLE)
        self._first = len(self._by) + 1
        self._nulls = self._first + tags * len(values)
        coded = [i for i, is_coded in enumerate(self._coded) if is_coded]
        coded += [self._first + t * len(values) + v for t in range(tags) for v, i in enumerate(self._values) if types[i] in CODED]
        self.rows_max = max(1, tuning.current().transposed_lanes // (self._nulls + tags))
        """The number of rows that a caller should observe in one step, which bounds the memory of their lanes."""
        self._shape = Shape(self._nulls + tags, tuple(range(self._first)), tuple(coded))
        self._policy = k.Policy(k.TIME_SLIDING, limit_us, limit_us, 0, 0, 0) if limit_us else KEEP_ALL

    def relation(self) -> Relation:
        """Returns an empty relation for the newest values of groups."""
        return Relation(self._shape, self._policy, reading=LoadMode.AT_USE)

    def observe(
        self, groups: Relation, given: Chunk, timeline: Timeline, tags: Int64s, strings: StringTable
    ) -> tuple[Int64s, Bools]:
        """Applies rows to their groups in order. Returns lanes and validity of all values of each row's group after the row, tag by
        tag. `tags`: the codes of the tags; rows with another tag, or null, change no values. `timeline` must have no heartbeats.
        """
        resolution = groups.resolve_chunk(self._upserts(given, tags, strings), timeline)
        _, slots = resolution.arrived_rows()
        lanes, valid = groups.lanes[slots], groups.valid[slots]
        groups.release_outputs()
        found, has = lanes[:, self._first : self._nulls], valid[:, self._first : self._nulls]
        width = len(self._values)
        for value in range(width):
            has[:, value::width] &= (lanes[:, self._nulls :] >> value) & 1 == 0
        return np.where(has, found, 0), has

    def _upserts(self, given: Chunk, tags: Int64s, strings: StringTable) -> Chunk:
        count = len(given)
        given = given.with_plain_doubles(self._doubles)
        lanes, valid = np.zeros((count, self._shape.width), np.int64), np.zeros((count, self._shape.width), np.bool_)
        valid[:, : self._first] = True
        for at, (column, is_coded) in enumerate(zip(self._by, self._coded, strict=True)):
            is_null = ~given.valid[:, column]
            lanes[:, at] = given.lanes[:, column]
            if is_null.any():
                lanes[is_null, at] = strings.intern(_EMPTY_TEXT)[0][0] if is_coded else 0
                lanes[:, self._first - 1] |= is_null.astype(np.int64) << at
        number = _numbers(given.lanes[:, self._tag], tags)
        rows = np.flatnonzero((number >= 0) & given.valid[:, self._tag])
        number, nulls = number[rows], np.zeros(len(rows), np.int64)
        for value, column in enumerate(self._values):
            to, has = self._first + number * len(self._values) + value, given.valid[rows, column]
            lanes[rows, to], valid[rows, to] = np.where(has, given.lanes[rows, column], 0), has
            nulls |= (~has).astype(np.int64) << value
        lanes[rows, self._nulls + number], valid[rows, self._nulls + number] = nulls, True
        opcode = np.full(count, Opcode.UPSERT, np.uint8)
        return Chunk(given.rank, opcode, np.full(count, Flag.NORMAL | Flag.PARTIAL, np.uint8), lanes, valid)


def _numbers(lane: Int64s, codes: Int64s) -> Int64s:
    """Returns the index in `codes` of each value in `lane`; -1 if it is not among them."""
    order = np.argsort(codes, kind="stable")
    at = np.minimum(np.searchsorted(codes[order], lane), len(codes) - 1)
    return np.where(codes[order][at] == lane, order[at], -1)
