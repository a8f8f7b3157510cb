"""Windows that compute each event by itself (filter, compute, functional), and the use of their indexes (SPEC A10-A14).

    published events ─► given: input rows ─► evaluate ─► rows: output rows ─► resolved events

An index of input rows resolves published events, so outputs are computed from whole rows, old ones too. An index of output rows
gives a delete the values that were emitted for its row, and refuses an insert of an existing key. An index is only built if its
answers cannot be computed. In a relation's changelog, values that follow from a row's fields alone are computed again from the old
fields. So the output is the same as if both existed.

An update of which only the new or the old values pass is an insert or a delete. Deletes of rows that were never emitted disappear
silently: their event was already reported.

Without an index (pi_EMPTY) a window emits the result of each event. If such results could be wrong, the window is refused.

Expressions with variables that the window keeps are computed row by row (`_StatefulFunction`), others by columns (SPEC A24).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from sys import getsizeof
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from hotspare.base.errors import Mistake, ProjectError, SnapshotDamaged
from hotspare.expressions.checking import COUNTER_FIELD, POSITION_FIELD, SYSTEM_TIME_FIELD
from hotspare.expressions.compiled import EVENT_FIELDS, STATE_FIELD, CompiledExpression
from hotspare.expressions.prelude import Variable, stored_values
from hotspare.expressions.single_values import RowwiseExpressions
from hotspare.expressions.statements import WINDOW_PREFIX
from hotspare.expressions.tree import TypedField, ValueType
from hotspare.model.events import Flag, Opcode
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import FieldType, Schema
from hotspare.rows.changelog import Changelog, Keys, Opcodes
from hotspare.rows.chunk import Bools, Chunk, Int64s, Timeline, UInt8s, all_true, is_all
from hotspare.rows.elementwise import cut_texts
from hotspare.rows.refusals import NO_BAD_EVENTS, NOTHING_REFUSED, Refusals
from hotspare.table.lanes import CODED, to_arrow, to_lane
from hotspare.table.loops.columns import pick_columns
from hotspare.table.memory import PinnedPart
from hotspare.table.pages import Column, Columns, Counters, Page, Part, require_column
from hotspare.table.relation import Relation
from hotspare.table.strings import StringTable
from hotspare.table.text_pieces import text_pieces
from hotspare.windows.shared.contract import SHARD_BITS, Operator, OperatorInput, OperatorResult
from hotspare.windows.shared.keyed import bad_events, has_row_index, refusals, relation_of, resolved_events
from hotspare.windows.shared.small_batches import SmallBatches
from hotspare.windows.shared.stateless import Admission, Evaluation, Projection, RowFunction, Selection, delete_mask, event_columns

_PARTIAL = np.uint8(Flag.PARTIAL)
GIVEN, ROWS, VARIABLES, COUNTER = "given", "rows", "variables", "counter"
"""Parts of the page: the index of input rows and that of output rows, the variables that the window's code keeps, the count of
events.
"""
EVENT_VALUES = (COUNTER_FIELD, POSITION_FIELD, SYSTEM_TIME_FIELD)
"""Values of an event that expressions may read besides its fields, opcode and flags."""
_COUNTS = (COUNTER_FIELD, POSITION_FIELD)
_UPDATE_BLOCK, _DELETE, _SAFE_DELETE = int(Opcode.UPDATE_BLOCK), int(Opcode.DELETE), np.uint8(Opcode.SAFE_DELETE)


@dataclass(frozen=True, slots=True)
class Indexes:
    """The indexes of a window, as the kind of changelog that each gets; None for no index. `given`: the index of input rows;
    `rows`: that of output rows.
    """

    given: Changelog | None
    rows: Changelog | None


class RowWindow(Operator):
    """Evaluates the row function `work` over the rows of its one input."""

    def __init__(
        self, window: ResolvedWindow, inputs: Sequence[OperatorInput], work: RowFunction, state: Sequence[Variable] = ()
    ) -> None:
        """Builds the operator. `state`: variables that the window keeps from event to event. Raises ProjectError if the window
        needs an index that it does not have.
        """
        super().__init__(window, inputs)
        self._state = tuple(state)
        (self._given,) = self.inputs
        self.work = work
        self._few = SmallBatches(work, self._given.schema)
        self._picks = np.array(work.picks, np.int64)
        self._is_keyed = has_row_index(window.window, self._given.changelog)
        self._passes_all = work.picks == tuple(range(len(self._given.schema)))
        index = self._given.schema.index
        self._read = read_of(self._given.schema, work.fields)
        self._texts = tuple(i for _, i, type_ in self._read if type_ in CODED)
        self._of_event = tuple(name for name in work.fields if name in EVENT_FIELDS and name not in index)
        self._beside = tuple(name for name in work.fields if name in EVENT_VALUES)
        self._counts = None if self._state else _counts_only(work, self.schema)
        if not self._is_keyed:
            check_without_index(window, self._given, work)
            self.indexes = Indexes(None, None)
            self.output_changelog = work.derive_changelog(self._given.changelog)
        else:
            self.indexes = indexes_of(self._given, work)
            self.output_changelog = work.derive_changelog(self._given.changelog.computed_from()).indexed()

    @property
    def head_function(self) -> RowFunction | Admission | None:
        return None if self._is_keyed or self._state or self._beside else self.work

    def open(self) -> Page:
        page = Page(self.own_parts())
        if self.indexes.given is not None:
            page.parts[GIVEN] = relation_of(self._given.schema, given=self.indexes.given)
        if self.indexes.rows is not None:
            page.parts[ROWS] = relation_of(self.schema, given=self.indexes.rows)
        return page

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        (chunk,) = inputs
        if not len(chunk):
            return OperatorResult(Chunk.empty(len(self.schema)))
        bad = NO_BAD_EVENTS
        if self.indexes.given is not None:
            chunk, bad = resolved_events(page.parts[GIVEN], chunk, timeline, self._given.schema, strings)
        if self._counts is None:
            others = event_value_columns(self._beside, page, chunk, timeline)
            made, passes, refused = self._evaluated(self._function(page, chunk, timeline), chunk, others, strings)
        else:
            made, passes, refused = self._with_counts(page, chunk, self._counts), all_true(len(chunk)), NOTHING_REFUSED
        if len(refused):
            bad += bad_events(refused, chunk, self._given.schema, strings)
        if self.indexes.rows is None:
            made = passed_rows(clear_partial_flags(made) if self._is_keyed else made, passes)
        else:
            asked, keeps = _index_changes(made, passes | self._stored_deletes(made))
            change = cast(Relation, page.parts[ROWS]).change(asked, timeline)
            bad += refusals(change, _picked(chunk, keeps), self._given.schema, strings)
            made = change.chunk
        return OperatorResult(made, bad.by_rank())

    def emitted_rows(self, page: Page, strings: StringTable) -> Chunk | None:
        """Returns the emitted rows, computed again from the input rows, if only input rows are kept; else None."""
        if self.indexes.given is None or self.indexes.rows is not None:
            return None
        lanes, valid, _ = cast(Relation, page.parts[GIVEN]).stored()
        made, passes, _ = self._evaluated(self.work, Chunk.from_stored_rows(lanes, valid), {}, strings)
        return passed_rows(made, passes)

    def own_parts(self) -> dict[str, Part]:
        """Returns the parts of the page other than the indexes, by name: variables and the count of events, as far as needed."""
        parts: dict[str, Part] = {VARIABLES: _Variables(self._state, WINDOW_PREFIX)} if self._state else {}
        return parts | counter_parts(self._beside)

    def initialize_shard(self, page: Page, shard: int) -> None:
        begin_counting(self._beside, page, shard)

    def _stored_deletes(self, chunk: Chunk) -> Bools:
        """Returns which deletes need no evaluation, because the index has their values. A condition is evaluated for deletes, too,
        unless it reads state that has changed since the row arrived: time and number of the event, or variables.
        """
        if isinstance(self.work, Selection) and not self._beside and not self._state:
            return np.zeros(len(chunk), np.bool_)
        return delete_mask(chunk.opcode)

    def _columns(self, chunk: Chunk, strings: StringTable) -> dict[str, pa.Array]:
        columns = event_columns(self._of_event, self._given.schema, chunk.opcode, chunk.flags) if self._of_event else {}
        return columns | field_columns(self._read, chunk, strings)

    def _function(self, page: Page, given: Chunk, timeline: Timeline) -> RowFunction:
        """Returns the function that evaluates the rows of `given`, piece after piece."""
        return _StatefulFunction(self.work, cast(_Variables, page.parts[VARIABLES]).values) if self._state else self.work

    def _evaluated(
        self, work: RowFunction, given: Chunk, others: Mapping[str, pa.Array], strings: StringTable
    ) -> tuple[Chunk, Bools, Refusals]:
        """Returns all rows in the window's schema, which of them pass, and the refused ones. `others`: columns of event values by
        name.
        """
        made = given if self._passes_all else self._laid_out(given)
        if (passes := self._few.try_evaluate(given, made)) is not None:
            return made, passes, NOTHING_REFUSED

        def columns(begin: int, end: int) -> dict[str, pa.Array]:
            beside = {name: column.slice(begin, end - begin) for name, column in others.items()}
            return self._columns(given.between(begin, end), strings) | beside

        pieces = text_pieces(given.lanes, self._texts, strings)
        passes, refused = evaluate_pieces(work, pieces, columns, made, self.schema, strings)
        return made, passes, refused

    def _with_counts(self, page: Page, given: Chunk, places: Sequence[int]) -> Chunk:
        """Returns all rows in the window's schema, if no field is computed except, at `places`, the count of events."""
        if not places:
            return given if self._passes_all else self._laid_out(given)
        made, (numbers, counts) = self._laid_out(given), _count_events(page, given)
        for place in places:
            made.lanes[:, place], made.valid[:, place] = numbers, counts
        return made

    def _laid_out(self, chunk: Chunk) -> Chunk:
        """Returns rows of the window's schema with the fields that pass through; computed fields are not set yet."""
        lanes = np.empty((len(chunk), len(self.schema)), np.int64)
        valid = np.empty((len(chunk), len(self.schema)), np.bool_)
        pick_columns(chunk.lanes, chunk.valid, self._picks, lanes, valid)
        return Chunk(chunk.rank, chunk.opcode, chunk.flags, lanes, valid, chunk.is_whole)


