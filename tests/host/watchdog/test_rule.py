"""When a call has used too much, and when an engine is started again: every row of rule.py."""

from __future__ import annotations

import signal
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.call_board import ShownCall
from hotspare.base.call_place import HangCause
from hotspare.host.watchdog.rule import (
    EXIT_AGAIN,
    LOADING_DEADLINES,
    CallLimits,
    CallSample,
    EndedBy,
    EngineEnd,
    RestartPauses,
    excess,
    first_sample,
    is_loading_excessive,
)
from tests.examples import examples

CALL = ShownCall(calls=7, node=2, rows=1, thread=11, is_unlimited=False, position=(0, 0, 42, 3))
FIRST = CallSample(CALL, used_ms=1_000, memory_bytes=100, seen_s=5.0)
LIMITS = CallLimits(deadline_ms=300, memory_bytes=50)


def later(used_ms: int = 0, grown_bytes: int = 0, call: ShownCall = CALL) -> CallSample:
    return CallSample(call, FIRST.used_ms + used_ms, FIRST.memory_bytes + grown_bytes, FIRST.seen_s + 1)


@pytest.mark.parametrize(
    ("used_ms", "grown_bytes", "cause"),
    [
        (0, 0, None),
        (299, 49, None),
        (300, 0, HangCause.DEADLINE),
        (0, 50, HangCause.MEMORY),
        (300, 50, HangCause.MEMORY),
        (299, -100, None),
    ],
)
def test_a_call_may_use_less_than_its_limits(used_ms: int, grown_bytes: int, cause: HangCause | None) -> None:
    found = excess(FIRST, later(used_ms, grown_bytes), LIMITS)
    assert (found.cause if found else None) is cause
    assert found is None or (found.call, found.used_ms, found.grown_bytes) == (CALL, used_ms, grown_bytes)


def test_without_limits_a_call_may_use_everything() -> None:
    assert excess(FIRST, later(10**9, 10**12), CallLimits()) is None


def test_a_call_that_another_engine_has_passed_has_no_limits() -> None:
    call = replace(CALL, is_unlimited=True)
    assert excess(CallSample(call, 0), CallSample(call, 10**9, 10**12), LIMITS) is None


@pytest.mark.parametrize("other", [{"calls": 8}, {"node": 3}, {"rows": 2}, {"thread": 12}, {"position": (0, 0, 43, 0)}])
def test_another_call_begins_to_count_anew(other: dict[str, object]) -> None:
    now = later(10**6, 10**6, replace(CALL, **other))  # type: ignore[arg-type]
    assert first_sample(FIRST, now) is now
    assert excess(FIRST, now, LIMITS) is None


def test_the_first_look_at_a_call_remains_until_no_call_runs() -> None:
    assert first_sample(None, FIRST) is FIRST
    assert first_sample(FIRST, later(200)) is FIRST
    assert first_sample(FIRST, None) is None


@examples(1)
@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 29)), max_size=10))
def test_time_that_passes_is_not_counted(looks: list[tuple[float, int]]) -> None:
    """A frozen host, or one that computes a tenth as fast, ends no call that computes within its deadline."""
    first, seen_s, used_ms = FIRST, FIRST.seen_s, FIRST.used_ms
    for passed_s, more_ms in looks:
        seen_s, used_ms = seen_s + passed_s, used_ms + more_ms
        now = CallSample(CALL, used_ms, FIRST.memory_bytes, seen_s)
        first = first_sample(first, now) or now
        assert excess(first, now, LIMITS) is None


def test_loading_may_use_some_deadlines() -> None:
    most_ms = LOADING_DEADLINES * LIMITS.deadline_ms
    assert not is_loading_excessive(1_000, 1_000 + most_ms - 1, LIMITS)
    assert is_loading_excessive(1_000, 1_000 + most_ms, LIMITS)
    assert not is_loading_excessive(1_000, 10**9, CallLimits(memory_bytes=1))


@pytest.mark.parametrize(
    ("cause", "status", "is_restarted"),
    [
        (EndedBy.ITSELF, 0, False),
        (EndedBy.ITSELF, 1, False),
        (EndedBy.ITSELF, 2, False),
        (EndedBy.ITSELF, 70, True),
        (EndedBy.ITSELF, EXIT_AGAIN, True),
        (EndedBy.ITSELF, -signal.SIGSEGV, True),
        (EndedBy.ITSELF, -signal.SIGKILL, True),
        (EndedBy.ITSELF, -signal.SIGTERM, False),
        (EndedBy.ITSELF, -signal.SIGINT, False),
        (EndedBy.ITSELF, -signal.SIGHUP, False),
        (EndedBy.CALL, -signal.SIGKILL, True),
        (EndedBy.CALL, 0, True),
        (EndedBy.LOADING, -signal.SIGKILL, False),
        (EndedBy.STOP, -signal.SIGKILL, False),
        (EndedBy.STOP, 70, False),
    ],
)
def test_an_engine_is_started_again_after_a_crash_and_not_after_an_error(
    cause: EndedBy, status: int, *, is_restarted: bool
) -> None:
    assert (RestartPauses().next_s(EngineEnd(status, cause, 1.0), 0.0) is not None) is is_restarted


def test_the_pauses_double_up_to_the_longest_and_begin_again_after_a_steady_run() -> None:
    pauses, crash = RestartPauses(), EngineEnd(-signal.SIGSEGV, EndedBy.ITSELF, 1.0)
    found = [pauses.next_s(crash, 0.0) or 0.0]
    for _ in range(9):
        found.append(pauses.next_s(crash, found[-1]) or 0.0)
    assert (found[0], found[-1]) == (0.2, 30.0)
    assert all(after == min(30.0, 2 * before) for before, after in pairwise(found))
    assert pauses.next_s(replace(crash, ran_s=60.0), 30.0) == 0.2
    assert pauses.next_s(replace(crash, ran_s=59.9), 30.0) == 30.0
