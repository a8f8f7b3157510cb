"""The contract of a bus: ordered topics, and outputs committed together with progress under a fencing epoch.

Methods by how dangerous they are (each names its kind):
  atomic           all of it happens or none of it
  compare-and-set  atomic, and refused unless the bus still is as the caller believes
  best effort      may fail and be repeated

Offsets count from 0 per partition and rise by at least 1 (a bus may leave holes). A position "to read next" is the offset of the
last message read plus one. Times are microseconds since 1970 UTC. The bus sets them when it appends, by a clock that may jump
forward or back.

Every reader sees a commit a moment later (on Kafka some milliseconds); after `fence`, all of it at once.

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
"""Present on a message without events, of which only the append time counts; readers of events skip it."""
SOURCE_HEADER = "hotspare-source"
"""The place in the source that this message was written from: `name@byte-or-row`, read back by `newest_with_header` after a
crash."""
FORMAT_HEADER = "hotspare-format"
"""`csv`, `json`, `avro` or `arrow`; absent means the topic's configured format."""
EPOCH_HEADER = "hotspare-epoch"
"""On every output message: the epoch under which it was published, in decimal."""
OUTPUTS_HEADER = "hotspare-outputs"
"""On every output message, decimals separated by blanks: sequences of its first and last output, the stream's digest up to the
last, and the last one's id: topic, partition, offset, index, ordinal."""
CAUSE_HEADER = "hotspare-cause"
"""On messages of an output topic with beats: the system time of the cause of all its outputs, in microseconds. ` 1` follows if the
first output is the second row of an update. A beat is such a message that is also a tick."""


@dataclass(frozen=True, slots=True)
class Partition:
    topic: str
    number: int = 0


class Outgoing(NamedTuple):
    """A message to append. A tuple, because an output stream may have one for each row."""

    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    key: bytes | None = None
    """For other applications that read topics on Kafka. No other bus keeps it, and no reader of hotspare uses it."""

    @property
    def size_bytes(self) -> int:
        """The bytes that count against `Bus.message_bytes_max`: value, key, and names and values of the headers."""
        return len(self.value) + len(self.key or b"") + sum(len(name.encode()) + len(value) for name, value in self.headers)

    @property
    def is_tick(self) -> bool:
        """Whether this is a message without events, as `Message.is_tick`."""
        return any(name == TICK_HEADER for name, _ in self.headers)


TICK = Outgoing(b"", ((TICK_HEADER, b"1"),))


class RowMessages(Sequence[Outgoing]):
    """Messages that share all headers but one. Keeps only their byte strings and builds messages when they are read: the garbage
    collector would spend more time on hundreds of thousands of objects in one transaction than all else takes."""

    def __init__(
        self,
        common: tuple[tuple[str, bytes], ...],
        values: Sequence[bytes],
        header: str,
        texts: Sequence[bytes],
        keys: Sequence[bytes],
    ) -> None:
        """`common`: the headers that all messages share. `texts`: for each message, the value of header `header`, its last one."""
        self.common, self.values, self.header, self.texts, self.keys = common, values, header, texts, keys

    @classmethod
    def joined(cls, parts: Sequence[RowMessages]) -> RowMessages:
        """Returns the messages of all parts, at least one, in order. They share the same headers."""
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
    """A publisher's view of its source. The append is refused if a message at or after `since_offset` has a header `name` whose
    value starts with `prefix`, or if the record of `prefix` is not `record` (None: no record)."""

    name: str
    prefix: bytes
    since_offset: int
    record: bytes | None = None


class Message(NamedTuple):
    """A message as the bus stores it. A tuple, because readers build one for each of millions."""

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
        """Whether this is a message without events, which every reader skips."""
        return self.header(TICK_HEADER) is not None