def _counts_only(work: RowFunction, schema: Schema) -> tuple[int, ...] | None:
    """Returns the place of each computed field, if each is just the count of events; else None. `schema`: that of the outputs."""
    if not isinstance(work, Projection) or work.assignments.prepared:
        return None
    trees = [(place, expression.tree) for place, expression in work.computed]
    found = tuple(place for place, tree in trees if isinstance(tree, TypedField) and tree.name in _COUNTS)
    is_all_counts = len(found) == len(trees) and all(schema.fields[place].type is FieldType.INT64 for place in found)
    return found if is_all_counts else None


Read: TypeAlias = tuple[tuple[str, int, FieldType], ...]
"""Fields that are read: name, place in the schema, and type."""


def read_of(schema: Schema, names: Sequence[str]) -> Read:
    return tuple((name, schema.index[name], schema.fields[schema.index[name]].type) for name in names if name in schema.index)


def field_columns(read: Read, chunk: Chunk, strings: StringTable) -> dict[str, pa.Array]:
    return {name: to_arrow(chunk.lanes[:, i], chunk.valid[:, i], type_, strings) for name, i, type_ in read}


def begin_counting(names: Sequence[str], page: Page, shard: int) -> None:
    """Sets the event count of a fresh page to the first number of a shard, if `names` has POSITION_FIELD, so that random numbers
    differ between shards. A window with eventCounter() is not allowed in a project with shards.
    """
    if POSITION_FIELD in names:
        cast(Counters, page.parts[COUNTER]).values[0] = shard << SHARD_BITS


