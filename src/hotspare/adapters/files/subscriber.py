"""Writes an output stream to a CSV file, each row exactly once, whenever it is killed (SPEC 5.2, I6, E9).

Beside the file stands how long it was when it held everything before a bus position. A start cuts the file to that length and goes
on at that position, so rows that were written but not yet noted are written again in the same place.
"""

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

from hotspare.adapters.failover.patience import Patience, StopAsked
from hotspare.adapters.failover.subscriber_position import SubscriberPosition, load_position, position_path
from hotspare.adapters.failover.turn import Turn
from hotspare.adapters.files.output_file import OutputFile, Rotation, TurnOver
from hotspare.adapters.received import RowChoice, SequenceBreak, WindowContent, ends_in_update, last_sequence, sequence_breaks
from hotspare.bus.contract import Bus, Message, Partition
from hotspare.errors import BusError, PositionLost, TopicMissing, UsageError
from hotspare.retry import Retry

_T = TypeVar("_T")

_READ_MESSAGES_MAX = 2_000
_READ_BYTES_MAX = 8 << 20
_READ_WAIT_MS = 100
_NOTE_S = 0.2
"""How often the position is noted while rows come."""
_NOTE_BYTES = 16 << 20
_TOPIC_MISSING = Retry(pause_s=0.1)


class RowFormat(Protocol):
    """How batches of one stream become text. `name` identifies it: a file is continued only in the form it was begun in."""

    @property
    def name(self) -> str: ...

    def title(self, rows: pa.RecordBatch) -> bytes:
        """What stands before the first rows, which are given, with its line end; b"" for nothing."""

    def decode(self, message: Message) -> pa.RecordBatch:
        """The rows of one message. BusError where it holds no outputs of this stream."""

    def text(self, rows: pa.RecordBatch) -> bytes:
        """The rows as CSV, each with its line end."""


class Opening(Enum):
    """With what a new file begins."""

    STREAM = "stream"
    """The oldest output on the topic, and all that follow."""
    SNAPSHOT = "snapshot"
    """The window's content as inserts, then what comes after (I16)."""


class Until(Enum):
    STOPPED = "stopped"
    END = "end"
    """What stands on the topic when the subscriber begins."""


@dataclass(frozen=True)
class SubscribeOptions:
    choice: RowChoice = field(default_factory=RowChoice)
    opening: Opening = Opening.STREAM
    until: Until = Until.STOPPED
    rotation: Rotation = field(default_factory=Rotation)

    @property
    def name(self) -> str:
        rotating = " rotating" if self.rotation.is_wanted else ""
        return f"{self.choice.updates.value} {self.choice.retention_deletes.value} {self.opening.value}{rotating}"


@dataclass(slots=True)
class SubscribeProgress:
    """`rows` written by this call, `sequence` of the last output seen, `behind` messages still on the topic.

    `breaks` counts places where the sequence did not rise by one; `first_sequence` is where the file begins (1: from the start).
    """

    rows: int = 0
    sequence: int = 0
    offset: int = 0
    behind: int = 0
    breaks: int = 0
    first_sequence: int = 1


@dataclass(frozen=True, slots=True)
class SubscribeReport:
    """Whom a subscriber tells what happens; each may be called from its thread."""

    progress: Callable[[SubscribeProgress], None] = lambda progress: None
    broken: Callable[[SequenceBreak], None] = lambda place: None
    incomplete: Callable[[int], None] = lambda first_sequence: None
    """The topic no longer holds the stream from its beginning."""
    troubled: Callable[[BusError], None] = lambda error: None
    """The bus is out of reach, and has been for a while."""


def subscribe_file(
    bus: Bus,
    topic: str,
    path: Path,
    row_format: RowFormat,
    options: SubscribeOptions,
    stop: threading.Event,
    report: SubscribeReport | None = None,
    partition: int = 0,
) -> SubscribeProgress:
    """Write one partition of the topic until `stop`, or with Until.END until its end as it is now.

    Waits for a topic that does not exist yet. UsageError where the file is not the subscriber's, or was begun in another form;
    FileInUse where another process writes it; PositionLost where the topic no longer holds what comes next.
    """
    subscription = _Subscription(bus, Partition(topic, partition), path, row_format, options, stop, report or SubscribeReport())
    with contextlib.suppress(StopAsked, TurnOver):
        subscription.run()
    return subscription.progress


