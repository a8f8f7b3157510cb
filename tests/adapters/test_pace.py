"""Pacing (SPEC I5, rate): event k is due at k / rate, whatever happened before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.files.publisher import EventPace


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@given(rate=st.floats(0.5, 100_000), steps=st.lists(st.floats(0, 2), max_size=20))
def test_events_are_never_early_and_at_most_one_is_late(rate: float, steps: list[float]) -> None:
    clock = Clock()
    pace = EventPace(rate, clock)
    sent = 0
    for step in steps:
        clock.now_s += step
        due = pace.due(10**9)
        pace.sent(due)
        sent += due
        elapsed = clock.now_s - 100.0
        assert sent == int(elapsed * rate) + 1


def test_waiting_as_told_reaches_the_next_event() -> None:
    clock = Clock()
    pace = EventPace(3, clock)
    for _ in range(100):
        if not pace.due(1):
            clock.now_s += pace.wait_s() + 1e-9
        assert pace.due(1) == 1
        pace.sent(1)


def test_no_rate_is_no_pace() -> None:
    pace = EventPace(0, Clock())
    assert pace.due(7) == 7
    assert pace.wait_s() == 0


def test_nothing_is_made_up_for_after_a_restart() -> None:
    clock = Clock()
    pace = EventPace(10, clock)
    clock.now_s += 60
    pace.restart()
    assert pace.due(1000) == 1


def test_a_high_rate_goes_out_in_groups() -> None:
    pace = EventPace(10_000, Clock())
    pace.sent(pace.due(1))
    assert pace.wait_s() == pytest.approx(0.005)
