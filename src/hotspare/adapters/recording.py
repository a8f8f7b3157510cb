"""Converts files to the messages that a project's inbound topics would have held: in order of time, with ticks (for replay).

Nothing waits for a clock. The system time of a row is a field of it, or its number divided by the connector's rate, or constant;
every topic gets a tick at every heartbeat interval of that time. Equal files give equal messages.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from hotspare.adapters.file_places import FilePlaces
from hotspare.adapters.files.file_rows import Int64s, text_bounds
from hotspare.adapters.files.publisher import PublishOptions, check_columns
from hotspare.adapters.files.row_file import RowFile
from hotspare.adapters.files.source_bytes import is_compressed
from hotspare.adapters.files.unknown_member_check import UnknownMemberCheck
from hotspare.adapters.time_texts import StampUnitCheck
from hotspare.base.choices import RunUntil
from hotspare.base.errors import UsageError
from hotspare.flow.heartbeats import TICKS_MAX, end_us_of, too_many_heartbeats
from hotspare.formats.csv.decode import decode_rows
from hotspare.formats.json.decode import decode_json
from hotspare.model.types import TIME_TYPES, FieldType, Schema
from hotspare.rows.batch import END_FORM, RAW_SCHEMA, MessageFormat

_ROWS = 4096
_BYTES = 16 << 20
_CHECKED_ROWS = 100


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
            if place is None or self.schema.fields[place].type not in TIME_TYPES:
                raise UsageError(
                    f"field {self.time_field!r} cannot be the time of {self.path}",
                    detail=f"schema {self.schema}",
                    hint="name a field of type date or stamp",
                )


@dataclass(slots=True)
class RecordingProgress:
    """The progress of reading the files, for a progress bar; `bytes_total` is 0 if unknown."""

    bytes_read: int = 0
    bytes_total: int = 0
    events: int = 0


class _Run(NamedTuple):
    """Adjacent rows of the file with index `replay_file_index`, with their times."""

    replay_file_index: int
    times_us: Int64s
    values: pa.Array
    lines: Int64s


def record_files(
    files: Sequence[ReplayFile],
    topics: int,
    heartbeat_us: int,
    progress: RecordingProgress | None = None,
    places: FilePlaces | None = None,
    pulses_us: Sequence[int] = (),
    ticks_max: int = TICKS_MAX,
    warn: Callable[[str], None] = lambda sentence: None,
    until: RunUntil = RunUntil.END,
) -> Iterator[pa.RecordBatch]:
    """Yields batches of RAW_SCHEMA with one row per message, in order of (time, topic), offsets from 0 per topic, partition 0.

    `topics` is the number of inbound topics. Rows of equal time from several files of one topic are in the order of the files. A
    last tick closes every topic, so that nothing waits for later input; if windows have pulses, time advances to the next one of
    each interval of `pulses_us`. With RunUntil.END the last batch is a tick of END_FORM in every topic (`is_end`).

    `places` gets each message's file and line. `warn` gets sentences about suspicious first rows of a file. With several
    files it also gets, for each file, the first row that is older than a row before it.

    Raises UsageError if a file cannot be read, or its time has more than `ticks_max` heartbeats.
    """
    progress = progress if progress is not None else RecordingProgress()
    progress.bytes_total = 0 if any(is_compressed(file.path) for file in files) else sum(_size(file) for file in files)
    batch = _Batch(topics)
    ticks = _Ticks(heartbeat_us, ticks_max)
    time_us, first_us = 0, _first_us(files)
    for untimed in _merged(files, progress, warn):
        run = untimed._replace(times_us=np.where(untimed.times_us == _NO_TIME_US, first_us, untimed.times_us))
        file, begin = files[run.replay_file_index], 0
        while begin < len(run.values):
            time_us = int(run.times_us[begin])
            for tick_us in ticks.until(time_us):
                for each in range(topics):
                    batch.add_tick(each, tick_us)
            end = min(ticks.first_due(run.times_us, begin), begin + batch.room)
            values = run.values.slice(begin, end - begin)
            if batch.is_too_small_for(values):
                yield batch.drain_batch()
            offset = batch.add_rows(file.topic, run.times_us[begin:end], values, file.options.form.topic_message_format)
            if places is not None:
                places.add_adjacent_rows(file.topic, offset, run.replay_file_index, run.lines[begin:end].tolist())
            time_us, begin = int(run.times_us[end - 1]), end
            if batch.is_full:
                yield batch.drain_batch()
    end_us = end_us_of(time_us, heartbeat_us, pulses_us)
    for tick_us in (*(ticks.until(end_us) if pulses_us else ()), end_us):
        for each in range(topics):
            batch.add_tick(each, tick_us)
        if batch.is_full:
            yield batch.drain_batch()
    yield batch.drain_batch()
    if until is RunUntil.END:
        for each in range(topics):
            batch.add_tick(each, end_us, END_FORM)
        yield batch.drain_batch()


def is_end(batch: pa.RecordBatch) -> bool:
    """Whether a batch of `record_files` is the end of the input."""
    return batch.num_rows > 0 and int(batch.column("format")[0].as_py()) == END_FORM


class _Ticks:
    """The heartbeats that fall due as time advances. The first call of `until` sets the beginning and yields none; later calls
    raise UsageError after `ticks_max` heartbeats."""

    def __init__(self, interval_us: int, ticks_max: int) -> None:
        self._interval_us, self._ticks_max = interval_us, ticks_max
        self._next_us: int | None = None
        self._count = 0

    def first_due(self, times_us: Int64s, begin: int) -> int:
        """Returns the least index after `begin` whose time is at or after the next heartbeat. `times_us` rise; `begin` itself is
        never returned."""
        assert self._next_us is not None
        return max(begin + 1, int(np.searchsorted(times_us, self._next_us)))

    def until(self, time_us: int) -> Iterator[int]:
        """Yields the heartbeats at or before `time_us` that were not yielded yet."""
        if self._next_us is None:
            self._next_us = time_us + self._interval_us
        due = max(0, (time_us - self._next_us) // self._interval_us + 1)
        self._count += due
        if (error := too_many_heartbeats(self._count, time_us, self._ticks_max)) is not None:
            raise error
        for _ in range(due):
            yield self._next_us
            self._next_us += self._interval_us


class _Messages(NamedTuple):
    """Messages of one topic, from an offset on; ticks if `values` is None."""

    topic: int
    offset: int
    times_us: Int64s
    values: pa.Array | None
    format: int


class _Batch:
    """Messages collected for one Arrow batch; counts the offsets of each topic over all batches."""

    def __init__(self, topics: int) -> None:
        self._offsets = [0] * topics
        self._parts: list[_Messages] = []
        self._count = self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._count >= _ROWS or self._bytes >= _BYTES

    @property
    def room(self) -> int:
        """The number of rows that may be added, at least one."""
        return max(1, _ROWS - self._count)

    def is_too_small_for(self, values: pa.Array) -> bool:
        return self._bytes > 0 and self._bytes + _bytes_of(values) > _BYTES

    def add_tick(self, topic: int, time_us: int, format_: int = MessageFormat.CSV) -> None:
        self._add(topic, np.array([time_us]), None, format_)

    def add_rows(self, topic: int, times_us: Int64s, values: pa.Array, format_: MessageFormat) -> int:
        """Adds rows; returns the offset of the first."""
        return self._add(topic, times_us, values, format_)

    def _add(self, topic: int, times_us: Int64s, values: pa.Array | None, format_: int) -> int:
        offset, count = self._offsets[topic], len(times_us)
        self._parts.append(_Messages(topic, offset, times_us, values, format_))
        self._offsets[topic] += count
        self._count += count
        self._bytes += 0 if values is None else _bytes_of(values)
        return offset

    def drain_batch(self) -> pa.RecordBatch:
        parts, count = self._parts, self._count
        self._parts, self._count, self._bytes = [], 0, 0
        counts = [len(part.times_us) for part in parts]
        begins = np.repeat(np.cumsum([0, *counts[:-1]]), counts)
        columns = {
            "topic": np.repeat([part.topic for part in parts], counts),
            "partition": np.zeros(count, np.int64),
            "offset": np.repeat([part.offset for part in parts], counts) + np.arange(count) - begins,
            "time_us": np.concatenate([part.times_us for part in parts]),
            "tick": np.repeat([part.values is None for part in parts], counts),
            "format": np.repeat([part.format for part in parts], counts),
            "value": pa.concat_arrays([_NO_VALUE if part.values is None else part.values for part in parts]),
        }
        arrays = [pa.array(columns[field.name]).cast(field.type) for field in RAW_SCHEMA]
        return pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)


_NO_VALUE = pa.array([b""], pa.binary())


def _bytes_of(values: pa.Array) -> int:
    bounds = text_bounds(values)
    return int(bounds[-1] - bounds[0])


def check_file(file: ReplayFile) -> None:
    """Raises UsageError if a file cannot be read, or its first row does not have the columns of the schema."""
    for _ in _blocks(file, RecordingProgress(), rows_max=_CHECKED_ROWS):
        return


def _size(file: ReplayFile) -> int:
    try:
        return file.path.stat().st_size * (file.options.repeats + 1)
    except OSError as error:
        raise UsageError(f"file {file.path} cannot be read", detail=error.strerror or str(error)) from error


def _merged(files: Sequence[ReplayFile], progress: RecordingProgress, warn: Callable[[str], None]) -> Iterator[_Run]:
    """Yields the rows of all files in order of (time, topic), rows without a time first; rows of one file and equal time stay in
    the file's order."""
    if len(files) == 1:
        yield from _runs(files[0], 0, progress, warn)
        return
    orders = [_TimeOrder(file, warn) for file in files]
    runs = (_runs(file, place, progress, warn, orders[place]) for place, file in enumerate(files))
    merged = heapq.merge(*(_keyed(each, file.topic) for each, file in zip(runs, files, strict=True)))
    for place, rows in groupby(merged, key=lambda row: row[2]):
        while some := list(islice(rows, _ROWS)):
            times_us, lines = (np.array([row[i] for row in some], np.int64) for i in (0, 5))
            yield _Run(place, times_us, pa.array([row[4] for row in some], pa.binary()), lines)


