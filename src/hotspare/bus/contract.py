"""The contract of a bus: ordered topics, and outputs committed together with progress under a fencing epoch.

The docstrings of methods name the kind of the call:
  atomic           the call takes effect completely or not at all
  compare-and-set  atomic, and refused unless the bus is still in the state that the caller expects
  best effort      the call may fail and may be repeated

Offsets count from 0 per partition and rise by at least 1 (a bus may leave holes). A position "to read next" is the offset of the
last message read plus one. Times are microseconds since 1970 UTC. The bus sets them when it appends, by a clock that may jump
forward or back.

A commit becomes readable a moment later (on Kafka some milliseconds). After `fence` has returned, all earlier commits are readable.

"Unknown result" (`UnknownResult`): the bus may or may not have committed. The caller fences again and reads progress; it never
repeats the publish blindly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import repeat
from typing import NamedTuple, Protocol, overload

from hotspare.base.positions import OutputId as OutputId

TICK_HEADER = "hotspare-tick"
"""Header of a tick: a message without events, of which only the append time counts. Readers of events skip it."""
SOURCE_HEADER = "hotspare-source"
"""Header with the place in the source from which the message was written: `name@byte-or-row`. After a crash the publisher finds the
newest such place with `newest_with_header`."""
FORMAT_HEADER = "hotspare-format"
"""Header with the format of the message: `csv`, `json`, `avro` or `arrow`. Without it the message has the topic's configured
format."""
EPOCH_HEADER = "hotspare-epoch"
"""Header of every output message: the epoch under which it was published, in decimal."""
OUTPUTS_HEADER = "hotspare-outputs"
"""Header of every output message, decimals separated by blanks: the sequences of its first and last output, the stream's digest up
to the last output, and the id of the last output: topic, partition, offset, index, ordinal."""
CAUSE_HEADER = "hotspare-cause"
"""Header of every message of an output topic with beats: the system time, in microseconds, of the cause of all outputs in the
message. ` 1` follows if the first output is the second row of an update. A beat is such a message that is also a tick."""


@dataclass(frozen=True, slots=True)
class Partition:
    topic: str
    number: int = 0


class Outgoing(NamedTuple):
    """A message to append. A tuple for speed, because an output stream may have one message per row."""

    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    key: bytes | None = None
    """The message key, for other applications that read topics on Kafka. Other buses do not store it, and no reader of hotspare
    uses it."""

    @property
    def size_bytes(self) -> int:
        """The size that counts against `Bus.message_bytes_max`: the bytes of the value, the key, and the names and values of the
        headers."""
        return len(self.value) + len(self.key or b"") + sum(len(name.encode()) + len(value) for name, value in self.headers)

    @property
    def is_tick(self) -> bool:
        """Whether the message is a tick, which has no events (TICK_HEADER)."""
        return any(name == TICK_HEADER for name, _ in self.headers)


TICK = Outgoing(b"", ((TICK_HEADER, b"1"),))


class RowMessages(Sequence[Outgoing]):
    """Messages that share all headers but one. Stores only byte strings, and builds each `Outgoing` at its access: with hundreds of
    thousands of objects in one transaction, most time would be garbage collection."""

    def __init__(
        self,
        common: tuple[tuple[str, bytes], ...],
        values: Sequence[bytes],
        header: str,
        texts: Sequence[bytes],
        keys: Sequence[bytes],
    ) -> None:
        """`common`: the headers that all messages share. `header`: the name of the last header; `texts`: its value in each
        message."""
        self.common, self.values, self.header, self.texts, self.keys = common, values, header, texts, keys

    @classmethod
    def joined(cls, parts: Sequence[RowMessages]) -> RowMessages:
        """Returns the messages of all parts, in order. There must be at least one part, and all must have the same `common` and
        `header`."""
        first, *_ = parts
        if len(parts) == 1:
            return first
        values, texts, keys = (
            [each for part in parts for each in part.values],
            [each for part in parts for each in part.texts],
            [each for part in parts for each in part.keys],
        )
        return cls(first.common, values, first.header, texts, keys)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Outgoing]:
        for value, text, key in zip(self.values, self.texts, self.keys, strict=True):
            yield Outgoing(value, (*self.common, (self.header, text)), key)

    @overload
    def __getitem__(self, place: int) -> Outgoing: ...
    @overload
    def __getitem__(self, place: slice) -> RowMessages: ...
    def __getitem__(self, place: int | slice) -> Outgoing | RowMessages:
        if isinstance(place, slice):
            return RowMessages(self.common, self.values[place], self.header, self.texts[place], self.keys[place])
        return Outgoing(self.values[place], (*self.common, (self.header, self.texts[place])), self.keys[place])


@dataclass(frozen=True, slots=True)
class HeaderGuard:
    """The condition of `Bus.append_guarded`: what a publisher believes about its source. The append is refused if a message at or
    after `since_offset` has a header `name` whose value starts with `prefix`. It is also refused if the record of key `prefix` is
    not `record` (None: no record)."""

    name: str
    prefix: bytes
    since_offset: int
    record: bytes | None = None


class Message(NamedTuple):
    """A message as the bus stores it. A tuple for speed, because readers may build millions."""

    offset: int
    append_time_us: int
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()

    def header(self, name: str) -> bytes | None:
        for key, value in self.headers:
            if key == name:
                return value
        return None

    @property
    def is_tick(self) -> bool:
        """Whether the message is a tick, which has no events (TICK_HEADER)."""
        return self.header(TICK_HEADER) is not None


class MessageColumns(Sequence[Message]):
    """The messages of one partition as columns. Compares equal to any sequence of the same messages.

    A `Message` is built at each access, because most readers use only columns. Two accesses to one index return equal, but not
    identical objects.
    """

    def __init__(
        self,
        offsets: Sequence[int],
        append_times_us: Sequence[int],
        values: Sequence[bytes],
        headers: Sequence[tuple[tuple[str, bytes], ...]] = (),
    ) -> None:
        """Each argument has an element per message. `headers` may be empty if no message has headers."""
        self.offsets, self.append_times_us, self.values, self.headers = offsets, append_times_us, values, headers

    @classmethod
    def from_messages(cls, messages: Sequence[Message]) -> MessageColumns:
        if isinstance(messages, MessageColumns):
            return messages
        offsets, times_us, values, headers = tuple(zip(*messages, strict=True)) or ((), (), (), ())
        return cls(offsets, times_us, values, headers if any(headers) else ())

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Message]:
        return map(Message, self.offsets, self.append_times_us, self.values, self.headers or repeat(()))

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> MessageColumns: ...
    def __getitem__(self, place: int | slice) -> Message | MessageColumns:
        if isinstance(place, slice):
            return MessageColumns(self.offsets[place], self.append_times_us[place], self.values[place], self.headers[place])
        headers = self.headers[place] if self.headers else ()
        return Message(self.offsets[place], self.append_times_us[place], self.values[place], headers)


class OutputsHeader(NamedTuple):
    """The parsed header OUTPUTS_HEADER: the sequences of the message's first and last output, and the digest and the id of the
    last."""

    first: int
    last: int
    digest: int
    topic: int
    partition: int
    offset: int
    row: int
    ordinal: int

    @classmethod
    def from_message(cls, message: Message) -> OutputsHeader | None:
        """Parses the header of a message. Returns None if the header is missing or does not have the form that engines write."""
        numbers = (message.header(OUTPUTS_HEADER) or b"").split()
        is_whole = len(numbers) == len(cls._fields) and all(number.isdigit() for number in numbers)
        return cls._make(map(int, numbers)) if is_whole else None

    @property
    def id_columns(self) -> tuple[int, ...]:
        """The sequence, the id and the digest of the last output, in the order of the first columns of
        `rows.batch.OUTPUT_COLUMNS`."""
        return self.last, self.topic, self.partition, self.offset, self.row, self.ordinal, self.digest


@dataclass(frozen=True, slots=True)
class Progress:
    """The committed end of one output stream: the sequence and the id of the newest output, the digest up to and including it, and
    the epoch of the commit.

    `digest` is an unsigned 64-bit number. Sequence 0 means that nothing was published.
    """

    sequence: int
    output_id: OutputId | None
    digest: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A publishing transaction: the messages by output topic, and the progress of each output stream after them.

    All messages are appended to one partition number, which follows from the group (`naming.own_partition`).
    """

    messages: Mapping[str, Sequence[Outgoing]] = field(default_factory=dict)
    progress: Mapping[str, Progress] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deviation:
    """A setting of a topic, or of its cluster, that differs from the value that hotspare needs, and the consequence."""

    topic: str
    setting: str
    value: str
    wanted: str
    consequence: str
    blocks_start: bool = False
    """Whether an engine refuses to start if an inbound topic has this deviation, unless an option allows it."""

    def __str__(self) -> str:
        return f"{self.topic}: {self.setting} is {self.value}, wanted {self.wanted}: {self.consequence}"


