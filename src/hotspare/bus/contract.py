"""What hotspare asks of a bus: ordered topics, and output committed together with progress under a fencing epoch.

Methods by how dangerous they are (each says which it is):
  atomic           all of it happens or none of it
  compare-and-set  atomic, and refused unless the bus still is as the caller believes
  best effort      may fail and be repeated

Offsets count from 0 per partition and rise by at least 1 (a bus may leave holes). A position "to read next" is one past the last
message that was read. Times are microseconds since 1970 UTC, given by the bus when it appends, by a clock that may leap and fall.

What was committed can be read by everybody a moment later (on Kafka some milliseconds); after `fence`, all of it at once.

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
"""Present on a message without events; every reader skips it. Its append time is what it says."""
SOURCE_HEADER = "hotspare-source"
"""What a publisher wrote this message from: `name@byte-or-row`, read back by `newest_with_header` after a crash."""
FORMAT_HEADER = "hotspare-format"
"""`csv`, `json`, `avro` or `arrow`; absent means the topic's configured format."""
EPOCH_HEADER = "hotspare-epoch"
"""On every output message: the epoch under which it was published, in decimal."""
OUTPUTS_HEADER = "hotspare-outputs"
"""On every output message, decimals with blanks between: the sequences of its first and last output, then of the last one the
digest of the stream up to it and the numbers of its id: topic, partition, offset, index, ordinal."""
CAUSE_HEADER = "hotspare-cause"
"""On messages of an output topic with beats: the system time of what caused the outputs, which is one time, in microseconds; behind
it ` 1` where the first of them is the second row of an update. A beat is such a message that is a tick, too."""


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
        """What counts against `Bus.message_bytes_max`: the value, the key, and the names and values of the headers."""
        return len(self.value) + len(self.key or b"") + sum(len(name.encode()) + len(value) for name, value in self.headers)

    @property
    def is_tick(self) -> bool:
        """As a message's."""
        return any(name == TICK_HEADER for name, _ in self.headers)


TICK = Outgoing(b"", ((TICK_HEADER, b"1"),))


class RowMessages(Sequence[Outgoing]):
    """Messages that share all headers but one. Only their texts are kept, and messages are built when they are read: as objects,
    hundreds of thousands in one transaction would make the garbage collector walk over them for longer than all else takes."""

    def __init__(
        self,
        common: tuple[tuple[str, bytes], ...],
        values: Sequence[bytes],
        header: str,
        texts: Sequence[bytes],
        keys: Sequence[bytes],
    ) -> None:
        """`common`: the headers that all share; `texts`: what each has behind them in the header of its own."""
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
    """What a publisher knows of its source. It stands against a message at or after `since_offset` whose header `name` begins with
    `prefix`, and against another record of `prefix` than `record` (None: none)."""

    name: str
    prefix: bytes
    since_offset: int
    record: bytes | None = None


class Message(NamedTuple):
    """A message as the bus stores it. A tuple, because readers make one for each of millions."""

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
        """Whether it is without events, and every reader skips it."""
        return self.header(TICK_HEADER) is not None


class MessageColumns(Sequence[Message]):
    """The messages of one partition as columns, equal to any sequence of the same messages.

    A `Message` is made whenever one is taken, because most readers use columns of a million. Two that are taken from one place are
    equal, and not the same object."""

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
    def of(cls, messages: Sequence[Message]) -> MessageColumns:
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


class OutputNumbers(NamedTuple):
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
    def of_message(cls, message: Message) -> OutputNumbers | None:
        """Returns None for a message that has no such header, or another one than engines write."""
        numbers = (message.header(OUTPUTS_HEADER) or b"").split()
        is_whole = len(numbers) == len(cls._fields) and all(number.isdigit() for number in numbers)
        return cls._make(map(int, numbers)) if is_whole else None

    @property
    def id_columns(self) -> tuple[int, ...]:
        """The last output, in the order of the first columns of `rows.batch.OUTPUT_COLUMNS`."""
        return self.last, self.topic, self.partition, self.offset, self.row, self.ordinal, self.digest


