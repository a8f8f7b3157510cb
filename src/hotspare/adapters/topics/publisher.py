"""Copies an external topic into an inbound topic: each message once, in the order of reading (SPEC I2, E8).

The topic may be in any cluster, with any number of partitions and any timestamps: its messages get their time and order when they
are written. The publisher writes its position in each partition in the same transaction, so its successor reads it from the bus.

Outputs of another project are events too (`OutputsAsEvents`; SPEC K10).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from hotspare.adapters.changelog_reading import RowChoice, UpdateBlocks, ends_in_update
from hotspare.adapters.failover.bus_retries import BusRetries, StopRequested
from hotspare.adapters.failover.partition_count_check import PartitionCountCheck
from hotspare.adapters.failover.source_position import PublishedSource, SourcePosition
from hotspare.adapters.failover.spread_source import Piece
from hotspare.adapters.files.output_rows import FileStyle, OutputRows
from hotspare.adapters.files.row_blocks import build_pieces, topic_partitions
from hotspare.adapters.files.row_routing import RowRouting
from hotspare.adapters.files.unknown_member_check import UnknownMemberCheck
from hotspare.adapters.time_texts import StampUnitCheck
from hotspare.adapters.topics.form import TopicForm
from hotspare.adapters.topics.position import (
    LostOffsets,
    OnLost,
    StartAt,
    TopicPosition,
    decode_topic_position,
    slice_by_bytes,
    starting_position,
)
from hotspare.base.errors import BusError, PositionLost, UsageError
from hotspare.bus.contract import OUTPUTS_HEADER, Bus, Message, Partition
from hotspare.bus.topic_reader import ReceivedMessage, TopicReader
from hotspare.formats.csv.rows import CsvStyle, row_texts
from hotspare.model.events import Flag
from hotspare.model.types import Schema
from hotspare.rows.batch import MessageFormat

_T = TypeVar("_T")
BLOCK_ROWS_DEFAULT = 256
_APPEND_BYTES_MAX = 4 << 20
_READ_MESSAGES_MAX = 4096
_READ_WAIT_MS = 100
_TO_SKIP = "to continue after the lost messages, use --skip-lost (property skiplost of a connector); a bad event names them"
_PARTITION_CHECK_S = 5.0
"""The interval at which the publisher checks whether the topic got more partitions."""
_COLLAPSED_UPDATES = RowChoice(updates=UpdateBlocks.COLLAPSED)


class OutputConverter(Protocol):
    """The conversion of an engine's outputs to events."""

    def convert_message(
        self, message: Message, open_updates: frozenset[int], partition: int
    ) -> tuple[Sequence[bytes], frozenset[int]]:
        """Returns the rows of a message, in CSV, and the partitions in which an update is open after it. Raises BusUnavailable if
        they are unavailable now."""


@dataclass(frozen=True)
class TopicPublishOptions:
    """Options of publishing a topic. `source_name`: the key of the position. `partition`: the only one that is read, None for all.
    `start`: the start of a source without a position. `events_max` in all, over restarts, 0 for no limit; `block_rows` per message,
    0 for the default. `outputs`: the conversion of an engine's outputs, None for `OutputsAsEvents`. `on_lost`: the policy for lost
    messages."""

    source_name: str
    form: TopicForm = field(default_factory=TopicForm)
    partition: int | None = None
    start: StartAt | int = StartAt.OLDEST
    events_max: int = 0
    block_rows: int = 0
    outputs: OutputConverter | None = None
    on_lost: OnLost = OnLost.END


@dataclass(frozen=True, slots=True)
class TopicPublishProgress:
    """The progress of publishing a topic. `events`: the number published since the source's beginning, over restarts.
    `events_before`: the number of these before this call."""

    events: int
    events_before: int
    position: TopicPosition


