"""Bringing what is committed and what is held together: letting go, and noticing that outputs differ (SPEC Z9, Z10, D14)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from hotspare.bus.contract import Progress
from hotspare.ha.effects import notes
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group_state import GroupState
from hotspare.ha.outputs.held import HeldStream
from hotspare.ha.outputs.progress_points import ProgressPoints
from hotspare.ha.ports import Ports
from hotspare.ha.rules import holding
from hotspare.ha.rules.facts import Difference


def note_progress(state: GroupState, ports: Ports, progress: Mapping[str, Progress]) -> None:
    """Take note of what is committed; older news than what is known is ignored."""
    for stream, news in progress.items():
        known = state.streams.get(stream)
        if known is not None and news.sequence >= known.committed_sequence:
            if news.sequence > known.committed_sequence and state.lease.fruitless_since_ms is not None:
                state.lease = replace(state.lease, fruitless_since_ms=None)  # also of a commit without an answer
            state.streams[stream] = replace(known, committed=news)
            state.ahead.setdefault(stream, ProgressPoints()).add(news)
    settle(state, ports)


def settle(state: GroupState, ports: Ports) -> None:
    """Compare every output at which progress was read, once it is computed, and let go of all that are known to be committed.

    An engine that has not come as far as what is committed lets go of all it has; it is compared when it gets there.
    """
    for stream, held in state.held.streams.items():
        progress = state.streams[stream].committed
        if progress is None:
            continue
        for point in state.ahead[stream].take_through(held.last_sequence) if stream in state.ahead else ():
            if point.sequence > state.streams[stream].verified:
                _compare(state, ports, stream, point)
        through = min(progress.sequence, held.last_sequence)
        if state.streams[stream].difference is not None:
            held.let_go(through)  # another spare may show that its digests are the same
        else:
            held.drop_through(through)
            held.forget_digests(through)


def _compare(state: GroupState, ports: Ports, stream: str, progress: Progress) -> None:
    """The same sequence with another id or digest: these are not the group's outputs."""
    held = state.held.streams[stream]
    mark = held.mark_at(progress.sequence)
    digest = held.digest_at(progress.sequence) if mark is None else mark.digest
    if digest is None:
        return  # the state begins after it, which `decide` refuses where it matters, or too much was let go of since
    known = state.streams[stream]
    if digest == progress.digest and (mark is None or mark.output_id == progress.output_id):
        state.streams[stream] = replace(known, verified=progress.sequence, is_unproven=False, difference=None)
        return
    if known.difference is not None and known.difference.epoch == progress.epoch:
        return
    difference = Difference(stream, progress.sequence, digest, progress.epoch, ports.clock_ms())
    state.streams[stream] = replace(known, difference=difference)
    notes.tell_others_soon(state)  # another spare may agree
    sentence = f"output {progress.sequence} of stream {stream} differs from the one committed under epoch {progress.epoch}"
    ports.report(HaEvent(HaEventKind.DIFFERENCE_SEEN, state.group, state.engine, sentence))


def accept_committed(state: GroupState) -> None:
    """Go on from what is committed although it differs: another spare agrees against the engine that committed it, or nobody else
    can. What differs, or was not computed yet, is no proof of this engine's state."""
    for stream, known in state.streams.items():
        state.streams[stream] = replace(known, difference=None)
        if known.committed is not None:
            sequence = known.committed.sequence
            is_unproven = known.is_unproven or known.verified < sequence
            state.streams[stream] = replace(known, difference=None, verified=sequence, is_unproven=is_unproven)
            state.held.streams[stream].drop_through(sequence)
    state.ahead.clear()
    state.standing = replace(state.standing, overrules=False)


def note_own_commit(state: GroupState, published: Mapping[str, Progress], sent: Mapping[str, int], now_ms: int) -> None:
    """This engine committed these itself. Outputs that are on the topic and not in its progress stay held: if this engine dies,
    they come again, and if it only loses the role for a while, it must be able to bring them again itself."""
    for stream, sequence in sent.items():
        known = state.streams[stream]
        since_ms = now_ms if known.unrecorded_since_ms is None else known.unrecorded_since_ms
        state.streams[stream] = replace(known, sent=sequence, unrecorded_since_ms=since_ms, may_repeat=False)
    for stream, progress in published.items():
        known = state.streams[stream] = replace(state.streams[stream], unrecorded=None)
        if progress.sequence <= known.committed_sequence:
            continue  # a lost record, written again: it says nothing about this engine's outputs
        state.streams[stream] = replace(
            known, committed=progress, verified=progress.sequence, is_unproven=False, unrecorded_since_ms=None
        )
        state.held.streams[stream].drop_through(progress.sequence)


def forget_sent(state: GroupState) -> None:
    """A new epoch is won: what this engine committed before says nothing about where the topics end, and progress does.

    Under one epoch nobody else commits. So who fences again, because of a commit whose result it does not know, keeps what it knows
    of those before it: else a trimmed stream whose commits fail more often than its progress is written would never come on.
    """
    for stream, known in state.streams.items():
        state.streams[stream] = replace(known, sent=0, unrecorded_since_ms=None)


def let_go_by_quality(state: GroupState, now_ms: int) -> None:
    """A spare keeps of each stream what its quality asks for. Called after outputs were held. Digests of the rest stay, to be
    compared with what is committed."""
    if holding.keeps_all(state.standing.role):
        state.arrivals.clear()
        return
    for stream, held in state.held.streams.items():
        quality = state.qualities.of(stream)
        arrivals = _noted(state, stream, held, now_ms) if quality.window_ms else deque[tuple[int, int]]()
        through = holding.let_go_through(quality, held.last_sequence, arrivals, now_ms)
        while arrivals and arrivals[0][0] <= through:
            arrivals.popleft()
        held.let_go(through)


def _noted(state: GroupState, stream: str, held: HeldStream, now_ms: int) -> deque[tuple[int, int]]:
    """When the stream's outputs were computed, the newest ones included."""
    arrivals = state.arrivals.setdefault(stream, deque())
    if held.last_sequence > (arrivals[-1][0] if arrivals else held.base.sequence):
        arrivals.append((held.last_sequence, now_ms))
    return arrivals


def note_lost(state: GroupState, ports: Ports) -> None:
    """Say how much a spare that takes over no longer held, and so nobody will ever publish (SPEC D15: never silently)."""
    for stream, held in state.held.streams.items():
        known = state.streams[stream]
        after, through = known.committed_sequence, held.base.sequence
        if through <= max(after, known.lost_before):
            continue
        state.streams[stream] = replace(known, lost=known.lost + through - after, lost_before=through)
        sentence = f"outputs {after + 1} to {through} of stream {stream} were no longer held and are lost"
        numbers = {"outputs": through - after}
        ports.report(HaEvent(HaEventKind.OUTPUTS_LOST, state.group, state.engine, sentence, numbers))