class Readers(Enum):
    """The number of readers that follow partitions through one bus object: one, or many at a time, each with other partitions."""

    ONE = "one"
    MANY = "many"


class Bus(Protocol):
    """A bus. Safe to use from several threads of one process and from several processes at once."""

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Atomic: creates the topic; does nothing if it exists with the same number of partitions. Raises UsageError if it exists
        with another number."""

    def grow_unused(self, topic: str, partitions: int) -> None:
        """Adds partitions until the topic has `partitions`, if it never held a message; otherwise changes nothing.

        Atomic except on Kafka. A publisher that started earlier keeps its routing: messages that it appends later are in partitions
        that an engine finds misrouted. No bus removes partitions, because a publisher may be writing to them. Raises TopicMissing.
        """

    def topics(self) -> Mapping[str, int]:
        """Best effort: returns every topic with its number of partitions."""

    def append(self, partition: Partition, messages: Sequence[Outgoing]) -> int:
        """Atomic: appends the messages in order, all with one append time, and returns the offset of the first (without messages:
        the end offset).

        Raises TopicMissing, BusUnavailable, BusLocked; UnknownResult if the answer was lost: the caller must read the topic before
        it repeats the append.
        """

    def append_guarded(
        self, partition: Partition, messages: Sequence[Outgoing], guard: HeaderGuard, record: bytes | None = None
    ) -> int | None:
        """Compare-and-set: appends as `append`, unless the partition's content contradicts `guard`; then writes nothing and returns
        None.

        So two publishers of one source, even one that was frozen midway, never write the same rows twice. In the same transaction
        `record` becomes the record of `guard.prefix`; None leaves it unchanged.
        """

    def record(self, partition: Partition, key: bytes) -> bytes | None:
        """Best effort: returns the newest record written under `key`, None without one. Neither retention nor `trim` removes
        records. Raises TopicMissing."""

    def records(self, partition: Partition) -> Mapping[bytes, bytes]:
        """Best effort: returns all records of a partition by key, in order of the keys. Raises TopicMissing."""

    def remove_record(self, partition: Partition, key: bytes) -> None:
        """Atomic: removes the record of `key`; does nothing if there is none. Raises TopicMissing."""

    def read(self, partition: Partition, offset: int, *, messages_max: int, bytes_max: int, wait_ms: int = 0) -> Sequence[Message]:
        """Best effort: returns messages from `offset` on, in order, within both limits. The first message is returned even if it is
        larger than `bytes_max`.

        Waits up to `wait_ms` for a first message. Raises PositionLost if `offset` is before the oldest message kept.
        """

    def begin_offset(self, partition: Partition) -> int:
        """Best effort: returns the offset of the oldest message kept (equal to `end_offset` if the partition is empty)."""

    def end_offset(self, partition: Partition) -> int:
        """Best effort: returns an offset greater than that of every readable message; the next append gets this offset or a greater
        one."""

    def newest_with_header(self, partition: Partition, name: str, prefix: bytes, since_offset: int = 0) -> Message | None:
        """Best effort: returns the newest message at or after `since_offset` with a header `name` whose value starts with `prefix`;
        None without one."""

    def retention_ms(self, topic: str) -> int | None:
        """Best effort: returns the age in milliseconds at which the bus may delete a message of the topic by itself; None if it
        never deletes by age. Raises TopicMissing."""

    def message_bytes_max(self, topics: Sequence[str]) -> Mapping[str, int]:
        """Best effort: returns the limit on `Outgoing.size_bytes` of each topic. A larger message is accepted if the bus compresses
        it enough; otherwise its append raises MessageTooLarge. Raises TopicMissing."""

    def trim(self, partition: Partition, before_offset: int) -> None:
        """Best effort: deletes the messages before `before_offset`. Later reads of these offsets raise PositionLost."""

    def record_reader(self, reader: str, offsets: Mapping[Partition, int]) -> None:
        """Atomic: records that `reader` needs the messages from these offsets on. `expire` does not delete them until the same
        reader records other offsets or is removed. Recorded offsets of partitions not in `offsets` remain. A bus with its own
        retention does nothing."""

    def readers(self) -> Mapping[str, Mapping[Partition, int]]:
        """Best effort: returns the offsets that each reader recorded, in order of the readers' names."""

    def remove_reader(self, reader: str) -> None:
        """Atomic: removes the recorded offsets of a reader; does nothing if the reader is unknown."""

    def expire(self, partition: Partition, keep_ms: int, messages_max: int) -> int:
        """Best effort: deletes messages older than `keep_ms`, oldest first, at most `messages_max`, and none that a recorded reader
        needs. Returns the count; 0 on a bus with its own retention."""

    def producer(self, group: str, output_topics: Sequence[str]) -> Producer:
        """Compare-and-set: claims the group's partition of each topic and returns a producer for them. The partition is
        `naming.own_partition`: that of the group's shard, 0 if the project is not divided. Raises TopicMissing if a topic or that
        partition does not exist, TopicOwned if another group owns one of the partitions."""

    def progress(self, group: str) -> Mapping[str, Progress]:
        """Best effort: returns the committed progress by output stream, without streams that were never published."""

    def reset_group(self, group: str) -> None:
        """Atomic: empties the group's partitions of its output topics, resets its progress to sequence 0, and releases the
        partitions (`hotspare reset`). The fencing epoch remains.

        Must not be called while an engine of the group runs: the engine's later outputs would start in the middle of the stream.
        """

    def owners(self) -> Mapping[Partition, str]:
        """Best effort: returns the owning group of each claimed partition, in order of topic and number."""

    def deviations(self, topics: Sequence[str]) -> Sequence[Deviation]:
        """Best effort: returns the settings of these topics, and of the cluster, that differ from those that hotspare needs.
        Missing topics are skipped."""

    def close(self) -> None: ...