def publish_topic(
    bus: Bus,
    partition: Partition,
    reader: TopicReader,
    options: TopicPublishOptions,
    stop: threading.Event,
    report: Callable[[TopicPublishProgress], None] = lambda progress: None,
    troubled: Callable[[BusError], None] = lambda error: None,
    routing: RowRouting | None = None,
    warn: Callable[[str], None] = lambda sentence: None,
    skipped: Callable[[str], None] = lambda sentence: None,
    count: PartitionCountCheck | None = None,
) -> TopicPublishProgress:
    """Publishes the messages of `reader` until `stop`, or until `events_max`.

    With `routing` each row goes to the partition of the inbound topic that it belongs in, else all go to `partition`. `skipped`
    gets a sentence for each gap, once it is recorded; `warn` gets sentences about suspicious first rows.

    Raises UsageError if the source was another topic, its messages cannot be divided, or the inbound topic has another number of
    partitions than `count`. Raises PositionLost if the topic no longer holds the next message, with OnLost.END. Raises BusError if
    a bus stays unreachable, which `troubled` gets before.
    """
    if routing is not None and not options.form.is_cut:
        raise UsageError(
            f"messages in {options.form.format.name.lower()} cannot be divided over the shards of a project",
            hint="write them as csv or json",
        )
    stamps = StampUnitCheck(f"topic {reader.topic}", options.form.rows.schema, warn)
    members = UnknownMemberCheck(f"topic {reader.topic}", options.form.rows, warn)
    publication = _Publication(
        bus, topic_partitions(partition, routing), reader, options, stop, report, troubled, routing, stamps, members, skipped, count
    )
    return publication.run()


class _Overtaken(Exception):
    """Raised if the publisher has to resume from the recorded position: an append is not known to be written, the topic got more
    partitions, or it no longer holds the next message (OnLost.SKIP)."""


