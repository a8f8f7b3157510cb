"""Events on which the engine itself fails: which one it is, and what stands in its place.

A step changes the state in place, so a state in which one failed is lost. Whoever has the state from before it takes the rows
again, with care: where they fail again, they are halved, each half from the state before it, until one row fails alone. That
row is the poison. It becomes a bad row, as if the head had refused it, so no window sees it, and its position passes. What is
found does not depend on how the rows were cut, and every engine of a group finds the same (law Cut).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from hotspare.engine.batch import POISON_REASON, RowKind
from hotspare.engine.elementwise import comes_of_rows
from hotspare.engine.event_texts import event_texts
from hotspare.engine.plan import Plan
from hotspare.engine.state import State
from hotspare.errors import PoisonousEvent

Step: TypeAlias = Callable[[State, pa.RecordBatch], Iterator[dict[str, pa.RecordBatch]]]


@dataclass(frozen=True, slots=True)
class Poison:
    """Where the event stands, and the error that it causes."""

    topic: int
    partition: int
    offset: int
    index: int
    error: Exception


def step_with_care(
    step: Step, plan: Plan, state: State, rows: pa.RecordBatch, found: Callable[[Poison], None]
) -> tuple[State, list[dict[str, pa.RecordBatch]]]:
    """The state after `rows`, and all outputs.

    `found` is told each poison before it is replaced, and may raise. PoisonousEvent where a row is poison that is no event, such as
    a tick: without it time would not pass. Costs a copy of the state for each try.
    """
    outputs: list[dict[str, pa.RecordBatch]] = []
    waiting = [(0, rows.num_rows)]
    while waiting:
        begin, end = waiting.pop()
        piece, before = rows.slice(begin, end - begin), copy.deepcopy(state)
        try:
            outputs += list(step(state, piece))
        except Exception as error:
            if not comes_of_rows(error):
                raise
            state = before
            if end - begin > 1:
                middle = (begin + end) // 2
                waiting += [(middle, end), (begin, middle)]
            else:
                poison = _poison(piece, error)
                found(poison)
                outputs += list(step(state, _refused(plan, piece, poison)))
    return state, outputs


def _poison(row: pa.RecordBatch, error: Exception) -> Poison:
    names = ("kind", "topic", "partition", "offset", "index")
    kind, topic, partition, offset, index = (row.column(name)[0].as_py() for name in names)
    if kind != RowKind.EVENT:
        where = f"offset {offset} of inbound topic {topic}, partition {partition}"
        raise PoisonousEvent(f"the engine fails at {where}, which is no event", detail=repr(error)) from error
    return Poison(topic, partition, offset, index, error)


def _refused(plan: Plan, row: pa.RecordBatch, poison: Poison) -> pa.RecordBatch:
    """The event as a bad row. Of the error only its class is told: the rest may differ between engines."""
    name, source = f"e{poison.topic}", str(plan.resolved.sources[poison.topic])
    (text,) = event_texts(plan.entry_schemas[poison.topic], row.column("opcode").to_numpy(), row.column(name).flatten())
    message = f"window {source}: the engine fails on this event ({type(poison.error).__name__})"
    bad = {"reason": POISON_REASON, "message": message, "text": text, "window": source}
    columns = {field.name: row.column(field.name) for field in row.schema}
    columns["kind"] = pa.array([RowKind.BAD], columns["kind"].type)
    columns[name] = pa.nulls(1, columns[name].type)
    columns["bad"] = pa.array([{field.name: bad[field.name] for field in columns["bad"].type}], columns["bad"].type)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=row.schema)