def counter_parts(names: Sequence[str]) -> dict[str, Part]:
    """Returns the parts of a page that these names of EVENT_VALUES need: the count of events, unless they need none."""
    return {COUNTER: Counters(1)} if any(name != SYSTEM_TIME_FIELD for name in names) else {}


def event_value_columns(names: Sequence[str], page: Page, chunk: Chunk, timeline: Timeline) -> dict[str, pa.Array]:
    """Returns a column for each of these names of EVENT_VALUES: the number of each event, which continues the window's count in
    `page`, or its time. Deletes have null, and are not counted. Advances the count in `page`.
    """
    found: dict[str, pa.Array] = {}
    if counts := [name for name in names if name != SYSTEM_TIME_FIELD]:
        found |= _counted(counts, page, chunk)
    if SYSTEM_TIME_FIELD in names:
        found[SYSTEM_TIME_FIELD] = pa.array(timeline.time_us[chunk.rank], mask=delete_mask(chunk.opcode)).cast(
            ValueType.STAMP.arrow
        )
    return found


def _counted(names: Sequence[str], page: Page, chunk: Chunk) -> dict[str, pa.Array]:
    numbers, counts = _count_events(page, chunk)
    return dict.fromkeys(names, pa.array(numbers, pa.int64(), mask=None if is_all(counts) else ~counts))


