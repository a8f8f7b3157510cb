"""From held outputs to one publishing transaction over every output stream, and back from a topic's tail to progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from hotspare.bus.contract import Bus, Commit, Outgoing, Partition, Progress
from hotspare.errors import HotspareError, StateError
from hotspare.ha.group_state import GroupState, committed_sequence, held_through, progress_due_of_ms, sent_sequence
from hotspare.ha.outputs.blocks import Block
from hotspare.ha.outputs.held import mark_of
from hotspare.ha.outputs.message import progress_of
from hotspare.ha.outputs.transaction import NextCommit
from hotspare.ha.ports import BlockCodec
from hotspare.ha.rules.settings import OutputStream
from hotspare.model.quality import QualityKind

_TAIL_MESSAGES = 16
_TAIL_BYTES_MAX = 64 << 20
_NOTHING = Progress(0, None, 0, 0)


def next_commit(state: GroupState, codec: BlockCodec, now_ms: int) -> NextCommit:
    """All streams' outputs after what is committed, within the budget of one transaction, with the progress that they bring.

    A stream one of whose outputs is larger than the bus takes ends before it until that is tried again. The stream that was cut
    last time comes last, so that a long backlog of one keeps none waiting for ever. The progress of a trimmed stream is written
    when it is due; with it, or alone. Records that are missing are written first, and alone: a transaction that is aborted leaves
    offsets in the topics, and without a record they cannot be told from outputs that retention has ended.
    """
    if state.unrecorded:
        records = {stream: replace(found, epoch=state.epoch) for stream, found in state.unrecorded.items()}
        return NextCommit(Commit({}, records), {}, 0, 0, "", [])
    blocks: list[Block] = []
    messages: dict[str, list[Outgoing]] = {}
    progress: dict[str, Progress] = {}
    sent: dict[str, int] = {}
    rows_left, bytes_left, cut = state.budget.rows, state.budget.bytes, ""
    for output in _in_turn(state):
        held = state.held.streams[output.stream]
        before = sent_sequence(state, output.stream)
        last = held.mark_at(before)
        through = _through(state, output.stream, now_ms)
        if through > before and min(rows_left, bytes_left) > 0:
            batches = list(held.after(before, min(rows_left, through - before), bytes_left))
            last = mark_of(batches[-1], batches[-1].num_rows - 1)
            found = state.message_sizes.cut(batches, output, state.epoch, codec)
            messages[output.topic] = [block.message for block in found]
            blocks += found
            sent[output.stream] = last.sequence
            rows_left -= sum(batch.num_rows for batch in batches)
            bytes_left -= sum(batch.nbytes for batch in batches)
        if through > max(before, sent.get(output.stream, 0)):
            cut = cut or output.stream
        if last is not None and _is_progress_due(state, output.stream, last.sequence, now_ms):
            progress[output.stream] = Progress(last.sequence, last.output_id, last.digest, state.epoch)
    rows, bytes_ = state.budget.rows - rows_left, state.budget.bytes - bytes_left
    return NextCommit(Commit(messages, progress), sent, rows, bytes_, cut, blocks)


def _through(state: GroupState, stream: str, now_ms: int) -> int:
    waiting = state.oversized.get(stream)
    return held_through(state, stream) if waiting is None or waiting.retry_ms > now_ms else state.held.streams[stream].last_sequence


def _in_turn(state: GroupState) -> Sequence[OutputStream]:
    """The streams, from the one on that follows the one that was cut last."""
    streams = state.topics.outbound
    first = next((i + 1 for i, output in enumerate(streams) if output.stream == state.cut), 0)
    return (*streams[first:], *streams[:first])


def _is_progress_due(state: GroupState, stream: str, sequence: int, now_ms: int) -> bool:
    """Of a trimmed stream after so many outputs or so long a time (SPEC D9), of any other with every output.

    The first outputs after a promotion may have come before, so their progress is written with them: otherwise engines that
    lose the role one after the other bring the same ones again and again.
    """
    quality, unrecorded = state.qualities.of(stream), sequence - committed_sequence(state, stream)
    if sequence <= max(committed_sequence(state, stream), state.held.streams[stream].base.sequence):
        return False
    if quality.kind is not QualityKind.TRIMMED or unrecorded >= quality.progress_events or stream in state.may_repeat:
        return True
    return stream in state.unrecorded_since_ms and progress_due_of_ms(state, stream) <= now_ms


def progress_from_tail(bus: Bus, codec: BlockCodec, stream: str, partition: Partition) -> Progress:
    """Progress of a stream that has no record, from the newest block of its partition; sequence 0 if nothing was published there.

    StateError where the topic is not empty but its tail cannot be read: publishing from the first output again would double.
    """
    end = bus.end_offset(partition)
    begin = bus.begin_offset(partition)
    if end == 0:
        return _NOTHING
    offset, found = end, None
    while found is None and offset > begin:
        offset = max(begin, offset - _TAIL_MESSAGES)
        found = _last_progress(bus, codec, partition, offset)
    if found is None and begin == 0 and not bus.read(partition, 0, messages_max=1, bytes_max=1):
        return _NOTHING  # a transaction that was aborted leaves its offsets behind and no message
    if found is None:
        raise StateError(
            f"topic {partition.topic} is not empty, but there is no record of what is committed to stream {stream}",
            detail="the newest messages cannot be read as output blocks",
            hint="use a new --prefix",
        )
    return found


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