@dataclass(frozen=True, slots=True)
class Progress:
    """What of one output stream is committed: the newest sequence, its id and the digest up to and including it.

    `digest` is an unsigned 64-bit number. Sequence 0 means that nothing was published.
    """

    sequence: int
    output_id: OutputId | None
    digest: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One publishing transaction: messages per output topic, and the progress per output stream that they bring about.

    To which partition of the topics they go follows from the group: it has the same one of all (`naming.own_partition`)."""

    messages: Mapping[str, Sequence[Outgoing]] = field(default_factory=dict)
    progress: Mapping[str, Progress] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deviation:
    """A setting of a topic, or of what holds it, that is unlike what hotspare rests on, and what may come of it."""

    topic: str
    setting: str
    value: str
    wanted: str
    consequence: str
    keeps_engines_away: bool = False
    """An engine does not start with such an inbound topic, unless it is told to."""

    def __str__(self) -> str:
        return f"{self.topic}: {self.setting} is {self.value}, wanted {self.wanted}: {self.consequence}"


class Readers(Enum):
    """Who reads on and on through a bus: one, or many at a time, each of partitions of its own."""

    ONE = "one"
    MANY = "many"


class Bus(Protocol):
    """Safe to use from several threads of one process and from several processes at once."""

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Atomic; no error if it exists with as many partitions, UsageError if with another number."""

    def grow_unused(self, topic: str, partitions: int) -> None:
        """Adds partitions up to `partitions` if the topic never held a message; else, or if it has as many, changes nothing.

        Atomic but on Kafka. A publisher that began before keeps its routing: messages that it appends afterwards are in partitions
        that an engine finds misrouted. No bus takes partitions away: a publisher may be writing to them. TopicMissing.
        """

    def topics(self) -> Mapping[str, int]:
        """Best effort: every topic and its number of partitions."""

    def append(self, partition: Partition, messages: Sequence[Outgoing]) -> int:
        """Atomic: append in order, all with one append time, return the first offset (of no messages: the end offset).

        TopicMissing, BusUnavailable, BusLocked; UnknownResult if the answer was lost: look at the topic before repeating it.
        """

    def append_guarded(
        self, partition: Partition, messages: Sequence[Outgoing], guard: HeaderGuard, record: bytes | None = None
    ) -> int | None:
        """Compare-and-set: `append`, unless `guard` stands against what the partition holds; then None.

        So of two publishers of one source, also one that was frozen in the middle, none writes what the other wrote. In the same
        transaction `record` becomes the record of `guard.prefix`; None leaves it as it is.
        """

    def record(self, partition: Partition, key: bytes) -> bytes | None:
        """Best effort: the newest record that was written under `key`; neither retention nor `trim` takes it. TopicMissing."""

    def records(self, partition: Partition) -> Mapping[bytes, bytes]:
        """Best effort: all of them, in order of their keys. TopicMissing."""

    def forget_record(self, partition: Partition, key: bytes) -> None:
        """Atomic: remove a record; no error if there is none. TopicMissing."""

    def read(self, partition: Partition, offset: int, *, messages_max: int, bytes_max: int, wait_ms: int = 0) -> Sequence[Message]:
        """Best effort: messages from `offset` on, in order, at least one where there is one, within both limits after the first.

        Waits up to `wait_ms` for a first one. PositionLost where `offset` lies before the oldest message kept.
        """

    def begin_offset(self, partition: Partition) -> int:
        """Best effort: the oldest offset kept (equal to `end_offset` when none is)."""

    def end_offset(self, partition: Partition) -> int:
        """Best effort: the offset that the next append gets, or a greater one."""

    def newest_with_header(self, partition: Partition, name: str, prefix: bytes, since_offset: int = 0) -> Message | None:
        """Best effort: the newest message at or after `since_offset` whose header `name` begins with `prefix`."""

    def retention_ms(self, topic: str) -> int | None:
        """Best effort: after how long the bus may forget a message of the topic by itself, in milliseconds; None where age
        never makes it forget one. TopicMissing."""

    def message_bytes_max(self, topics: Sequence[str]) -> Mapping[str, int]:
        """Best effort: the largest message that each of these topics takes now (`Outgoing.size_bytes`). Larger ones may be taken
        where the bus compresses them; else they are MessageTooLarge. TopicMissing."""

    def trim(self, partition: Partition, before_offset: int) -> None:
        """Best effort: forget messages before `before_offset`, as a bus's own retention does."""

    def note_reader(self, reader: str, offsets: Mapping[Partition, int]) -> None:
        """Atomic: `reader` still needs the messages from these offsets on: `expire` leaves them, until the same reader notes others
        or is forgotten. What it noted of other partitions stands. A bus that has a retention of its own does nothing."""

    def readers(self) -> Mapping[str, Mapping[Partition, int]]:
        """Best effort: what each reader noted, in order of their names."""

    def forget_reader(self, reader: str) -> None:
        """Atomic; no error where nothing is known of it."""

    def expire(self, partition: Partition, keep_ms: int, messages_max: int) -> int:
        """Best effort: forget messages that are older than `keep_ms`, the oldest first, never past one that a reader needs, and
        `messages_max` at most; how many. 0 on a bus that has a retention of its own."""

    def producer(self, group: str, output_topics: Sequence[str]) -> Producer:
        """Compare-and-set: the group's one door for output; claims its own partition of the topics for it
        (`naming.own_partition`: that of its shard, 0 where the project is not divided). TopicMissing if a topic or that partition
        of it does not exist, else TopicOwned if another group has one."""

    def progress(self, group: str) -> Mapping[str, Progress]:
        """Best effort: what is committed, per output stream; streams never published are absent."""

    def forget(self, group: str) -> None:
        """Atomic: empty the group's partitions of its output topics, let its progress say that nothing was published (sequence 0),
        and give the partitions up (`hotspare reset`). The fencing epoch stays.

        Not while an engine of the group runs: what it publishes afterwards would begin in the middle.
        """

    def owners(self) -> Mapping[Partition, str]:
        """Best effort: the group that has claimed a partition of an output topic, in order of topic and number."""

    def deviations(self, topics: Sequence[str]) -> Sequence[Deviation]:
        """Best effort: what is unlike hotspare's wishes in these topics, of which some may not exist, and around them."""

    def close(self) -> None: ...


class Producer(Protocol):
    """Publishes for one engine of a group. Used by one thread at a time."""

    def fence(self, epoch: int) -> None:
        """Compare-and-set: from now on only `epoch` may publish. Fenced if a newer epoch published before (of one that did so in
        the last moment, Kafka may tell in `progress` or `publish` only); the same epoch may fence again, and does so after
        UnknownResult. When it returns, no commit of whoever fenced before can take place any more.

        Who fences under an older epoch before a newer one has published may take the right from it (Kafka) or is Fenced (SQLite).
        So an engine asks coordination for the newest epoch between its fence and its first commit."""

    def progress(self) -> Mapping[str, Progress]:
        """Read up to the end of what is committed; after `fence` no older epoch can change it. Fenced if a newer one published
        while this one fenced, and `fence` did not say so."""

    def publish(self, epoch: int, commit: Commit) -> None:
        """Compare-and-set: append and record progress in one transaction if `epoch` is the fenced one, else Fenced.

        Messages go to the group's own partition of their topic, which the producer must have claimed (UsageError).
        UnknownResult if the answer was lost; BusUnavailable or BusLocked if nothing was written; MessageTooLarge if a message, or
        all of the commit, is more than the bus takes.
        """

    def close(self) -> None: ...
