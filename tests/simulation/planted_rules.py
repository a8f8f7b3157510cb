"""Bugs in the rules of failover and in the outputs that engines hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from hotspare.bus.contract import Progress
from hotspare.ha.effects import committed, ha_loop, perform, publishing, recording
from hotspare.ha.group_state import GroupState, stream_views
from hotspare.ha.outputs.held import HeldStream
from hotspare.ha.outputs.qualities import Qualities
from hotspare.ha.outputs.transaction import NextCommit
from hotspare.ha.ports import BlockCodec, Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import decide, lease, snapshots
from hotspare.ha.rules import publishing as publishing_rules
from hotspare.ha.rules.facts import LONG_AGO_MS, Contact
from hotspare.ha.rules.roles import Reason, Role, Step
from hotspare.ha.rules.view import StreamView, View
from hotspare.model.quality import Quality
from hotspare.rows.batch import NextInput
from tests.simulation.faults import FaultKind
from tests.simulation.planting import both, planted

FOREVER_MS = 1 << 60


def _performer(kind: type[Any], function: Callable[[Any, GroupState, Ports], None]) -> Any:
    return patch.dict(perform.PERFORMERS, {kind: function})


@planted(FaultKind.ALL_DEAD)
def snapshot_ahead() -> Any:
    """A snapshot may be restored before the outputs before it were published."""
    return patch.object(snapshots, "is_settled", lambda view, candidate: True)


@planted(FaultKind.PERSIST)
def persisted_ahead() -> Any:
    """A requested snapshot may be restored as soon as it is written."""
    settled = snapshots.is_settled
    return patch.object(
        snapshots, "is_settled", lambda view, candidate: bool(candidate.persist_request) or settled(view, candidate)
    )


@planted(FaultKind.LAG, FaultKind.CRASH)
def drop_held_only() -> Any:
    """Outputs that a spare behind the active has not yet computed are not dropped at promotion."""
    whole = committed.record_progress

    def clipped(state: GroupState, ports: Ports, progress: Mapping[str, Progress]) -> None:
        known = {}
        for stream, news in progress.items():
            held = state.held.streams[stream]
            mark = held.mark_at(held.last_sequence)
            behind = held.last_sequence < news.sequence and mark is not None and state.role_state.role is Role.PROMOTING
            known[stream] = Progress(mark.sequence, mark.output_id, mark.digest, news.epoch) if behind and mark else news
        whole(state, ports, known)

    return patch.object(committed, "record_progress", clipped)


def _no_recheck(_: do.Recheck, state: GroupState, ports: Ports) -> None:
    state.role_state = replace(state.role_state, step=Step.CHECKED)


@planted(FaultKind.PAUSE, FaultKind.CLOCK_STALL, FaultKind.LATE_ANSWER)
def no_recheck() -> Any:
    """The coordination epoch is not read again after fencing."""
    return _performer(do.Recheck, _no_recheck)


@planted(FaultKind.LATE_FENCE)
def fenced_is_end() -> Any:
    """A fenced engine never takes part again, though it may hold the newest epoch."""

    def end(state: GroupState, ports: Ports, reason: Reason) -> None:
        state.contacts = replace(state.contacts, coordination_retry_ms=1 << 60)
        state.leadership = replace(state.leadership, leader=None)
        recording.change_role(state, ports, Role.STANDBY, Reason.NEWER_EPOCH)

    return patch.object(publishing, "_fence_again", end)


@planted(FaultKind.CLOCK_STALL, FaultKind.SWITCHOVER)
@contextmanager
def recheck_before_fence() -> Iterator[None]:
    """The coordination epoch is read again before fencing instead of after."""
    checked: set[tuple[str, str, int]] = set()
    right = perform.PERFORMERS[do.Fence]

    def fence(action: do.Fence, state: GroupState, ports: Ports) -> None:
        key = (state.group, state.engine + str(state.identity.process_start), action.epoch)
        if key in checked:
            right(action, state, ports)
        else:
            checked.add(key)
            perform.PERFORMERS[do.ReadLeader](do.ReadLeader(Reason.TIMER), state, ports)

    with _performer(do.Fence, fence), no_recheck():
        yield


@planted(FaultKind.PROGRESS_LOST, FaultKind.CRASH)
def publish_from_zero() -> Any:
    """A stream without a progress record is taken to be unpublished."""
    return patch.object(publishing, "progress_from_tail", lambda bus, codec, stream, partition: Progress(0, None, 0, 0))


@planted(FaultKind.TRIM_OUTPUT, FaultKind.UNKNOWN_RESULT, FaultKind.CRASH)
def outputs_before_records() -> Any:
    """Outputs are sent before a record says that none is committed: aborted outputs then look like lost ones."""
    right = publishing.next_commit

    def next_commit(state: GroupState, view: View, codec: BlockCodec) -> NextCommit:
        for stream, known in state.streams.items():
            if known.unrecorded is not None and not known.unrecorded.sequence:
                state.streams[stream] = replace(known, unrecorded=None)
        return right(state, replace(view, streams=stream_views(state)), codec)

    return patch.object(publishing, "next_commit", next_commit)


@planted(FaultKind.SLOW_COMMITS, FaultKind.SLOW_CALLS)
def two_transactions_at_once() -> Any:
    """Outputs computed while a transaction is in flight are published concurrently."""
    right = publishing_rules.await_due_ms

    def await_due_ms(view: View) -> int | None:
        due_ms = right(view)
        return None if due_ms is not None and due_ms > LONG_AGO_MS else due_ms

    return patch.object(publishing_rules, "await_due_ms", await_due_ms)


@planted(FaultKind.STUCK)
def renew_without_progress() -> Any:
    """The lease is renewed by a living thread, though no batch passes."""
    keep = lease.lease_duties

    def renewed(view: View, owed: publishing_rules.DueTimes) -> Iterator[do.Duty]:
        return keep(replace(view, lease=replace(view.lease, has_progressed=True)), owed)

    return patch.object(lease, "lease_duties", renewed)


@planted(FaultKind.CRASH, FaultKind.PAUSE)
def ring_of_held() -> Any:
    """A spare holds a fixed number of outputs (SPEC D15, Z10)."""
    whole = HeldStream.append

    def append(self: HeldStream, batch: Any) -> None:
        whole(self, batch)
        self.drop_through(self.last_sequence - 3)

    return patch.object(HeldStream, "append", append)


@planted(FaultKind.LATE_COMMIT)
def reads_without_fence() -> Any:
    """After an unknown result progress is read without fencing first: the commit may still arrive."""
    right = publishing._fence_again

    def fence_again(state: GroupState, ports: Ports, reason: Reason) -> None:
        right(state, ports, reason)
        if reason is Reason.UNKNOWN_RESULT:
            state.role_state = replace(state.role_state, step=Step.FENCED)

    return patch.object(publishing, "_fence_again", fence_again)


@planted(FaultKind.FENCED_DONE)
def fenced_is_not_written() -> Any:
    """An engine fenced in a commit assumes that nothing was written, and does not read progress again."""
    right, read = publishing._fence_again, perform.PERFORMERS[do.ReadCommitted]
    fenced: set[tuple[str, int, int]] = set()

    def fence_again(state: GroupState, ports: Ports, reason: Reason) -> None:
        right(state, ports, reason)
        if reason is Reason.FENCED:
            fenced.add((state.engine, state.identity.process_start, state.role_state.epoch))

    def read_committed(action: do.ReadCommitted, state: GroupState, ports: Ports) -> None:
        if (state.engine, state.identity.process_start, state.role_state.epoch) in fenced:
            state.role_state = replace(state.role_state, step=Step.READ)
        else:
            read(action, state, ports)

    return both(patch.object(publishing, "_fence_again", fence_again), _performer(do.ReadCommitted, read_committed))


def _silent_after(contact: Contact) -> Any:
    right = perform.perform

    def done(action: do.HaAction, state: GroupState, ports: Ports) -> None:
        right(action, state, ports)
        if state.contacts.contact is contact:
            state.contacts = replace(state.contacts, coordination_retry_ms=FOREVER_MS)

    return patch.object(perform, "perform", done)


@planted(FaultKind.COORDINATION)
def lost_is_end() -> Any:
    """An engine whose session was lost never speaks to coordination again."""
    return _silent_after(Contact.LOST)


@planted(FaultKind.COORDINATION_OUTAGE)
def suspended_is_end() -> Any:
    """An engine that coordination did not answer never asks again."""
    return _silent_after(Contact.SUSPENDED)


@planted(FaultKind.CUT_OFF)
def connection_only() -> Any:
    """Only a closed connection frees the role, never the end of its lease."""
    right = decide.vacancy

    def vacancy(view: View) -> Reason | None:
        reason = right(view)
        return None if reason is Reason.LEASE_OVER else reason

    return patch.object(decide, "vacancy", vacancy)


@planted(FaultKind.SWITCHOVER, FaultKind.CRASH, FaultKind.STOP)
def successor_for_ever() -> Any:
    """A named successor is awaited without end."""
    right = decide._campaign_due_ms

    def campaign_due_ms(view: View) -> int:
        waits = view.leadership.leader is not None and view.leadership.leader.successor not in ("", view.engine)
        return FOREVER_MS if waits else right(view)

    return patch.object(decide, "_campaign_due_ms", campaign_due_ms)


@planted(FaultKind.SHORT_MEMORY)
def spilled_out_of_order() -> Any:
    """Outputs spilled first are read back last."""
    right = HeldStream.spill

    def spill(self: HeldStream, path: Any) -> int:
        written = right(self, path)
        self._segments.reverse()
        return written

    return patch.object(HeldStream, "spill", spill)


@planted(FaultKind.CLOCK_RATE, FaultKind.CLOCK_STALL, FaultKind.BUS_CLOCK)
def clock_in_the_core() -> Any:
    """Time is the engine's own clock, not the input's."""
    right = ha_loop.process_batch

    def process_batch(state: GroupState, ports: Ports, decoded: pa.RecordBatch, next_input: NextInput) -> Iterator[None]:
        state.core.time_us += ports.clock_ms() % 100 * 1_000  # type: ignore[misc]
        return right(state, ports, decoded, next_input)

    return patch.object(ha_loop, "process_batch", process_batch)


@planted(FaultKind.SERVICE_CLOCK, FaultKind.PAUSE)
def lease_is_a_fence() -> Any:
    """A winner does not fence after the old lease has ended: supposedly no engine can be publishing."""
    right = perform.PERFORMERS[do.Fence]

    def fence(action: do.Fence, state: GroupState, ports: Ports) -> None:
        if state.leadership.predecessor is not None and ports.clock_ms() >= state.leadership.predecessor_lease_end_ms:
            state.producer = ports.bus.producer(state.group, state.topics.output_topics)
            producer = state.producer.inner  # type: ignore[attr-defined]
            producer._generation = producer._bus.generations.get(state.group, 0)
            producer._bus.epochs[state.group] = action.epoch
            state.role_state = replace(state.role_state, step=Step.FENCED)
        else:
            right(action, state, ports)

    return _performer(do.Fence, fence)


@planted(FaultKind.WRONG_ENGINE, FaultKind.CRASH)
def difference_ignored() -> Any:
    """An engine continues although its outputs are not those committed."""

    def compare(state: GroupState, ports: Ports, stream: str, progress: Progress) -> bool:
        state.streams[stream] = replace(state.streams[stream], verified=progress.sequence)
        state.held.streams[stream].drop_through(progress.sequence)
        return False

    return patch.object(committed, "_compare", compare)


@planted(FaultKind.CRASH, FaultKind.LAG)
def quality_of_another() -> Any:
    """A spare treats all streams by the weakest quality among them: a precise one loses what a simple one may."""
    right = Qualities.stream_quality

    def of(self: Qualities, stream: str) -> Quality:
        weakest = [quality for quality in self.by_stream.values() if not quality.holds_all]
        return weakest[0] if weakest else right(self, stream)

    return patch.object(Qualities, "stream_quality", of)


@planted(FaultKind.CRASH, FaultKind.PAUSE)
def trimmed_without_progress() -> Any:
    """Progress of a trimmed stream is written only when its time is up, however many outputs there were."""
    right = publishing_rules.is_progress_due

    def is_due(view: View, stream: StreamView, sequence: int) -> bool:
        later = replace(stream.quality, progress_events=stream.quality.progress_events and 10**9)
        return right(view, replace(stream, quality=later), sequence)

    return patch.object(publishing_rules, "is_progress_due", is_due)


@planted(FaultKind.CRASH, FaultKind.PAUSE)
def window_of_half() -> Any:
    """A buffered stream is kept for half the time and half the count of its window."""
    right = committed.release_by_quality

    def let_go(state: GroupState, now_ms: int) -> None:
        halves = {s: replace(q, window_events=q.window_events // 2 or q.window_events, window_ms=q.window_ms // 2)
                  for s, q in state.qualities.by_stream.items()}  # fmt: skip
        with patch.object(state, "qualities", replace(state.qualities, by_stream=halves)):
            right(state, now_ms)

    return patch.object(committed, "release_by_quality", let_go)


@planted(FaultKind.SHORT_MEMORY)
def held_for_ever() -> Any:
    """A spare that reads progress compares it, and drops nothing."""
    right = HeldStream.drop_through

    def drop(self: HeldStream, sequence: int) -> None:
        if self.last_sequence % 2:
            right(self, sequence)

    return patch.object(HeldStream, "drop_through", drop)


@planted(FaultKind.WRONG_ENGINE)
def snapshot_unseen() -> Any:
    """A snapshot does not wait for streams that may lose outputs, so a state that is wrong in those alone is restored."""
    return patch.object(snapshots, "confirm_due_ms", lambda view, candidate: 0)