class _Publication:
    """A call of `publish_topic`: its arguments, and the position up to which the topic is published."""

    def __init__(
        self,
        bus: Bus,
        partitions: Sequence[Partition],
        reader: TopicReader,
        options: TopicPublishOptions,
        stop: threading.Event,
        report: Callable[[TopicPublishProgress], None],
        troubled: Callable[[BusError], None],
        routing: RowRouting | None,
        stamps: StampUnitCheck,
        members: UnknownMemberCheck,
        skipped: Callable[[str], None],
        count: PartitionCountCheck | None,
    ) -> None:
        self._stamps = stamps
        self._members = members
        self._skipped = skipped
        self._source = _TopicSource(bus, partitions, options.source_name, count)
        self._shards = len(partitions)
        self._reader = reader
        self._options = options
        self._stop = stop
        self._report = report
        self._retried = BusRetries(stop, troubled)
        self._routing = routing
        self._outputs: OutputConverter = options.outputs or OutputsAsEvents(options.form.rows.schema, reader.topic)
        self._position = TopicPosition(reader.topic)
        self._looked_s = 0.0
        self._begun: int | None = None

    def run(self) -> TopicPublishProgress:
        with contextlib.suppress(StopRequested):
            while not self._stop.is_set():
                try:
                    self._resume()
                    self._follow()
                    break
                except _Overtaken:
                    continue
        return self._progress()

    def _resume(self) -> None:
        """Continues at the position that the bus has recorded. A new source's start is recorded before anything is read."""
        found = self._retried(self._source.read_topic_position)
        self._position = self._retried(lambda: self._resume_position(found))
        self._begun = self._position.events if self._begun is None else self._begun
        if self._position != found:
            self._append([[] for _ in range(self._shards)], self._position, self._options.form.format)
        wanted = self._wanted(self._position.offsets)
        if self._options.on_lost is OnLost.SKIP:
            self._skip_gaps(self._gaps(wanted))
        self._call_reader(lambda: self._reader.seek({number: self._position.offsets[number] for number in wanted}))
        self._looked_s = time.monotonic()

    def _call_reader(self, call: Callable[[], _T]) -> _T:
        """Returns the reader's answer. If messages are lost, raises PositionLost, or with OnLost.SKIP _Overtaken, so that `_resume`
        finds the gaps."""
        try:
            return self._retried(call)
        except PositionLost as error:
            if self._options.on_lost is OnLost.SKIP:
                raise _Overtaken from None
            if self._options.outputs is not None:  # the project's own outputs, which no option skips
                raise
            raise PositionLost(error.message, detail=error.detail, hint=_TO_SKIP) from None

    def _gaps(self, numbers: Iterable[int]) -> list[LostOffsets]:
        """Returns the gaps of the partitions `numbers`: the offsets from the position to the oldest offset that the topic holds."""
        kept = {number: self._retried(partial(self._reader.bounds, number))[0] for number in numbers}
        offsets = self._position.offsets
        return [LostOffsets(number, offsets[number], begin) for number, begin in kept.items() if offsets[number] < begin]

    def _skip_gaps(self, gaps: Sequence[LostOffsets]) -> None:
        """Writes a notice of each gap and the position after all of them, in one transaction on the first inbound partition."""
        if not gaps:
            return
        done = self._position.after_gaps(gaps)
        sentences = [gap.sentence(self._reader.topic, self._source.shards_ahead(gap.partition, gap.begin)) for gap in gaps]
        notices = [Piece(sentence.encode(), gap.end, 0) for sentence, gap in zip(sentences, gaps, strict=True)]
        self._append([notices, *([] for _ in range(self._shards - 1))], done, MessageFormat.LOST)
        self._position = done
        for sentence in sentences:
            self._skipped(sentence)

    def _resume_position(self, found: TopicPosition | None) -> TopicPosition:
        known = {} if found is None else found.offsets
        count = self._reader.partitions()  # its error describes how to create a missing topic
        topic = TopicPosition(self._reader.topic, self._reader.topic_id())
        wanted = self._wanted(range(count))
        if not wanted:
            raise UsageError(
                f"topic {topic.topic} has no partition {self._options.partition}", hint=f"it has {count}, the first is 0"
            )
        bounds = {number: self._reader.bounds(number) for number in wanted if number not in known}
        return starting_position(found, topic, bounds, self._options.start)

    def _wanted(self, numbers: Iterable[int]) -> list[int]:
        """Returns those of the partitions `numbers` that are read: all, or the one that the options name."""
        only = self._options.partition
        return [number for number in numbers if only in (None, number)]

    def _follow(self) -> None:
        while not self._stop.is_set() and self._left() > 0:
            if time.monotonic() - self._looked_s > _PARTITION_CHECK_S:
                self._look_for_partitions()
            arrived = self._call_reader(lambda: self._reader.read(_READ_MESSAGES_MAX, _READ_WAIT_MS))
            for cut in slice_by_bytes([len(each.message.value) for each in arrived], _APPEND_BYTES_MAX):
                for outputs, alike in groupby(arrived[cut], lambda each: _is_output(each.message)):
                    if self._left() > 0:
                        self._publish_messages(list(alike), MessageFormat.CSV if outputs else self._options.form.format)

    def _look_for_partitions(self) -> None:
        """Raises _Overtaken if the topic got more partitions, which may happen to an external topic at any time."""
        count = self._retried(self._reader.partitions)
        if any(number not in self._position.offsets for number in self._wanted(range(count))):
            raise _Overtaken
        self._looked_s = time.monotonic()

    def _publish_messages(self, arrived: Sequence[ReceivedMessage], written: MessageFormat) -> None:
        """Appends the rows of the messages `arrived`, in the format `written`. The messages must be all outputs of a project, or
        none."""
        self._members.warn_on_first_rows([message.value for _, message in arrived if not (message.is_tick or _is_output(message))])
        rows, places, is_open = list[bytes](), list[tuple[int, int]](), self._position.open_updates
        for partition, message in arrived:
            if _is_output(message):
                found, is_open = self._retried(partial(self._outputs.convert_message, message, is_open, partition))
            else:
                found = [] if message.is_tick else self._cut(message.value)
            rows += found
            places += [(partition, message.offset)] * len(found)
        count = min(len(rows), self._left())
        rows, places = rows[:count], places[:count]
        self._stamps.warn_on_first_rows(rows, written)
        done = self._position.after_messages(((partition, message.offset) for partition, message in arrived), count)
        done = replace(done, open_updates=is_open)
        cut = build_pieces(
            rows,
            range(count),
            self._routing,
            lambda number, row: self._source.is_unpublished(number, *places[row]),
            self._options.block_rows or BLOCK_ROWS_DEFAULT,
            written,
        )
        self._append(cut, done, written)
        self._position = done
        self._report(self._progress())

    def _cut(self, value: bytes) -> Sequence[bytes]:
        """Returns the rows of a message. Waits for an unreachable schema registry."""
        return (
            self._retried(lambda: self._options.form.split_message(value))
            if self._options.form.schemas
            else self._options.form.split_message(value)
        )

    def _append(self, cut: Sequence[Sequence[Piece]], done: TopicPosition, written: MessageFormat) -> None:
        """Appends `cut`, the pieces of each inbound partition, in the format `written`, and records `done`, the position in the
        topic after them. Raises _Overtaken if the inbound topic holds more of this source than this object knows, or the bus did
        not answer."""
        if not self._retried.try_append(lambda: self._source.append(cut, done, written.header)):
            raise _Overtaken

    def _left(self) -> int:
        limit = self._options.events_max
        return max(0, limit - self._position.events) if limit else 1 << 62

    def _progress(self) -> TopicPublishProgress:
        return TopicPublishProgress(self._position.events, self._begun or 0, self._position)


