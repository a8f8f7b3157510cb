"""Bringing what is committed and what is held together: letting go, and noticing that outputs differ (SPEC Z9, Z10, D14)."""

from __future__ import annotations

from collections.abc import Mapping

from hotspare.bus.contract import Progress
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group_state import LONG_AGO_MS, GroupState, committed_sequence
from hotspare.ha.ports import Ports
from hotspare.ha.view import Difference


def note_progress(state: GroupState, ports: Ports, progress: Mapping[str, Progress]) -> None:
    """Take note of what is committed; older news than what is known is ignored."""
    for stream, news in progress.items():
        if stream in state.held.streams and news.sequence >= committed_sequence(state, stream):
            state.committed[stream] = news
    settle(state, ports)


def settle(state: GroupState, ports: Ports) -> None:
    """Let go of every held output that is known to be committed, held or not yet computed, after comparing it.

    An engine that has not come as far as what is committed lets go of all it has; it is compared when it gets there.
    """
    for stream, progress in state.committed.items():
        held = state.held.streams[stream]
        if held.last_sequence < progress.sequence:
            held.drop_through(held.last_sequence)
        elif progress.sequence > state.verified.get(stream, 0):
            _compare(state, ports, stream, progress)


def _compare(state: GroupState, ports: Ports, stream: str, progress: Progress) -> None:
    """The same sequence with another id or digest: these are not the group's outputs, and nothing is let go."""
    held = state.held.streams[stream]
    mark = held.mark_at(progress.sequence)
    if mark is None:
        return  # the state begins after it, which `decide` refuses where it matters
    if mark.digest == progress.digest and mark.output_id == progress.output_id:
        state.verified[stream] = progress.sequence
        state.differences.pop(stream, None)
        held.drop_through(progress.sequence)
        return
    known = state.differences.get(stream)
    if known is not None and known.epoch == progress.epoch:
        return
    state.member_refreshed_ms = LONG_AGO_MS  # another spare may agree: let it know
    state.differences[stream] = Difference(stream, progress.sequence, mark.digest, progress.epoch, ports.clock_ms())
    sentence = f"output {progress.sequence} of stream {stream} differs from the one committed under epoch {progress.epoch}"
    ports.report(HaEvent(HaEventKind.DIFFERENCE_SEEN, state.group, state.engine, sentence))


def accept_committed(state: GroupState) -> None:
    """Go on from what is committed although it differs: two spares agree against the engine that committed it."""
    for stream, progress in state.committed.items():
        state.verified[stream] = progress.sequence
        state.held.streams[stream].drop_through(progress.sequence)
    state.differences.clear()
    state.overrules = False


def note_own_commit(state: GroupState, published: Mapping[str, Progress]) -> None:
    """This engine committed these itself."""
    for stream, progress in published.items():
        state.committed[stream] = progress
        state.verified[stream] = progress.sequence
        state.held.streams[stream].drop_through(progress.sequence)