class MessageColumns(Sequence[Message]):
    """The messages of one partition as columns, equal to any sequence of the same messages.

    A `Message` is built at each access, because most readers use columns of a million. Two accesses to one index return equal, but
    not identical objects.
    """

    def __init__(
        self,
        offsets: Sequence[int],
        append_times_us: Sequence[int],
        values: Sequence[bytes],
        headers: Sequence[tuple[tuple[str, bytes], ...]] = (),
    ) -> None:
        """`headers`: empty if no message has any."""
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
    """The header OUTPUTS_HEADER of a message."""

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
        """Returns None if the header is missing or does not have the form that engines write."""
        numbers = (message.header(OUTPUTS_HEADER) or b"").split()
        is_whole = len(numbers) == len(cls._fields) and all(number.isdigit() for number in numbers)
        return cls._make(map(int, numbers)) if is_whole else None

    @property
    def id_columns(self) -> tuple[int, ...]:
        """The last output, in the order of the first columns of `rows.batch.OUTPUT_COLUMNS`."""
        return self.last, self.topic, self.partition, self.offset, self.row, self.ordinal, self.digest


@dataclass(frozen=True, slots=True)
class Progress:
    """The committed end of one output stream: the newest sequence, its id, and the digest up to and including it.

    `digest` is an unsigned 64-bit number. Sequence 0 means that nothing was published.
    """

    sequence: int
    output_id: OutputId | None
    digest: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A publishing transaction: messages per output topic, and the progress per output stream after them.

    All messages go to one partition number, which follows from the group (`naming.own_partition`).
    """

    messages: Mapping[str, Sequence[Outgoing]] = field(default_factory=dict)
    progress: Mapping[str, Progress] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deviation:
    """A setting of a topic, or of the cluster that holds it, that differs from the one that hotspare needs, and the consequence."""

    topic: str
    setting: str
    value: str
    wanted: str
    consequence: str
    blocks_start: bool = False
    """Whether an engine refuses to start with such an inbound topic, unless an option allows it."""

    def __str__(self) -> str:
        return f"{self.topic}: {self.setting} is {self.value}, wanted {self.wanted}: {self.consequence}"


class Readers(Enum):
    """The number of readers that follow partitions through one bus: one, or many at a time, each with partitions of its own."""

    ONE = "one"
    MANY = "many"


class Bus(Protocol):
    """Safe to use from several threads of one process and from several processes at once."""

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Atomic: creates the topic. No error if it exists with the same number of partitions; UsageError if with another
        number."""

    def grow_unused(self, topic: str, partitions: int) -> None:
        """Adds partitions up to `partitions` if the topic never held a message; otherwise changes nothing.

        Atomic except on Kafka. A publisher that started earlier keeps its routing: messages that it appends later are in partitions
        that an engine finds misrouted. No bus removes partitions, because a publisher may be writing to them. TopicMissing.
        """

    def topics(self) -> Mapping[str, int]:
        """Best effort: every topic and its number of partitions."""

    def append(self, partition: Partition, messages: Sequence[Outgoing]) -> int:
        """Atomic: appends in order, all with one append time, and returns the first offset (without messages: the end offset).

        TopicMissing, BusUnavailable, BusLocked; UnknownResult if the answer was lost: look at the topic before repeating it.
        """

    def append_guarded(
        self, partition: Partition, messages: Sequence[Outgoing], guard: HeaderGuard, record: bytes | None = None
    ) -> int | None:
        """Compare-and-set: `append`, unless the partition's content contradicts `guard`; then returns None.

        So two publishers of one source, even one that was frozen midway, never write the same rows twice. In the same transaction
        `record` becomes the record of `guard.prefix`; None leaves it unchanged.
        """

    def record(self, partition: Partition, key: bytes) -> bytes | None:
        """Best effort: the newest record written under `key`. Neither retention nor `trim` removes it. TopicMissing."""

    def records(self, partition: Partition) -> Mapping[bytes, bytes]:
        """Best effort: all records, in order of their keys. TopicMissing."""

    def remove_record(self, partition: Partition, key: bytes) -> None:
        """Atomic: removes a record; no error if there is none. TopicMissing."""

    def read(self, partition: Partition, offset: int, *, messages_max: int, bytes_max: int, wait_ms: int = 0) -> Sequence[Message]:
        """Best effort: returns messages from `offset` on, in order, within both limits; the first one is returned whatever its
        size.

        Waits up to `wait_ms` for a first message. PositionLost if `offset` is before the oldest message kept.
        """

    def begin_offset(self, partition: Partition) -> int:
        """Best effort: the oldest offset kept (equal to `end_offset` if none is)."""

    def end_offset(self, partition: Partition) -> int:
        """Best effort: the offset that the next append gets, or a greater one."""

    def newest_with_header(self, partition: Partition, name: str, prefix: bytes, since_offset: int = 0) -> Message | None:
        """Best effort: the newest message at or after `since_offset` with a header `name` whose value starts with `prefix`."""

    def retention_ms(self, topic: str) -> int | None:
        """Best effort: the age at which the bus may delete a message of the topic by itself, in milliseconds; None if it never does
        so by age. TopicMissing."""

    def message_bytes_max(self, topics: Sequence[str]) -> Mapping[str, int]:
        """Best effort: the largest message that each of these topics accepts now (`Outgoing.size_bytes`). A larger one is accepted
        if the bus compresses it enough; else it is MessageTooLarge. TopicMissing."""

    def trim(self, partition: Partition, before_offset: int) -> None:
        """Best effort: deletes messages before `before_offset`, as a bus's own retention does."""

    def record_reader(self, reader: str, offsets: Mapping[Partition, int]) -> None:
        """Atomic: records that `reader` needs the messages from these offsets on. `expire` keeps them until the same reader records
        other offsets or is forgotten. Offsets of other partitions stay recorded. A bus with a retention of its own does nothing."""

    def readers(self) -> Mapping[str, Mapping[Partition, int]]:
        """Best effort: the offsets that each reader recorded, in order of the readers' names."""

    def remove_reader(self, reader: str) -> None:
        """Atomic: removes the offsets of a reader; no error if it is unknown."""

    def expire(self, partition: Partition, keep_ms: int, messages_max: int) -> int:
        """Best effort: deletes messages older than `keep_ms`, oldest first, at most `messages_max`, and none that a reader needs.
        Returns the count; 0 on a bus with a retention of its own."""

    def producer(self, group: str, output_topics: Sequence[str]) -> Producer:
        """Compare-and-set: returns the group's only path for output, after claiming the group's partition of each topic
        (`naming.own_partition`: that of its shard, 0 if the project is not divided). TopicMissing if a topic or that partition does
        not exist, else TopicOwned if another group owns one."""

    def progress(self, group: str) -> Mapping[str, Progress]:
        """Best effort: the committed progress per output stream, without streams that were never published."""

    def reset_group(self, group: str) -> None:
        """Atomic: empties the group's partitions of its output topics, resets its progress to sequence 0, and releases the
        partitions (`hotspare reset`). The fencing epoch stays.

        Not while an engine of the group runs: its later outputs would start in the middle of the stream.
        """

    def owners(self) -> Mapping[Partition, str]:
        """Best effort: the owning group of each claimed partition, in order of topic and number."""

    def deviations(self, topics: Sequence[str]) -> Sequence[Deviation]:
        """Best effort: settings of these topics, and of the cluster, that differ from those hotspare needs. Topics may be
        missing."""

    def close(self) -> None: ...


class Producer(Protocol):
    """Publishes for one engine of a group. Used by one thread at a time."""

    def fence(self, epoch: int) -> None:
        """Compare-and-set: from now on only `epoch` may publish. Fenced if a newer epoch has published; if that happened in the
        last moment, Kafka may report it only in `progress` or `publish`. The same epoch may fence again, and does so after
        UnknownResult. When it returns, no commit of an engine that fenced before can succeed.

        An engine that fences under an older epoch before a newer one has published may take the right from it (Kafka) or is Fenced
        (SQLite). So an engine asks coordination for the newest epoch between its fence and its first commit.
        """

    def progress(self) -> Mapping[str, Progress]:
        """Reads up to the end of the committed progress; after `fence` no older epoch can change it. Fenced if a newer epoch
        published during the fence and `fence` did not report it."""

    def publish(self, epoch: int, commit: Commit) -> None:
        """Compare-and-set: appends and records progress in one transaction if `epoch` is the fenced one, else Fenced.

        Messages go to the group's own partition of their topic, which the producer must have claimed (UsageError). UnknownResult if
        the answer was lost; BusUnavailable or BusLocked if nothing was written; MessageTooLarge if a message, or the whole commit,
        exceeds the limit of the bus.
        """

    def close(self) -> None: ...
