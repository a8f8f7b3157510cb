"""Checks the name of a task's attempt, and its reaction to its driver's answers and silence."""

from __future__ import annotations

from itertools import product

import pytest

from hotspare.bus.limits import PARTITIONS_MAX
from hotspare.host.options import EngineOptions
from hotspare.host.partitioned.application import APPLICATION_NAME_LENGTH_MAX
from hotspare.host.partitioned.attempt import Answer, TaskOrder, engine_name, has_lease, new_run, order_of
from hotspare.runners.spark.settings import TASK_FAILURES_MAX


def test_no_two_attempts_have_one_name_also_where_the_driver_is_a_new_one() -> None:
    """Every driver counts the jobs of each task from the start; leftovers of an earlier driver are another engine."""
    names = {engine_name("east", *each) for each in product(("a1", "b2"), (0, 1), (1, 11), (0, 1))}
    assert len(names) == 16
    assert len({new_run() for _ in range(50)}) > 45


def test_the_longest_name_is_one_that_an_engine_may_have() -> None:
    jobs = 99_999
    name = engine_name("x" * APPLICATION_NAME_LENGTH_MAX, new_run(), PARTITIONS_MAX - 1, jobs, TASK_FAILURES_MAX)
    assert EngineOptions("shop.yaml", "sqlite:///bus.db", engine=name).engine == name  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", Answer)
def test_a_task_ends_when_it_is_turned_away_and_stops_when_it_is_told_to(answer: Answer) -> None:
    wanted = {Answer.TURNED_AWAY: TaskOrder.END, Answer.STOP: TaskOrder.STOP}
    assert order_of(answer.value) is wanted.get(answer, TaskOrder.GO_ON)


def test_what_is_not_known_is_an_answer() -> None:
    assert order_of("something of a later version") is TaskOrder.GO_ON


def test_an_answer_counts_for_as_long_as_the_lease() -> None:
    assert has_lease(1_000, 11_000, 10_000)
    assert not has_lease(1_000, 11_001, 10_000)
