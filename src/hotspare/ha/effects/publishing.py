"""Publishes the outputs of all streams in transactions: builds them, records their results, and restores missing progress from the
end of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from hotspare.base.errors import (
    AppendTooLarge,
    BusUnavailable,
    Fenced,
    HotspareError,
    MessageTooLarge,
    StateError,
    UnknownResult,
)
from hotspare.bus.contract import Bus, Commit, Outgoing, Partition, Progress
from hotspare.ha.effects import committed, recording
from hotspare.ha.events import HaDuration, HaEventKind
from hotspare.ha.group_state import GroupState, stream_views, view_of
from hotspare.ha.outputs.blocks import Block, messages_of
from hotspare.ha.outputs.held import mark_of
from hotspare.ha.outputs.message import progress_of
from hotspare.ha.outputs.transaction import NextCommit, Transaction
from hotspare.ha.ports import BlockCodec, Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import hung_calls
from hotspare.ha.rules import publishing as rules
from hotspare.ha.rules.facts import Oversized
from hotspare.ha.rules.roles import Reason, Role, Step
from hotspare.ha.rules.view import View

_TAIL_MESSAGES = 16
_TAIL_BYTES_MAX = 64 << 20


def publish(_: do.Publish, state: GroupState, ports: Ports) -> None:
    """Begins the next transaction, unless no output or progress is to be committed. The engine computes while it is under way."""
    assert state.producer is not None
    view = view_of(state, ports)
    following = next_commit(state, view, ports.codec)
    if not (following.commit.messages or following.commit.progress):
        state.lease = replace(state.lease, committing_since_ms=None)
        return
    if state.publishing.is_first_commit_due:
        state.promotion_times.publish_ms = view.now_ms
    call = ports.start_call(partial(state.producer.publish, state.role_state.epoch, following.commit))
    state.transaction = Transaction(following, call, view.now_ms)


def await_commit(_: do.AwaitCommit, state: GroupState, ports: Ports) -> None:
    """Waits for the transaction under way and records its result, also if it is Fenced, UnknownResult or MessageTooLarge. Raises
    BusUnavailable or BusLocked, after which nothing was written."""
    assert state.transaction is not None
    following, call, begun_ms = state.transaction.content, state.transaction.call, state.transaction.begun_ms
    state.transaction = None
    try:
        call.wait()
    except (BusUnavailable, Fenced, UnknownResult, MessageTooLarge) as error:
        _record_unpublished(state, ports, error, following)
        return
    commit = following.commit
    recording.record_bus_unlocked(state)
    now_ms = ports.clock_ms()
    ports.observe_ms(HaDuration.COMMIT, now_ms - begun_ms)
    # a commit of outputs counts as a sign of life: behind a pipeline that hangs, held outputs come to an end
    has_moved = state.lease.has_progressed or bool(commit.messages)
    state.lease = replace(state.lease, has_progressed=has_moved, committing_since_ms=None, fruitless_since_ms=None)
    if following.cut_stream:
        state.budget.record_success()
    state.publishing = replace(state.publishing, published_ms=now_ms, cut_stream=following.cut_stream)
    committed.record_own_commit(state, commit.progress, following.sent, now_ms)
    committed.record_decisions(state, ports, commit.progress)
    _clear_oversized(state, ports)
    if state.publishing.is_first_commit_due and commit.messages:
        _report_promotion(state, ports)


def _record_unpublished(state: GroupState, ports: Ports, error: HotspareError, following: NextCommit) -> None:
    if isinstance(error, MessageTooLarge):
        _record_too_large(state, ports, error, following)
        return
    if state.lease.fruitless_since_ms is None:
        state.lease = replace(state.lease, fruitless_since_ms=ports.clock_ms())
    state.budget.record_failure(following.rows, following.bytes)  # a bus also fences out a transaction that took too long
    recording.refresh_member_soon(state)
    if isinstance(error, Fenced):
        recording.report(state, ports, HaEventKind.FENCED, error.message)
        _fence_again(state, ports, Reason.FENCED)
    elif isinstance(error, UnknownResult):
        recording.record_trouble(state, ports, HaEventKind.RESULT_UNKNOWN, error.message, error.in_one_line)
        _fence_again(state, ports, Reason.UNKNOWN_RESULT)
    else:
        raise error


def _record_too_large(state: GroupState, ports: Ports, error: MessageTooLarge, following: NextCommit) -> None:
    """Prepares a retry after the bus refused a message or commit as too large. If a single output is too large, its stream waits
    for a retry, and the other streams continue.

    That output stays held: outputs are never dropped, and no engine could publish it. If an output within its topic's limit was
    refused together with others, the cause is unknown, so the next transaction has half as many.
    """
    state.message_sizes.bytes_max = dict(ports.bus.message_bytes_max(state.topics.output_topics))
    recording.schedule_bus_retry(state, ports)
    sizes = state.message_sizes
    refused = None if isinstance(error, AppendTooLarge) else sizes.find_refused(following.blocks)
    if refused is not None and refused.rows > 1:
        return
    if refused is None or (following.rows > 1 and not sizes.is_too_large(refused)):
        sizes.clear_refused()
        state.budget.record_failure(following.rows, following.bytes)
        recording.refresh_member_soon(state)
        return
    known, retry_ms = state.streams[refused.stream].oversized, ports.clock_ms() + state.settings.oversized_retry_ms
    now = Oversized(refused.first, refused.bytes, refused.topic, retry_ms)
    state.streams[refused.stream] = replace(state.streams[refused.stream], oversized=now)
    sizes.clear_refused()
    recording.refresh_member_soon(state)
    if known is None or known.sequence != now.sequence:
        hint = "raise the limit of the topic (on Kafka max.message.bytes)"
        sentence = f"stream {refused.stream} waits: {now.sentence}; {hint}. {error.message}"
        recording.report(state, ports, HaEventKind.OUTPUT_TOO_LARGE, sentence, bytes=refused.bytes)


def _clear_oversized(state: GroupState, ports: Ports) -> None:
    for stream, view in stream_views(state).items():
        waiting = view.facts.oversized
        if waiting is not None and rules.sent_sequence(view) >= waiting.sequence:
            state.streams[stream] = replace(state.streams[stream], oversized=None)
            recording.report(
                state, ports, HaEventKind.OUTPUT_TOO_LARGE, f"stream {stream} continues: output {waiting.sequence} was accepted"
            )


def _fence_again(state: GroupState, ports: Ports, reason: Reason) -> None:
    """Repeats the promotion from its fence, because this engine no longer knows what is committed. `decide` ends it if a newer
    epoch exists."""
    recording.invalidate_leader(state)
    recording.change_role(state, ports, Role.PROMOTING, reason, Step.WON)


def _report_promotion(state: GroupState, ports: Ports) -> None:
    marks, now_ms = state.promotion_times, ports.clock_ms()
    state.publishing = replace(state.publishing, is_first_commit_due=False)
    recording.report(
        state,
        ports,
        HaEventKind.PROMOTED,
        f"first output under epoch {state.role_state.epoch} is committed",
        epoch=state.role_state.epoch,
        waiting_ms=marks.campaign_ms - marks.vacancy_ms,
        election_ms=marks.won_ms - marks.vacancy_ms,
        fencing_ms=marks.fenced_ms - marks.won_ms,
        reading_ms=marks.active_ms - marks.fenced_ms,
        checking_ms=marks.active_ms - marks.read_ms,
        first_output_ms=now_ms - marks.active_ms,
        committing_ms=now_ms - marks.publish_ms,
        total_ms=now_ms - marks.vacancy_ms,
    )


def next_commit(state: GroupState, view: View, codec: BlockCodec) -> NextCommit:
    """Returns the content of the next transaction: outputs of all streams after those sent, within `view.commit_rows` and
    `view.commit_bytes`, and the progress that is due.

    A stream ends before an output that is larger than the bus accepts, until that output is due for a retry. A trimmed stream's
    progress is written when it is due, with outputs or alone. Missing progress records are written first, in a transaction of their
    own.
    """
    epoch = view.role_state.epoch
    if missing := rules.missing_records(view):
        return NextCommit(Commit({}, missing), {}, 0, 0, "", [])
    blocks: list[Block] = []
    messages: dict[str, Sequence[Outgoing]] = {}
    progress: dict[str, Progress] = {}
    sent: dict[str, int] = {}
    rows_left, bytes_left, cut = view.commit_rows, view.commit_bytes, ""
    for output in rules.rotated_streams(state.topics.outbound, view.publishing.cut_stream):
        held, stream = state.held.streams[output.stream], view.streams[output.stream]
        before, through = rules.sent_sequence(stream), rules.tried_through(stream, view.now_ms)
        last = held.mark_at(before)
        if through > before and min(rows_left, bytes_left) > 0:
            batches = list(held.batches_after(before, min(rows_left, through - before), bytes_left))
            last = mark_of(batches[-1], batches[-1].num_rows - 1)
            found = state.message_sizes.split_messages(batches, output, epoch, codec)
            messages[output.topic] = messages_of(found)
            blocks += found
            sent[output.stream] = last.sequence
            rows_left -= sum(batch.num_rows for batch in batches)
            bytes_left -= sum(batch.nbytes for batch in batches)
        if through > max(before, sent.get(output.stream, 0)):
            cut = cut or output.stream
        if last is not None and rules.is_progress_due(view, stream, last.sequence):
            progress[output.stream] = Progress(last.sequence, last.output_id, last.digest, epoch)
    decision = hung_calls.due_decision(view)
    told = rules.with_change_record(view, progress | (hung_calls.decision_record(decision, epoch) if decision else {}))
    rows, bytes_ = view.commit_rows - rows_left, view.commit_bytes - bytes_left
    return NextCommit(Commit(messages, told), sent, rows, bytes_, cut, blocks)


def progress_from_tail(bus: Bus, codec: BlockCodec, stream: str, partition: Partition) -> Progress:
    """Returns the progress of a stream without a record, from the newest readable message of `partition`; sequence 0 if nothing was
    published there.

    Raises StateError if the partition is not empty but no message is readable: publishing from the first output again would
    duplicate outputs.
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
            f"topic {partition.topic} is not empty, but stream {stream} has no record of its progress",
            detail="the newest messages cannot be read as output blocks",
            hint="run the project under a new --prefix",
        )
    return stands


def _last_progress(bus: Bus, codec: BlockCodec, partition: Partition, offset: int) -> Progress | None:
    """Returns the progress in the newest readable message at or after `offset`; None without any."""
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
