"""Turns CSV files into what the inbound topics of a project would have held: messages in order of time, with ticks (for replay).

Nothing waits for a clock. The system time of a row is a field of it, or its number divided by the connector's rate, or constant;
ticks stand at every heartbeat interval of that time in every topic. Equal files give equal messages.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from hotspare.adapters.file_places import FilePlaces
from hotspare.adapters.files.canonical import RowForm
from hotspare.adapters.files.publisher import PublishOptions, check_columns
from hotspare.adapters.files.row_file import RowFile
from hotspare.engine.rows.batch import RAW_SCHEMA, MessageFormat
from hotspare.engine.rows.values import parse
from hotspare.errors import UsageError
from hotspare.model.types import FieldType, Schema

TICKS_MAX = 10_000_000
"""Limit on the heartbeats of one replay; more of them mean a wrong time field."""
_ROWS = 4096
_BYTES = 16 << 20
_CANONICAL = RowForm()
_FIRST_FIELD = 2


@dataclass(frozen=True)
class ReplayFile:
    """A file for the inbound topic with this index. `time_field` names a date or stamp field of `schema`, or is ""."""

    topic: int
    path: Path
    schema: Schema
    options: PublishOptions
    time_field: str = ""

    def __post_init__(self) -> None:
        if self.time_field:
            place = self.schema.index.get(self.time_field)
            if place is None or self.schema.fields[place].type not in (FieldType.DATE, FieldType.STAMP):
                raise UsageError(
                    f"field {self.time_field!r} cannot be the time of {self.path}",
                    detail=f"schema {self.schema}",
                    hint="name a field of type date or stamp",
                )


@dataclass(slots=True)
class RecordingProgress:
    """How far the files are read, for a progress bar."""

    bytes_read: int = 0
    bytes_total: int = 0
    events: int = 0


@dataclass(frozen=True, slots=True)
class _Event:
    time_us: int
    value: bytes
    line: int


def record(
    files: Sequence[ReplayFile],
    topics: int,
    heartbeat_us: int,
    progress: RecordingProgress | None = None,
    places: FilePlaces | None = None,
    pulses_us: Sequence[int] = (),
) -> Iterator[pa.RecordBatch]:
    """Batches of RAW_SCHEMA with one row per message, in order of (time, topic), offsets from 0 per topic, partition 0.

    `topics` is the number of inbound topics. Rows of equal time from several files of one topic stand in the order of the files.
    A last tick closes every topic, so that nothing waits for what comes after; where windows have pulses, time goes on to the next
    one of each interval of `pulses_us`. `places` gets each message's file and line.
    UsageError where a file cannot be read or its time runs over TICKS_MAX heartbeats.
    """
    progress = progress if progress is not None else RecordingProgress()
    progress.bytes_total = sum(_size(file) for file in files)
    merged = heapq.merge(*(_keyed(file, place, progress) for place, file in enumerate(files)))
    batch = _Batch(topics)
    ticks = _Ticks(heartbeat_us)
    time_us = 0
    for time_us, topic, file, _, value, line in merged:
        for tick_us in ticks.until(time_us):
            for each in range(topics):
                batch.add(each, tick_us, None)
        offset = batch.add(topic, time_us, value)
        if places is not None:
            places.add(topic, offset, file, line)
        if batch.is_full:
            yield batch.take()
    end_us = _end_us(time_us, heartbeat_us, pulses_us)
    for tick_us in (*(ticks.until(end_us) if pulses_us else ()), end_us):
        for each in range(topics):
            batch.add(each, tick_us, None)
        if batch.is_full:
            yield batch.take()
    yield batch.take()


def _end_us(time_us: int, heartbeat_us: int, pulses_us: Sequence[int]) -> int:
    """When the last tick comes: behind the newest event, and, where anything waits for a pulse, at one. Pulses are heartbeats, and
    both are counted from 1970."""
    if not pulses_us:
        return time_us + 1
    pulse_us = max((time_us // each + 1) * each for each in pulses_us)
    return -(-pulse_us // heartbeat_us) * heartbeat_us


class _Ticks:
    """The heartbeats that fall due as time goes on."""

    def __init__(self, interval_us: int) -> None:
        self._interval_us = interval_us
        self._next_us: int | None = None
        self._count = 0

    def until(self, time_us: int) -> Iterator[int]:
        """Heartbeats at or before `time_us` that were not given yet."""
        if self._next_us is None:
            self._next_us = time_us + self._interval_us
        due = max(0, (time_us - self._next_us) // self._interval_us + 1)
        self._count += due
        if self._count > TICKS_MAX:
            raise UsageError(
                f"time goes on to {time_us} us, more than {TICKS_MAX} heartbeats after it began",
                hint="check the field named by --time, or give the project a longer heartbeat-interval",
            )
        for _ in range(due):
            yield self._next_us
            self._next_us += self._interval_us


class _Batch:
    """Messages on their way into one Arrow batch; keeps the offsets."""

    def __init__(self, topics: int) -> None:
        self._offsets = [0] * topics
        self._columns: list[list[object]] = [[] for _ in range(5)]
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self._columns[0]) >= _ROWS or self._bytes >= _BYTES

    def add(self, topic: int, time_us: int, value: bytes | None) -> int:
        """The offset of the message; `value` None is a tick."""
        offset = self._offsets[topic]
        row = (topic, offset, time_us, value is None, value or b"")
        for column, each in zip(self._columns, row, strict=True):
            column.append(each)
        self._offsets[topic] += 1
        self._bytes += len(value or b"")
        return offset

    def take(self) -> pa.RecordBatch:
        topic, offset, time_us, tick, value = self._columns
        count = len(topic)
        self._columns, self._bytes = [[] for _ in range(5)], 0
        zeros = [0] * count
        formats = [int(MessageFormat.CSV)] * count
        columns = [topic, zeros, offset, time_us, tick, formats, value]
        arrays = [pa.array(each, field.type) for each, field in zip(columns, RAW_SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)


def check_file(file: ReplayFile) -> None:
    """UsageError where a file cannot be read, or its first row does not have the columns of the schema."""
    for _ in _blocks(file, RecordingProgress(), rows_max=1):
        return


def _size(file: ReplayFile) -> int:
    try:
        return file.path.stat().st_size * (file.options.repeats + 1)
    except OSError as error:
        raise UsageError(f"file {file.path} cannot be read", detail=error.strerror or str(error)) from error


def _keyed(file: ReplayFile, place: int, progress: RecordingProgress) -> Iterator[tuple[int, int, int, int, bytes, int]]:
    for number, event in enumerate(_events(file, progress)):
        yield event.time_us, file.topic, place, number, event.value, event.line


def _events(file: ReplayFile, progress: RecordingProgress) -> Iterator[_Event]:
    """The rows with their times, which never fall."""
    newest_us = 0
    number = 0
    is_first = True
    for values, lines in _blocks(file, progress):
        for value, line, own_us in zip(values, lines, _times_us(file, values, number), strict=True):
            newest_us = own_us if is_first and own_us is not None else max(newest_us, own_us if own_us is not None else newest_us)
            is_first = is_first and own_us is None
            yield _Event(newest_us, value, line)
        number += len(values)
        progress.events += len(values)


def _times_us(file: ReplayFile, values: Sequence[bytes], number: int) -> Sequence[int | None]:
    """The rows' own times; `number` is that of the first row. None where a row has no time that can be read."""
    if file.time_field:
        return _field_times_us(file, values)
    if file.options.rate:
        return [round((number + index) * 1_000_000 / file.options.rate) for index in range(len(values))]
    return [0] * len(values)