def _keyed(runs: Iterator[_Run], topic: int) -> Iterator[tuple[int, int, int, int, bytes, int]]:
    number = 0
    for run in runs:
        for time_us, value, line in zip(run.times_us.tolist(), run.values.to_pylist(), run.lines.tolist(), strict=True):
            yield time_us, topic, run.replay_file_index, number, value, line
            number += 1


class _TimeOrder:
    """Warns once if a row of a file is older than a row before it."""

    def __init__(self, file: ReplayFile, warn: Callable[[str], None]) -> None:
        self._file, self._warn = file, warn
        self._newest_us, self._line = _NO_TIME_US, 0
        self._is_done = not file.time_field

    def check_time_order(self, times_us: Int64s, lines: Int64s) -> None:
        """Checks the next rows; if the file is repeated, its times may begin again."""
        if self._is_done or not len(lines):
            return
        if lines[0] <= self._line:
            self._newest_us = _NO_TIME_US
        before_us = np.maximum.accumulate(np.append(self._newest_us, times_us))
        self._newest_us, self._line = int(before_us[-1]), int(lines[-1])
        late = np.flatnonzero((times_us < before_us[:-1]) & (times_us != _NO_TIME_US))
        if len(late):
            self._is_done, field = True, self._file.time_field
            self._warn(
                f"{self._file.path}:{lines[late[0]]}: the time in field {field} falls: such rows are merged with other files by "
                f"the newest time before them; sort the file by {field}"
            )


