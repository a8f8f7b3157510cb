"""Runs the engine's core in a task of Spark: the ordered rows of one shard become the outputs of one window.

The rows arrive as Arrow batches whose columns are named here; `tables.py` makes Spark deliver them in that form. This module does
not use Spark.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.base.choices import RunUntil
from hotspare.base.errors import HotspareError, UsageError
from hotspare.base.interpreter import fixed_environment
from hotspare.flow.given_order import GivenOrderCore
from hotspare.flow.head.head import Head
from hotspare.flow.heartbeats import Heartbeats, Segment, end_us_of
from hotspare.flow.plan import Plan, compile_plan
from hotspare.formats.csv.decode import DecodedRows, kept_rows
from hotspare.model.events import OPCODE_WORDS, Flag, Opcode
from hotspare.model.project import Project
from hotspare.model.types import Schema
from hotspare.projects.resolve import resolve
from hotspare.rows.bad_reasons import RowReason
from hotspare.rows.batch import BAD_STREAM, END_FORM
from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.rows.letters import FLAG_TEXTS
from hotspare.rows.refusals import NO_BAD_ROWS, BadRows
from hotspare.spark.columns import to_field, to_spark

TOPIC, TIME, OPCODE, FLAGS = "topic", "time_us", "opcode", "flags"
"""The columns next to the fields. If one is missing, every row is of the first window, at time 0, an insert, or normal."""

STEP_ROWS, STEP_BYTES = 40_000, 16 << 20
"""The size of a step of the engine, in rows or bytes. Spark's batches of ten thousand rows are joined, because even a small step
takes milliseconds.
"""


def field_column(topic: int, place: int) -> str:
    """Returns the name of the column for the field at index `place` of the source window number `topic`."""
    return f"f{topic}_{place}"


class OnBadEvents(Enum):
    """The policy for rows that a window refuses."""

    FAIL = "fail"
    """The first refused row ends the job with an error that names the window and shows the row."""
    KEEP = "keep"
    """Refused rows are returned as a table of bad events."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The time of the first and of the last row of all shards, in microseconds since 1970 UTC."""

    first_us: int
    last_us: int


@dataclass(frozen=True)
class ShardWork:
    """The work that every task of a job does on its shard. `project`: the pickled project. `stream`: the published window whose
    outputs are returned, or the bad events.

    `time_range`: the times of all shards; None if this task has all rows. `time`: the column of the rows' times, which may be the
    column of a field.
    """

    project: bytes
    stream: str
    bad_events: OnBadEvents
    time_range: TimeRange | None
    time: str = TIME
    until: RunUntil = RunUntil.END

    @classmethod
    def for_project(
        cls,
        project: Project,
        stream: str,
        bad_events: OnBadEvents,
        span: TimeRange | None,
        time: str = TIME,
        until: RunUntil = RunUntil.END,
    ) -> ShardWork:
        return cls(pickle.dumps(project), stream, bad_events, span, time, until)

    def run(self, batches: Iterable[pa.RecordBatch], shard: int, step_rows: int = STEP_ROWS) -> Iterator[pa.RecordBatch]:
        """Runs the project over the rows of one shard and yields the outputs of `stream`. Columns: opcode and flags as numbers, the
        fields, shard, sequence.

        The outputs do not depend on `step_rows`, the number of rows in a step.
        """
        with fixed_environment():
            yield from self._outputs(batches, shard, step_rows)

    def _outputs(self, batches: Iterable[pa.RecordBatch], shard: int, step_rows: int) -> Iterator[pa.RecordBatch]:
        rows = _joined(batches, step_rows)
        first = next(rows, None)
        if first is None and self.time_range is not None:
            return  # a shard without rows
        plan = compile_plan(resolve(pickle.loads(self.project)))  # noqa: S301 - our own, from the driver
        yield from _Shard(self, plan, shard).outputs(() if first is None else chain((first,), rows))


def _joined(batches: Iterable[pa.RecordBatch], step_rows: int) -> Iterator[pa.RecordBatch]:
    """Yields the same rows in batches of at least `step_rows` rows or STEP_BYTES bytes, except the last one. No batch is empty."""
    waiting, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in filter(len, batches):
        waiting.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
        if rows >= step_rows or size >= STEP_BYTES:
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)


