"""Functions of each event by itself: the source's admission, a condition, assignments. The head and the core evaluate them alike.

    head   Arrow columns of decoded events ──┐
                                             ├── RowFunction.evaluate ── which rows pass, computed columns, refused rows
    core   columns of a chunk's lanes ───────┘

So the output, bad events included, does not depend on where a window runs. Deletes are not refused for their values: the event that
introduced these was already reported.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hotspare.expressions.checking import COUNTER_FIELD, POSITION_FIELD, SYSTEM_TIME_FIELD
from hotspare.expressions.compiled import EVENT_FIELDS, STATE_FIELD, CompiledExpression
from hotspare.expressions.frame import Failures
from hotspare.expressions.function_programs import DOCUMENT_ROWS_MAX, FunctionStep, has_document_functions
from hotspare.expressions.tree import Typed, TypedCall, TypedField, TypedLiteral
from hotspare.formats.csv.decode import DecodedRows
from hotspare.model.events import OPCODE_LETTER, Opcode
from hotspare.model.names import FLAGS_FIELD, OPCODE_FIELD
from hotspare.model.project import AcceptedOpcodes
from hotspare.model.types import Schema
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.changelog import Changelog
from hotspare.rows.chunk import Bools, UInt8s, all_true, is_all
from hotspare.rows.elementwise import chosen, cut_texts, true_mask
from hotspare.rows.event_texts import event_texts
from hotspare.rows.letters import flag_letters, opcode_letters
from hotspare.rows.refusals import NOTHING_REFUSED, BadRows, Refusals
from hotspare.windows.shared.expressions import Assignments

_INSERT, _DELETE, _SAFE_DELETE = int(Opcode.INSERT), int(Opcode.DELETE), int(Opcode.SAFE_DELETE)


NON_FIELD_NAMES = (*EVENT_FIELDS, COUNTER_FIELD, POSITION_FIELD, SYSTEM_TIME_FIELD, STATE_FIELD)
"""Names, other than those of fields, that an expression may read. Results that use them depend on more than the values of a row."""


def delete_mask(opcode: UInt8s) -> Bools:
    """Returns for each opcode whether it is a delete or a safe delete."""
    found: Bools = (opcode == _DELETE) | (opcode == _SAFE_DELETE)
    return found


class Evaluation(NamedTuple):
    """The result of a row function for n events.

    passes    bool[n]: events that are emitted
    computed  arrays of n values by place in the output schema; null in rows that failed
    refused   ascending by row; none of them passes
    """

    passes: Bools
    computed: Mapping[int, pa.Array]
    refused: Refusals


class RowFunction(ABC):
    """A function of rows, without state. It is elementwise, and consists of plain data, so it can be sent to Spark's workers."""

    @property
    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """The names of the columns that `evaluate` reads."""

    @property
    @abstractmethod
    def picks(self) -> tuple[int, ...]:
        """Place of the input field that each output field passes through; -1 for a computed field."""

    @abstractmethod
    def evaluate(self, columns: Mapping[str, pa.Array], opcode: UInt8s) -> Evaluation:
        """Evaluates rows. `columns` has an array for each of `fields`, as long as `opcode`."""

    def derive_changelog(self, given: Changelog) -> Changelog:
        """Returns the kind of changelog that results from a changelog of the kind `given`."""
        return given

    def reads_event(self, given: Schema) -> bool:
        """Whether results depend on more than a row's values: on opcode, flags, time, the count of events, or variables that the
        window keeps.
        """
        return any(name not in given.index for name in self.fields if name in NON_FIELD_NAMES)


@dataclass(frozen=True)
class Selection(RowFunction):
    """A condition over events of the schema `given`: an event passes if the condition is true; false and null do not pass."""

    condition: CompiledExpression
    given: Schema

    @property
    def fields(self) -> tuple[str, ...]:
        return self.condition.fields

    @property
    def picks(self) -> tuple[int, ...]:
        return tuple(range(len(self.given)))

    @property
    def is_insert_only(self) -> bool:
        """Whether only inserts can pass, whatever their values: the condition requires `ESP_OPCODE = 'I'`."""
        return OPCODE_FIELD not in self.given.index and _requires_insert(self.condition.tree)

    def derive_changelog(self, given: Changelog) -> Changelog:
        if self.is_insert_only:
            return given.inserts()
        return given.filtered_by_kind() if self.reads_event(self.given) else given

    def evaluate(self, columns: Mapping[str, pa.Array], opcode: UInt8s) -> Evaluation:
        values, failures = self.condition.evaluate(columns, len(opcode))
        return Evaluation(true_mask(values), {}, first_failures([failures] if len(failures) else [], opcode))


