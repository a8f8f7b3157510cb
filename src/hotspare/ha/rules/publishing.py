"""When held outputs and their progress are published, and what goes into one transaction (DESIGN section 5, SPEC D9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hotspare.bus.contract import Progress
from hotspare.ha.rules import makers
from hotspare.ha.rules.facts import LONG_AGO_MS
from hotspare.ha.rules.settings import OutputStream
from hotspare.ha.rules.view import StreamView, View
from hotspare.model.quality import QualityKind
from hotspare.rows.batch import NextInput

NOTHING = Progress(0, None, 0, 0)


@dataclass(frozen=True, slots=True)
class Owed:
    """What an active engine owes its streams, each with the time at which it falls due; None where there is nothing.

    `publish_ms`: held outputs that are not known to be committed. `progress_ms`: progress of outputs that are on the topic already.
    `await_ms`: taking note of what came of the transaction under way. `oversized_ms`: trying again what was too large for the bus.
    """

    publish_ms: int | None
    progress_ms: int | None
    await_ms: int | None
    oversized_ms: int | None


def owed(view: View) -> Owed:
    retries = [each.facts.oversized.retry_ms for each in view.streams.values() if each.facts.oversized is not None]
    return Owed(publish_due_ms(view), progress_due_ms(view), await_due_ms(view), min(retries, default=None))


def sent_sequence(stream: StreamView) -> int:
    """The newest output that this engine knows to be on the topic, or that can no longer be brought there."""
    return max(stream.facts.sent, stream.facts.committed_sequence, stream.base_sequence)


def held_through(stream: StreamView) -> int:
    """The newest held output that the bus takes, as far as is known; none of a stream whose numbers are not known yet."""
    if stream.facts.is_unplaced:
        return 0
    waiting = stream.facts.oversized
    return stream.last_sequence if waiting is None else waiting.sequence - 1


def tried_through(stream: StreamView, now_ms: int) -> int:
    """The newest held output that the next transaction may take: also of what was too large, when that is tried again."""
    waiting = stream.facts.oversized
    return (
        held_through(stream) if stream.facts.is_unplaced or waiting is None or waiting.retry_ms > now_ms else stream.last_sequence
    )


def has_pending(view: View) -> bool:
    """Whether outputs are held that are not known to be committed and not under way, and that the bus takes."""
    return any(_pending_rows(view, name) for name in view.streams)


def _pending_rows(view: View, name: str) -> int:
    stream, under_way = view.streams[name], 0 if view.under_way is None else view.under_way.sent.get(name, 0)
    return max(0, held_through(stream) - max(sent_sequence(stream), under_way))


def publish_due_ms(view: View) -> int | None:
    """When held outputs have to be published; None if there are none. While more input is at hand they wait for those that come of
    it: a transaction takes its time however little is in it. The first of a promotion never wait, nor those that a hand-over waits
    for, nor any of which a spare may hold less than this engine."""
    if not has_pending(view):
        return None
    is_urgent = view.intake.next_input is NextInput.AWAITED or is_leaving(view) or view.publishing.is_first_commit_due
    if is_urgent or _fills_a_commit(view) or any(not stream.quality.holds_all for stream in view.streams.values()):
        return LONG_AGO_MS
    return view.publishing.published_ms + view.settings.commit_wait_ms


def is_leaving(view: View) -> bool:
    """Whether the role is to be handed over."""
    return view.standing.stop_asked or view.leadership.switchover is not None


def _fills_a_commit(view: View) -> bool:
    """Whether what is pending is as much as one transaction takes, over all streams."""
    rows = bytes_ = 0
    for name, stream in view.streams.items():
        pending = _pending_rows(view, name)
        rows += pending
        bytes_ += stream.bytes * pending // max(1, stream.last_sequence - stream.base_sequence)
    return rows >= view.commit_rows or bytes_ >= min(view.commit_bytes, view.settings.held_bytes_max // 2)


def await_due_ms(view: View) -> int | None:
    """When what came of the transaction under way is taken note of, and waited for if need be; None if none is under way.

    Publishing is part of the pipeline: behind a commit that takes long the engine does not go on, and gives no sign of life.
    Nor does it where the next transaction is full, or the role is to be handed over.
    """
    transaction = view.under_way
    if transaction is None:
        return None
    if transaction.is_over or is_leaving(view) or _fills_a_commit(view):
        return LONG_AGO_MS
    return transaction.begun_ms + view.settings.commit_patience_ms


def progress_due_ms(view: View) -> int | None:
    """When progress has to be written of what is on the topic already; None while all of it is recorded."""
    streams = view.streams.values()
    if any(stream.facts.unrecorded is not None for stream in streams):
        return LONG_AGO_MS
    lagging = [stream for stream in streams if stream.facts.sent > stream.facts.committed_sequence]
    return min((_lagging_due_ms(view, stream) for stream in lagging), default=None)


def _lagging_due_ms(view: View, stream: StreamView) -> int:
    """When the progress of a stream has to be written that lags behind its outputs; at once before the role is handed over."""
    since_ms = stream.facts.unrecorded_since_ms
    if stream.quality.kind is not QualityKind.TRIMMED or since_ms is None or is_leaving(view):
        return LONG_AGO_MS
    return since_ms + stream.quality.progress_ms


def is_progress_due(view: View, stream: StreamView, sequence: int) -> bool:
    """Whether a transaction that ends with output `sequence` brings the progress of its stream: of a trimmed one after so many
    outputs or so long a time (SPEC D9), of any other with every output.

    The first outputs after a promotion may have come before, so their progress is written with them: otherwise engines that
    lose the role one after the other bring the same ones again and again.
    """
    facts, quality = stream.facts, stream.quality
    unrecorded = sequence - facts.committed_sequence
    if sequence <= max(facts.committed_sequence, stream.base_sequence):
        return False
    if quality.kind is not QualityKind.TRIMMED or unrecorded >= quality.progress_events or facts.may_repeat:
        return True
    return facts.unrecorded_since_ms is not None and _lagging_due_ms(view, stream) <= view.now_ms


def in_turn(outbound: Sequence[OutputStream], cut: str) -> Sequence[OutputStream]:
    """The streams, from the one on that follows the one that was cut last: a long backlog of one keeps none waiting for ever."""
    first = next((i + 1 for i, output in enumerate(outbound) if output.stream == cut), 0)
    return (*outbound[first:], *outbound[:first])


def missing_records(view: View) -> Mapping[str, Progress]:
    """Progress of streams without a record, under the present epoch. It is written first, and alone: a transaction that is aborted
    leaves offsets in the topics, and without a record they cannot be told from outputs that retention has ended."""
    epoch = view.standing.epoch
    found = {name: stream.facts.unrecorded for name, stream in view.streams.items()}
    return with_maker(view, {name: replace(each, epoch=epoch) for name, each in found.items() if each is not None})


def with_maker(view: View, progress: Mapping[str, Progress]) -> Mapping[str, Progress]:
    """And, before it, that another project than before publishes from now on, where that is so."""
    change = makers.record(view.projects.changes, view.projects.own, view.standing.epoch)
    return {**change, **progress} if progress and change else progress


@dataclass(frozen=True, slots=True)
class Tail:
    """What is found in the topic of a stream without a record of its progress. `newest`: by the newest message that can be read.

    `is_empty`: it reaches back to its first offset and has no message. Its offsets say nothing: a transaction that was aborted
    leaves some behind.
    """

    newest: Progress | None
    is_empty: bool


def progress_by_tail(tail: Tail) -> Progress | None:
    """What is committed to the stream. None where nobody can tell: publishing from the first output again would double."""
    return NOTHING if tail.is_empty else tail.newest
