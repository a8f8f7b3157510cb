"""Decides which engine takes a snapshot, and when one may be restored (SPEC H3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from hotspare.ha.calls.store_jobs import Candidate, StoreJobKind
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import two_projects
from hotspare.ha.rules.actions import Duty
from hotspare.ha.rules.cron import parse_cron
from hotspare.ha.rules.facts import LONG_AGO_MS, NewestSnapshot, OtherMember, Snapshots
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.view import StreamView, View
from hotspare.stores.contract import SnapshotInfo, SnapshotStatus

LATE_INTERVALS = 3
"""The number of intervals, in time or in events, after which the newest confirmed snapshot is late: then the next engine takes
one."""
CRON_TURN_MS = 60_000
"""The time after which the next engine takes a scheduled snapshot if none was confirmed since the scheduled time."""
EVENTS_TURN_MS = 10_000
"""The time after which the next engine takes a snapshot that a count of events requires. At high rates LATE_INTERVALS pass while
one snapshot is written."""
SNAPSHOT_RETRY_MS = 10_000
"""The pause before a failed snapshot is retried, if snapshots depend on events or a schedule."""
REFUSED_MAX = 5
"""The maximum of refused snapshots whose reasons an engine retains."""
STORE_STUCK_MAX = 2
"""The number of stuck jobs on the store at which no further job begins until one of them ends."""


def store_timeout_duties(view: View) -> Iterator[Duty]:
    if view.store.oldest_ms is not None:
        yield Duty(view.store.oldest_ms + view.settings.store_wait_ms, do.AbandonStoreJobs())


def candidate_duties(view: View) -> Iterator[Duty]:
    if view.store.is_updating or view.store.stuck >= STORE_STUCK_MAX:
        return
    for candidate in view.snapshots.candidates:
        if view.difference is not None:
            yield Duty(0, do.DiscardSnapshot(candidate.name))
        elif is_settled(view, candidate):
            yield Duty(confirm_due_ms(view, candidate), do.ConfirmSnapshot(candidate.name))


def is_settled(view: View, candidate: Candidate) -> bool:
    """Whether a candidate may be confirmed: in every stream that may lose nothing, committed progress has reached the candidate's
    outputs and agrees with them.

    In a stream with an unknown shift nothing can be compared. There the candidate's outputs have to be released, because later
    ones are committed.
    """
    return all(
        each.base_sequence >= sequence
        if each.facts.is_shift_unknown
        else each.facts.verified >= sequence and not each.facts.is_unproven
        for each, sequence in _numbered(view, candidate)
        if each.quality.holds_all
    )


def _numbered(view: View, candidate: Candidate) -> list[tuple[StreamView, int]]:
    """Returns, for each stream, its view and the sequence of its newest output in the candidate. The sequence includes the change
    of the stream's shift since the candidate was taken."""
    known = ((view.streams[stream], stream, n) for stream, n in candidate.sequences.items())
    return [(each, n + each.shift - candidate.shifts.get(stream, 0)) for each, stream, n in known]


def is_final(view: View, candidate: Candidate) -> bool:
    """Whether no decision about a hung call can make the snapshot void any more: committed output lies beyond it, so that no engine
    can decide about a position before it, and the state of this engine, which wrote it, is not void itself (`hung_calls`)."""
    return not view.core.missing_decisions and any(
        not each.facts.is_shift_unknown and each.facts.committed_sequence > sequence
        for each, sequence in _numbered(view, candidate)
    )


def confirm_due_ms(view: View, candidate: Candidate) -> int:
    """Returns the time at which a settled candidate is confirmed. It waits up to `divergence_wait_ms` for progress of streams that
    may lose outputs.

    That is long enough to notice a state that differs in these streams alone; lost outputs never appear in progress.
    """
    others = [each for each in _numbered(view, candidate) if not each[0].quality.holds_all]
    is_compared = all(_is_compared(stream, sequence) for stream, sequence in others)
    return LONG_AGO_MS if is_compared else candidate.taken_ms + view.settings.divergence_wait_ms


def _is_compared(stream: StreamView, sequence: int) -> bool:
    """Whether output `sequence` of the stream was compared with what is committed, or committed progress has passed it so that it
    no longer can be."""
    return stream.facts.verified >= sequence or sequence <= stream.facts.committed_sequence <= stream.last_sequence


def snapshot_duties(view: View) -> Iterator[Duty]:
    settings, due_ms = view.settings, snapshot_due_ms(view)
    if (
        due_ms is not None
        and _has_new_state(view)
        and not view.store.is_writing
        and view.store.stuck < STORE_STUCK_MAX
        and view.difference is None
        and len(view.snapshots.candidates) < settings.candidate_snapshots_max
    ):
        yield Duty(due_ms, do.TakeSnapshot())


def _has_new_state(view: View) -> bool:
    return view.core.is_between_batches and view.core.order != view.snapshots.snapshot_order


def snapshot_due_ms(view: View) -> int | None:
    """Returns the earliest time at which the interval, the count of events or the schedule requires a snapshot of this engine (SPEC
    G9, H4). None: not yet, or never.

    The engine with the first turn takes a snapshot each interval. Engines with later turns do, one after the other, if the newest
    confirmed snapshot is late.
    """
    turn = snapshot_turn(view)
    if turn is None:
        return None
    found = (_by_time(view, turn), _by_events(view, turn), _by_schedule(view, turn))
    return min((due_ms for due_ms in found if due_ms is not None), default=None)


def _by_time(view: View, turn: int) -> int | None:
    interval_ms = view.settings.snapshot_interval_ms
    if not interval_ms:
        return None
    late_ms = view.snapshots.newest.seen_ms + (LATE_INTERVALS + turn - 1) * interval_ms
    return max(view.snapshots.snapshot_ms + interval_ms, late_ms if turn else view.snapshots.snapshot_ms)


