"""Background work never runs twice at a time, and is repeated whatever its result was."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from hotspare.ha.calls.single_job import SingleJob


class Failed(Exception):
    """A failure of the work."""


def test_it_begins_again_only_when_it_has_ended() -> None:
    job, given, done = SingleJob(), list[Callable[[], None]](), list[int]()
    job.start_unless_running(given.append, lambda: done.append(1))
    job.start_unless_running(given.append, lambda: done.append(2))
    assert len(given) == 1
    given.pop()()
    job.start_unless_running(given.append, lambda: done.append(3))
    given.pop()()
    assert done == [1, 3]


def fail() -> None:
    raise Failed


def no_thread(_: Callable[[], None]) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("background", [no_thread, lambda work: work()])
def test_where_it_fails_or_no_thread_is_had_it_is_left_for_the_next_time(background: Callable[[Callable[[], None]], None]) -> None:
    """The engine does not end because of it."""
    job, done = SingleJob(), list[int]()
    with suppress(Failed):
        job.start_unless_running(background, fail)
    job.start_unless_running(lambda work: work(), lambda: done.append(1))
    assert done == [1]
