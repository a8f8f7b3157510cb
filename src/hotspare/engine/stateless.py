"""Stateless windows over Arrow columns: the chain source, compute, filter ... that the head runs on decoded events.

Windows of a chain see published events one by one: nothing stands between them and the topic that would pair old and new values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.engine.codec.csv_decode import DecodedRows
from hotspare.engine.codec.csv_split import BAD_TEXT_LENGTH_MAX, BadRow
from hotspare.engine.elementwise import true_rows
from hotspare.engine.expressions.compiled import FLAGS_FIELD, OPCODE_FIELD, CompiledExpression
from hotspare.engine.expressions.windows import Assignments, compile_compute, compile_filter
from hotspare.engine.letters import flag_letters, opcode_letters
from hotspare.errors import Mistake, ProjectError
from hotspare.model.events import OPCODE_LETTER, Opcode
from hotspare.model.project import AcceptedOpcodes, ComputeWindow, SourceWindow, WindowId
from hotspare.model.resolve import Resolved
from hotspare.model.types import Schema

Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Admission:
    """What the source window refuses (A15): reasons and sentences are those of the core's source operator."""

    window: str
    schema: Schema
    accepts: AcceptedOpcodes

    def run(self, rows: DecodedRows, bad: list[BadRow]) -> DecodedRows:
        insert_only = self.accepts is AcceptedOpcodes.INSERT_ONLY
        wrong = rows.opcode != Opcode.INSERT if insert_only else rows.opcode == Opcode.UPDATE_BLOCK
        why = ("not-insert", "the window takes inserts only") if insert_only else ("opcode", "an update block cannot be published")
        keyless = np.zeros(len(wrong), np.bool_)
        for place in self.schema.key_indexes:
            if rows.columns[place].null_count:
                keyless |= rows.columns[place].is_null().to_numpy(zero_copy_only=False)
        refuse(rows, np.flatnonzero(wrong), *why, self.schema, bad)
        refuse(rows, np.flatnonzero(keyless & ~wrong), "null-key", "a key field is null", self.schema, bad)
        return keep(rows, ~(wrong | keyless))


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter window: an event passes if the condition is true."""

    schema: Schema
    condition: CompiledExpression

    def run(self, rows: DecodedRows, bad: list[BadRow]) -> DecodedRows:
        columns = named_columns(rows, self.schema, self.condition.fields)
        values, failures = self.condition.evaluate(columns, len(rows.message))
        for failure in failures:
            refuse(rows, np.array([failure.row]), failure.reason, failure.message, self.schema, bad)
        passes = np.zeros(len(rows.message), np.bool_)
        passes[true_rows(values)] = True
        return keep(rows, passes)


@dataclass(frozen=True, slots=True)
class Projection:
    """A compute window: one event out per event in."""

    given: Schema
    assignments: Assignments

    def run(self, rows: DecodedRows, bad: list[BadRow]) -> DecodedRows:
        columns = named_columns(rows, self.given, self.assignments.fields)
        outputs: list[pa.Array] = []
        refused = np.zeros(len(rows.message), np.bool_)
        for output in self.assignments.outputs:
            if output.passed_field in self.given.index:
                outputs.append(rows.columns[self.given.index[output.passed_field]])
                continue
            values, failures = output.evaluate(columns, len(rows.message))
            outputs.append(values)
            for failure in failures:
                if not refused[failure.row]:
                    refuse(rows, np.array([failure.row]), failure.reason, failure.message, self.given, bad)
                refused[failure.row] = True
        return keep(DecodedRows(rows.message, rows.index, rows.opcode, rows.flags, outputs), ~refused)


Step: TypeAlias = Admission | Selection | Projection


@dataclass(frozen=True, slots=True)
class Chain:
    """Windows one after another. `schema`: that of the last one."""

    steps: tuple[Step, ...]
    schema: Schema

    def run(self, rows: DecodedRows) -> tuple[DecodedRows, list[BadRow]]:
        """What comes out, and the events that a window could not take. Elementwise."""
        bad: list[BadRow] = []
        for step in self.steps:
            rows = step.run(rows, bad)
        return rows, bad


def compile_chain(resolved: Resolved, windows: Sequence[WindowId]) -> Chain:
    """The chain of these windows, the source first; ProjectError with all mistakes of their expressions."""
    source = resolved.window(windows[0])
    assert isinstance(source.window, SourceWindow)
    steps: list[Step] = [Admission(str(source.id), source.schema, source.window.accepts)]
    mistakes: list[Mistake] = []
    given = source.schema
    for window_id in windows[1:]:
        window = resolved.window(window_id)
        try:
            if isinstance(window.window, ComputeWindow):
                steps.append(Projection(given, compile_compute(window, given)))
            else:
                steps.append(Selection(given, compile_filter(window, given)))
        except ProjectError as error:
            mistakes += error.mistakes
        given = window.schema
    if mistakes:
        raise ProjectError(resolved.project.name, mistakes)
    return Chain(tuple(steps), given)


def named_columns(rows: DecodedRows, schema: Schema, names: Sequence[str]) -> Mapping[str, pa.Array]:
    """The columns that expressions read, by name."""
    columns: dict[str, pa.Array] = {}
    for name in names:
        if name in schema.index:
            columns[name] = rows.columns[schema.index[name]]
        elif name == OPCODE_FIELD:
            columns[name] = opcode_letters(rows.opcode)
        elif name == FLAGS_FIELD:
            columns[name] = flag_letters(rows.flags)
    return columns


def keep(rows: DecodedRows, mask: Bools) -> DecodedRows:
    if mask.all():
        return rows
    columns = [column.filter(pa.array(mask)) for column in rows.columns]
    return DecodedRows(rows.message[mask], rows.index[mask], rows.opcode[mask], rows.flags[mask], columns)


def refuse(rows: DecodedRows, places: npt.NDArray[np.int64], reason: str, sentence: str, schema: Schema, bad: list[BadRow]) -> None:
    for row in places.tolist():
        shown = [OPCODE_LETTER[Opcode(int(rows.opcode[row]))]]
        shown += ["" if not c[row].is_valid else str(c[row]) for c in rows.columns[: len(schema)]]
        text = ",".join(shown)[:BAD_TEXT_LENGTH_MAX]
        bad.append(BadRow(int(rows.message[row]), int(rows.index[row]), reason, sentence, text))
