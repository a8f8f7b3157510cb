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
from hotspare.expressions.tree import Typed, TypedAssign, TypedBlock, TypedChoose, TypedReturn, TypedStatement
from hotspare.rows.elementwise import Rows, true_mask, true_rows

LOOP_TURNS_MAX = 10_000
"""The most turns of all loops of a block for one event."""
VARIABLE_BYTES_MAX = 1 << 20
"""The limit on the text of a variable, in bytes."""
TOO_MANY_TURNS = f"loops turn more than {LOOP_TURNS_MAX} times"
TOO_LONG = f"a variable has more than {VARIABLE_BYTES_MAX} bytes"


def run_block(evaluator: Evaluator, frame: Frame, block: TypedBlock) -> Value:
    """Returns the value of the block for each row of `frame`."""
    return _ran(evaluator, frame, block)[0]


def settled(evaluator: Evaluator, frame: Frame, block: TypedBlock) -> dict[str, Value]:
    """Returns the final values of the block's variables, for each row of `frame`."""
    inner = _ran(evaluator, frame, block)[1]
    return {name: inner.variable(name) for name, _ in block.variables}


def _ran(evaluator: Evaluator, frame: Frame, block: TypedBlock) -> tuple[Value, Frame]:
    variables: dict[str, Value] = {name: pa.nulls(frame.length, type_.arrow) for name, type_ in block.variables}
    for (name, _), argument in zip(block.variables, block.arguments, strict=False):
        variables[name] = frame.array(evaluator.value(argument, frame))
    inner = frame.nested(variables)
    run = _Run(evaluator, inner, block)
    rest = run.all(block.statements, np.arange(frame.length, dtype=np.int64))
    run.pieces.add(rest, pa.nulls(len(rest), block.type.arrow))
    frame.fail_as(inner)
    return run.pieces.joined(), inner


class _Run:
    """Runs statements over rows; every method returns the rows that continue behind them."""

    def __init__(self, evaluator: Evaluator, frame: Frame, block: TypedBlock) -> None:
        self._evaluator, self._frame = evaluator, frame
        self._turns = np.zeros(frame.length, np.int64)
        self.pieces = RowPieces(frame.length, block.type.arrow)
        self._null = pa.scalar(None, block.type.arrow)

    def all(self, statements: Sequence[TypedStatement], rows: Rows) -> Rows:
        for statement in statements:
            if not len(rows):
                break
            rows = self._one(statement, rows)
        return rows

    def _one(self, statement: TypedStatement, rows: Rows) -> Rows:
        if isinstance(statement, TypedReturn):
            inner = self._frame.select(rows)
            self.pieces.add(rows, inner.array(self._evaluator.value(statement.value, inner)))
            return rows[:0]
        if isinstance(statement, TypedAssign):
            inner = self._frame.select(rows)
            value = inner.array(self._evaluator.value(statement.value, inner))
            inner.assign(statement.name, value)
            if pa.types.is_string(value.type) and value.nbytes > VARIABLE_BYTES_MAX:
                inner.fail(true_rows(pc.greater(pc.binary_length(value), VARIABLE_BYTES_MAX)), TOO_LONG)
            return self._unfailed(rows)
        holds, rest = self._split(statement.condition, rows) if isinstance(statement, TypedChoose) else (rows, rows)
        if isinstance(statement, TypedChoose):
            return np.sort(np.concatenate((self.all(statement.then, holds), self.all(statement.otherwise, rest))))
        done: list[Rows] = []
        while len(rows := self.all(statement.before, rows)):
            holds, rest = self._split(statement.condition, rows)
            done.append(rest)
            self._turns[holds] += 1
            spent = holds[self._turns[holds] > LOOP_TURNS_MAX]
            self._frame.fail(spent, TOO_MANY_TURNS)
            self._left(spent)
            rows = self.all(statement.body, holds[self._turns[holds] <= LOOP_TURNS_MAX])
        return np.sort(np.concatenate([rows, *done]))

    def _split(self, condition: Typed, rows: Rows) -> tuple[Rows, Rows]:
        """Returns the rows whose condition is true, and those for which it is false or null."""
        inner = self._frame.select(rows)
        holds = true_mask(inner.array(self._evaluator.value(condition, inner)))
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
        self._left(rows[failed])
        return rows[~failed]

    def _left(self, rows: Rows) -> None:
        """Sets the value of failed rows to null."""
        if len(rows):
            self.pieces.add(rows, pa.nulls(len(rows), self._null.type))
