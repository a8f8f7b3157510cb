"""Bringing what is committed and what is held together: letting go, and noticing that outputs differ (SPEC Z9, Z10, D14)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from hotspare.bus.contract import Progress
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group_state import LONG_AGO_MS, GroupState, committed_sequence
from hotspare.ha.outputs.held import HeldStream
from hotspare.ha.outputs.progress_points import ProgressPoints
from hotspare.ha.ports import Ports
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.view import Difference
from hotspare.model.quality import QualityKind


def note_progress(state: GroupState, ports: Ports, progress: Mapping[str, Progress]) -> None:
    """Take note of what is committed; older news than what is known is ignored."""
    for stream, news in progress.items():
        if stream in state.held.streams and news.sequence >= committed_sequence(state, stream):
            if news.sequence > committed_sequence(state, stream):
                state.fruitless_since_ms = None  # also of a commit without an answer
            state.committed[stream] = news
            state.ahead.setdefault(stream, ProgressPoints()).add(news)
    settle(state, ports)


def settle(state: GroupState, ports: Ports) -> None:
    """Compare every output at which progress was read, once it is computed, and let go of all that are known to be committed.

    An engine that has not come as far as what is committed lets go of all it has; it is compared when it gets there.
    """
    for stream, progress in state.committed.items():
        held = state.held.streams[stream]
        for point in state.ahead[stream].take_through(held.last_sequence) if stream in state.ahead else ():
            if point.sequence > state.verified.get(stream, 0):
                _compare(state, ports, stream, point)
        through = min(progress.sequence, held.last_sequence)
        if stream in state.differences:
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
    if digest == progress.digest and (mark is None or mark.output_id == progress.output_id):
        state.verified[stream] = progress.sequence
        state.unproven.discard(stream)
        state.differences.pop(stream, None)
        return
    known = state.differences.get(stream)
    if known is not None and known.epoch == progress.epoch:
        return
    state.member_refreshed_ms = LONG_AGO_MS  # another spare may agree: let it know
    state.differences[stream] = Difference(stream, progress.sequence, digest, progress.epoch, ports.clock_ms())
    sentence = f"output {progress.sequence} of stream {stream} differs from the one committed under epoch {progress.epoch}"
    ports.report(HaEvent(HaEventKind.DIFFERENCE_SEEN, state.group, state.engine, sentence))


def accept_committed(state: GroupState) -> None:
    """Go on from what is committed although it differs: another spare agrees against the engine that committed it, or nobody else
    can. What differs, or was not computed yet, is no proof of this engine's state."""
    for stream, progress in state.committed.items():
        if state.verified.get(stream, 0) < progress.sequence:
            state.unproven.add(stream)
        state.verified[stream] = progress.sequence
        state.held.streams[stream].drop_through(progress.sequence)
    state.ahead.clear()
    state.differences.clear()
    state.overrules = False


def note_own_commit(state: GroupState, published: Mapping[str, Progress], sent: Mapping[str, int], now_ms: int) -> None:
    """This engine committed these itself. Outputs that are on the topic and not in its progress stay held: if this engine dies,
    they come again, and if it only loses the role for a while, it must be able to bring them again itself."""
    for stream, sequence in sent.items():
        state.sent[stream] = sequence
        state.unrecorded_since_ms.setdefault(stream, now_ms)
        state.may_repeat.discard(stream)
    for stream, progress in published.items():
        state.unrecorded.pop(stream, None)
        if progress.sequence <= committed_sequence(state, stream):
            continue  # a lost record, written again: it says nothing about this engine's outputs
        state.committed[stream] = progress
        state.verified[stream] = progress.sequence
        state.unproven.discard(stream)
        state.unrecorded_since_ms.pop(stream, None)
        state.held.streams[stream].drop_through(progress.sequence)


def forget_sent(state: GroupState) -> None:
    """A new epoch is won: what this engine committed before says nothing about where the topics end, and progress does.

    Under one epoch nobody else commits. So who fences again, because of a commit whose result it does not know, keeps what it knows
    of those before it: else a trimmed stream whose commits fail more often than its progress is written would never come on.
    """
    state.sent.clear()
    state.unrecorded_since_ms.clear()


def let_go_by_quality(state: GroupState, now_ms: int) -> None:
    """A spare keeps of each stream what its quality asks for: all, a window, or nothing. Called after outputs were held.
    Digests of the rest stay, to be compared with what is committed.

    Whoever is promoting or active keeps everything until it is committed.
    """
    if state.role is not Role.STANDBY:
        state.arrivals.clear()
        return
    for stream, held in state.held.streams.items():
        quality = state.qualities.of(stream)
        if quality.kind is QualityKind.SIMPLE:
            held.let_go(held.last_sequence)
        elif quality.window_events:
            held.let_go(held.last_sequence - quality.window_events)
        elif quality.window_ms:
            _let_go_older(state.arrivals.setdefault(stream, deque()), held, now_ms, quality.window_ms)


def _let_go_older(arrivals: deque[tuple[int, int]], held: HeldStream, now_ms: int, window_ms: int) -> None:
    if held.last_sequence > (arrivals[-1][0] if arrivals else held.base.sequence):
        arrivals.append((held.last_sequence, now_ms))
    while arrivals and arrivals[0][1] <= now_ms - window_ms:
        held.let_go(arrivals.popleft()[0])


def note_lost(state: GroupState, ports: Ports) -> None:
    """Say how much a spare that takes over no longer held, and so nobody will ever publish (SPEC D15: never silently)."""
    for stream, held in state.held.streams.items():
        after, through = committed_sequence(state, stream), held.base.sequence
        if through <= max(after, state.lost_before.get(stream, 0)):
            continue
        state.lost_before[stream] = through
        state.lost[stream] = state.lost.get(stream, 0) + through - after
        sentence = f"outputs {after + 1} to {through} of stream {stream} were no longer held and are lost"
        numbers = {"outputs": through - after}
        ports.report(HaEvent(HaEventKind.OUTPUTS_LOST, state.group, state.engine, sentence, numbers))
