"""Writes an output stream to a CSV file, each row exactly once, even if the subscriber is killed (SPEC 5.2, I6, E9).

A position file next to the output holds the output's length when it contained everything before a bus position. A start truncates
the file to that length and continues at that position. So rows that were written but not recorded are written again in place.

In a divided project, a stream is in several partitions. Each shard's outputs keep their order, those of different shards are in the
order of reading. The two rows of an update stay together: if the first is the last row read so far, it is written only with the
second."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa

from hotspare.adapters.changelog_reading import (
    RowChoice,
    SequenceBreak,
    WindowContent,
    decode_group,
    ends_in_update,
    first_sequence,
    group_for_decoding,
    last_sequence,
    sequence_breaks,
)
from hotspare.adapters.failover.bus_retries import BusRetries, StopRequested
from hotspare.adapters.failover.subscriber_position import PartitionPosition, SubscriberPosition, load_position, position_path
from hotspare.adapters.failover.turn import Turn
from hotspare.adapters.files.output_file import LOCK_WAIT_S, OutputFile, Rotation, TurnOver
from hotspare.base.errors import BusError, PositionLost, TopicMissing, UsageError
from hotspare.base.retry import Retry
from hotspare.bus.contract import Bus, Message, Partition
from hotspare.bus.limits import partitions_of

_T = TypeVar("_T")

_READ_MESSAGES_MAX = 2_000
_READ_BYTES_MAX = 8 << 20
_READ_WAIT_MS = 100
_RECORD_INTERVAL_S = 0.2
"""The interval at which the position is recorded while rows arrive."""
RECORD_AFTER_BYTES = 16 << 20
_TOPIC_MISSING = Retry(pause_s=0.1)
_HELD_POLL_S = 0.05
"""The interval between two reads for the second row of an update."""


class RowFormat(Protocol):
    """The conversion of a stream's batches to text. `name` identifies it: a file is continued only in the form that it was begun
    in."""

    @property
    def name(self) -> str: ...

    def title(self, rows: pa.RecordBatch) -> bytes:
        """Returns the title line with its line end; b"" for none. `rows` are the first rows of the file."""

    def decode(self, messages: Sequence[Message]) -> pa.RecordBatch:
        """Returns the rows of one message, or of several from `group_for_decoding`. Raises BusError if one has no outputs of this
        stream."""

    def format_rows(self, rows: pa.RecordBatch) -> bytes:
        """Returns the text of the rows, each with its line end."""


class Opening(Enum):
    """The rows with which a new file begins."""

    STREAM = "stream"
    """The oldest output on the topic, and all later ones."""
    SNAPSHOT = "snapshot"
    """The window's content as inserts, then the outputs after it (I16)."""


class Until(Enum):
    STOPPED = "stopped"
    END = "end"
    """The end of the topic when the subscriber begins."""


@dataclass(frozen=True)
class SubscribeOptions:
    choice: RowChoice = field(default_factory=RowChoice)
    opening: Opening = Opening.STREAM
    until: Until = Until.STOPPED
    rotation: Rotation = field(default_factory=Rotation)
    lock_wait_s: float = LOCK_WAIT_S
    """The time to wait for the lock of the file."""
    record_after_bytes: int = RECORD_AFTER_BYTES
    """The position is saved at the latest after this many bytes."""

    @property
    def name(self) -> str:
        rotating = " rotating" if self.rotation.is_wanted else ""
        return f"{self.choice.updates.value} {self.choice.retention_deletes.value} {self.opening.value}{rotating}"


@dataclass(slots=True)
class SubscribeProgress:
    """The progress of a subscriber. `rows`: written by this call. `sequence`: that of the last output seen. `offset`: the next
    message to read. `lag_messages`: the messages still to read. Over several partitions these three are sums, and `sequences` has
    one sequence per partition.

    `breaks` counts places at which the sequence did not rise by one. `first_sequence` is that of the file's first output; 1 if
    the file is complete.
    """

    rows: int = 0
    sequence: int = 0
    offset: int = 0
    lag_messages: int = 0
    breaks: int = 0
    first_sequence: int = 1
    sequences: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SubscribeReport:
    """The callbacks of a subscriber, which it calls from the thread that runs it."""

    on_progress: Callable[[SubscribeProgress], None] = lambda progress: None
    on_sequence_break: Callable[[SequenceBreak], None] = lambda place: None
    on_incomplete: Callable[[int], None] = lambda first_sequence: None
    """The topic no longer holds the stream from its beginning."""
    on_trouble: Callable[[BusError], None] = lambda error: None
    """The bus has been unreachable for a while."""