def _field_times_us(file: ReplayFile, values: Sequence[bytes]) -> list[int | None]:
    place = file.schema.index[file.time_field]
    texts: list[str | None] = []
    for value in values:
        columns = _CANONICAL.split(value)
        column = columns[_FIRST_FIELD + place] if _FIRST_FIELD + place < len(columns) else b""
        texts.append(column.decode(errors="replace").strip().strip('"').strip() or None)
    type_ = file.schema.fields[place].type
    times, _ = parse(pa.array(texts, pa.string()), type_)
    unit_us = 1 if type_ is FieldType.STAMP else 1_000_000
    return [None if time is None else time * unit_us for time in times.cast(pa.int64()).to_pylist()]


def _blocks(file: ReplayFile, progress: RecordingProgress, rows_max: int = _ROWS) -> Iterator[tuple[list[bytes], list[int]]]:
    """The file's rows in canonical form and their lines, over its repetitions, up to its limit of events."""
    options = file.options
    left = options.events_max or None
    is_first = True
    for _ in range(options.repeats + 1):
        source = RowFile(file.path, form=options.form, skip_rows=options.header_rows, growth=options.growth)
        try:
            begin = progress.bytes_read
            while (left is None or left > 0) and (rows := source.take(rows_max if left is None else min(rows_max, left))):
                if is_first:
                    check_columns(rows[0].text, options.form, file.path)
                    is_first = False
                left = None if left is None else left - len(rows)
                progress.bytes_read = begin + rows[-1].end
                yield options.form.canonical([row.text for row in rows]), [row.line for row in rows]
        finally:
            source.close()
