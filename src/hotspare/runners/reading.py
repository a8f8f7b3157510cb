"""Turns bus messages into raw Arrow batches, in bounded steps: the part of reading that all runners share."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.base.errors import BusLocked, BusUnavailable
from hotspare.base.inbound_role import InboundRole
from hotspare.base.step_size import STEP_BYTES_MAX, STEP_BYTES_MIN, STEP_ROWS_MAX, StepSize
from hotspare.bus.contract import CAUSE_HEADER, FORMAT_HEADER, Bus, Message, MessageColumns, Partition
from hotspare.bus.limits import position_beyond_end, position_lost
from hotspare.flow.head.unknown_members import UnknownMember, unknown_of, with_unknown
from hotspare.rows.batch import FORMAT_OF_HEADER, OUTPUTS_FORM, RAW_SCHEMA, SECOND_FORM, MessageFormat, NextInput
from hotspare.runners.contract import BatchLimits, HeadLike, OnBatch, Only, Positions, SourceTopic

NEAR_LIMIT_SHARE = 1 / 4
"""The share of its limits from which on a read counts as near the limits: more messages are waiting."""
SMALL_READ_SHARE = 1 / 64
"""The share of its limits below which a read counts as small: the cost of its batch does not depend on its rows."""
_TIME_LENGTH_MAX = 18
"""Limit on the characters of a text that is accepted as a time in microseconds."""


@dataclass(frozen=True, slots=True)
class MessageRun:
    """Consecutive messages of one partition."""

    topic: int
    partition: int
    messages: Sequence[Message]

    @property
    def key(self) -> tuple[int, int]:
        return self.topic, self.partition

    @property
    def next_offset(self) -> int:
        return self.messages[-1].offset + 1


def all_partitions(topics: Sequence[SourceTopic]) -> list[tuple[int, int]]:
    return [(i, p) for i, topic in enumerate(topics) for p in topic.numbers]


def merge_key(key: tuple[int, int], shards: int) -> int:
    """Returns the merge key of a partition. Partitions with equal keys are merged with each other: all partitions, or those of a
    shard if `shards` is more than 1."""
    return key[1] if shards > 1 else 0


def partitions_to_read(keys: Sequence[tuple[int, int]], only: Only, shards: int) -> list[tuple[int, int]]:
    """Returns the partitions of `keys` to read now: those in `only`, and those that are not merged with any partition in `only`."""
    alone = {merge_key(key, shards) for key in only}
    return [key for key in keys if key in only or merge_key(key, shards) not in alone]


def complete_positions(bus: Bus, topics: Sequence[SourceTopic], start: Positions) -> dict[tuple[int, int], int]:
    """Returns the offset at which to begin for every partition: that of `start`, else the oldest offset kept."""
    positions = dict(start)
    for topic, partition in all_partitions(topics):
        if (topic, partition) not in positions:
            positions[topic, partition] = bus.begin_offset(Partition(topics[topic].name, partition))
    return positions


def check_positions(bus: Bus, topics: Sequence[SourceTopic], positions: Positions) -> None:
    """Raises PositionLost if a position is before the oldest message of its partition or after the end; BusUnavailable if the bus
    does not answer."""
    for (topic, number), offset in sorted(positions.items()):
        where = Partition(topics[topic].name, number)
        begin, end = bus.begin_offset(where), bus.end_offset(where)
        if offset < begin:
            raise position_lost(where, offset, begin)
        if offset > end:
            raise position_beyond_end(where, offset, end, "restore the topic, or start the group under another prefix")


def read_parts(
    bus: Bus,
    topics: Sequence[SourceTopic],
    positions: Positions,
    limits: BatchLimits,
    only: Only = frozenset(),
    shards: int = 1,
    keys: Sequence[tuple[int, int]] | None = None,
) -> list[MessageRun]:
    """Returns the next messages of the partitions `keys`, as far as `only` allows them, in order of (topic, partition), within
    `limits`; empty without new messages. `keys`: at least one; None: all partitions. `shards` as in `RunnerInput`.

    Waits up to `limits.wait_ms` for a first message. Raises PositionLost if a position is not kept any more.
    """
    keys = all_partitions(topics) if keys is None else keys
    share = max(1, limits.messages_max // len(keys)), max(1, limits.bytes_max // len(keys))
    keys = partitions_to_read(keys, only, shards)
    is_one_waited_for = len(keys) == 1 and limits.wait_ms > 0
    parts = [] if is_one_waited_for else _read_once(bus, topics, positions, keys, share, 0)
    if not parts and limits.wait_ms:
        # The wait is divided among the partitions: a message in another one is delayed by at most the whole wait.
        parts = _read_once(bus, topics, positions, keys, share, max(1, limits.wait_ms // len(keys)))
    together: dict[int, list[MessageRun]] = {}
    for part in parts:
        together.setdefault(merge_key(part.key, shards), []).append(part)
    if len(together) < 2:
        return _drop_leading(bus, topics, parts)
    return sorted((part for each in together.values() for part in _drop_leading(bus, topics, each)), key=lambda part: part.key)


def read_if_available(
    bus: Bus,
    topics: Sequence[SourceTopic],
    positions: Positions,
    limits: BatchLimits,
    only: Only,
    shards: int,
    keys: Sequence[tuple[int, int]] | None = None,
) -> list[MessageRun]:
    """Returns the result of `read_parts`, or an empty list while the bus is unavailable or locked. Raises PositionLost,
    TopicMissing."""
    try:
        return read_parts(bus, topics, positions, limits, only, shards, keys)
    except (BusUnavailable, BusLocked):
        return []


def _read_once(
    bus: Bus,
    topics: Sequence[SourceTopic],
    positions: Positions,
    keys: Sequence[tuple[int, int]],
    share: tuple[int, int],
    wait_ms: int,
) -> list[MessageRun]:
    parts: list[MessageRun] = []
    for topic, partition in keys:
        where = Partition(topics[topic].name, partition)
        wait = 0 if parts else wait_ms
        messages = bus.read(where, positions[topic, partition], messages_max=share[0], bytes_max=share[1], wait_ms=wait)
        if messages:
            parts.append(MessageRun(topic, partition, messages))
    return parts


def _drop_leading(bus: Bus, topics: Sequence[SourceTopic], parts: list[MessageRun]) -> list[MessageRun]:
    """Returns the parts without the messages that are later than all messages read of the partition furthest behind: the merge by
    time could only store them.

    The part of the partition furthest behind is returned complete, so that every batch advances. Of each other partition, the first
    later message is returned, too: it shows the merge that no earlier message follows in this partition.
    """
    if len(parts) < 2:
        return parts
    timed = [p for p in parts if topics[p.topic].kind is InboundRole.EVENTS]
    behind = [p for p in timed if bus.end_offset(Partition(topics[p.topic].name, p.partition)) > p.next_offset]
    if not behind:
        return parts
    horizon_us = min(_newest_us(part) for part in behind)
    kept = []
    for part in parts:
        if topics[part.topic].kind is not InboundRole.EVENTS:  # its messages are merged by the time of their cause
            kept.append(part)
            continue
        late = (i for i, message in enumerate(part.messages) if message.append_time_us > horizon_us)
        kept.append(MessageRun(part.topic, part.partition, part.messages[: next(late, len(part.messages)) + 1]))
    return kept


def _newest_us(part: MessageRun) -> int:
    return max(message.append_time_us for message in part.messages)


def next_positions(positions: Positions, parts: Sequence[MessageRun]) -> dict[tuple[int, int], int]:
    return {**positions, **{part.key: part.next_offset for part in parts}}


def raw_batch(part: MessageRun, default_format: MessageFormat, kind: InboundRole = InboundRole.EVENTS) -> pa.RecordBatch:
    """Returns the messages of `part` as a batch of RAW_SCHEMA. The time of outputs of another project is that of their cause."""
    read = MessageColumns.from_messages(part.messages)
    count, times_us = len(read), read.append_times_us
    seconds: Sequence[bool] = ()
    if kind is InboundRole.OUTPUTS:
        times_us, seconds = tuple(zip(*map(_cause, read), strict=True)) or ((), ())
    ticks, formats = np.zeros(count, np.bool_), np.full(count, default_format, np.int8)
    if read.headers:
        ticks[:] = [message.is_tick for message in read]
        formats[:] = [_format(message, default_format) for message in read]
    if kind is InboundRole.OUTPUTS:
        formats |= np.where(seconds, OUTPUTS_FORM | SECOND_FORM, OUTPUTS_FORM).astype(np.int8)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(count, part.topic, np.int32)),
            pa.array(np.full(count, part.partition, np.int32)),
            pa.array(read.offsets, pa.int64()),
            pa.array(times_us, pa.int64()),
            pa.array(ticks),
            pa.array(formats),
            pa.array(read.values, pa.binary()),
        ],
        schema=RAW_SCHEMA,
    )


def is_near_limits(raw: Sequence[pa.RecordBatch], limits: BatchLimits) -> bool:
    """Whether the batches of a read came near its limits, so that more messages probably wait."""
    return share_filled(raw, limits) >= NEAR_LIMIT_SHARE


def share_filled(raw: Sequence[pa.RecordBatch], limits: BatchLimits) -> float:
    """Returns the share of its limits that a read used: the greater of messages / `messages_max` and bytes / `bytes_max`."""
    messages, size = sum(len(b) for b in raw), sum(int(b.nbytes) for b in raw)
    return max(messages / limits.messages_max, size / limits.bytes_max)


def _cause(message: Message) -> tuple[int, bool]:
    """Returns the system time of the cause of a message's outputs, and whether they begin with the second row of an update. Without
    a valid CAUSE_HEADER (outputs from before their stream had beats), the time is the append time."""
    time_us, _, second = (message.header(CAUSE_HEADER) or b"").partition(b" ")
    is_time = len(time_us) <= _TIME_LENGTH_MAX and time_us.removeprefix(b"-").isdigit()
    return (int(time_us), second == b"1") if is_time else (message.append_time_us, False)


def _format(message: Message, default: MessageFormat) -> int:
    header = message.header(FORMAT_HEADER)
    # The decoder treats an unknown name as the default: its rows become bad events, which are visible.
    return int(default if header is None else FORMAT_OF_HEADER.get(header, default))


def by_shard(read: Sequence[pa.RecordBatch], shards: int) -> Iterator[Sequence[pa.RecordBatch]]:
    """Yields the batches of one read in groups: one group of all batches; or if `shards` is more than 1, a group of the batches
    with rows of each shard that has any, by number. Each batch must be of one partition."""
    if shards == 1:
        yield read
        return
    found: dict[int, list[pa.RecordBatch]] = {}
    for batch in filter(len, read):
        found.setdefault(batch.column("partition")[0].as_py(), []).append(batch)
    yield from (found[number] for number in sorted(found))


class ShardedBatches:
    """A `contract.OnBatch` that passes each batch to the callback of its shard. `takers[k]`: the callback of shard k. Each batch
    must be of one shard."""

    def __init__(self, takers: Sequence[OnBatch]) -> None:
        self._takers = takers

    def __call__(self, decoded: pa.Table, next_input: NextInput) -> None:
        self._takers[decoded.column("partition")[0].as_py()](decoded, next_input)


def decoding_size() -> StepSize:
    """Returns the initial step size, in bytes, of decoding in one runner."""
    return StepSize(STEP_BYTES_MIN, STEP_BYTES_MAX)


def steps(
    read: Sequence[pa.RecordBatch], head: HeadLike | None, limits: BatchLimits, decoding: StepSize
) -> Iterator[tuple[pa.Table, NextInput]]:
    """Yields the decoded batches of one read, in order, in steps that are short compared with a lease, because an engine counts as
    alive by its finished batches. `read`: raw batches, or decoded batches if `head` is None. A step has complete messages, and is
    not empty."""
    portions = [read] if head is None else list(_portions(read, decoding.next))
    for number, batches in enumerate(portions, 1):
        decoded = [batch for batch in (batches if head is None else _decoded(batches, head, decoding)) if batch.num_rows]
        if decoded:
            table, unknown = joined(decoded)
            found = list(pieces(table, limits.messages_max, STEP_ROWS_MAX))
            found[0] = with_unknown(found[0], unknown)
            for piece in found:
                is_last = number == len(portions) and piece is found[-1]
                yield piece, NextInput.AWAITED if is_last else NextInput.AT_HAND


def joined(decoded: Sequence[pa.RecordBatch]) -> tuple[pa.Table, list[UnknownMember]]:
    """Returns the rows of `decoded`, at least one batch, as a table, and the unknown members of all batches."""
    unknown = [each for batch in decoded for each in unknown_of(batch.schema)]
    return with_unknown(pa.Table.from_batches(decoded), []), unknown


def _decoded(batches: Sequence[pa.RecordBatch], head: HeadLike, decoding: StepSize) -> list[pa.RecordBatch]:
    """Decodes batches with `head`, and records size and duration in `decoding`."""
    begun_ns = time.monotonic_ns()
    decoded = [part for batch in batches for part in head(batch)]
    decoding.record_step(sum(batch.nbytes for batch in batches), (time.monotonic_ns() - begun_ns) / 1_000_000)
    return decoded


def _portions(raw: Sequence[pa.RecordBatch], bytes_max: int) -> Iterator[Sequence[pa.RecordBatch]]:
    """Yields the raw batches in portions of about `bytes_max` bytes, or of one message. Portions are measured in bytes, because the
    row counts of blocks are not known before decoding."""
    if sum(batch.nbytes for batch in raw) <= bytes_max:
        yield raw
        return
    for batch in filter(len, raw):
        messages = -(-batch.num_rows // -(-batch.nbytes // bytes_max))
        yield from ([batch.slice(at, messages)] for at in range(0, batch.num_rows, messages))


def pieces(decoded: pa.Table, messages_max: int, rows_max: int) -> Iterator[pa.Table]:
    """Yields decoded rows in order, in pieces of complete messages, because an engine's state is defined between two messages. A
    piece is within both limits, or is one message."""
    bounds = np.append(_first_rows(decoded), decoded.num_rows)
    first = 0
    while first < len(bounds) - 1:
        within = int(np.searchsorted(bounds, bounds[first] + rows_max, side="right")) - 1
        end = max(first + 1, min(within, first + messages_max))
        yield decoded.slice(bounds[first], bounds[end] - bounds[first])
        first = end


def _first_rows(decoded: pa.Table) -> npt.NDArray[np.int64]:
    """Returns the index of the first row of each message."""
    offsets = decoded.column("offset").to_numpy()
    return np.flatnonzero(np.diff(offsets, prepend=-1 if len(offsets) else 0)).astype(np.int64)


def positions_to_json(positions: Positions) -> Mapping[str, int]:
    """Returns positions in the form sent between processes: a mapping from `topic.partition` to offset, in a fixed order."""
    return {f"{topic}.{partition}": positions[topic, partition] for topic, partition in sorted(positions)}


def positions_from_json(document: Mapping[str, int]) -> dict[tuple[int, int], int]:
    pairs = ((key.split("."), offset) for key, offset in document.items())
    return {(int(topic), int(partition)): int(offset) for (topic, partition), offset in pairs}