def subscribe_file(
    bus: Bus,
    topic: str,
    path: Path,
    row_format: RowFormat,
    options: SubscribeOptions,
    stop: threading.Event,
    report: SubscribeReport | None = None,
    partition: int | None = None,
) -> SubscribeProgress:
    """Writes the topic's outputs to `path`: all partitions or only `partition`, until `stop`, or with Until.END to their present
    ends. Returns the progress.

    Waits for a topic that does not exist yet; with Until.END it raises TopicMissing and creates no file. Raises UsageError if the
    file exists and no subscriber wrote it, or it was begun in another form. Raises FileInUse if another process writes the file.
    Raises PositionLost if the topic no longer holds the next message, or the file has another number of partitions than the topic.
    """
    subscription = _Subscription(bus, topic, partition, path, row_format, options, stop, report or SubscribeReport())
    with contextlib.suppress(StopRequested, TurnOver):
        subscription.run()
    return subscription.progress


class _Subscription:
    """A call of `subscribe_file`: its arguments, the open file, and the progress."""

    def __init__(
        self,
        bus: Bus,
        topic: str,
        partition: int | None,
        path: Path,
        row_format: RowFormat,
        options: SubscribeOptions,
        stop: threading.Event,
        report: SubscribeReport,
    ) -> None:
        self._bus = bus
        self._topic = topic
        self._partitions = [] if partition is None else [Partition(topic, partition)]
        """All partitions of the topic, once it exists, or only one."""
        self._place = topic if partition is None else f"{topic}[{partition}]"
        self._path = path
        self._format = row_format
        self._options = options
        self._stop = stop
        turn = stop if isinstance(stop, Turn) else Turn()
        self._file = OutputFile(path, turn, options.rotation, lock_wait_s=options.lock_wait_s)
        self._report = report
        self._retried = BusRetries(stop, report.on_trouble)
        self._form = f"{row_format.name} {options.name}"
        self._noted_s = 0.0
        self._noted_bytes = 0
        self._behind: list[int] = []
        self.progress = SubscribeProgress()

    def run(self) -> None:
        if self._options.until is Until.END:
            for partition in self._found():
                self._first_place(partition)
        with self._file.opened():
            with self._file.writing():
                position = self._begin()
            self._follow(position)

    def _begin(self) -> SubscriberPosition:
        """Truncates the file to its recorded position. A new file gets its snapshot, if it has one."""
        remembered = load_position(self._path)
        if remembered is not None:
            self._check_same(remembered)
        self._partitions = self._found()
        position = self._checked(self._file.recover_position(self._fresh))
        self._noted_bytes = position.file_bytes
        self._behind = [0] * len(self._partitions)
        position = position if position.begun else self._open_file(position)
        self._show(position)
        return position

    def _found(self) -> list[Partition]:
        return self._partitions or self._with_topic(lambda: partitions_of(self._bus.topics(), self._topic))

    def _fresh(self) -> SubscriberPosition:
        return SubscriberPosition(self._place, self._form, places=tuple(map(self._first_place, self._partitions)))

    def _first_place(self, partition: Partition) -> PartitionPosition:
        return PartitionPosition(self._with_topic(lambda: self._bus.begin_offset(partition)))

    def _checked(self, position: SubscriberPosition) -> SubscriberPosition:
        """Returns `position`. Raises PositionLost if it has other partitions than the topic."""
        if len(position.places) != len(self._partitions):
            written = f"file {self._path} has outputs of {len(position.places)}"
            what = f"topic {self._topic} has {len(self._partitions)} partitions, {written}"
            raise PositionLost(what, hint="write the outputs of this topic into another file")
        return position

    def _check_same(self, position: SubscriberPosition) -> None:
        remembered = f"{position.topic}, {position.form}"
        asked = f"{self._place}, {self._form}"
        if remembered != asked:
            raise UsageError(
                f"file {self._path} holds another stream or another form of rows",
                detail=f"in the file: {remembered}; requested: {asked}",
                hint=f"name another file, or remove this one and {position_path(self._path).name}",
            )

    def _open_file(self, position: SubscriberPosition) -> SubscriberPosition:
        position = replace(position, begun=True)
        if self._options.opening is Opening.SNAPSHOT:
            position = self._write_snapshot(position)
        return self._record_position(position)

    def _write_snapshot(self, position: SubscriberPosition) -> SubscriberPosition:
        content = WindowContent()
        for index, partition in enumerate(self._partitions):
            position = position.with_partition_place(index, self._folded(content, partition, position.places[index].offset))
        for batch in content.as_insert_batches():
            self._stop.is_set()  # shows that the work makes progress
            self._write(batch)
        return position

    def _folded(self, content: WindowContent, partition: Partition, offset: int) -> PartitionPosition:
        """Folds the present outputs of a partition into the content. Returns the place at which the stream continues.

        The first row of an update whose other row has not arrived yet belongs to the stream.
        """
        end, sequence = self._end(partition), 0
        held: tuple[Sequence[Message], pa.RecordBatch] | None = None
        """Messages whose last row is the first row of an update, and their rows."""
        while offset < end and (messages := self._read(partition, offset, end)):
            for given in group_for_decoding(messages):
                batch = decode_group(self._topic, self._format.decode, given)
                if len(batch):
                    if held is not None:
                        content.fold_batch(held[1].slice(len(held[1]) - 1))
                    self._check_sequence(batch, sequence, partition)
                    sequence = last_sequence(batch)
                    held = (given, batch) if ends_in_update(batch) else None
                    content.fold_batch(batch.slice(0, len(batch) - 1) if held is not None else batch)
            offset = messages[-1].offset + 1
        if held is not None:
            given, batch = held
            return PartitionPosition(given[-1].offset, sequence - 1, taken=_rows_of_last(given, batch) - 1)
        return PartitionPosition(max(offset, end), sequence)

    def _end(self, partition: Partition) -> int:
        return self._with_topic(lambda: self._bus.end_offset(partition))

    def _follow(self, position: SubscriberPosition) -> None:
        ends = [self._end(partition) for partition in self._partitions]
        for place, end in zip(position.places, ends, strict=True):
            if place.offset > end:
                raise PositionLost(
                    f"topic {self._topic} ends at offset {end}, and file {self._path} is at offset {place.offset}",
                    hint=_restart_hint(self._path),
                )
        is_to_end, noted, wait_ms = self._options.until is Until.END, position, 0
        while not self._stop.is_set() and (not is_to_end or any(p.offset < e for p, e in zip(position.places, ends, strict=True))):
            before, has_arrived = position, False
            for index, partition in enumerate(self._partitions):
                offset, limit = position.places[index].offset, ends[index] if is_to_end else None
                messages = self._read(partition, offset, limit, wait_ms) if limit is None or offset < limit else []
                if len(messages) == 1 and len(self._partitions) > 1:  # it may end in an update, whose other row may be there
                    messages = [*messages, *self._read(partition, messages[0].offset + 1, limit)]
                has_arrived |= bool(messages)
                position = self._write_messages(position, index, messages)
                if position != noted and self._is_record_due():
                    position = noted = self._record_position(position)
            if position is not before:
                wait_ms = 0
                continue
            if position != noted:
                position = noted = self._record_position(position)
            if is_to_end:
                break
            wait_ms = 0 if has_arrived else max(1, _READ_WAIT_MS // len(self._partitions))
            self._stop.wait(_HELD_POLL_S if has_arrived else 0)
        if position != noted:
            self._record_position(position)

    def _write_messages(self, position: SubscriberPosition, index: int, messages: Sequence[Message]) -> SubscriberPosition:
        """Writes the messages read from one partition."""
        if not messages:
            return position
        before, partition = position, self._partitions[index]
        with self._file.writing():
            for given in group_for_decoding(messages):
                rows = decode_group(self._topic, self._format.decode, given)
                end = self._writable_rows(rows) if given[-1].offset == messages[-1].offset else len(rows)
                position = self._write_new_rows(position, index, given, rows, end)
        if position != before:
            end = self._retried(lambda: self._bus.end_offset(partition))
            self._behind[index] = max(0, end - position.places[index].offset)
            self._show(position)
            self._report.on_progress(self.progress)
            return position
        return before

    def _writable_rows(self, rows: pa.RecordBatch) -> int:
        """Returns how many of the newest rows may be written. With several partitions, a last row that is the first of an update
        waits, because rows of other shards could follow it."""
        return len(rows) - int(len(self._partitions) > 1 and len(rows) > 0 and ends_in_update(rows))

    def _write_new_rows(
        self, position: SubscriberPosition, index: int, given: Sequence[Message], rows: pa.RecordBatch, end: int
    ) -> SubscriberPosition:
        """Writes the rows of these messages before `end`, without those that are already written."""
        place = position.places[index]
        batch = rows.slice(place.taken, max(0, end - place.taken))
        if len(batch):
            self._check_sequence(batch, place.sequence, self._partitions[index])
            chosen = self._options.choice.select_rows(batch, update_open=int(place.update_open))
            if len(chosen) and self._file.is_rotation_due(position):
                position = self._file.next_part(position)
                self._noted_bytes = 0
            self._write(chosen)
            place = replace(place, sequence=last_sequence(batch), update_open=ends_in_update(batch))
        offset, left = given[-1].offset, len(rows) - end
        behind = _rows_of_last(given, rows) - left
        return position.with_partition_place(
            index, replace(place, offset=offset if left else offset + 1, taken=behind if left else 0)
        )

    def _show(self, position: SubscriberPosition) -> None:
        progress = self.progress
        progress.sequences = tuple(place.sequence for place in position.places)
        progress.sequence, progress.offset = sum(progress.sequences), sum(place.offset for place in position.places)
        progress.lag_messages = sum(self._behind)

    def _check_sequence(self, batch: pa.RecordBatch, last: int, partition: Partition) -> None:
        first = first_sequence(batch)
        if last == 0 and first != 1:
            self.progress.first_sequence = first
            self._report.on_incomplete(first)
        for place in sequence_breaks(batch, last, partition.number):
            self.progress.breaks += 1
            self._report.on_sequence_break(place)

    def _write(self, rows: pa.RecordBatch) -> None:
        if len(rows):
            if self._file.size == 0:
                self._file.write(self._format.title(rows))
            self._file.write(self._format.format_rows(rows))
            self.progress.rows += len(rows)

    def _is_record_due(self) -> bool:
        return (
            time.monotonic() - self._noted_s >= _RECORD_INTERVAL_S
            or self._file.size - self._noted_bytes >= self._options.record_after_bytes
        )

    def _record_position(self, position: SubscriberPosition) -> SubscriberPosition:
        with self._file.writing():
            position = self._file.sync_and_record(position)
        self._noted_s, self._noted_bytes = time.monotonic(), position.file_bytes
        offsets = {partition: place.offset for partition, place in zip(self._partitions, position.places, strict=True)}
        self._retried(lambda: self._bus.record_reader(self._reader, offsets))
        return position

    @property
    def _reader(self) -> str:
        """The name under which the bus records the messages that this file still needs."""
        return f"file {self._path.absolute()}"

    def _read(self, partition: Partition, offset: int, end: int | None, wait_ms: int = 0) -> Sequence[Message]:
        """Returns the next messages from `offset` on. With `end`, returns only those before `end`, and does not wait."""
        self._stop.is_set()  # shows that the work makes progress
        wait_ms = wait_ms if end is None else 0
        try:
            messages = self._retried(
                lambda: self._bus.read(
                    partition, offset, messages_max=_READ_MESSAGES_MAX, bytes_max=_READ_BYTES_MAX, wait_ms=wait_ms
                )
            )
        except PositionLost as error:
            raise PositionLost(error.message, detail=error.detail, hint=_restart_hint(self._path)) from error
        self._retried.clear_trouble()
        return messages if end is None else [message for message in messages if message.offset < end]

    def _with_topic(self, call: Callable[[], _T]) -> _T:
        """Returns the call's result, waiting until the topic exists."""

        def is_awaited(error: Exception) -> bool:
            return isinstance(error, TopicMissing) and self._options.until is not Until.END

        def wait(pause_s: float) -> None:
            if self._stop.wait(pause_s):
                raise StopRequested

        return _TOPIC_MISSING.call(lambda: self._retried(call), is_awaited, wait)


def _rows_of_last(given: Sequence[Message], rows: pa.RecordBatch) -> int:
    """Returns the number of rows in the last of these messages: each message has one row if there are several."""
    return len(rows) if len(given) == 1 else 1


def _restart_hint(path: Path) -> str:
    return f"the topic was reset, or its retention is too short: remove {path} and {position_path(path)} to start over"