def _by_events(view: View, turn: int) -> int | None:
    count, known, taken = view.settings.snapshot_events, view.snapshots, view.intake.events_taken
    is_late = not turn or taken - known.newest.seen_events >= (LATE_INTERVALS + turn - 1) * count
    late_ms = known.newest.seen_ms + turn * EVENTS_TURN_MS if turn else 0
    return _after_retry_pause(view, late_ms) if count and taken - known.written_events >= count and is_late else None


def _by_schedule(view: View, turn: int) -> int | None:
    if not view.settings.snapshot_cron:
        return None
    cron, known = parse_cron(view.settings.snapshot_cron), view.snapshots
    at_ms = cron.next_ms(known.written_wall_ms)
    if turn:
        at_ms = max(at_ms, cron.next_ms(known.newest.seen_wall_ms) + turn * CRON_TURN_MS)
    return _after_retry_pause(view, view.now_ms + at_ms - view.wall_ms)


def _after_retry_pause(view: View, due_ms: int) -> int:
    has_failed = view.snapshots.snapshot_order < 0
    return max(due_ms, view.snapshots.snapshot_ms + SNAPSHOT_RETRY_MS) if has_failed else due_ms


def snapshot_turn(view: View) -> int | None:
    """Returns the turn of this engine: the count of engines that take snapshots before it. None: this one takes none.

    The order: spares by priority, greatest first; of equals the one that confirmed the newest snapshot, then by name. The active
    engine is last, since a snapshot would delay it.
    """
    own = view.settings.snapshot_priority
    spares = [o for o in two_projects.own_project_engines(view) if _takes_snapshots(o)]
    if view.role_state.role is Role.ACTIVE:
        return len(spares) if own else None
    by = view.snapshots.newest.engine
    place = (-own, view.engine != by, view.engine)
    return sum((-o.snapshot_priority, o.engine != by, o.engine) < place for o in spares) if own else None


def _takes_snapshots(other: OtherMember) -> bool:
    return other.role == Role.STANDBY.value and not other.is_differing and other.snapshot_priority > 0


# --- results of work on the store ----------------------------------------------------------------------------------------------


def after_writing(known: Snapshots, candidate: Candidate) -> Snapshots:
    if not candidate.is_in_group_store:
        return replace(known, candidates=(*known.candidates, candidate))
    return replace(
        known,
        candidates=(*known.candidates, candidate),
        written_wall_ms=candidate.taken_wall_ms,
        written_events=candidate.taken_events,
        failure="",
    )


def after_failing(known: Snapshots, work: StoreJobKind, failure: str) -> Snapshots:
    """Returns the facts after a job of kind `work` failed; only failed writes and confirmations count. After a failed write the
    same state may be written again, even without new input."""
    if work not in (StoreJobKind.WRITE, StoreJobKind.CONFIRM):
        return known
    return replace(known, failure=failure, snapshot_order=-1 if work is StoreJobKind.WRITE else known.snapshot_order)


def after_refusing(known: Snapshots, sentence: str) -> Snapshots:
    """Returns the facts with a sentence on a snapshot that cannot be used."""
    return replace(known, refused=(*known.refused, sentence)[-REFUSED_MAX:])


def after_confirming(
    known: Snapshots, candidate: Candidate, engine: str, now_ms: int, wall_ms: int = 0, events: int = 0
) -> Snapshots:
    """Returns the facts after this engine, `engine`, confirmed `candidate`. It becomes the newest unless a later one is known.

    `wall_ms`: the time of day; `events`: the count of events that this engine has processed.
    """
    return replace(
        known,
        snapshots_confirmed=known.snapshots_confirmed + 1,
        failure="",
        confirmed_order=max(known.confirmed_order, candidate.order),
        own_confirmed=candidate,
        newest=_newer(known.newest, NewestSnapshot(candidate.order, engine, now_ms, wall_ms, events)),
    )


def with_reported_snapshots(
    known: Snapshots, others: Iterable[OtherMember], now_ms: int, wall_ms: int = 0, events: int = 0
) -> Snapshots:
    """Returns the facts after other engines reported the newest snapshots that they confirmed."""
    newest = known.newest
    for other in others:
        newest = _newer(newest, NewestSnapshot(other.confirmed_order, other.engine, now_ms, wall_ms, events))
    return replace(known, newest=newest)


def _newer(known: NewestSnapshot, other: NewestSnapshot) -> NewestSnapshot:
    return other if other.order > known.order else known


def superseded(listed: Sequence[SnapshotInfo], confirmed: Candidate) -> list[str]:
    """Returns the names of candidates, of any engine, that are older than the confirmed snapshot and therefore useless."""
    return [i.name for i in listed if i.status is SnapshotStatus.CANDIDATE and i.order < confirmed.order]


def to_delete(listed: Sequence[SnapshotInfo], name: str, keep: int) -> list[str]:
    """Returns the names of the snapshots to delete, oldest first, in a place where `name` was just confirmed. Of the confirmed
    ones `keep` remain, `name` included; candidates older than `name` do not.

    Age is the time of writing, because positions begin again if the group's state is deleted meanwhile.
    """
    own_us = next((info.written_time_us for info in listed if info.name == name), -1)
    older = sorted(
        (i for i in listed if i.name != name and i.written_time_us <= own_us), key=lambda i: (i.written_time_us, i.order)
    )
    confirmed = [info for info in older if info.status is SnapshotStatus.CONFIRMED]
    kept = {info.name for info in confirmed[max(0, len(confirmed) - keep + 1) :]}
    return [info.name for info in older if info.name not in kept]
