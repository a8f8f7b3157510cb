"""Shards follow the slots: every shard has one task as its owner, is hosted all the time, and no task has two more than another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.host.partitioned.shard_assignment import (
    FIRST_SLOT_MS,
    LOST_AFTER_MS,
    assigned_shards,
    hosting_of,
    rebalanced_tasks,
    tasks_for,
)
from hotspare.host.partitioned.sharing import Hosting
from hotspare.host.partitioned.watch import TaskPhase, WatchedTask

Tasks = dict[int, WatchedTask]
_ROUNDS_MAX = 60


def able(task: WatchedTask) -> WatchedTask:
    """Returns the task with all that it hosts caught up."""
    return replace(task, complete=frozenset(task.hosted), caught_up=frozenset(task.hosted))


def running(shards: int, tasks: int) -> Tasks:
    """Returns `tasks` running tasks, all with engines that have caught up."""
    return {
        number: able(WatchedTask(number, own, TaskPhase.RUNNING, has_connected=True))
        for number, own in enumerate(assigned_shards(shards, tasks))
    }


def waiting(task: WatchedTask, since_ms: int) -> WatchedTask:
    return replace(task, phase=TaskPhase.WAITING, complete=frozenset(), caught_up=frozenset(), waiting_since_ms=since_ms)


def come(tasks: Tasks) -> Tasks:
    """Returns the tasks running, with all that they host restored."""
    return {n: able(replace(task, phase=TaskPhase.RUNNING, has_connected=True)) for n, task in tasks.items()}


def owners(tasks: Tasks) -> list[int]:
    return sorted(shard for task in tasks.values() for shard in task.shards)


def settled(tasks: Tasks, slots: int, shards: int, now_ms: int) -> Tasks:
    """Returns the tasks once nothing changes. Checks that a hosted shard stays hosted throughout."""
    for _ in range(_ROUNDS_MAX):
        hosted = {shard for task in tasks.values() for shard in task.complete}
        changed = rebalanced_tasks(tasks, slots, shards, now_ms)
        after = tasks | changed
        assert owners(after) == list(range(shards))
        assert hosted <= {shard for task in after.values() for shard in task.complete & {*task.hosted}}
        if not changed:
            return after
        lost = {n for n, task in after.items() if task.phase is TaskPhase.WAITING and not task.shards}
        tasks = after | come({n: task for n, task in after.items() if n not in lost})
    raise AssertionError(f"it never comes to rest: {tasks}")


@given(st.integers(1, 24), st.data())
def test_slots_that_come_get_shards_of_those_that_have_most(shards: int, data: st.DataObject) -> None:
    """SPEC K6, K7, K9."""
    before = data.draw(st.integers(1, shards))
    slots = data.draw(st.integers(before, shards + 2))
    tasks = settled(running(shards, before), slots, shards, 0)
    counts = [len(task.shards) for task in tasks.values()]
    assert len(counts) == min(slots, shards)
    assert max(counts) - min(counts) <= 1
    assert not any(task.handover_shards for task in tasks.values())


@given(st.integers(2, 24), st.data())
def test_what_a_lost_slot_had_is_taken_by_those_that_are_left(shards: int, data: st.DataObject) -> None:
    """SPEC K6, K7, K9."""
    count = data.draw(st.integers(2, shards))
    lost = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=count - 1))
    tasks = {n: waiting(task, 100) if n in lost else task for n, task in running(shards, count).items()}
    slots = count - len(lost)
    assert rebalanced_tasks(tasks, slots, shards, 100 + LOST_AFTER_MS) == {}
    after = settled(tasks, slots, shards, 101 + LOST_AFTER_MS)
    assert all(not after[n].shards for n in lost)
    counts = [len(task.shards) for n, task in after.items() if n not in lost]
    assert max(counts) - min(counts) <= 1
    back = settled(come(after), count, shards, 200 + LOST_AFTER_MS)
    assert {len(task.shards) for task in back.values()} <= {shards // count, shards // count + 1}


def test_a_shard_is_kept_until_its_new_owner_has_caught_up() -> None:
    tasks = running(2, 1)
    tasks |= rebalanced_tasks(tasks, 2, 2, 0)
    assert (tasks[0].shards, tasks[0].handover_shards, tasks[1].shards) == ((0,), {1}, (1,))
    assert tasks[0].hosted == (0, 1)
    assert rebalanced_tasks(tasks, 2, 2, FIRST_SLOT_MS) == {}
    tasks[1] = replace(tasks[1], phase=TaskPhase.RUNNING, has_connected=True)
    assert rebalanced_tasks(tasks, 2, 2, 5) == {}
    tasks[1] = replace(tasks[1], complete=frozenset({1}))
    assert rebalanced_tasks(tasks, 2, 2, 6) == {}, "it could not take over at once"
    assert hosting_of(tasks, 2) is Hosting.SOME
    tasks[1] = able(tasks[1])
    assert hosting_of(tasks, 2) is Hosting.SOME, "one keeps what is another's"
    tasks |= rebalanced_tasks(tasks, 2, 2, 6)
    assert hosting_of(tasks, 2) is Hosting.ALL
    assert (tasks[0].hosted, tasks[0].handover_shards, tasks[1].hosted) == ((0,), frozenset(), (1,))


def test_who_kept_a_shard_gets_it_back_from_a_slot_that_was_none() -> None:
    tasks = running(2, 1)
    tasks |= rebalanced_tasks(tasks, 2, 2, 0)
    tasks[1] = waiting(tasks[1], 0)
    tasks |= rebalanced_tasks(tasks, 1, 2, FIRST_SLOT_MS + 1)
    assert (tasks[0].shards, tasks[0].handover_shards, tasks[1].shards) == ((0, 1), frozenset(), ())


def test_a_task_that_ended_by_itself_keeps_its_shards() -> None:
    """The cause of the end may be an event, which would end the next task, too."""
    tasks = running(4, 2)
    tasks[1] = replace(tasks[1], phase=TaskPhase.RESTING, complete=frozenset())
    assert rebalanced_tasks(tasks, 2, 4, 1_000_000) == {}


def test_a_task_takes_one_shard_at_a_time() -> None:
    tasks = running(6, 1)
    tasks |= rebalanced_tasks(tasks, 2, 6, 0)
    tasks = come(tasks)
    tasks |= rebalanced_tasks(tasks, 2, 6, 1)
    assert (len(tasks[0].shards), len(tasks[1].shards)) == (4, 2)
    assert rebalanced_tasks(tasks, 2, 6, 2) == {}, "the second one is not complete yet"


@given(st.integers(1, 200), st.data())
def test_every_shard_is_assigned_once_and_evenly(shards: int, data: st.DataObject) -> None:
    """SPEC K9."""
    tasks = data.draw(st.integers(1, shards))
    assigned = assigned_shards(shards, tasks)
    assert len(assigned) == tasks
    assert sorted(shard for each in assigned for shard in each) == list(range(shards))
    assert max(map(len, assigned)) - min(map(len, assigned)) <= 1


@pytest.mark.parametrize("tasks", [0, 4])
def test_a_task_without_a_shard_is_refused(tasks: int) -> None:
    with pytest.raises(ValueError, match="3 shards cannot be spread"):
        assigned_shards(3, tasks)


@pytest.mark.parametrize(
    ("shards", "slots", "wanted", "tasks"),
    [(8, 4, 0, 4), (8, 16, 0, 8), (8, 4, 2, 2), (8, 4, 6, 4), (1, 4, 0, 1), (8, 0, 0, 1)],
)
def test_there_are_as_many_tasks_as_slots_shards_and_wishes_allow(shards: int, slots: int, wanted: int, tasks: int) -> None:
    assert tasks_for(shards, slots, wanted) == tasks
