"""Jobs and calls concurrent with the engine: none waits for another, and a hanging one blocks neither the others nor the end."""

from __future__ import annotations

import threading

import pytest

from hotspare.base.errors import BusUnavailable
from hotspare.host.background import Background, ConcurrentCalls

WAIT_S = 60


def test_a_job_that_hangs_keeps_no_other_from_running_and_no_process_from_ending() -> None:
    hung, begun, done = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        hung.wait(WAIT_S)

    background = Background(close_wait_s=0)
    try:
        background.run(hang)
        assert begun.wait(WAIT_S)
        background.run(done.set)
        assert done.wait(WAIT_S)
        background.close()
        assert not hung.is_set()
    finally:
        hung.set()


def test_the_end_waits_for_a_job_under_way_and_later_ones_are_dropped() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), []

    def job() -> None:
        begun.set()
        go_on.wait(WAIT_S)
        ended.append(1)

    background = Background()
    background.run(job)
    assert begun.wait(WAIT_S)
    threading.Timer(0.05, go_on.set).start()
    background.close()
    background.run(job)
    assert ended == [1]


WAIT_S = 60


def test_a_call_goes_on_beside_and_its_end_is_told_with_what_it_raised() -> None:
    go_on, told = threading.Event(), threading.Event()

    def call() -> None:
        go_on.wait(WAIT_S)
        raise BusUnavailable("away")

    begun = ConcurrentCalls(told.set).start_call(call)
    assert not begun.is_over
    go_on.set()
    with pytest.raises(BusUnavailable):
        begun.wait()
    assert begun.is_over
    assert told.wait(WAIT_S)


def test_calls_one_after_the_other_have_one_thread() -> None:
    """A bus keeps a connection for each thread."""
    threads: set[int] = set()
    beside = ConcurrentCalls(lambda: None)
    for _ in range(20):
        beside.start_call(lambda: threads.add(threading.get_ident())).wait()
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def test_the_end_waits_for_a_call_under_way() -> None:
    """The call's bus is closed after it."""
    go_on, ended = threading.Event(), []

    def call() -> None:
        go_on.wait(WAIT_S)
        ended.append(1)

    beside = ConcurrentCalls(lambda: None)
    beside.start_call(call)
    threading.Timer(0.05, go_on.set).start()
    beside.close()
    assert ended == [1]


def test_a_call_that_hangs_keeps_none_behind_it_waiting() -> None:
    hung = threading.Event()
    beside = ConcurrentCalls(lambda: None)

    def hang() -> None:
        hung.wait(WAIT_S)

    first = beside.start_call(hang)
    try:
        beside.start_call(lambda: None).wait()
        assert not first.is_over
    finally:
        hung.set()
    first.wait()