class _Shard:
    """A run of the engine's core over the rows of one shard."""

    def __init__(self, work: ShardWork, plan: Plan, shard: int) -> None:
        project = plan.resolved.project
        self._work, self._plan, self._shard = work, plan, shard
        self._head, self._core = Head.from_plan(plan), GivenOrderCore(plan, shard)
        self._schemas = [plan.resolved.schema(source) for source in plan.resolved.sources]
        self._stream_schema = plan.stream_schemas[work.stream]
        self._interval_us = project.heartbeat_interval_us
        self._has_ticks = needs_ticks(plan)
        self._pulses_us = [us for w in plan.resolved.windows if (us := w.window.emission.pulse_interval_us(self._interval_us))]
        first = None if work.time_range is None else work.time_range.first_us + self._interval_us
        self._beats = Heartbeats(self._interval_us, first)
        self._offset = 0
        self._newest_us = 0

    def outputs(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            times_us = self._times(batch)
            self._newest_us = int(times_us[-1])
            for segment in self._segments(times_us):
                yield from self._step(batch.slice(segment.begin, segment.end - segment.begin), times_us, segment)
        yield from self._end()

    def _segments(self, times_us: Int64s) -> Iterator[Segment]:
        if self._has_ticks:
            return self._beats.segments_of_rows(times_us)
        return iter([Segment(0, len(times_us), _NO_TIMES, _NO_TIMES)])

    def _end(self) -> Iterator[pa.RecordBatch]:
        """Yields the outputs of the ticks after the last row, and of the end of the input."""
        last_us = self._newest_us if self._work.time_range is None else max(self._newest_us, self._work.time_range.last_us)
        end_us = end_us_of(last_us, self._interval_us, self._pulses_us)
        until_us = end_us if self._pulses_us else last_us
        for segment in self._beats.until(until_us) if self._has_ticks else ():
            yield from self._step(None, _NO_TIMES, segment)
        last = Segment(0, 0, np.zeros(1, np.int64), np.array([end_us]))
        yield from self._step(None, _NO_TIMES, last, END_FORM if self._work.until is RunUntil.END else 0)

    def _times(self, batch: pa.RecordBatch) -> Int64s:
        if self._work.time not in batch.schema.names:
            return np.zeros(batch.num_rows, np.int64)
        column = batch.column(self._work.time)
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise UsageError(
                f"a row of {self._window_of(batch, row)} has no time",
                detail=f"the row is {self._shown(batch, row)}",
                hint="a column of order_by is null there; leave such rows out",
            )
        times_us: Int64s = column.to_numpy()
        return times_us

    def _step(
        self, rows: pa.RecordBatch | None, times_us: Int64s, segment: Segment, tick_form: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Yields the outputs of a segment's rows and ticks in their order. `rows`: the rows of the segment, None for ticks only.
        `times_us`: the times of the batch.
        """
        count, ticks = segment.end - segment.begin, len(segment.ticks_us)
        at = segment.places - segment.begin
        is_tick = np.insert(np.zeros(count, np.bool_), at, np.ones(ticks, np.bool_))
        topics = np.zeros(count, np.int32) if rows is None else _topics(rows)
        places = pa.RecordBatch.from_arrays(
            [
                pa.array(np.insert(topics, at, np.zeros(ticks, np.int32))),
                pa.array(np.zeros(len(is_tick), np.int32)),
                pa.array(np.arange(self._offset, self._offset + len(is_tick))),
                pa.array(np.insert(times_us[segment.begin : segment.end], at, segment.ticks_us)),
                pa.array(is_tick),
                pa.array(np.full(len(is_tick), tick_form, np.int8)),
            ],
            names=["topic", "partition", "offset", "time_us", "tick", "format"],
        )
        self._offset += len(is_tick)
        events, bad = ({}, {}) if rows is None else self._events(rows, topics, np.flatnonzero(~is_tick))
        try:
            for made in self._core.compute_parts(self._head.decode_columns(places, events, bad)):
                yield from self._taken(made)
        except HotspareError:
            raise
        except Exception as error:
            error.add_note(self._where(rows))
            raise

    def _events(
        self, rows: pa.RecordBatch, topics: npt.NDArray[np.int32], message: Int64s
    ) -> tuple[dict[int, DecodedRows], dict[int, BadRows]]:
        """Returns two dicts by topic: the valid events, and the rows whose opcode or flags are invalid. `message`: the number of
        each row among rows and ticks.
        """
        opcode, flags = event_numbers(rows)
        events: dict[int, DecodedRows] = {}
        unread: dict[int, BadRows] = {}
        for topic in np.unique(topics).tolist():
            mine = np.flatnonzero(topics == topic)
            is_all = len(mine) == len(topics)
            fields = self._schemas[topic].fields
            given = [rows.column(field_column(topic, i)) for i in range(len(fields))]
            columns = [to_field(c if is_all else c.take(pa.array(mine)), f.type) for c, f in zip(given, fields, strict=True)]
            found = DecodedRows(message[mine], np.zeros(len(mine), np.int32), opcode[mine], flags[mine], columns)
            is_good: Bools = (found.opcode != 0) & (found.flags != 0)
            events[topic], unread[topic] = found, NO_BAD_ROWS
            if not is_good.all():
                events[topic] = kept_rows(found, is_good)
                unread[topic] = self._unread(rows, mine[~is_good], found.message[~is_good], opcode)
        return events, unread

    def _unread(self, rows: pa.RecordBatch, at: Int64s, message: Int64s, opcode: UInt8s) -> BadRows:
        told = []
        for row, number in zip(at.tolist(), message.tolist(), strict=True):
            name, reason = (FLAGS, RowReason.FLAG) if opcode[row] else (OPCODE, RowReason.OPCODE)
            value = rows.column(name)[row].as_py()
            told.append((number, 0, reason, f"{value!r} is no {reason}", self._shown(rows, row)))
        return BadRows.from_rows(told)

    def _taken(self, made: Mapping[str, pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bad = made.get(BAD_STREAM)
        if bad is not None and self._work.bad_events is OnBadEvents.FAIL:
            event = {name: bad.column(name)[0].as_py() for name in ("message", "reason", "text", "window")}
            raise UsageError(
                f"window {event['window']} refuses a row ({event['reason']})",
                detail=f"{event['message']}; the row is {event['text']}",
                hint="apply(..., bad_events=OnBadEvents.KEEP) returns such rows as a table of their own",
            )
        if (outputs := made.get(self._work.stream)) is not None and len(outputs):
            yield self._typed(outputs)

    def _typed(self, outputs: pa.RecordBatch) -> pa.RecordBatch:
        fields = self._stream_schema.fields
        columns = [
            outputs.column("hs:opcode").view(pa.int8()),
            outputs.column("hs:flags").view(pa.int8()),
            *(to_spark(outputs.column(field.name), field.type) for field in fields),
            pa.array(np.full(len(outputs), self._shard, np.int32)),
            outputs.column("hs:sequence"),
        ]
        return pa.RecordBatch.from_arrays(columns, names=output_names(self._stream_schema))

    def _window_of(self, batch: pa.RecordBatch, row: int) -> str:
        return str(self._plan.resolved.sources[int(_topics(batch)[row])])

    def _shown(self, batch: pa.RecordBatch, row: int) -> str:
        topic = int(_topics(batch)[row])
        fields = self._schemas[topic].fields
        values = (to_field(batch.column(field_column(topic, i)).slice(row, 1), f.type)[0].as_py() for i, f in enumerate(fields))
        return ", ".join(f"{field.name}={value!r}" for field, value in zip(fields, values, strict=True))

    def _where(self, rows: pa.RecordBatch | None) -> str:
        if rows is None or not rows.num_rows:
            return "hotspare: the engine failed at a heartbeat"
        last = rows.num_rows - 1
        first, newest = (f"({self._shown(rows, row)}) of {self._window_of(rows, row)}" for row in (0, last))
        return f"hotspare: the engine failed between the rows {first} and {newest}"


_NO_TIMES = np.empty(0, np.int64)
_OPCODES = {word: int(opcode) for word, opcode in OPCODE_WORDS.items()}
_FLAGS = {text.lower(): number for number, text in enumerate(FLAG_TEXTS.to_pylist()) if number}


def output_names(schema: Schema) -> list[str]:
    """Returns the names of a task's result columns. Columns next to the fields have a prefix, so they cannot collide with a
    field.
    """
    return ["hs:opcode", "hs:flags", *schema.names, "hs:shard", "hs:sequence"]


def needs_ticks(plan: Plan) -> bool:
    """Whether any operator of the plan acts when time passes."""
    return any(node.operator.clock.has_ticks for node in plan.nodes)


def _topics(rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
    if TOPIC not in rows.schema.names:
        return np.zeros(rows.num_rows, np.int32)
    topics: npt.NDArray[np.int32] = rows.column(TOPIC).to_numpy()
    return topics


def event_numbers(rows: pa.RecordBatch) -> tuple[UInt8s, UInt8s]:
    """Returns the numbers of opcode and flags of each row; 0 for an invalid text. Without such a column all rows are normal
    inserts.
    """
    return _numbers(rows, OPCODE, _OPCODES, Opcode.INSERT), _numbers(rows, FLAGS, _FLAGS, Flag.NORMAL)


def _numbers(rows: pa.RecordBatch, name: str, words: Mapping[str, int], otherwise: int) -> UInt8s:
    if name not in rows.schema.names:
        return np.full(rows.num_rows, otherwise, np.uint8)
    column = rows.column(name).dictionary_encode()
    known = [_number(value, words) for value in column.dictionary.to_pylist()]
    numbers: UInt8s = np.array([*known, 0], np.uint8)[column.indices.fill_null(len(known)).to_numpy()]
    return numbers


def _number(value: str, words: Mapping[str, int]) -> int:
    return words.get(value.strip().lower(), 0)