def _runs(
    file: ReplayFile, place: int, progress: RecordingProgress, warn: Callable[[str], None], order: _TimeOrder | None = None
) -> Iterator[_Run]:
    """Yields the rows with their times, which never fall; _NO_TIME_US before the first one. `order` checks the original times."""
    newest_us, number = _NO_TIME_US, 0
    stamps = StampUnitCheck(str(file.path), file.schema, warn)
    for values, lines in _blocks(file, progress, warn=warn):
        stamps.warn_on_first_rows(values.slice(0, StampUnitCheck.ROWS).to_pylist(), file.options.form.topic_message_format)
        own_us = _times_us(file, values, number)
        if order is not None:
            order.check_time_order(own_us, lines)
        times_us = np.maximum.accumulate(np.append(newest_us, own_us))[1:]
        newest_us = int(times_us[-1])
        yield _Run(place, times_us, values, lines)
        number += len(values)
        progress.events += len(values)


_NO_TIME_US = np.iinfo(np.int64).min


def _first_us(files: Sequence[ReplayFile]) -> int:
    """Returns the time for rows before the first known one: the earliest first time in the first rows of any file; 0 if no file
    has one."""
    found: list[int] = []
    for file in files:
        if file.time_field or file.options.rate:
            values, _ = next(_blocks(file, RecordingProgress(), rows_max=_CHECKED_ROWS), (pa.array([], pa.binary()), None))
            times_us = _times_us(file, values, 0)
            found += times_us[times_us != _NO_TIME_US][:1].tolist()
    return min(found, default=0)