def _requires_insert(tree: Typed) -> bool:
    if not isinstance(tree, TypedCall):
        return False
    if tree.function == "and":
        return any(_requires_insert(argument) for argument in tree.arguments)
    sides = {a.name if isinstance(a, TypedField) else a.value if isinstance(a, TypedLiteral) else None for a in tree.arguments}
    return tree.function == "equal" and sides == {OPCODE_FIELD, OPCODE_LETTER[Opcode.INSERT]}


@dataclass(frozen=True)
class Projection(RowFunction):
    """Assignments over events of the schema `given`: every event passes with the new fields, except those on which an expression
    fails. `names`: the names of the output fields, if expressions read each other's values; else empty.
    """

    assignments: Assignments
    given: Schema
    names: tuple[str, ...] = ()

    @cached_property
    def fields(self) -> tuple[str, ...]:
        made: set[str] = set()
        found: dict[str, None] = {}
        for step in self.assignments.prepared:
            found |= dict.fromkeys(name for name in step.expression.fields if name not in made)
            made.add(step.name)
        for i, output in self.computed:
            found |= dict.fromkeys(name for name in output.fields if name not in made)
            made |= {self.names[i]} - self.given.index.keys() if self.names else set()
        return tuple(found)

    @cached_property
    def picks(self) -> tuple[int, ...]:
        return tuple(self.given.index.get(output.passed_field, -1) for output in self.assignments.outputs)

    @cached_property
    def computed(self) -> tuple[tuple[int, CompiledExpression], ...]:
        """The computed fields, as (place, expression), in the order of evaluation."""
        outputs = self.assignments.outputs
        places = [*self.assignments.order, *(i for i in range(len(outputs)) if i not in self.assignments.order)]
        return tuple((i, outputs[i]) for i in places if self.picks[i] < 0)

    @cached_property
    def _parses(self) -> bool:
        return has_document_functions([*self.assignments.prepared, *(FunctionStep("", output) for _, output in self.computed)])

    def evaluate(self, columns: Mapping[str, pa.Array], opcode: UInt8s) -> Evaluation:
        if not self._parses or len(opcode) <= DOCUMENT_ROWS_MAX:
            return self._at_once(columns, opcode)
        starts = range(0, len(opcode), DOCUMENT_ROWS_MAX)
        parts = [
            self._at_once({n: c.slice(at, DOCUMENT_ROWS_MAX) for n, c in columns.items()}, opcode[at : at + DOCUMENT_ROWS_MAX])
            for at in starts
        ]
        computed = {i: pa.concat_arrays([part.computed[i] for part in parts]) for i, _ in self.computed}
        refused = Refusals.joined([(at, part.refused) for at, part in zip(starts, parts, strict=True)])
        return Evaluation(np.concatenate([part.passes for part in parts]), computed, refused)

    def _at_once(self, columns: Mapping[str, pa.Array], opcode: UInt8s) -> Evaluation:
        count, memo, seen = len(opcode), dict[Any, Any](), columns
        computed: dict[int, pa.Array] = {}
        failed: list[Failures] = []
        if self.names:
            seen = dict(columns)
            for step in self.assignments.prepared:
                seen[step.name], failures = step.expression.evaluate(seen, count, memo)
                failed.append(failures)
        for i, output in self.computed:
            values, failures = output.evaluate(seen, count, memo)
            computed[i] = cut_texts(values, self.assignments.text_bytes_max)
            failed.append(failures)
            if self.names and self.names[i] not in self.given.index:
                seen = {**seen, self.names[i]: computed[i]}
        passes = all_true(count)
        some = [failures for failures in failed if len(failures)]
        for failures in some:
            passes[failures.rows] = False
        return Evaluation(passes, computed, first_failures(some, opcode))


@dataclass(frozen=True)
class Splitting(RowFunction):
    """A splitter: computes a slot number for each event, as field 0; every event passes."""

    slot: CompiledExpression

    @property
    def fields(self) -> tuple[str, ...]:
        return self.slot.fields

    @property
    def picks(self) -> tuple[int, ...]:
        return (-1,)

    def evaluate(self, columns: Mapping[str, pa.Array], opcode: UInt8s) -> Evaluation:
        values, failures = self.slot.evaluate(columns, len(opcode))
        return Evaluation(all_true(len(opcode)), {0: values}, first_failures([failures] if len(failures) else [], opcode))


def first_failures(failed: Sequence[Failures], opcode: UInt8s) -> Refusals:
    """Returns the first failure of each row that failed, except for deletes. None of `failed` may be empty."""
    if not failed:
        return NOTHING_REFUSED
    shift = np.cumsum([0, *(len(failures.causes) for failures in failed)])
    rows = np.concatenate([failures.rows for failures in failed])
    cause = np.concatenate([failures.cause_index + at for failures, at in zip(failed, shift, strict=False)])
    rows, first = np.unique(rows, return_index=True)
    counts = ~delete_mask(opcode[rows])
    return Refusals.from_causes(rows[counts], cause[first][counts], [each for failures in failed for each in failures.causes])


