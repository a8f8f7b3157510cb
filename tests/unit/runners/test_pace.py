"""The pace of reading: it holds a reader back as long as it says, and lets it go at once when it is changed or over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hotspare.runners.contract import SHARED_INTERVAL_S_MAX, ReadPace

FOR_EVER_S = 3_600.0
TIMEOUT_S = 60.0


def waiting(pace: ReadPace, is_over: Callable[[], bool] = lambda: False) -> threading.Thread:
    thread = threading.Thread(target=pace.wait, args=(time.monotonic(), is_over), daemon=True)
    thread.start()
    return thread


def has_gone_on(thread: threading.Thread) -> bool:
    thread.join(TIMEOUT_S)
    return not thread.is_alive()


def test_it_holds_back_until_its_interval_since_the_last_read_is_over() -> None:
    read_s = time.monotonic()
    ReadPace(0.05).wait(read_s, lambda: False)
    assert time.monotonic() - read_s >= 0.05


def test_a_shorter_interval_lets_a_reader_go_that_waits() -> None:
    pace = ReadPace(FOR_EVER_S)
    thread = waiting(pace)
    pace.set(0.0)
    assert has_gone_on(thread)


def test_whoever_is_over_is_let_go_when_it_is_woken() -> None:
    pace, over = ReadPace(FOR_EVER_S), threading.Event()
    thread = waiting(pace, over.is_set)
    over.set()
    pace.wake()
    assert has_gone_on(thread)


def test_what_is_over_does_not_wait() -> None:
    ReadPace(FOR_EVER_S).wait(time.monotonic(), lambda: True)


def held_back_s(pace: ReadPace) -> float:
    read_s = time.monotonic()
    pace.wait(read_s, lambda: False)
    return time.monotonic() - read_s


def noted(pace: ReadPace, work_s: float) -> ReadPace:
    for _ in range(50):
        pace.note_little(work_s)
    return pace


def test_runners_of_a_process_leave_each_other_the_time_that_their_batches_take() -> None:
    assert held_back_s(noted(ReadPace(0.0, runners=lambda: 8), 0.01)) >= 0.07


def test_however_many_they_are_each_reads_often_enough_to_see_signs_of_life() -> None:
    pace = noted(ReadPace(0.0, runners=lambda: 1_000), 3_600.0)
    assert pace.interval_s == SHARED_INTERVAL_S_MAX


def test_who_is_alone_in_its_process_does_not_wait_for_others() -> None:
    assert noted(ReadPace(0.0), 0.01).interval_s == 0.0


def test_behind_much_or_nothing_none_waits_for_others() -> None:
    pace = noted(ReadPace(0.01, runners=lambda: 8), 0.02)
    assert pace.interval_s > 0.01
    pace.note_other()
    assert pace.interval_s == 0.01


def test_a_longer_interval_of_its_own_counts() -> None:
    assert noted(ReadPace(FOR_EVER_S, runners=lambda: 8), 0.01).interval_s == FOR_EVER_S