def _count_events(page: Page, chunk: Chunk) -> tuple[Int64s, Bools]:
    """Returns the number of each event, which continues the window's count in `page`, and whether it is counted; the number of
    others is 0. Advances the count."""
    counter = cast(Counters, page.parts[COUNTER]).values
    counts, first = ~delete_mask(chunk.opcode), counter.item(0) + 1
    if is_all(counts):
        numbers: Int64s = np.arange(first, first + len(counts))
        counter[0] += len(counts)
    else:
        numbers = (counter[0] + np.cumsum(counts, dtype=np.int64)) * counts
        counter[0] += np.count_nonzero(counts)
    return numbers, counts


def indexes_of(given: OperatorInput, work: RowFunction) -> Indexes:
    """Returns the indexes that a window with an index and the row function `work` has to keep."""
    resolved = given.changelog.computed_from()
    made = work.derive_changelog(resolved)
    reads_event = work.reads_event(given.schema) and resolved.opcodes is Opcodes.RESOLVED
    rows = made if made.keys is Keys.ANY or (reads_event and not made.is_distinct) else None
    return Indexes(None if resolved is given.changelog else given.changelog, rows)


def evaluate_pieces(
    work: RowFunction,
    pieces: Sequence[tuple[int, int]],
    columns: Callable[[int, int], Mapping[str, pa.Array]],
    made: Chunk,
    schema: Schema,
    strings: StringTable,
) -> tuple[Bools, Refusals]:
    """Evaluates `work` piece by piece. `pieces`: (begin, end) of each; `columns`: returns the columns of a piece. Writes computed
    fields to `made`, which has the schema `schema`. Returns which rows pass, and the refused ones.
    """
    found: list[Evaluation] = []
    for begin, end in pieces:
        done = work.evaluate(columns(begin, end), made.opcode[begin:end])
        for i, values in done.computed.items():
            made.lanes[begin:end, i], made.valid[begin:end, i] = to_lane(values, schema.fields[i].type, strings)
        found.append(done)
    if len(found) == 1:
        return found[0].passes, found[0].refused
    refused = Refusals.joined([(begin, done.refused) for (begin, _), done in zip(pieces, found, strict=True)])
    return np.concatenate([done.passes for done in found]), refused


