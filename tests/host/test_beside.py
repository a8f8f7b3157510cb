"""Calls beside the engine: their results, their order of use of one thread, and one that hangs."""

from __future__ import annotations

import threading

import pytest

from hotspare.base.errors import BusUnavailable
from hotspare.host.beside import Beside

WAIT_S = 60


def test_a_call_goes_on_beside_and_its_end_is_told_with_what_it_raised() -> None:
    go_on, told = threading.Event(), threading.Event()

    def call() -> None:
        go_on.wait(WAIT_S)
        raise BusUnavailable("away")

    begun = Beside(told.set).begin(call)
    assert not begun.is_over
    go_on.set()
    with pytest.raises(BusUnavailable):
        begun.wait()
    assert begun.is_over
    assert told.wait(WAIT_S)


def test_calls_one_after_the_other_have_one_thread() -> None:
    """A bus keeps a connection for each thread."""
    threads: set[int] = set()
    beside = Beside(lambda: None)
    for _ in range(20):
        beside.begin(lambda: threads.add(threading.get_ident())).wait()
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def test_the_end_waits_for_a_call_under_way() -> None:
    """Its bus is closed behind it."""
    go_on, ended = threading.Event(), []

    def call() -> None:
        go_on.wait(WAIT_S)
        ended.append(1)

    beside = Beside(lambda: None)
    beside.begin(call)
    threading.Timer(0.05, go_on.set).start()
    beside.close()
    assert ended == [1]


def test_a_call_that_hangs_keeps_none_behind_it_waiting() -> None:
    hung = threading.Event()
    beside = Beside(lambda: None)

    def hang() -> None:
        hung.wait(WAIT_S)

    first = beside.begin(hang)
    try:
        beside.begin(lambda: None).wait()
        assert not first.is_over
    finally:
        hung.set()
    first.wait()