_INSERTS_ALONE = f"{BadReason.NOT_INSERT.sentence}; set opcodes: any to take updates and deletes"


@dataclass(frozen=True, slots=True)
class Admission:
    """Decides which events a source window refuses: by opcode, and by null key fields (SPEC A15)."""

    accepts: AcceptedOpcodes

    def admits_all(self, opcode: UInt8s) -> bool:
        """Whether the source accepts all these opcodes."""
        return self.accepts is not AcceptedOpcodes.INSERT_ONLY or is_all(opcode == _INSERT)

    def refused(self, opcode: UInt8s, keyless: Bools) -> Refusals:
        """Returns the refused events: those with an opcode that the source does not accept, and those that `keyless` marks, because
        a key field is null.
        """
        wrong = (opcode != _INSERT) & (self.accepts is AcceptedOpcodes.INSERT_ONLY)
        rows = np.flatnonzero(wrong | keyless)
        causes = [(BadReason.NOT_INSERT, _INSERTS_ALONE), (BadReason.NULL_KEY, BadReason.NULL_KEY.sentence)]
        return Refusals.from_causes(rows, (~wrong[rows]).astype(np.int64), causes)


@dataclass(frozen=True)
class HeadWindow:
    """A window of a chain in the head: `row_function` over events of the schema `given`, or, for a source, its admission."""

    window: str
    given: Schema
    row_function: RowFunction | Admission

    def run(self, rows: DecodedRows, bad: list[BadRows]) -> DecodedRows:
        """Returns the rows that the window emits. Appends refused events to `bad`, with the name of the window."""
        if isinstance(self.row_function, Admission):
            refused = self.row_function.refused(rows.opcode, self._keyless(rows))
            passes = np.ones(len(rows.opcode), np.bool_)
            passes[refused.rows] = False
            columns = rows.columns
        else:
            done = self.row_function.evaluate(self._named(rows, self.row_function.fields), rows.opcode)
            refused, passes = done.refused, done.passes
            columns = [rows.columns[at] if at >= 0 else done.computed[i] for i, at in enumerate(self.row_function.picks)]
        if len(refused):
            bad.append(refused_rows(rows, refused, self.given, self.window))
        return passed_decoded_rows(rows, passes, columns)

    def _keyless(self, rows: DecodedRows) -> Bools:
        keyless = np.zeros(len(rows.opcode), np.bool_)
        for place in self.given.key_indexes:
            if rows.columns[place].null_count:
                keyless |= rows.columns[place].is_null().to_numpy(zero_copy_only=False)
        return keyless

    def _named(self, rows: DecodedRows, names: Sequence[str]) -> dict[str, pa.Array]:
        columns = {name: rows.columns[self.given.index[name]] for name in names if name in self.given.index}
        return columns | event_columns(names, self.given, rows.opcode, rows.flags)


def refused_rows(rows: DecodedRows, refused: Refusals, given: Schema, window: str) -> BadRows:
    """Returns the `refused` among these rows of the schema `given` as bad rows of `window`."""
    at = refused.rows
    texts = event_texts(given, rows.opcode[at], [chosen(column, at) for column in rows.columns])
    return BadRows(rows.message[at], rows.index[at].astype(np.int64), refused.reason, refused.message, texts, window)


def passed_decoded_rows(rows: DecodedRows, passes: Bools, columns: Sequence[pa.Array]) -> DecodedRows:
    """Returns the rows for which `passes` is True, with the values `columns` in place of their own."""
    if is_all(passes):
        return DecodedRows(rows.message, rows.index, rows.opcode, rows.flags, list(columns))
    kept = np.flatnonzero(passes)
    values = [chosen(column, kept) for column in columns]
    return DecodedRows(rows.message[kept], rows.index[kept], rows.opcode[kept], rows.flags[kept], values)


def event_columns(names: Sequence[str], given: Schema, opcode: UInt8s, flags: UInt8s) -> dict[str, pa.Array]:
    """Returns columns for opcode and flags, as far as `names` has their names and `given` has no field of that name (SPEC A26)."""
    found: dict[str, pa.Array] = {}
    if OPCODE_FIELD in names and OPCODE_FIELD not in given.index:
        found[OPCODE_FIELD] = opcode_letters(opcode)
    if FLAGS_FIELD in names and FLAGS_FIELD not in given.index:
        found[FLAGS_FIELD] = flag_letters(flags)
    return found


@dataclass(frozen=True)
class Chain:
    """A sequence of windows in the head that begins with a source. `schema`: the schema of the last window."""

    windows: tuple[HeadWindow, ...]
    schema: Schema

    def run(self, rows: DecodedRows) -> tuple[DecodedRows, list[BadRows]]:
        """Returns the rows that the last window emits, and the events that each window refused. The result of a row does not depend
        on others.
        """
        bad: list[BadRows] = []
        for window in self.windows:
            rows = window.run(rows, bad)
        return rows, bad
