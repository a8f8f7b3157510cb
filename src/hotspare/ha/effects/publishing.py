"""From held outputs to one publishing transaction over every output stream, and back from a topic's tail to progress."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hotspare.base.errors import HotspareError, StateError
from hotspare.bus.contract import Bus, Commit, Outgoing, Partition, Progress
from hotspare.ha.group_state import GroupState
from hotspare.ha.outputs.blocks import Block, messages_of
from hotspare.ha.outputs.held import mark_of
from hotspare.ha.outputs.message import progress_of
from hotspare.ha.outputs.transaction import NextCommit
from hotspare.ha.ports import BlockCodec
from hotspare.ha.rules import publishing as rules
from hotspare.ha.rules.view import View

_TAIL_MESSAGES = 16
_TAIL_BYTES_MAX = 64 << 20


def next_commit(state: GroupState, view: View, codec: BlockCodec) -> NextCommit:
    """All streams' outputs after what is committed, within the budget of one transaction, with the progress that they bring.

    A stream one of whose outputs is larger than the bus takes ends before it until that is tried again. The progress of a trimmed
    stream is written when it is due; with it, or alone. Records that are missing are written first, and alone.
    """
    epoch = view.standing.epoch
    if missing := rules.missing_records(view):
        return NextCommit(Commit({}, missing), {}, 0, 0, "", [])
    blocks: list[Block] = []
    messages: dict[str, Sequence[Outgoing]] = {}
    progress: dict[str, Progress] = {}
    sent: dict[str, int] = {}
    rows_left, bytes_left, cut = view.commit_rows, view.commit_bytes, ""
    for output in rules.in_turn(state.topics.outbound, view.publishing.cut):
        held, stream = state.held.streams[output.stream], view.streams[output.stream]
        before, through = rules.sent_sequence(stream), rules.tried_through(stream, view.now_ms)
        last = held.mark_at(before)
        if through > before and min(rows_left, bytes_left) > 0:
            batches = list(held.after(before, min(rows_left, through - before), bytes_left))
            last = mark_of(batches[-1], batches[-1].num_rows - 1)
            found = state.message_sizes.cut(batches, output, epoch, codec)
            messages[output.topic] = messages_of(found)
            blocks += found
            sent[output.stream] = last.sequence
            rows_left -= sum(batch.num_rows for batch in batches)
            bytes_left -= sum(batch.nbytes for batch in batches)
        if through > max(before, sent.get(output.stream, 0)):
            cut = cut or output.stream
        if last is not None and rules.is_progress_due(view, stream, last.sequence):
            progress[output.stream] = Progress(last.sequence, last.output_id, last.digest, epoch)
    told = rules.with_maker(view, progress)
    rows, bytes_ = view.commit_rows - rows_left, view.commit_bytes - bytes_left
    return NextCommit(Commit(messages, told), sent, rows, bytes_, cut, blocks)


def progress_from_tail(bus: Bus, codec: BlockCodec, stream: str, partition: Partition) -> Progress:
    """Progress of a stream that has no record, from the newest block of its partition; sequence 0 if nothing was published there.

    StateError where the topic is not empty but its tail cannot be read: publishing from the first output again would double.
    """
    end = bus.end_offset(partition)
    begin = bus.begin_offset(partition)
    offset, found = end, None
    while found is None and offset > begin:
        offset = max(begin, offset - _TAIL_MESSAGES)
        found = _last_progress(bus, codec, partition, offset)
    is_whole = found is None and begin == 0
    is_empty = end == 0 or (is_whole and not bus.read(partition, 0, messages_max=1, bytes_max=1))
    stands = rules.progress_by_tail(rules.Tail(found, is_empty))
    if stands is None:
        raise StateError(
            f"topic {partition.topic} is not empty, but there is no record of what is committed to stream {stream}",
            detail="the newest messages cannot be read as output blocks",
            hint="use a new --prefix",
        )
    return stands


def _last_progress(bus: Bus, codec: BlockCodec, partition: Partition, offset: int) -> Progress | None:
    """What the newest message at or after `offset` that can be read brought about."""
    found = None
    while messages := bus.read(partition, offset, messages_max=_TAIL_MESSAGES, bytes_max=_TAIL_BYTES_MAX):
        for message in messages:
            found = progress_of(message) or _progress_of_block(message.value, codec) or found
        offset = messages[-1].offset + 1
    return found


def _progress_of_block(value: bytes, codec: BlockCodec) -> Progress | None:
    try:
        rows = codec.decode(value)
    except (HotspareError, pa.ArrowInvalid, ValueError):
        return None
    if not rows.num_rows:
        return None
    mark = mark_of(rows, rows.num_rows - 1)
    return Progress(mark.sequence, mark.output_id, mark.digest, 0)
