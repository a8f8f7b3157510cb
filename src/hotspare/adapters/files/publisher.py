"""Publishes the rows of a file to an inbound topic, each exactly once, even if the publisher is killed at any time (SPEC I5, E8).

The header of every message holds the position in the file after its rows. A record that the bus writes in the same transaction, and
never deletes, holds it too. A publisher begins by reading that record.

In a divided project, rows go to several partitions, each of which has messages and a record of its own
(`adapters/failover/spread_source.py`).
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hotspare.adapters.failover.bus_retries import REPORT_AFTER_S, BusRetries, StopRequested
from hotspare.adapters.failover.partition_count_check import PartitionCountCheck
from hotspare.adapters.failover.source_position import SourcePosition
from hotspare.adapters.failover.spread_source import Piece, SpreadSource
from hotspare.adapters.files.canonical import FileFormat, RowForm
from hotspare.adapters.files.file_rows import FileRows
from hotspare.adapters.files.row_blocks import build_pieces, topic_partitions
from hotspare.adapters.files.row_file import Growth, RowFile
from hotspare.adapters.files.row_routing import RowRouting
from hotspare.adapters.files.unknown_member_check import UnknownMemberCheck
from hotspare.adapters.time_texts import StampUnitCheck
from hotspare.base.errors import BusError, UsageError
from hotspare.bus.contract import Bus, Partition

BLOCK_ROWS_DEFAULT = 256
BLOCK_ROWS_MAX = 65_536
APPEND_BYTES_MAX = 4 << 20
_APPEND_ROWS_MAX = 4096
_GROWTH_POLL_S = 0.02
_PACE_GROUP_S = 0.005
"""Events that are due within this time are sent together, so that a high rate does not become as many transactions."""
_ENVELOPE_ROWS = ("before", "after")
_ENVELOPE_HINT = (
    "it is a change record of Debezium: define {fields} in the source window, and compute rows from them in a functional window "
    "(docs/windows/functional.md)"
)


@dataclass(frozen=True)
class PublishOptions:
    """The options of publishing a file. A number of 0 has no effect, or means the default.

    `header_rows`  rows to leave out at the beginning      `rate`         events per second
    `events_max`   events in all, over restarts             `repeats`      passes after the first one
    `block_rows`   rows per message at most                 `source_name`  the file's stable name; "" for its absolute path
    `report_after_s`     the time that the bus may be out of reach before it is reported
    """

    form: RowForm = field(default_factory=RowForm)
    growth: Growth = Growth.FIXED
    header_rows: int = 0
    rate: float = 0.0
    events_max: int = 0
    repeats: int = 0
    block_rows: int = 0
    source_name: str = ""
    report_after_s: float = REPORT_AFTER_S

    def __post_init__(self) -> None:
        for name in ("header_rows", "rate", "events_max", "repeats", "block_rows"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} is {getattr(self, name)}: use 0 or more")
        if self.block_rows > BLOCK_ROWS_MAX:
            raise UsageError(f"{self.block_rows} rows per message are more than allowed", hint=f"use at most {BLOCK_ROWS_MAX}")
        if self.growth is Growth.GROWING and self.form.format is FileFormat.BINARY:
            raise UsageError(
                "a growing file cannot hold binary blocks: they are read once, when it is opened", hint="use csv or json"
            )
        if self.growth is Growth.GROWING and self.repeats:
            raise UsageError("a growing file cannot be repeated", hint="leave growing or repeats out")


@dataclass(frozen=True, slots=True)
class PublishProgress:
    """The progress of publishing a file. `events`: the number of events that this call is known to have published. Bytes count over
    all repetitions and earlier runs; `bytes_total` is 0 while it is unknown. `is_done`: whether the end of the file or the limit of
    events is reached."""

    events: int
    bytes_published: int
    bytes_total: int
    is_done: bool = False


def publish_file(
    bus: Bus,
    partition: Partition,
    path: Path,
    options: PublishOptions,
    stop: threading.Event,
    report: Callable[[PublishProgress], None] = lambda progress: None,
    troubled: Callable[[BusError], None] = lambda error: None,
    routing: RowRouting | None = None,
    warn: Callable[[str], None] = lambda sentence: None,
    count: PartitionCountCheck | None = None,
) -> PublishProgress:
    """Publishes until the end of the file, `events_max`, or `stop`; a growing file ends by `stop` only.

    With `routing` each row goes to the partition that it belongs in, else all go to `partition`. `count` checks that the topic
    still has the partitions that the routing was computed for. `warn` gets sentences about suspicious first rows.

    Raises UsageError if the topic has another number of partitions, or the file cannot be read or does not fit the schema (SPEC
    I10). Raises UsageError also if the file is not the one that publishing began with. Raises BusError if the bus stays
    unreachable, which `troubled` gets before.
    """
    stamps = StampUnitCheck(str(path), options.form.schema, warn)
    publication = _Publication(
        bus, topic_partitions(partition, routing), path, options, stop, report, troubled, routing, stamps, warn, count
    )
    try:
        return publication.run()
    finally:
        publication.close()


class _Overtaken(Exception):
    """Raised if an append is not known to be written: another publisher of the same source was ahead, or the bus did not answer.
    The caller reads the published position again."""


class _Publication:
    """A call of `publish_file`: its arguments, the open file, and the position up to which the source is published."""

    def __init__(
        self,
        bus: Bus,
        partitions: Sequence[Partition],
        path: Path,
        options: PublishOptions,
        stop: threading.Event,
        report: Callable[[PublishProgress], None],
        troubled: Callable[[BusError], None],
        routing: RowRouting | None,
        stamps: StampUnitCheck,
        warn: Callable[[str], None],
        count: PartitionCountCheck | None,
    ) -> None:
        self._stamps = stamps
        self._warn = warn
        self._path = path
        self._options = options
        self._stop = stop
        self._report = report
        self._retried = BusRetries(stop, troubled, options.report_after_s)
        name = options.source_name or str(path.absolute())
        self._routing = routing
        self._source = SpreadSource(bus, partitions, name, count)
        self._file = self._open(warn)
        self._pass = 0
        self._published_bytes = 0
        self._events = 0
        self._events_before = 0
        self._passed_over = 0
        """The count of rows that were skipped because their partition, ahead of others, already has them."""
        self._first_row_checked = False

    def run(self) -> PublishProgress:
        is_done = False
        with contextlib.suppress(StopRequested):
            while True:
                try:
                    self._resume()
                    is_done = self._publish()
                    break
                except _Overtaken:
                    self._reopen()
        return replace(self._progress(), is_done=is_done)

    def close(self) -> None:
        self._file.close()

    def _publish(self) -> bool:
        """Publishes until the end or a stop. Returns whether the end of the file was reached."""
        pace = EventPace(self._options.rate)
        while not self._stop.is_set() and self._wanted():
            due = pace.due_events(self._wanted())
            if due <= 0:
                self._stop.wait(pace.wait_s())
                continue
            rows = self._file.read_rows(due, APPEND_BYTES_MAX)
            if len(rows):
                self._check_first_rows(rows)
                self._append(rows)
                pace.record_sent(len(rows))
                self._report(self._progress())
            elif not self._file.is_exhausted:
                self._stop.wait(_GROWTH_POLL_S)
                pace.restart()
            elif not self._next_pass():
                return True
        return not self._wanted()

    def _open(self, warn: Callable[[str], None]) -> RowFile:
        options = self._options
        return RowFile(self._path, form=options.form, skip_rows=options.header_rows, growth=options.growth, warn=warn)

    def _reopen(self) -> None:
        self._file.close()
        self._file = self._open(lambda sentence: None)

    def _resume(self) -> None:
        """Continues in the file at the position that the bus has recorded."""
        position = self._retried(self._source.read_source_position)
        self._pass, offset = 0, position.published_bytes
        if self._options.repeats and offset and (size := self._file.bytes_total):
            self._pass = (offset - 1) // size
            offset -= self._pass * size
        if self._options.events_max and offset:
            self._events_before = self._count_before(offset) - self._events - self._passed_over
            self._reopen()
        self._file.seek(offset, position.check)
        self._published_bytes = position.published_bytes
        self._first_row_checked = offset > 0

    def _count_before(self, offset: int) -> int:
        in_this_pass = self._file.count_rows(offset, self._stop.is_set)
        if not self._pass:
            return in_this_pass
        self._reopen()
        return in_this_pass + self._pass * self._file.count_rows(self._file.bytes_total, self._stop.is_set)

    def _wanted(self) -> int:
        limit = self._options.events_max
        left = limit - self._events_before - self._events - self._passed_over if limit else _APPEND_ROWS_MAX
        return max(0, min(left, _APPEND_ROWS_MAX))

    def _check_first_rows(self, rows: FileRows) -> None:
        """Raises UsageError for a file whose rows cannot fit, before a row is published (SPEC I10)."""
        if not self._first_row_checked:
            first = rows.first_texts()
            check_columns(first, self._file.form, self._path)
            UnknownMemberCheck(f"file {self._path}", self._file.form, self._warn).warn_on_first_rows(first)
            self._first_row_checked = True

    def _next_pass(self) -> bool:
        if self._pass >= self._options.repeats or not self._file.bytes_total:
            return False
        self._pass += 1
        self._reopen()
        return True

    def _append(self, rows: FileRows) -> None:
        begin = self._pass * self._file.bytes_total if self._pass else 0
        texts = self._file.form.canonicalize_array(rows.texts).to_pylist()
        self._stamps.warn_on_first_rows(texts, self._options.form.topic_message_format)
        ends = (begin + rows.ends).tolist()
        done = SourcePosition(ends[-1], self._file.position_digest())
        block_rows, written = self._options.block_rows or BLOCK_ROWS_DEFAULT, self._options.form.topic_message_format
        found = build_pieces(texts, ends, self._routing, self._source.is_unpublished, block_rows, written)
        self._append_once(found, done)
        self._published_bytes = done.published_bytes
        count = sum(piece.rows for each in found for piece in each)
        self._events += count
        self._passed_over += len(rows) - count

    def _append_once(self, found: Sequence[Sequence[Piece]], done: SourcePosition) -> None:
        """Appends the pieces of each partition; `done` is the position after them. Raises _Overtaken if the topic holds more of
        this source than this publisher knows, or the bus did not answer.

        Two publishers have the file if an engine that was frozen with the active role continues before it notices that it lost
        the role.
        """
        if not self._retried.try_append(lambda: self._source.append(found, done, self._options.form.topic_message_format.header)):
            raise _Overtaken

    def _progress(self) -> PublishProgress:
        return PublishProgress(self._events, self._published_bytes, self._file.bytes_total_or_zero * (self._options.repeats + 1))


class EventPace:
    """A schedule: event k is due at k / rate seconds after the first. `rate` 0 means as fast as possible. `clock` returns
    seconds."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._begin_s = clock()
        self._sent = 0

    def due_events(self, events_max: int) -> int:
        """Returns the number of events that may be sent now, at most `events_max`."""
        if not self._rate:
            return events_max
        return min(events_max, int((self._clock() - self._begin_s) * self._rate) + 1 - self._sent)

    def wait_s(self) -> float:
        """Returns the time until more events are due."""
        if not self._rate:
            return 0.0
        next_s = self._begin_s + self._sent / self._rate - self._clock()
        return max(next_s, _PACE_GROUP_S if self._rate * _PACE_GROUP_S > 1 else 0.0)

    def record_sent(self, events: int) -> None:
        self._sent += events

    def restart(self) -> None:
        """Begins a new schedule after a time without events, which is not made up."""
        self._begin_s = self._clock()
        self._sent = 0


