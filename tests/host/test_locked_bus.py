"""A starting engine waits while another process locks the bus; a working publisher does not end it."""

from itertools import count

import pytest

from hotspare.base.errors import BusLocked, TopicMissing
from hotspare.host.process import LOCKED_WAIT_S, retry_while_locked


def test_a_lock_is_waited_for() -> None:
    answers = iter([BusLocked("locked"), BusLocked("locked"), None])

    def call() -> str:
        error = next(answers)
        if error is not None:
            raise error
        return "done"

    assert retry_while_locked(call) == "done"


def test_a_lock_that_stays_is_told() -> None:
    clock_s = map(float, count(0, int(LOCKED_WAIT_S) // 3))
    calls = []

    def call() -> None:
        calls.append(1)
        raise BusLocked("locked")

    with pytest.raises(BusLocked):
        retry_while_locked(call, lambda: next(clock_s))
    assert len(calls) == 3


def test_other_errors_are_not_outwaited() -> None:
    def call() -> None:
        raise TopicMissing("no topic")

    with pytest.raises(TopicMissing):
        retry_while_locked(call)
