"""The repeated task while a call is under way, and the end of its thread."""

import threading
from functools import partial

import pytest

from hotspare.ha.calls.background_repeater import BackgroundRepeater


@pytest.fixture
def meanwhile() -> BackgroundRepeater:
    """Returns a `BackgroundRepeater` whose thread ends as soon as it has nothing to do."""
    return BackgroundRepeater(rest_s=0.0)


def _threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "hotspare-meanwhile"}


@pytest.fixture(autouse=True)
def others() -> set[threading.Thread]:
    """Returns the threads left by engines of earlier tests, which end later."""
    return _threads()


def _all_end(others: set[threading.Thread]) -> None:
    for thread in _threads() - others:
        thread.join(60)
        assert not thread.is_alive()


def test_it_is_repeated_until_it_says_so(meanwhile: BackgroundRepeater, others: set[threading.Thread]) -> None:
    called, done = [], threading.Event()

    def task() -> bool:
        called.append(threading.current_thread())
        if len(called) == 3:
            done.set()
        return len(called) < 3

    with meanwhile(task, every_ms=1):
        assert done.wait(60)
    _all_end(others)
    assert len(called) == 3
    assert threading.current_thread() not in called


def test_it_ends_with_the_call(meanwhile: BackgroundRepeater, others: set[threading.Thread]) -> None:
    called = threading.Event()

    def task() -> bool:
        called.set()
        return True

    with meanwhile(task, every_ms=1):
        assert called.wait(60)
    _all_end(others)


def test_a_call_that_is_quick_is_not_waited_for_and_the_next_one_is_heard_of_in_time(others: set[threading.Thread]) -> None:
    """A single thread serves all blocks, even one with a shorter interval than the one before."""
    meanwhile, called = BackgroundRepeater(), []
    with meanwhile(lambda: bool(called.append("slow")), every_ms=3_600_000):
        (thread,) = _threads() - others
    done = threading.Event()

    def task() -> bool:
        called.append("quick")
        return _note(done)

    with meanwhile(task, every_ms=1):
        assert done.wait(60)
        assert thread.is_alive()
    assert called == ["quick"]


def test_a_call_after_the_thread_has_ended_starts_another(meanwhile: BackgroundRepeater, others: set[threading.Thread]) -> None:
    for _ in range(3):
        done = threading.Event()
        with meanwhile(partial(_note, done), every_ms=1):
            assert done.wait(60)
        _all_end(others)


def _note(done: threading.Event) -> bool:
    done.set()
    return False


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_task_that_raises_ends_its_thread_and_no_later_one(others: set[threading.Thread]) -> None:
    meanwhile, raised = BackgroundRepeater(), threading.Event()

    def task() -> bool:
        raised.set()
        raise ValueError("a mistake of the task's")

    with meanwhile(task, every_ms=1):
        assert raised.wait(60)
        _all_end(others)
    done = threading.Event()
    with meanwhile(partial(_note, done), every_ms=1):
        assert done.wait(60)
