"""Whose turn it is to take a snapshot, and when one may be restored (DESIGN section 4, SPEC H3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from hotspare.ha.calls.store_jobs import Candidate, StoreWork
from hotspare.ha.rules import actions as do
from hotspare.ha.rules.actions import Duty
from hotspare.ha.rules.facts import LONG_AGO_MS, NewestSnapshot, OtherMember, Snapshots
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.view import View
from hotspare.stores.contract import SnapshotInfo, SnapshotStatus

LATE_INTERVALS = 3
"""A newest confirmed snapshot that is older than so many intervals shows that those whose turn it is take none."""
STORE_STUCK_MAX = 2
"""So many calls to the store without an answer, and no further one begins until one of them ends."""


def give_up_store(view: View) -> Iterator[Duty]:
    if view.store.oldest_ms is not None:
        yield Duty(view.store.oldest_ms + view.settings.store_wait_ms, do.GiveUpStore())


def candidates(view: View) -> Iterator[Duty]:
    if view.store.is_marking or view.store.stuck >= STORE_STUCK_MAX:
        return
    for candidate in view.snapshots.candidates:
        if view.difference is not None:
            yield Duty(0, do.DiscardSnapshot(candidate.name))
        elif is_settled(view, candidate):
            yield Duty(confirm_due_ms(view, candidate), do.ConfirmSnapshot(candidate.name))


def is_settled(view: View, candidate: Candidate) -> bool:
    """Whether committed progress has reached it and agrees, of every stream of which nothing may be lost, however long it takes."""
    waited_for = [(view.streams[s].facts, n) for s, n in candidate.sequences.items() if view.streams[s].quality.holds_all]
    return all(facts.verified >= sequence and not facts.is_unproven for facts, sequence in waited_for)


def confirm_due_ms(view: View, candidate: Candidate) -> int:
    """The other streams are waited for so long that a state that differs in them alone is noticed; what is lost never comes."""
    others = [(s, n) for s, n in candidate.sequences.items() if not view.streams[s].quality.holds_all]
    is_compared = all(_is_compared(view, stream, sequence) for stream, sequence in others)
    return LONG_AGO_MS if is_compared else candidate.taken_ms + view.settings.divergence_wait_ms


def _is_compared(view: View, name: str, sequence: int) -> bool:
    """Whether an output was compared with what is committed, as far as this engine still can."""
    stream = view.streams[name]
    return stream.facts.verified >= sequence or sequence <= stream.facts.committed_sequence <= stream.last_sequence


def take(view: View) -> Iterator[Duty]:
    settings = view.settings
    if (
        settings.snapshot_interval_ms
        and _has_new_state(view)
        and not view.store.is_writing
        and view.store.stuck < STORE_STUCK_MAX
        and view.difference is None
        and len(view.snapshots.candidates) < settings.candidate_snapshots_max
    ):
        yield Duty(snapshot_due_ms(view), do.TakeSnapshot())


def _has_new_state(view: View) -> bool:
    return view.core.is_whole and view.core.order != view.snapshots.snapshot_order


def snapshot_due_ms(view: View) -> int:
    """Whose turn it is takes one each interval; of the others one after the other, when the newest confirmed one gets too old."""
    interval_ms, turn = view.settings.snapshot_interval_ms, _snapshot_turn(view)
    late_ms = view.snapshots.newest.seen_ms + (LATE_INTERVALS + turn - 1) * interval_ms
    return max(view.snapshots.snapshot_ms + interval_ms, late_ms if turn else view.snapshots.snapshot_ms)


def _snapshot_turn(view: View) -> int:
    """How many engines go before this one in taking snapshots: first the spare that confirmed the newest one, then the others by
    name, then the active, whose work it would delay."""
    spares = [o.engine for o in view.membership.others if _takes_snapshots(o)]
    if view.standing.role is Role.ACTIVE:
        return len(spares)
    by = view.snapshots.newest.engine
    return sum((o != by, o) < (view.engine != by, view.engine) for o in spares)


def _takes_snapshots(other: OtherMember) -> bool:
    return other.role == Role.STANDBY.value and not other.differs


# --- what work on the store came to --------------------------------------------------------------------------------------------


def after_writing(known: Snapshots, candidate: Candidate) -> Snapshots:
    return replace(known, candidates=(*known.candidates, candidate))


def after_failing(known: Snapshots, work: StoreWork) -> Snapshots:
    """A state that was not written may be written anew, also where no input came since."""
    return replace(known, snapshot_order=-1) if work is StoreWork.WRITE else known


def after_confirming(known: Snapshots, candidate: Candidate, engine: str, now_ms: int) -> Snapshots:
    """This engine, `engine`, confirmed one of its own. One that is confirmed late is not the newest."""
    return replace(
        known,
        snapshots_confirmed=known.snapshots_confirmed + 1,
        confirmed_order=max(known.confirmed_order, candidate.order),
        newest=_newer(known.newest, candidate.order, engine, now_ms),
    )


def after_hearing(known: Snapshots, others: Iterable[OtherMember], now_ms: int) -> Snapshots:
    """The others tell which they confirmed."""
    newest = known.newest
    for other in others:
        newest = _newer(newest, other.confirmed_order, other.engine, now_ms)
    return replace(known, newest=newest)


def _newer(known: NewestSnapshot, order: int, engine: str, now_ms: int) -> NewestSnapshot:
    return NewestSnapshot(order, engine, now_ms) if order > known.order else known


def superseded(listed: Sequence[SnapshotInfo], confirmed: Candidate) -> list[str]:
    """Candidates of no use any more, whoever wrote them: a newer snapshot is confirmed."""
    return [i.name for i in listed if i.status is SnapshotStatus.CANDIDATE and i.order < confirmed.order]
