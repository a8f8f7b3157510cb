"""From held outputs to one publishing transaction over every output stream, and back from a topic's tail to progress."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hotspare.bus.contract import EPOCH_HEADER, FORMAT_HEADER, Bus, Commit, Outgoing, Partition, Progress
from hotspare.errors import HotspareError, StateError
from hotspare.ha.group_state import GroupState, committed_sequence
from hotspare.ha.held import mark_of
from hotspare.ha.ports import BlockCodec

_TAIL_MESSAGES = 16
_TAIL_BYTES_MAX = 64 << 20


def next_commit(state: GroupState, codec: BlockCodec) -> Commit:
    """All streams' outputs after what is committed, within the limits of one transaction, with the progress that they bring.

    Blocks hold at most `message_rows_max` rows. Empty when nothing is pending.
    """
    headers = ((FORMAT_HEADER, b"arrow"), (EPOCH_HEADER, str(state.epoch).encode()))
    messages: dict[str, list[Outgoing]] = {}
    progress: dict[str, Progress] = {}
    for output in state.topics.outbound:
        held = state.held.streams[output.stream]
        committed = committed_sequence(state, output.stream)
        if held.last_sequence <= committed:
            continue
        batches = list(held.after(committed, state.settings.commit_rows_max))
        last = mark_of(batches[-1], batches[-1].num_rows - 1)
        blocks = _blocks(batches, state.settings.message_rows_max)
        messages[output.topic] = [Outgoing(codec.encode(block), headers) for block in blocks]
        progress[output.stream] = Progress(last.sequence, last.output_id, last.digest, state.epoch)
    return Commit(messages, progress)


def _blocks(batches: Sequence[pa.RecordBatch], rows_max: int) -> list[pa.RecordBatch]:
    if len(batches) == 1 and batches[0].num_rows <= rows_max:
        return list(batches)
    whole = pa.Table.from_batches(batches).combine_chunks()
    return whole.to_batches(max_chunksize=rows_max)  # type: ignore[no-any-return]


def progress_from_tail(bus: Bus, codec: BlockCodec, stream: str, topic: str) -> Progress | None:
    """Progress of a stream that has no record, from the newest block of its topic; None if nothing was ever published there.

    StateError where the topic is not empty but its tail cannot be read: publishing from the first output again would double.
    """
    partition = Partition(topic)
    end = bus.end_offset(partition)
    begin = bus.begin_offset(partition)
    if end == 0:
        return None
    offset, rows = end, None
    while rows is None and offset > begin:
        offset = max(begin, offset - _TAIL_MESSAGES)
        rows = _last_rows(bus, codec, partition, offset)
    if rows is None:
        raise StateError(
            f"topic {topic} is not empty, but there is no record of what is committed to stream {stream}",
            detail="the newest messages cannot be read as output blocks",
            hint="use a new --prefix",
        )
    mark = mark_of(rows, rows.num_rows - 1)
    return Progress(mark.sequence, mark.output_id, mark.digest, 0)


def _last_rows(bus: Bus, codec: BlockCodec, partition: Partition, offset: int) -> pa.RecordBatch | None:
    """The newest block at or after `offset` that can be read."""
    found = None
    while messages := bus.read(partition, offset, messages_max=_TAIL_MESSAGES, bytes_max=_TAIL_BYTES_MAX):
        for message in messages:
            try:
                rows = codec.decode(message.value)
            except (HotspareError, pa.ArrowInvalid, ValueError):
                continue
            if rows.num_rows:
                found = rows
        offset = messages[-1].offset + 1
    return found
