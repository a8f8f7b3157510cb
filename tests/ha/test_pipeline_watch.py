"""A runner counts as hanging only while input is known to be pending, and only in time in which the engine was awake."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hotspare.bus.contract import Partition
from hotspare.coordination.contract import Member
from hotspare.ha.effects.perform import record_stall
from hotspare.ha.group_state import GroupState, InboundState
from hotspare.ha.outputs.held import HeldOutputs
from hotspare.ha.rules.facts import InboundFacts, OtherMember
from hotspare.ha.rules.settings import GroupSettings, GroupTopics, InboundTopic
from tests.ha.facts import learn
from tests.simulation.fast_core import FastCore

REFRESH_MS = GroupSettings().member_refresh_ms


def engine(read: int, ticked: int = -1) -> GroupState:
    identity = Member("e", "127.0.0.1:1", 1, 1, "host", "", "", "", "", {}, {})
    inbound = [InboundState(Partition("in"), InboundFacts(0, 0, ticked_offset=ticked))]
    core = FastCore(positions={(0, 0): read})
    topics = GroupTopics((InboundTopic("in"),), ())
    return GroupState("g", identity, GroupSettings(), topics, core, HeldOutputs({}, 1, Path()), inbound)


def watch(state: GroupState, others_at: int, gap_ms: int = REFRESH_MS, times: int = 10) -> int:
    for _ in range(times):
        now_ms = max(0, state.last_runs.member_refreshed_ms) + gap_ms
        record_stall(state, [OtherMember("a", "active", 0, None, others_at)], now_ms)
        learn(state, member_refreshed_ms=now_ms)
    return state.intake.stalled_ms


@given(read=st.integers(0, 99), others_at=st.integers(-1, 99), ticked=st.integers(-1, 99))
def test_time_counts_only_while_input_is_known_to_be_there(read: int, others_at: int, ticked: int) -> None:
    stalled_ms = watch(engine(read, ticked), others_at)
    assert (stalled_ms >= 10 * REFRESH_MS) is (others_at > read or ticked >= read)
    assert stalled_ms in (0, 11 * REFRESH_MS)


def test_an_engine_that_was_stopped_for_an_hour_goes_on() -> None:
    assert watch(engine(5), 9, gap_ms=3_600_000, times=1) <= 2 * REFRESH_MS


def test_nothing_read_anywhere_is_no_stall() -> None:
    """Without input and without an active that ticks, nothing arrives."""
    state = engine(7)
    assert watch(state, 7, times=1_000) == 0
    record_stall(state, [], 1 << 40)
    assert state.intake.stalled_ms == 0
