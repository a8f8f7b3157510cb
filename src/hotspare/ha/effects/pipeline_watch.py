"""Watches whether the runner brings the input that is there (`rules.intake`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hotspare.ha.group_state import GroupState
from hotspare.ha.rules import intake
from hotspare.ha.rules.facts import OtherMember


def note_stall(state: GroupState, others: Sequence[OtherMember], now_ms: int) -> None:
    """Called when others' descriptions were read, before that time is noted; a batch sets `stalled_ms` to 0."""
    sight = intake.Sight(state.core.next_offsets, [each.facts for each in state.inbound], others)
    watched_ms = now_ms - state.rounds.member_refreshed_ms
    stalled_ms = intake.stalled_ms(state.intake.stalled_ms, watched_ms, sight, state.settings)
    state.intake = replace(state.intake, stalled_ms=stalled_ms)
