"""What is done again and again while a call is under way."""

import threading

from hotspare.ha.meanwhile import meanwhile


def test_it_is_repeated_until_it_says_so() -> None:
    called, done = [], threading.Event()

    def task() -> bool:
        called.append(threading.current_thread())
        if len(called) == 3:
            done.set()
        return len(called) < 3

    with meanwhile(task, every_ms=1):
        assert done.wait(20)
    assert len(called) == 3
    assert threading.current_thread() not in called


def test_it_ends_with_the_call() -> None:
    called = threading.Event()

    def task() -> bool:
        called.set()
        return True

    with meanwhile(task, every_ms=1):
        assert called.wait(20)
    for thread in threading.enumerate():
        if thread.name == "hotspare-meanwhile":
            thread.join(20)
            assert not thread.is_alive()


def test_a_call_that_is_quick_is_not_waited_for() -> None:
    with meanwhile(lambda: True, every_ms=3_600_000):
        pass
    assert all(thread.name != "hotspare-meanwhile" or not thread.join(20) for thread in threading.enumerate())
