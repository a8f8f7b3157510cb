"""The checks of arguments that every bus makes before any other work (names, sizes, read limits), and the errors of all buses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hotspare.base.errors import (
    AppendTooLarge,
    Fenced,
    MessageTooLarge,
    PositionLost,
    TopicMissing,
    TopicOwned,
    UnknownResult,
    UsageError,
)
from hotspare.bus.contract import Commit, HeaderGuard, Message, Outgoing, Partition, Progress, RowMessages
from hotspare.bus.naming import TOPIC_NAME_LENGTH_MAX

PARTITIONS_MAX = 1024
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
TRANSACTION_BYTES_MAX = 512 * 1024 * 1024
HEADERS_MAX = 64
HEADER_NAME_BYTES_MAX = 255
HEADER_VALUE_BYTES_MAX = 64 * 1024
RECORD_KEY_BYTES_MAX = 2048
RECORD_BYTES_MAX = 1 << 20
TIME_US_MAX = 2**62
"""The greatest size of an append time in us: far beyond any real time, and within 64 bits."""
READER_NAME_BYTES_MAX = 4096
DIGEST_MAX = 2**64 - 1
EPOCH_MAX = 2**62


def check_topic(topic: str, partitions: int) -> None:
    """Raises UsageError unless a topic of this name and number of partitions can be created."""
    if not topic or len(topic) > TOPIC_NAME_LENGTH_MAX or not topic.isprintable():
        raise UsageError(f"topic name {topic!r} cannot be used", hint=f"use 1 to {TOPIC_NAME_LENGTH_MAX} printable characters")
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise UsageError(f"topic {topic} cannot have {partitions} partitions", hint=f"use 1 to {PARTITIONS_MAX}")


def check_same_partitions(topic: str, existing: int, asked: int) -> None:
    """Raises UsageError if the existing number of partitions is not the requested number."""
    if existing != asked:
        raise UsageError(
            f"topic {topic} exists with {existing} partitions, {asked} were requested",
            hint="use another prefix, or as many partitions as the topic has",
        )


def _headers_bytes(headers: Sequence[tuple[str, bytes]]) -> int:
    """Returns the bytes of all names and values of the headers. Raises UsageError for headers that cannot be stored."""
    if len(headers) > HEADERS_MAX:
        raise UsageError(f"a message has {len(headers)} headers; the limit is {HEADERS_MAX}")
    size = 0
    for name, value in headers:
        name_bytes, value_bytes = len(name.encode()), len(value)
        if not 0 < name_bytes <= HEADER_NAME_BYTES_MAX or value_bytes > HEADER_VALUE_BYTES_MAX:
            raise UsageError(
                f"header {name[:40]!r} of {value_bytes} bytes cannot be stored",
                hint=f"names have 1 to {HEADER_NAME_BYTES_MAX} bytes, values at most {HEADER_VALUE_BYTES_MAX}",
            )
        size += name_bytes + value_bytes
    return size


def _sizes(messages: Sequence[Outgoing]) -> Iterator[int]:
    """Yields `Outgoing.size_bytes` of each message. Raises UsageError for headers that cannot be stored."""
    return (len(value) + len(key or b"") + _headers_bytes(headers) for value, headers, key in messages)


def _total(sizes: Iterable[int], bytes_max: int) -> int:
    """Returns the sum of the sizes. Raises MessageTooLarge for a size over `bytes_max`."""
    total = 0
    for size in sizes:
        if size > bytes_max:
            raise message_too_large(size, bytes_max)
        total += size
    return total


def _total_of_rows(messages: RowMessages, bytes_max: int) -> int:
    """Returns the sum of `Outgoing.size_bytes` of all messages. Raises MessageTooLarge for a message over `bytes_max`. The messages
    are summed one by one only if one may be too large."""
    texts = messages.values, messages.texts, messages.keys
    longest = max(messages.texts, key=len, default=b"")
    shared = _headers_bytes((*messages.common, (messages.header, longest))) - len(longest)
    if shared + sum(max(map(len, each), default=0) for each in texts) > bytes_max:
        return _total((shared + len(value) + len(text) + len(key) for value, text, key in zip(*texts, strict=True)), bytes_max)
    return len(messages) * shared + sum(sum(map(len, each)) for each in texts)


def check_messages(messages: Sequence[Outgoing], bytes_max: int = MESSAGE_BYTES_MAX) -> None:
    """Raises MessageTooLarge if a message has more than `bytes_max` bytes, AppendTooLarge if all of them together have more than
    one append may have."""
    total = _total_of_rows(messages, bytes_max) if isinstance(messages, RowMessages) else _total(_sizes(messages), bytes_max)
    if total > TRANSACTION_BYTES_MAX:
        raise AppendTooLarge(
            f"one append has {total} bytes; the limit is {TRANSACTION_BYTES_MAX}", hint="append fewer messages at once"
        )


def message_too_large(size: int, allowed: int, topic: str = "") -> MessageTooLarge:
    if topic:
        hint = "raise its max.message.bytes, or put fewer rows into one message"
        return MessageTooLarge(f"a message has {size} bytes; the limit of topic {topic} is {allowed}", hint=hint)
    return MessageTooLarge(f"a message has {size} bytes; the limit is {allowed}", hint="put fewer rows into one message")


def check_read(partition: Partition, offset: int, messages_max: int, bytes_max: int) -> None:
    """Raises UsageError unless the offset and the limits of a read are valid."""
    if offset < 0 or messages_max < 1 or bytes_max < 1:
        raise UsageError(
            f"cannot read {partition.topic}[{partition.number}] from offset {offset}, {messages_max} messages, {bytes_max} bytes",
            hint="the offset is 0 or more, both limits are 1 or more",
        )


def check_record(key: bytes, record: bytes | None) -> None:
    """Raises UsageError if the record, or its key, exceeds the limits. None as `record` is always valid."""
    if record is not None and (len(key) > RECORD_KEY_BYTES_MAX or len(record) > RECORD_BYTES_MAX):
        raise UsageError(
            f"a record of {len(record)} bytes under a key of {len(key)} bytes cannot be stored",
            hint=f"keys have at most {RECORD_KEY_BYTES_MAX} bytes, records {RECORD_BYTES_MAX}",
        )


def is_guarded_by(guard: HeaderGuard, message: Message) -> bool:
    """Whether the message has a header `guard.name` whose value starts with `guard.prefix`. Its offset is not compared."""
    value = message.header(guard.name)
    return value is not None and value.startswith(guard.prefix)


def check_epoch(epoch: int) -> None:
    """Raises UsageError unless a group can be fenced with this epoch."""
    if not 1 <= epoch <= EPOCH_MAX:
        raise UsageError(f"epoch {epoch} is invalid for a fence", hint="epochs count from 1")


def _check_progress(stream: str, progress: Progress) -> None:
    if not stream or progress.sequence < 0 or not 0 <= progress.digest <= DIGEST_MAX:
        raise UsageError(
            f"progress of stream {stream!r} cannot be stored: sequence {progress.sequence}, digest {progress.digest}",
            hint="a sequence is 0 or more, a digest an unsigned 64-bit number",
        )


def check_commit(group: str, owned: Sequence[str], commit: Commit, bytes_max: int = MESSAGE_BYTES_MAX) -> None:
    """Raises UsageError if a commit has invalid progress or names a topic that its producer did not claim. Checks the messages of
    each topic as `check_messages` does. `owned`: the claimed topics."""
    for topic, messages in commit.messages.items():
        if topic not in owned:
            raise UsageError(f"group {group} did not claim topic {topic}", hint="name the topic when you open the producer")
        check_messages(messages, bytes_max)
    for stream, progress in commit.progress.items():
        _check_progress(stream, progress)


def check_reader(reader: str, offsets: Mapping[Partition, int]) -> None:
    """Raises UsageError unless the name and the offsets of a reader are within the limits."""
    if not reader or len(reader.encode()) > READER_NAME_BYTES_MAX or any(offset < 0 for offset in offsets.values()):
        raise UsageError(
            f"reader {reader[:40]!r} cannot be recorded",
            hint=f"names have 1 to {READER_NAME_BYTES_MAX} bytes, offsets are 0 or more",
        )


def topic_missing(topic: str) -> TopicMissing:
    return TopicMissing(
        f"topic {topic} does not exist", hint="check the name; an engine creates the topics of its prefix when it starts"
    )


def external_topic_missing(topic: str, command: str) -> TopicMissing:
    """Returns the error for a missing external topic. `command`: a command that creates it, for the hint."""
    return TopicMissing(
        f"topic {topic} does not exist", hint=f"hotspare does not create topics of other applications; create it with: {command}"
    )


def partitions_of(topics: Mapping[str, int], topic: str) -> list[Partition]:
    """Returns all partitions of a topic. `topics`: the result of `Bus.topics`. Raises TopicMissing if the topic is not in
    `topics`."""
    if topic not in topics:
        raise topic_missing(topic)
    return [Partition(topic, number) for number in range(topics[topic])]


def partition_missing(partition: Partition, partitions: int) -> TopicMissing:
    return TopicMissing(f"topic {partition.topic} has no partition {partition.number}", detail=f"it has {partitions}")


def position_lost(partition: Partition, offset: int, begin: int) -> PositionLost:
    return PositionLost(
        f"{partition.topic}[{partition.number}] no longer holds offset {offset}",
        detail=f"the oldest offset kept is {begin}, {begin - offset} messages are gone",
        hint="keep messages longer than the oldest snapshot that may be needed",
    )


def position_beyond_end(partition: Partition, offset: int, end: int, hint: str) -> PositionLost:
    return PositionLost(
        f"{partition.topic}[{partition.number}] ends before offset {offset}",
        detail=f"its next offset is {end}: the topic was re-created, or lost committed messages",
        hint=hint,
    )


def topic_owned(partition: Partition, owner: str, group: str) -> TopicOwned:
    of_it = f"partition {partition.number} of " if partition.number else ""
    return TopicOwned(
        f"{of_it}output topic {partition.topic} belongs to group {owner}",
        detail=f"group {group} requested it",
        hint="run the project under another prefix",
    )


def fenced(group: str, epoch: int, newest: int) -> Fenced:
    return Fenced(f"group {group} may publish only with epoch {newest}", detail=f"epoch {epoch} was used")


def commit_unknown(message: str, detail: str) -> UnknownResult:
    """Returns the error for a commit whose answer was lost."""
    return UnknownResult(message, detail=detail, hint="fence again and read the progress to see what was committed")


def frozen_progress(progress: Mapping[str, Progress]) -> dict[str, Progress]:
    """Returns a copy of the progress, in order of the streams' names, that later commits do not change."""
    return {stream: progress[stream] for stream in sorted(progress)}
