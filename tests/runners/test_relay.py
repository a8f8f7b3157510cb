"""The relay of batches: one at a time, in order, while the next is prepared."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from hotspare.runners.spark.ordered import Relay

TIMEOUT_S = 60.0


@pytest.fixture
def relay() -> Iterator[Relay]:
    relay = Relay()
    yield relay
    relay.close()


class Task:
    """Runs until the test ends it."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.may_end.wait(TIMEOUT_S)


def test_whoever_gives_a_task_goes_on_while_it_is_worked_on(relay: Relay) -> None:
    task = Task()
    relay.submit_task(task)
    assert task.begun.wait(TIMEOUT_S)
    assert not relay.wait_until_idle(0.0)
    task.may_end.set()
    assert relay.wait_until_idle(TIMEOUT_S)


def test_the_next_is_taken_when_the_one_before_is_done(relay: Relay) -> None:
    first, second = Task(), Task()
    relay.submit_task(first)
    giving = threading.Thread(target=relay.submit_task, args=(second,))
    giving.start()
    assert first.begun.wait(TIMEOUT_S)
    assert not second.begun.is_set()
    assert giving.is_alive()
    first.may_end.set()
    assert second.begun.wait(TIMEOUT_S)
    giving.join(TIMEOUT_S)
    assert not giving.is_alive()
    second.may_end.set()


def test_order_is_kept(relay: Relay) -> None:
    done: list[int] = []
    for number in range(1_000):
        relay.submit_task(lambda number=number: done.append(number))  # type: ignore[misc]
    assert relay.wait_until_idle(TIMEOUT_S)
    assert done == list(range(1_000))


def test_after_its_end_nobody_waits_and_nothing_is_worked_on(relay: Relay) -> None:
    first, second = Task(), Task()
    relay.submit_task(first)
    giving = threading.Thread(target=relay.submit_task, args=(second,))
    giving.start()
    relay.close()
    giving.join(TIMEOUT_S)
    assert not giving.is_alive()
    first.may_end.set()
    assert relay.wait_until_idle(TIMEOUT_S)
    relay.submit_task(second)
    assert not second.begun.is_set()
