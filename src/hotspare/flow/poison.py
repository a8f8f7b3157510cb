"""Finds the events and ticks on which the engine itself fails, and refuses each in the windows that fail.

A step changes the state in place, so a failed step destroys the state. The caller retries the rows from the state before the step.
If the step fails again, the rows are bisected, each half from the state before it, until one row fails alone. That row is the
poison. The node that fails refuses all that it causes there, as one that a group has decided about (`flow.decided`); all other
windows process it. If no single node is at fault, the row becomes a bad row, as if the head had refused it: no window processes it,
but the engine's position and time advance past it. The effects of a refused tick follow at the next tick, because at a heartbeat
windows do all that is due by then. The result does not depend on how the rows were cut, so every engine of a group finds the same
poison (law Cut).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from hotspare.flow.plan import Plan
from hotspare.flow.project_state import State
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.batch import BAD_TYPE, RowKind
from hotspare.rows.elementwise import is_row_error
from hotspare.rows.event_texts import event_texts
from hotspare.rows.merged import MergedRows
from hotspare.rows.ordering import row_at


class WindowFailure(Exception):
    """Raised if a window fails on its input. `node`: the number of the node that fails. `cause`: the error that its operator
    raised."""

    def __init__(self, window: str, node: int, cause: Exception) -> None:
        super().__init__(f"window {window}: {type(cause).__name__}: {cause}")
        self.window = window
        self.node = node
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Poison:
    """A row on which the engine fails: its position and kind, the error, and the window that fails ("" if unknown). `node`: the
    number of the node that refuses the row; None if none of the windows gets it."""

    kind: RowKind
    topic: int
    partition: int
    offset: int
    index: int
    error: Exception
    window: str = ""
    node: int | None = None

    @property
    def position(self) -> tuple[int, int, int, int]:
        """Topic index, partition, offset and index."""
        return self.topic, self.partition, self.offset, self.index


class StepFunction(Protocol):
    def __call__(self, state: State, rows: MergedRows, refused: Sequence[Poison] = ()) -> Iterator[dict[str, pa.RecordBatch]]:
        """Processes rows, which the nodes of `refused` refuse at its positions."""


def retry_and_bisect(
    step: StepFunction, plan: Plan, state: State, rows: MergedRows, found: Callable[[Poison], None]
) -> tuple[State, list[dict[str, pa.RecordBatch]]]:
    """Steps `rows` with retry and bisect; returns the state after them, and all outputs.

    Calls `found`, which may raise, with each poison before it is refused. Each try copies the state.
    """
    outputs: list[dict[str, pa.RecordBatch]] = []
    waiting = [(0, rows.num_rows)]
    while waiting:
        begin, end = waiting.pop()
        piece, before = rows.slice(begin, end - begin), copy.deepcopy(state)
        try:
            outputs += list(step(state, piece))
        except Exception as error:
            if not is_row_error(error):
                raise
            state = before
            if end - begin > 1:
                middle = (begin + end) // 2
                waiting += [(middle, end), (begin, middle)]
            else:
                state, made = _step_refusing(step, plan, state, piece, error, found)
                outputs += made
    return state, outputs


def _step_refusing(
    step: StepFunction, plan: Plan, state: State, row: MergedRows, error: Exception, found: Callable[[Poison], None]
) -> tuple[State, list[dict[str, pa.RecordBatch]]]:
    """Steps one row on which a step failed with `error`: each node that fails refuses it."""
    refused = list[Poison]()
    while True:
        poison = _poison(row, error)
        if any(each.node == poison.node for each in refused):
            poison = replace(poison, node=None)
        found(poison)
        if poison.node is None:
            return state, list(step(state, _refused(plan, row, 0, poison)))
        refused.append(poison)
        before = copy.deepcopy(state)
        try:
            return state, list(step(state, row, refused))
        except Exception as again:
            if not is_row_error(again):
                raise
            state, error = before, again


def with_refused(plan: Plan, rows: MergedRows, known: Sequence[Poison]) -> MergedRows:
    """Returns the rows, with each row replaced by a bad row that is at the position of a `known` poison without a node."""
    for poison in known:
        row = row_at(rows.positions, *poison.position)
        if poison.node is None and row >= 0:
            rows = _refused(plan, rows, row, poison)
    return rows


def _poison(row: MergedRows, error: Exception) -> Poison:
    names = ("kind", "topic", "partition", "offset", "index")
    kind, topic, partition, offset, index = (int(row.column(name)[0]) for name in names)
    poison = Poison(RowKind(kind), topic, partition, offset, index, error)
    return replace(poison, error=error.cause, window=error.window, node=error.node) if isinstance(error, WindowFailure) else poison


def _refused(plan: Plan, rows: MergedRows, row: int, poison: Poison) -> MergedRows:
    """Returns the rows with row number `row` replaced by a bad row. The bad row names only the error's class, because the error's
    text may differ between engines."""
    window, text, what = str(plan.resolved.sources[poison.topic]), "", "at this tick"
    if poison.kind is RowKind.EVENT:
        opcode, what = rows.column("opcode")[row : row + 1], "on this event"
        event, _ = rows.events_of(poison.topic, np.array([row]))
        (text,) = event_texts(plan.entry_schemas[poison.topic], opcode, event)
    elif poison.window:
        window = poison.window
    message = f"window {window}: the engine fails {what} ({type(poison.error).__name__})"
    bad = {"reason": BadReason.POISON, "message": message, "text": text, "window": window}
    return rows.with_bad(row, pa.array([{field.name: bad[field.name] for field in BAD_TYPE}], BAD_TYPE))