def check_columns(rows: Sequence[bytes], form: RowForm, path: Path) -> None:
    """Raises UsageError if the first `rows` of a file cannot match the schema (SPEC I10). In CSV, the first row has another
    number of columns. In other formats, no event can be read, or the first readable one has none of the schema's fields."""
    if form.schema is None:
        return
    row = rows[0]
    if form.columns is None:
        fits = next((found for found in map(form.has_field, rows) if found is not None), None)
        if not fits:
            which = "none of its first events can be read" if fits is None else "its first event has no field of the window"
            raise UsageError(
                f"file {path} does not match the schema: {which}",
                detail=f"event {row[:200].decode(errors='replace')!r}, schema {form.schema}",
                hint=_hint_of_envelope(row) or f"check that it is a {form.format.value} file of this window",
            )
        return
    found = len(form.split_row(row))
    if found != form.columns and form.column_mapping is not None:
        raise UsageError(
            f"file {path} does not match its titles: its first row has {found} columns, its title line {form.columns}",
            detail=f"row {row[:200].decode(errors='replace')!r}",
            hint="" if found > 1 else f"set the delimiter if it is not {form.delimiter!r}",
        )
    if found != form.columns:
        before = " after " + ", ".join(["opcode", "flag"][: form.prefix_columns]) if form.prefix_columns else ""
        raise UsageError(
            f"file {path} does not match the schema: its first row has {found} columns, not {form.columns}",
            detail=f"row {row[:200].decode(errors='replace')!r}, schema {form.schema}{before}",
            hint=_hint_of_titles(form, row) + ("" if found > 1 else f"; set the delimiter if it is not {form.delimiter!r}"),
        )


def _hint_of_titles(form: RowForm, row: bytes) -> str:
    """Returns the hint for a first row that does not fit: for a title line it suggests `plain`."""
    assert form.schema is not None
    titles = {column.strip(b' "').decode(errors="replace") for column in form.split_row(row)}
    if titles & set(form.schema.names):
        return "it has a title line: read it with --plain (property plain of a connector), which matches columns by title"
    return (
        "read a file with a title line and without opcodes with --plain; else skip title lines with header, and set addcsvopcode "
        "or addcsvflags if rows have no column of opcodes or flags"
    )


def _hint_of_envelope(event: bytes) -> str:
    """Returns the hint for an event that is a change record of Debezium; "" for any other."""
    try:
        members = json.loads(event)
    except (ValueError, RecursionError):
        return ""
    if _is_envelope(members):
        return _ENVELOPE_HINT.format(fields="the string fields op, before and after")
    if isinstance(members, dict) and _is_envelope(members.get("payload")):
        return _ENVELOPE_HINT.format(fields="the string field payload")
    return ""


def _is_envelope(members: object) -> bool:
    return isinstance(members, dict) and "op" in members and any(name in members for name in _ENVELOPE_ROWS)