def _times_us(file: ReplayFile, values: pa.Array, number: int) -> Int64s:
    """Returns the rows' own times; `number` is the number of the first row in the file. _NO_TIME_US for a row without a readable
    time."""
    if file.time_field:
        return _field_times_us(file, values)
    if file.options.rate:
        rate = file.options.rate
        return np.array([round((number + index) * 1_000_000 / rate) for index in range(len(values))], np.int64)
    return np.full(len(values), _NO_TIME_US)


def _field_times_us(file: ReplayFile, values: pa.Array) -> Int64s:
    place = file.schema.index[file.time_field]
    unit_us = 1 if file.schema.fields[place].type is FieldType.STAMP else 1_000_000
    decode = decode_json if file.options.form.topic_message_format is MessageFormat.JSON else decode_rows
    found = np.full(len(values), _NO_TIME_US)
    for part in decode(values, file.schema)[0]:
        times = part.columns[place].cast(pa.int64()).to_pylist()
        microseconds = (_NO_TIME_US if time is None else time * unit_us for time in times)
        found[part.message] = [time_us if abs(time_us) < -_NO_TIME_US else _NO_TIME_US for time_us in microseconds]
    return found


def _blocks(
    file: ReplayFile,
    progress: RecordingProgress,
    rows_max: int = _ROWS,
    warn: Callable[[str], None] = lambda sentence: None,
) -> Iterator[tuple[pa.Array, Int64s]]:
    """Yields the file's rows in canonical form and their lines, over its repetitions, up to its limit of events.

    `warn` gets sentences about suspicious titles and members, once.
    """
    options = file.options
    left = options.events_max or None
    is_first = True
    for number in range(options.repeats + 1):
        told = (lambda sentence: None) if number else warn
        source = RowFile(file.path, form=options.form, skip_rows=options.header_rows, growth=options.growth, warn=told)
        try:
            begin = progress.bytes_read
            while (left is None or left > 0) and len(rows := source.read_rows(rows_max if left is None else min(rows_max, left))):
                if is_first:
                    check_columns(rows.first_texts(), source.form, file.path)
                    UnknownMemberCheck(f"file {file.path}", source.form, told).warn_on_first_rows(rows.first_texts())
                    is_first = False
                left = None if left is None else left - len(rows)
                progress.bytes_read = begin + int(rows.ends[-1])
                yield source.form.canonicalize_array(rows.texts), rows.lines
        finally:
            source.close()
