"""Notices a runner that hangs: input is known to be there, as others have read it or this one wrote ticks, and no batch comes.

Without such a sign nothing is wrong: where nobody publishes and no active ticks, no batch comes either. Only time in which the
engine itself was awake counts, so that one that was stopped for an hour goes on when it wakes.
"""

from __future__ import annotations

from collections.abc import Sequence

from hotspare.ha.group_state import GroupState, MemberNews


def note_stall(state: GroupState, news: Sequence[MemberNews], now_ms: int) -> None:
    """Called when others' descriptions were read, before that time is noted; a batch sets `stalled_ms` to 0."""
    watched_ms = min(now_ms - state.member_refreshed_ms, 2 * state.settings.member_refresh_ms)
    state.stalled_ms = state.stalled_ms + max(0, watched_ms) if _is_input_waiting(state, news) else 0


def _is_input_waiting(state: GroupState, news: Sequence[MemberNews]) -> bool:
    next_offsets = state.core.next_offsets
    is_ahead = any(other.order > state.order for other in news)
    own = ((each.ticked_offset, (each.topic_index, each.partition.number)) for each in state.inbound)
    return is_ahead or any(offset >= next_offsets.get(partition, 0) for offset, partition in own if offset >= 0)
