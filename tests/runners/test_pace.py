"""The pace of reading: it delays a reader as long as it is set, and releases it at once when it is changed or over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from hotspare.runners.contract import SHARED_INTERVAL_S_MAX, ReadPace
from hotspare.testing.cluster import wait_until

FOR_EVER_S = 3_600.0
TIMEOUT_S = 60.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Returns seconds that only a test moves."""
    made = SimpleNamespace(now_s=1_000.0)
    monkeypatch.setattr("hotspare.runners.contract.time", SimpleNamespace(monotonic=lambda: made.now_s))
    return made


def waiting(pace: ReadPace, read_s: float, is_over: Callable[[], bool] = lambda: False) -> threading.Thread:
    thread = threading.Thread(target=pace.wait, args=(read_s, is_over), daemon=True)
    thread.start()
    return thread


def has_gone_on(thread: threading.Thread) -> bool:
    thread.join(TIMEOUT_S)
    return not thread.is_alive()


def test_it_holds_back_until_its_interval_since_the_last_read_is_over(clock: SimpleNamespace) -> None:
    pace, looks, read_s = ReadPace(FOR_EVER_S), list[float](), clock.now_s

    def looked() -> bool:
        looks.append(clock.now_s)
        return False

    thread = waiting(pace, read_s, looked)
    wait_until(lambda: len(looks) == 1, "a first look")
    for count, now_s in ((2, read_s + FOR_EVER_S - 1), (3, read_s + FOR_EVER_S)):
        clock.now_s = now_s
        pace.wake()
        wait_until(lambda count=count: len(looks) >= count or not thread.is_alive(), "another look")  # type: ignore[misc]
    assert has_gone_on(thread)
    assert looks == [read_s, read_s + FOR_EVER_S - 1, read_s + FOR_EVER_S]


def test_a_shorter_interval_lets_a_reader_go_that_waits(clock: SimpleNamespace) -> None:
    pace = ReadPace(FOR_EVER_S)
    thread = waiting(pace, clock.now_s)
    pace.set_interval(0.0)
    assert has_gone_on(thread)


def test_whoever_is_over_is_let_go_when_it_is_woken(clock: SimpleNamespace) -> None:
    pace, over = ReadPace(FOR_EVER_S), threading.Event()
    thread = waiting(pace, clock.now_s, over.is_set)
    over.set()
    pace.wake()
    assert has_gone_on(thread)


def test_what_is_over_does_not_wait(clock: SimpleNamespace) -> None:
    ReadPace(FOR_EVER_S).wait(clock.now_s, lambda: True)


def noted(pace: ReadPace, work_s: float) -> ReadPace:
    for _ in range(50):
        pace.record_small_read(work_s)
    return pace


def test_runners_of_a_process_leave_each_other_the_time_that_their_batches_take() -> None:
    assert noted(ReadPace(0.0, runners=lambda: 8), 0.01).interval_s == pytest.approx(0.08, rel=0.001)


def test_however_many_they_are_each_reads_often_enough_to_see_signs_of_life() -> None:
    pace = noted(ReadPace(0.0, runners=lambda: 1_000), 3_600.0)
    assert pace.interval_s == SHARED_INTERVAL_S_MAX


def test_who_is_alone_in_its_process_does_not_wait_for_others() -> None:
    assert noted(ReadPace(0.0), 0.01).interval_s == 0.0


def test_behind_much_or_nothing_none_waits_for_others() -> None:
    pace = noted(ReadPace(0.01, runners=lambda: 8), 0.02)
    assert pace.interval_s > 0.01
    pace.record_other_read()
    assert pace.interval_s == 0.01


def test_a_longer_interval_of_its_own_counts() -> None:
    assert noted(ReadPace(FOR_EVER_S, runners=lambda: 8), 0.01).interval_s == FOR_EVER_S