def check_without_index(window: ResolvedWindow, given: OperatorInput, work: RowFunction) -> None:
    """Raises ProjectError if a window without an index could emit wrong results for its input."""
    if isinstance(work, Selection) and work.is_insert_only:
        return
    keys = {given.schema.names[i] for i in given.schema.key_indexes}
    needs_rows = given.changelog.opcodes is Opcodes.PUBLISHED if isinstance(work, Selection) else given.changelog.needs_rows
    if needs_rows and not keys.issuperset(work.fields):
        raise unresolved_input_error(window)
    is_told_what_was = given.changelog.opcodes is not Opcodes.RESOLVED or isinstance(work, Selection)
    if not is_told_what_was and work.reads_event(given.schema):
        counts = "eventCounter()" if COUNTER_FIELD in work.fields else "ESP_OPCODE or ESP_FLAGS"
        counts = "guid() or random()" if POSITION_FIELD in work.fields else counts
        counts = "the time of the event" if SYSTEM_TIME_FIELD in work.fields else counts
        what = "variables that it keeps" if STATE_FIELD in work.fields else counts
        raise needs_index_error(window, f"computes from {what}", f"compute without {what}")


def unresolved_input_error(window: ResolvedWindow) -> ProjectError:
    """Returns the error of a window without an index whose input arrives as published, so that old values are missing."""
    source = window.inputs[0][0]
    message = (
        f"window {window.id} has the index pi_EMPTY, and events from {source} arrive as they are published: "
        "updates do not have the old values, partial updates and deletes not all new ones"
    )
    hint = f"give window {window.id} an index such as pi_HASH, or its source an index, or make the source insert-only"
    return ProjectError(str(window.id), [Mistake(window.window.place, message, hint)])


def needs_index_error(window: ResolvedWindow, does: str, instead: str) -> ProjectError:
    """Returns the error of a window without an index that would have to know the rows it emitted. `does`: the reason; `instead`:
    the alternative in the hint.
    """
    message = (
        f"window {window.id} {does} and has the index pi_EMPTY: when a row is updated or deleted, also by retention, "
        "it does not know the output that it emitted for it"
    )
    hint = f"give the window an index such as pi_HASH, or {instead}"
    return ProjectError(str(window.id), [Mistake(window.window.place, message, hint)])


def passed_rows(chunk: Chunk, passes: Bools) -> Chunk:
    """Returns the rows that pass. An update block is an insert if only its new row passes, a delete if only its old one does."""
    if is_all(passes):
        return chunk
    opcode = chunk.opcode.copy()
    blocks = np.flatnonzero(opcode == Opcode.UPDATE_BLOCK)
    opcode[blocks[~passes[blocks + 1]]] = Opcode.INSERT
    return _picked(Chunk(chunk.rank, opcode, chunk.flags, chunk.lanes, chunk.valid), passes)


def _index_changes(chunk: Chunk, passes: Bools) -> tuple[Chunk, Bools]:
    """Returns the changes to make in an index of output rows, and which rows of the chunk they are.

    An update block remains complete if its new values pass: the index knows whether the old ones are present. A delete becomes a
    safe delete, because its row may not have passed.
    """
    known = chunk.opcode.tobytes()
    if _UPDATE_BLOCK not in known:
        opcode = chunk.opcode if _DELETE not in known else np.where(chunk.opcode == _DELETE, _SAFE_DELETE, chunk.opcode)
        return _picked(Chunk(chunk.rank, opcode, chunk.flags, chunk.lanes, chunk.valid), passes), passes
    blocks = np.flatnonzero(chunk.opcode == Opcode.UPDATE_BLOCK)
    keeps = passes.copy()
    keeps[blocks + 1] |= passes[blocks]
    opcode = chunk.opcode.copy()
    alone = opcode == Opcode.DELETE
    alone[blocks[passes[blocks]] + 1] = False
    opcode[alone] = Opcode.SAFE_DELETE
    return _picked(Chunk(chunk.rank, opcode, chunk.flags, chunk.lanes, chunk.valid), keeps), keeps


def clear_partial_flags(chunk: Chunk) -> Chunk:
    """Returns the chunk without partial flags. An index does the same, because its rows are complete."""
    if chunk.is_whole or not (chunk.flags & _PARTIAL).any():
        return chunk
    rest = chunk.flags & np.uint8(~Flag.PARTIAL & 0xFF)
    flags = np.where(rest == 0, np.uint8(Flag.NORMAL), rest)
    return Chunk(chunk.rank, chunk.opcode, flags, chunk.lanes, chunk.valid, is_whole=True)