class Producer(Protocol):
    """Publishes for one engine of a group. Used by one thread at a time."""

    def fence(self, epoch: int) -> None:
        """Compare-and-set: lets only `epoch` publish from now on. When `fence` returns, no commit of an engine that fenced before
        can succeed. Raises Fenced if a newer epoch has published; if that happened concurrently, Kafka may report it only in
        `progress` or `publish`. The same epoch may fence again, and must do so after UnknownResult.

        An engine with an older epoch may fence before the newer epoch has published. Then it takes the right to publish from the
        newer engine (Kafka), or gets Fenced (SQLite). So an engine must request the newest epoch from coordination between its
        fence and its first commit.
        """

    def progress(self) -> Mapping[str, Progress]:
        """Returns the committed progress by output stream; after `fence` no older epoch can change it. Raises Fenced if a newer
        epoch published during the fence and `fence` did not report that."""

    def publish(self, epoch: int, commit: Commit) -> None:
        """Compare-and-set: appends the messages and records the progress in one transaction. Raises Fenced unless `epoch` is the
        one that fenced last.

        Messages are appended to the group's partition of their topic; UsageError if the producer did not claim that topic. Raises
        UnknownResult if the answer was lost; BusUnavailable or BusLocked if nothing was written; MessageTooLarge if a message, or
        the complete commit, exceeds the limit of the bus.
        """

    def close(self) -> None: ...