@dataclass(slots=True)
class _Part:
    source: PublishedSource
    position: TopicPosition | None


class _TopicSource:
    """An external topic as one source on all partitions of an inbound topic.

    Call `read_topic_position` first. Not thread-safe; all calls raise what `Bus` raises. `append` also raises what `count` raises.

    As in a `SpreadSource` every partition has its own position, and the first one is written last: everything before its position
    is on the topic. But a position is an offset for each partition that is read, and two attempts may have read these in another
    order. So `is_unpublished` decides for each message.
    """

    def __init__(self, bus: Bus, partitions: Sequence[Partition], name: str, count: PartitionCountCheck | None = None) -> None:
        self._bus = bus
        self._count = count
        self._partitions = partitions
        self._name = name
        self._parts: list[_Part] = []

    def read_topic_position(self) -> TopicPosition | None:
        """Returns the published position; None if nothing was ever published."""
        self._parts = [self._part(each) for each in self._partitions]
        return self._parts[0].position

    def _part(self, partition: Partition) -> _Part:
        source = PublishedSource(self._bus, partition, self._name)
        return _Part(source, decode_topic_position(source.read_source_position(), self._name))

    def is_unpublished(self, number: int, partition: int, offset: int) -> bool:
        """Whether the message at this offset, which belongs to partition `number` of the inbound topic, has yet to be written."""
        known = self._parts[number].position
        return known is None or not known.has_read(partition, offset)

    def shards_ahead(self, partition: int, offset: int) -> dict[int, int]:
        """Returns, for each shard that has messages of the external `partition` from `offset` on, the offset before which it has
        them. So these messages are published in part."""
        known = {number: part.position.offsets.get(partition, 0) for number, part in enumerate(self._parts) if part.position}
        return {number: at for number, at in known.items() if at > offset}

    def append(self, pieces: Sequence[Sequence[Piece]], done: TopicPosition, message_format: bytes) -> bool:
        """Writes the pieces of each partition, then `done` to the first one. False if the inbound topic holds more of the source
        than the last `read_topic_position` found: call it again, and also after UnknownResult."""
        write = partial(self._write, pieces, done, message_format)
        return write() if self._count is None else self._count.append_checked(write, pieces)

    def _write(self, pieces: Sequence[Sequence[Piece]], done: TopicPosition, message_format: bytes) -> bool:
        for number in (*range(1, len(self._parts)), 0):
            part, mine = self._parts[number], pieces[number]
            if number and not mine:
                continue
            reached = done if part.position is None else done.union_with(part.position)
            last = reached.to_source_position()
            positions = [*(SourcePosition(last.published_bytes) for _ in mine[:-1]), last]
            if not part.source.append([piece.value for piece in mine], positions, message_format):
                return False
            part.position = reached
        return True


def _is_output(message: Message) -> bool:
    """Whether an engine emitted the message. Such a message defines its format itself."""
    return message.header(OUTPUTS_HEADER) is not None


class OutputsAsEvents:
    """The outputs of another project as rows of CSV, for a source window of this schema (an `OutputConverter`).

    A window emits an update as two rows, the new one and a delete of the old one; a source window processes it as one event.
    Whether retention or an event deleted a row is not passed on."""

    def __init__(self, schema: Schema | None, topic: str) -> None:
        self._schema = schema
        self._topic = topic

    def convert_message(
        self, message: Message, open_updates: frozenset[int], partition: int
    ) -> tuple[Sequence[bytes], frozenset[int]]:
        """Returns the rows of a message, and the partitions in which an update is open after it. Raises BusError if it has another
        schema, UsageError if no schema is known."""
        rows = self._rows.decode([message])
        if not len(rows):
            return [], open_updates
        chosen = _COLLAPSED_UPDATES.select_rows(rows, update_open=int(partition in open_updates))
        place = chosen.schema.get_field_index("hs:flags")
        plain = chosen.set_column(place, chosen.schema.field(place), pa.array(np.full(len(chosen), Flag.NORMAL, np.uint8)))
        texts = [text.encode() for text in row_texts(plain, CsvStyle.EXACT)]
        return texts, open_updates | {partition} if ends_in_update(rows) else open_updates - {partition}

    @cached_property
    def _rows(self) -> OutputRows:
        if self._schema is None:
            what = f"topic {self._topic} holds outputs of a project, and their fields are unknown"
            raise UsageError(what, hint="name the file of the project that reads them with --project")
        return OutputRows(FileStyle(), self._schema)
