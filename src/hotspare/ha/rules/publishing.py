"""Decides when held outputs and their progress are published, and what goes into one transaction (SPEC D9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hotspare.bus.contract import Progress
from hotspare.ha.rules import hung_calls, project_changes
from hotspare.ha.rules.facts import LONG_AGO_MS
from hotspare.ha.rules.settings import OutputStream
from hotspare.ha.rules.view import StreamView, View
from hotspare.model.quality import QualityKind
from hotspare.rows.batch import NextInput

NOTHING = Progress(0, None, 0, 0)


@dataclass(frozen=True, slots=True)
class DueTimes:
    """The times at which an active engine's duties to its streams fall due; None without such a duty.

    `publish_ms`: publish held outputs that are not known to be committed. `progress_ms`: write progress of outputs already on the
    topic. `await_ms`: record the result of the transaction under way. `oversized_ms`: retry an output that was too large for the
    bus.
    """

    publish_ms: int | None
    progress_ms: int | None
    await_ms: int | None
    oversized_ms: int | None


def due_times(view: View) -> DueTimes:
    retries = [each.facts.oversized.retry_ms for each in view.streams.values() if each.facts.oversized is not None]
    return DueTimes(publish_due_ms(view), progress_due_ms(view), await_due_ms(view), min(retries, default=None))


def sent_sequence(stream: StreamView) -> int:
    """Returns the newest sequence that this engine knows to be on the topic or no longer holds."""
    return max(stream.facts.sent, stream.facts.committed_sequence, stream.base_sequence)


def held_through(stream: StreamView) -> int:
    """Returns the newest held sequence before any output that the bus refused as too large; 0 while the stream's shift is
    unknown."""
    if stream.facts.is_shift_unknown:
        return 0
    waiting = stream.facts.oversized
    return stream.last_sequence if waiting is None else waiting.sequence - 1


def tried_through(stream: StreamView, now_ms: int) -> int:
    """Returns the newest held sequence that the next transaction may contain: as `held_through`, but past an oversized output that
    is due for a retry."""
    waiting = stream.facts.oversized
    return (
        held_through(stream)
        if stream.facts.is_shift_unknown or waiting is None or waiting.retry_ms > now_ms
        else stream.last_sequence
    )


def has_pending(view: View) -> bool:
    """Whether outputs are held that may be published now and are neither known to be committed nor under way."""
    return any(_pending_rows(view, name) for name in view.streams)


def _pending_rows(view: View, name: str) -> int:
    stream, under_way = view.streams[name], 0 if view.under_way is None else view.under_way.sent.get(name, 0)
    return max(0, held_through(stream) - max(sent_sequence(stream), under_way))


def publish_due_ms(view: View) -> int | None:
    """Returns the time at which held outputs have to be published; None without any.

    While more input is at hand they wait for its outputs, since every transaction has a fixed cost. They do not wait if they fill a
    transaction, are the first of a promotion, precede a hand-over, or if a stream's quality lets spares hold fewer.
    """
    if not has_pending(view):
        return None
    is_urgent = view.intake.next_input is NextInput.AWAITED or is_leaving(view) or view.publishing.is_first_commit_due
    if is_urgent or _fills_a_commit(view) or any(not stream.quality.holds_all for stream in view.streams.values()):
        return LONG_AGO_MS
    return view.publishing.published_ms + view.settings.commit_wait_ms


def is_leaving(view: View) -> bool:
    """Whether a stop or a switch-over is requested, so that the role has to be handed over."""
    return view.role_state.is_stop_requested or view.leadership.switchover is not None


def _fills_a_commit(view: View) -> bool:
    """Whether the pending outputs of all streams together fill one transaction, by rows or by bytes."""
    rows = bytes_ = 0
    for name, stream in view.streams.items():
        pending = _pending_rows(view, name)
        rows += pending
        bytes_ += stream.bytes * pending // max(1, stream.last_sequence - stream.base_sequence)
    return rows >= view.commit_rows or bytes_ >= min(view.commit_bytes, view.settings.held_bytes_max // 2)


def await_due_ms(view: View) -> int | None:
    """Returns the time at which to wait for the transaction under way and record its result; None if none is under way.

    Publishing is part of the pipeline: after `commit_patience_ms` the engine waits for a slow commit, and renews no lease by new
    batches meanwhile. It waits at once if the next transaction is full or the role is to be handed over.
    """
    transaction = view.under_way
    if transaction is None:
        return None
    if transaction.is_over or is_leaving(view) or _fills_a_commit(view):
        return LONG_AGO_MS
    return transaction.begun_ms + view.settings.commit_patience_ms


def progress_due_ms(view: View) -> int | None:
    """Returns the time at which progress has to be written for outputs already on the topic, or a decision about a hung call; None
    if progress covers all of them."""
    streams = view.streams.values()
    if hung_calls.due_decision(view) is not None or any(stream.facts.unrecorded is not None for stream in streams):
        return LONG_AGO_MS
    lagging = [stream for stream in streams if stream.facts.sent > stream.facts.committed_sequence]
    return min((_lagging_due_ms(view, stream) for stream in lagging), default=None)


def _lagging_due_ms(view: View, stream: StreamView) -> int:
    """Returns the time at which progress of a stream that lags behind its outputs has to be written. A trimmed stream waits for
    `progress_ms` from the first output that progress lacks; any other, and all before a hand-over, are due at once."""
    since_ms = stream.facts.unrecorded_since_ms
    if stream.quality.kind is not QualityKind.TRIMMED or since_ms is None or is_leaving(view):
        return LONG_AGO_MS
    return since_ms + stream.quality.progress_ms


def is_progress_due(view: View, stream: StreamView, sequence: int) -> bool:
    """Whether a transaction that ends with output `sequence` includes progress of its stream (SPEC D9).

    For a trimmed stream, progress is due after `progress_events` outputs or `progress_ms`, or at once while a stop or switch-over
    is requested if the topic has outputs without progress; for any other stream, with every output. The first outputs after a
    promotion may be repetitions, so their progress is written with them. Otherwise engines that lose the role one after the other
    would publish the same outputs again and again. In a group with user code it is always due: an engine may decide about a hung
    call only if it knows of every output that is committed (`hung_calls`).
    """
    facts, quality = stream.facts, stream.quality
    unrecorded = sequence - facts.committed_sequence
    if sequence <= max(facts.committed_sequence, stream.base_sequence):
        return False
    is_trimmed = quality.kind is QualityKind.TRIMMED and not view.hung_calls.has_user_code
    if not is_trimmed or unrecorded >= quality.progress_events or facts.may_repeat:
        return True
    return facts.unrecorded_since_ms is not None and _lagging_due_ms(view, stream) <= view.now_ms


def rotated_streams(outbound: Sequence[OutputStream], cut: str) -> Sequence[OutputStream]:
    """Returns the streams rotated to begin after `cut`, the stream that the last transaction cut. So a long backlog of one stream
    never starves the others."""
    first = next((i + 1 for i, output in enumerate(outbound) if output.stream == cut), 0)
    return (*outbound[first:], *outbound[:first])


def missing_records(view: View) -> Mapping[str, Progress]:
    """Returns the progress to write for streams without a progress record, under the present epoch. It is written before any
    output, in its own transaction.

    An aborted transaction leaves offsets in a topic. Without a record these look like outputs that retention has removed.
    """
    epoch = view.role_state.epoch
    found = {name: stream.facts.unrecorded for name, stream in view.streams.items()}
    return with_change_record(view, {name: replace(each, epoch=epoch) for name, each in found.items() if each is not None})


def with_change_record(view: View, progress: Mapping[str, Progress]) -> Mapping[str, Progress]:
    """Returns `progress`, preceded by the record of a project change if another project than this one published last; unchanged if
    `progress` is empty."""
    change = project_changes.change_record(view.projects.changes, view.projects.own, view.role_state.epoch)
    return {**change, **progress} if progress and change else progress


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a topic whose stream has no progress record. `newest`: the progress in the newest readable message; None without
    any.

    `is_empty`: the topic reaches back to its first offset and has no message. Offsets alone prove nothing: an aborted transaction
    leaves some.
    """

    newest: Progress | None
    is_empty: bool


def progress_by_tail(tail: Tail) -> Progress | None:
    """Returns the progress that a topic's tail proves; None if unknown: publishing from the first output again would duplicate
    outputs."""
    return NOTHING if tail.is_empty else tail.newest