class _Subscription:
    """One call of `subscribe_file`."""

    def __init__(
        self,
        bus: Bus,
        partition: Partition,
        path: Path,
        row_format: RowFormat,
        options: SubscribeOptions,
        stop: threading.Event,
        report: SubscribeReport,
    ) -> None:
        self._bus = bus
        self._partition = partition
        number = f"[{partition.number}]" if partition.number else ""
        self._place = f"{partition.topic}{number}"
        self._path = path
        self._format = row_format
        self._options = options
        self._stop = stop
        self._file = OutputFile(path, stop if isinstance(stop, Turn) else Turn(), options.rotation)
        self._report = report
        self._retried = Patience(stop, report.troubled)
        self._form = f"{row_format.name} {options.name}"
        self._noted_s = 0.0
        self._noted_bytes = 0
        self.progress = SubscribeProgress()

    def run(self) -> None:
        with self._file.opened():
            with self._file.writing():
                position = self._begin()
            self._follow(position)

    def _begin(self) -> SubscriberPosition:
        """Bring the file to where its position says it is; a new one begins with its snapshot, if it has one."""
        remembered = load_position(self._path)
        if remembered is not None:
            self._check_same(remembered)
        position = self._file.begin(self._fresh)
        self._noted_bytes = position.file_bytes
        self.progress.offset, self.progress.sequence = position.offset, position.sequence
        return position if position.begun else self._open_file(position)

    def _fresh(self) -> SubscriberPosition:
        begin = self._with_topic(lambda: self._bus.begin_offset(self._partition))
        return SubscriberPosition(self._place, self._form, offset=begin)

    def _check_same(self, position: SubscriberPosition) -> None:
        remembered = f"{position.topic}, {position.form}"
        asked = f"{self._place}, {self._form}"
        if remembered != asked:
            raise UsageError(
                f"file {self._path} was begun for another stream or in another form",
                detail=f"then: {remembered}; now: {asked}",
                hint="name another file, or remove this one and its position",
            )

    def _open_file(self, position: SubscriberPosition) -> SubscriberPosition:
        position = replace(position, begun=True)
        if self._options.opening is Opening.SNAPSHOT:
            position = self._write_snapshot(position)
        return self._note(position)

    def _write_snapshot(self, position: SubscriberPosition) -> SubscriberPosition:
        content = WindowContent()
        end = self._with_topic(lambda: self._bus.end_offset(self._partition))
        sequence, offset = 0, position.offset
        while offset < end and (messages := self._read(offset, end)):
            for message in messages:
                batch = self._decoded(message)
                if len(batch):
                    self._check_sequence(batch, sequence)
                    sequence = last_sequence(batch)
                    content.add(batch)
            offset = messages[-1].offset + 1
        for batch in content.inserts():
            self._stop.is_set()  # a sign that the work goes on
            self._write(batch)
        return replace(position, offset=max(offset, end), sequence=sequence)

    def _follow(self, position: SubscriberPosition) -> None:
        end = self._with_topic(lambda: self._bus.end_offset(self._partition))
        if position.offset > end:
            raise PositionLost(
                f"topic {self._partition.topic} ends at offset {end}, file {self._path} is at {position.offset}",
                hint=_anew(self._path),
            )
        noted = position
        while not self._stop.is_set() and (self._options.until is Until.STOPPED or position.offset < end):
            messages = self._read(position.offset, end if self._options.until is Until.END else None)
            if messages:
                position = self._take(position, messages)
            if position != noted and (not messages or self._is_note_due()):
                position = noted = self._note(position)
            if not messages and self._options.until is Until.END:
                break
        if position != noted:
            self._note(position)

    def _take(self, position: SubscriberPosition, messages: Sequence[Message]) -> SubscriberPosition:
        with self._file.writing():
            for message in messages:
                batch = self._decoded(message)
                if len(batch):
                    self._check_sequence(batch, position.sequence)
                    rows = self._options.choice.apply(batch, update_open=int(position.update_open))
                    if len(rows) and self._file.is_part_over(position):
                        position = self._file.next_part(replace(position, offset=message.offset))
                        self._noted_bytes = 0
                    self._write(rows)
                    position = replace(position, sequence=last_sequence(batch), update_open=ends_in_update(batch))
        position = replace(position, offset=messages[-1].offset + 1)
        self.progress.sequence, self.progress.offset = position.sequence, position.offset
        self.progress.behind = max(0, self._retried(lambda: self._bus.end_offset(self._partition)) - position.offset)
        self._report.progress(self.progress)
        return position

    def _decoded(self, message: Message) -> pa.RecordBatch:
        return self._format.decode(message)

    def _check_sequence(self, batch: pa.RecordBatch, last: int) -> None:
        first = int(batch.column("hs:sequence")[0].as_py())
        if last == 0 and first != 1:
            self.progress.first_sequence = first
            self._report.incomplete(first)
        for place in sequence_breaks(batch, last):
            self.progress.breaks += 1
            self._report.broken(place)

    def _write(self, rows: pa.RecordBatch) -> None:
        if len(rows):
            if self._file.size == 0:
                self._file.write(self._format.title(rows))
            self._file.write(self._format.text(rows))
            self.progress.rows += len(rows)

    def _is_note_due(self) -> bool:
        return time.monotonic() - self._noted_s >= _NOTE_S or self._file.size - self._noted_bytes >= _NOTE_BYTES

    def _note(self, position: SubscriberPosition) -> SubscriberPosition:
        with self._file.writing():
            position = self._file.note(position)
        self._noted_s, self._noted_bytes = time.monotonic(), position.file_bytes
        self._retried(lambda: self._bus.note_reader(self._reader, {self._partition: position.offset}))
        return position

    @property
    def _reader(self) -> str:
        """Under which name the bus keeps what this file still lacks."""
        return f"file {self._path.absolute()}"

    def _read(self, offset: int, end: int | None) -> Sequence[Message]:
        """The next messages; with `end` only those before it, without waiting."""
        self._stop.is_set()  # a sign that the work goes on
        wait_ms = _READ_WAIT_MS if end is None else 0
        try:
            messages = self._retried(
                lambda: self._bus.read(
                    self._partition, offset, messages_max=_READ_MESSAGES_MAX, bytes_max=_READ_BYTES_MAX, wait_ms=wait_ms
                )
            )
        except PositionLost as error:
            raise PositionLost(error.message, detail=error.detail, hint=_anew(self._path)) from error
        self._retried.passed()
        return messages if end is None else [message for message in messages if message.offset < end]

    def _with_topic(self, call: Callable[[], _T]) -> _T:
        """The call's result once the topic exists."""

        def is_awaited(error: Exception) -> bool:
            return isinstance(error, TopicMissing) and self._options.until is not Until.END

        def wait(pause_s: float) -> None:
            if self._stop.wait(pause_s):
                raise StopAsked

        return _TOPIC_MISSING.call(lambda: self._retried(call), is_awaited, wait)


def _anew(path: Path) -> str:
    return (
        f"the topic begins anew there, after a reset or because it forgets too soon: "
        f"remove {path} and {position_path(path)} to begin again"
    )
