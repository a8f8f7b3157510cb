"""Statements over columns: each runs once for all rows that reach it, so that code costs per batch, not per event.

    if      both branches, each for its own rows
    while   the rows whose condition still holds, until none is left
    return  the rows end with their value

A row that fails ends too. So a row's result depends on that row alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.frame import Frame, RowPieces, Value
from hotspare.expressions.function import Evaluator
from hotspare.expressions.tree import Typed, TypedAssign, TypedBlock, TypedIf, TypedReturn, TypedStatement
from hotspare.rows.elementwise import Rows, true_mask, true_rows

LOOP_ITERATIONS_MAX = 10_000
"""The maximum number of iterations for one event, added up over all loops of a block."""
VARIABLE_BYTES_MAX = 1 << 20
"""The maximum length of a text in a variable, in bytes."""
TOO_MANY_ITERATIONS = f"loops turn more than {LOOP_ITERATIONS_MAX} times"
VARIABLE_TOO_LONG = f"a variable has more than {VARIABLE_BYTES_MAX} bytes"


def run_block(evaluator: Evaluator, frame: Frame, block: TypedBlock) -> Value:
    """Returns the value of the block for each row of `frame`: null for rows that fail or reach no `return`."""
    return _run_statements(evaluator, frame, block)[0]


def final_variables(evaluator: Evaluator, frame: Frame, block: TypedBlock) -> dict[str, Value]:
    """Returns the final value of each variable of the block, one value per row of `frame`."""
    inner = _run_statements(evaluator, frame, block)[1]
    return {name: inner.variable(name) for name, _ in block.variables}


def _run_statements(evaluator: Evaluator, frame: Frame, block: TypedBlock) -> tuple[Value, Frame]:
    variables: dict[str, Value] = {name: pa.nulls(frame.length, type_.arrow) for name, type_ in block.variables}
    for (name, _), argument in zip(block.variables, block.arguments, strict=False):
        variables[name] = frame.array(evaluator.evaluate_node(argument, frame))
    inner = frame.nested(variables)
    run = _Run(evaluator, inner, block)
    rest = run.run_all(block.statements, np.arange(frame.length, dtype=np.int64))
    run.pieces.add(rest, pa.nulls(len(rest), block.type.arrow))
    frame.fail_from(inner)
    return run.pieces.joined(), inner


class _Run:
    """A run of a block over the rows of a frame. Methods for statements return the rows that continue with the next statement; a
    row that returned or failed does not continue.
    """

    def __init__(self, evaluator: Evaluator, frame: Frame, block: TypedBlock) -> None:
        self._evaluator, self._frame = evaluator, frame
        self._turns = np.zeros(frame.length, np.int64)
        self.pieces = RowPieces(frame.length, block.type.arrow)
        self._null = pa.scalar(None, block.type.arrow)

    def run_all(self, statements: Sequence[TypedStatement], rows: Rows) -> Rows:
        for statement in statements:
            if not len(rows):
                break
            rows = self._one(statement, rows)
        return rows

    def _one(self, statement: TypedStatement, rows: Rows) -> Rows:
        if isinstance(statement, TypedReturn):
            inner = self._frame.select(rows)
            self.pieces.add(rows, inner.array(self._evaluator.evaluate_node(statement.value, inner)))
            return rows[:0]
        if isinstance(statement, TypedAssign):
            inner = self._frame.select(rows)
            value = inner.array(self._evaluator.evaluate_node(statement.value, inner))
            inner.assign(statement.name, value)
            if pa.types.is_string(value.type) and value.nbytes > VARIABLE_BYTES_MAX:
                inner.fail(true_rows(pc.greater(pc.binary_length(value), VARIABLE_BYTES_MAX)), VARIABLE_TOO_LONG)
            return self._unfailed(rows)
        holds, rest = self._split(statement.condition, rows) if isinstance(statement, TypedIf) else (rows, rows)
        if isinstance(statement, TypedIf):
            return np.sort(np.concatenate((self.run_all(statement.then, holds), self.run_all(statement.otherwise, rest))))
        done: list[Rows] = []
        while len(rows := self.run_all(statement.condition_statements, rows)):
            holds, rest = self._split(statement.condition, rows)
            done.append(rest)
            self._turns[holds] += 1
            spent = holds[self._turns[holds] > LOOP_ITERATIONS_MAX]
            self._frame.fail(spent, TOO_MANY_ITERATIONS)
            self._set_null(spent)
            rows = self.run_all(statement.body, holds[self._turns[holds] <= LOOP_ITERATIONS_MAX])
        return np.sort(np.concatenate([rows, *done]))

    def _split(self, condition: Typed, rows: Rows) -> tuple[Rows, Rows]:
        """Returns the rows whose condition is true, and the rows whose condition is false or null. Rows that fail in the condition
        are in neither.
        """
        inner = self._frame.select(rows)
        holds = true_mask(inner.array(self._evaluator.evaluate_node(condition, inner)))
        left = self._unfailed(rows)
        if len(left) < len(rows):
            kept = np.isin(rows, left)
            rows, holds = rows[kept], holds[kept]
        return rows[holds], rows[~holds]

    def _unfailed(self, rows: Rows) -> Rows:
        failures = self._frame.failures
        if failures is None:
            return rows
        failed = failures.first[rows] > 0
        if not failed.any():
            return rows
        self._set_null(rows[failed])
        return rows[~failed]

    def _set_null(self, rows: Rows) -> None:
        """Sets the block's value to null for these rows, which have failed."""
        if len(rows):
            self.pieces.add(rows, pa.nulls(len(rows), self._null.type))