def _picked(chunk: Chunk, mask: Bools) -> Chunk:
    if is_all(mask):
        return chunk
    return chunk.copied_rows(np.flatnonzero(mask))


@dataclass(frozen=True)
class _StatefulFunction(RowFunction):
    """Evaluates `row_function` row by row with `variables`, which its expressions read and set. A delete is not computed and
    changes no variable: its output has the values that were emitted for its row.
    """

    row_function: RowFunction
    variables: dict[str, Any]

    @property
    def fields(self) -> tuple[str, ...]:
        return self.row_function.fields

    @property
    def picks(self) -> tuple[int, ...]:
        return self.row_function.picks

    @cached_property
    def _expressions(self) -> tuple[tuple[int, CompiledExpression], ...]:
        """The expressions, each with the place of the field that it computes; -1 for a condition."""
        if isinstance(self.row_function, Selection):
            return ((-1, self.row_function.condition),)
        assert isinstance(self.row_function, Projection)
        return self.row_function.computed

    def evaluate(self, columns: Mapping[str, pa.Array], opcode: UInt8s) -> Evaluation:
        rows = np.flatnonzero(~delete_mask(opcode))
        fields = {name: column for name, column in columns.items() if name != STATE_FIELD}
        stepwise = RowwiseExpressions(tuple(each.tree for _, each in self._expressions))
        values, failed = stepwise.run(fields, rows.tolist(), self.variables)
        place = np.full(len(opcode), -1, np.int64)
        place[rows] = np.arange(len(rows))
        passes, picked = all_true(len(opcode)), pa.array(place, mask=place < 0)
        limit = self.row_function.assignments.text_bytes_max if isinstance(self.row_function, Projection) else 0
        computed = {i: cut_texts(value.take(picked), limit) for (i, _), value in zip(self._expressions, values, strict=True)}
        passes[[row for row, _, _ in failed]] = False
        if -1 in computed:
            passes &= computed.pop(-1).fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
        causes = [(str(why.reason), self._expressions[number][1].failure_message(why.message)) for _, number, why in failed]
        at = np.array([row for row, _, _ in failed], np.int64)
        return Evaluation(passes, computed, Refusals.from_causes(at, np.arange(len(at)), causes))


class _Variables(PinnedPart):
    """Variables that code keeps from event to event, as a part of a page (SPEC A24, Z8). `values`, by name, with times as stored
    numbers, may be written in place. Variables are few, so a snapshot copies them.

    As columns, variables are an Arrow stream, so each value reads back equal.
    """

    def __init__(self, declared: Sequence[Variable], prefix: str) -> None:
        self._types = {prefix + v.name: v.type.arrow for v in declared}
        self.values: dict[str, Any] = {prefix + v.name: v.initial for v in declared}

    @property
    def pinned_bytes(self) -> int:
        return sum(getsizeof(value) for value in self.values.values())

    def freeze(self) -> _Variables:
        twin = _Variables((), "")
        twin._types, twin.values = self._types, dict(self.values)
        return twin

    def columns(self) -> Columns:
        arrays = [pa.array([self.values[name]], type_) for name, type_ in self._types.items()]
        batch = pa.RecordBatch.from_arrays(arrays, names=list(self._types))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return {"values": Column(np.frombuffer(sink.getvalue(), np.uint8))}

    def load(self, columns: Columns) -> None:
        data = require_column(columns, "values", np.dtype(np.uint8), (-1,)).array
        try:
            batch = pa.ipc.open_stream(pa.py_buffer(data.tobytes())).read_next_batch()
            batch.validate(full=True)
        except (pa.ArrowException, StopIteration, OSError) as error:
            raise SnapshotDamaged("the variables of a window cannot be read", detail=type(error).__name__) from error
        if batch.schema != pa.schema(list(self._types.items())) or batch.num_rows != 1:
            raise SnapshotDamaged(
                "the variables of a window differ from those of the project", detail=f"found {batch.schema.names}"
            )
        self.values = {name: stored_values(batch.column(name))[0] for name in self._types}
