"""Expressions over chunks: what compute, filter and functional windows share.

Rows that an expression fails on do not come out, and a bad event says why. An update of which only the old or only the new values
come out becomes a delete or an insert, so what a window has put out is always a consistent relation. Deletes of what never came out
disappear without a word: their event was reported when it came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import numpy as np
import pyarrow as pa

from hotspare.engine.chunk import Bools, Chunk, Int64s
from hotspare.engine.expressions.compiled import FLAGS_FIELD, OPCODE_FIELD
from hotspare.engine.expressions.evaluate import EVALUATOR
from hotspare.engine.expressions.frame import Failure
from hotspare.engine.expressions.tree import ValueType
from hotspare.engine.expressions.windows import Assignments
from hotspare.engine.kernels.columns import pick_columns
from hotspare.engine.lanes import row_text, to_arrow, to_lane
from hotspare.engine.letters import flag_letters, opcode_letters
from hotspare.engine.operators.contract import BadEvent
from hotspare.engine.strings import StringTable
from hotspare.model.events import Opcode
from hotspare.model.types import Schema

DELETES = (Opcode.DELETE, Opcode.SAFE_DELETE)


class Deletes(Enum):
    """Where the values of a delete come from."""

    COMPUTED = "computed"
    """From the old values that it carries."""
    STORED = "stored"
    """From the index of the window: whether they could be computed again does not matter."""


class Assigner:
    """Lays rows of `given` out as rows of `schema` by assignments; fields that pass are copied lane by lane."""

    def __init__(self, assignments: Assignments, given: Schema, schema: Schema, deletes: Deletes = Deletes.COMPUTED) -> None:
        self._deletes = deletes
        self._given = given
        self._schema = schema
        self._fields = assignments.fields
        passed = [given.index.get(output.passed_field, -1) for output in assignments.outputs]
        self._picks = np.array(passed, np.int64)
        self._passes_all = passed == list(range(len(given)))
        self._computed = tuple((i, output) for i, output in enumerate(assignments.outputs) if passed[i] < 0)

    @property
    def can_drop(self) -> bool:
        """Whether rows may fail to come out."""
        return any(EVALUATOR.can_fail(output.tree) for _, output in self._computed)

    def run(self, chunk: Chunk, strings: StringTable, more: Mapping[str, pa.Array]) -> tuple[Chunk, list[BadEvent]]:
        """The rows that come out, with opcodes as they are then, and bad events by rank. `more`: columns beside the fields."""
        if self._passes_all:
            return chunk, []
        lanes = np.empty((len(chunk), len(self._schema)), np.int64)
        valid = np.empty((len(chunk), len(self._schema)), np.bool_)
        pick_columns(chunk.lanes, chunk.valid, self._picks, lanes, valid)
        failures: dict[int, Failure] = {}
        if self._computed and len(chunk):
            columns = {**named_columns(chunk, self._given, self._fields, strings), **more}
            for i, output in self._computed:
                values, failed = output.evaluate(columns, len(chunk))
                lanes[:, i], valid[:, i] = to_lane(values, self._schema.fields[i].type, strings)
                for failure in failed:
                    failures.setdefault(failure.row, failure)
        laid_out = Chunk(chunk.rank, chunk.opcode, chunk.flags, lanes, valid)
        if not failures:
            return laid_out, []
        passes = np.ones(len(chunk), np.bool_)
        passes[list(failures)] = False
        if self._deletes is Deletes.STORED:
            passes |= np.isin(chunk.opcode, DELETES)
        bad = failed_events([failures[row] for row in sorted(failures)], chunk, self._given, strings)
        return passed_rows(laid_out, passes), bad


def named_columns(chunk: Chunk, schema: Schema, names: Sequence[str], strings: StringTable) -> dict[str, pa.Array]:
    """The columns that expressions read, by name, as Arrow arrays."""
    columns: dict[str, pa.Array] = {}
    for name in names:
        if name in schema.index:
            i = schema.index[name]
            lane, valid = np.ascontiguousarray(chunk.lanes[:, i]), np.ascontiguousarray(chunk.valid[:, i])
            columns[name] = to_arrow(lane, valid, schema.fields[i].type, strings)
        elif name == OPCODE_FIELD:
            columns[name] = opcode_letters(chunk.opcode)
        elif name == FLAGS_FIELD:
            columns[name] = flag_letters(chunk.flags)
    return columns


def passed_rows(chunk: Chunk, passes: Bools) -> Chunk:
    """The rows that pass. Of an update block, new without old is an insert, and old without new a delete."""
    if passes.all():
        return chunk
    opcode = chunk.opcode.copy()
    blocks = np.flatnonzero(opcode == Opcode.UPDATE_BLOCK)
    opcode[blocks[~passes[blocks + 1]]] = Opcode.INSERT
    return Chunk(chunk.rank[passes], opcode[passes], chunk.flags[passes], chunk.lanes[passes], chunk.valid[passes])


def failed_events(failures: Sequence[Failure], chunk: Chunk, schema: Schema, strings: StringTable) -> list[BadEvent]:
    """Bad events for rows that failed, rising, but for deletes."""
    bad: list[BadEvent] = []
    for failure in failures:
        row = failure.row
        if chunk.opcode[row] not in DELETES:
            text = row_text(schema, chunk.lanes[row], chunk.valid[row], int(chunk.opcode[row]), strings)
            bad.append(BadEvent(int(chunk.rank[row]), str(failure.reason), failure.message, text))
    return bad


def counted(before: int, opcode: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> tuple[pa.Array, int]:
    """eventCounter() of each row, null for deletes, and the count after them (A25)."""
    counts: Bools = (opcode != Opcode.DELETE) & (opcode != Opcode.SAFE_DELETE)
    numbers: Int64s = before + np.cumsum(counts, dtype=np.int64)
    after = int(numbers[-1]) if len(numbers) else before
    if counts.all():
        return pa.array(numbers), after
    return pa.array(numbers, ValueType.INT64.arrow, mask=~counts), after
