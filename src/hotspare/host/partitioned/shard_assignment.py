"""Decides which task hosts which shards as executors appear and end. Pure: no clock, no Spark, no socket.

    a slot has no task                        a task is started for it, with one shard of the task that has most
    a task has two shards more than another   the other one takes one of them, and so on, one at a time
    a task waits for its slot for too long    running tasks take its shards; it gets others when it runs again

Every shard has one owner. The task that had a moved shard hosts it until its new owner's engine has caught up, so it is always
hosted; then the former owner gives up its role and leaves the group. A task that ended by itself, and rests, keeps its shards: one
of their events may have ended it, and would end the next task, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hotspare.host.partitioned.sharing import Hosting
from hotspare.host.partitioned.watch import HELLO_MS, TaskPhase, WatchedTask

LOST_AFTER_MS = 10_000
"""The longest time without a slot for a task that has run; an executor that ends is replaced within seconds."""
FIRST_SLOT_MS = HELLO_MS
"""The longest time without a slot for a task that never ran."""
Tasks = Mapping[int, WatchedTask]


def tasks_for(shards: int, slots: int, wanted: int = 0) -> int:
    """Returns how many tasks run `shards` on `slots` free slots: `wanted` tasks, or one per slot if that is 0. At most one per
    slot, at most one per shard, and at least one."""
    return max(1, min(shards, slots, wanted or slots))


def assigned_shards(shards: int, tasks: int) -> tuple[tuple[int, ...], ...]:
    """Returns the shards of each task: every shard once, and no task has two more than another. Shard k belongs to task k mod
    `tasks`, so that neighboring shards are spread. Raises ValueError unless 1 <= tasks <= shards."""
    if not 1 <= tasks <= shards:
        raise ValueError(f"{shards} shards cannot be spread over {tasks} tasks")
    return tuple(tuple(range(task, shards, tasks)) for task in range(tasks))


def rebalanced_tasks(tasks: Tasks, slots: int, tasks_max: int, now_ms: int) -> dict[int, WatchedTask]:
    """Returns the changed and the new tasks, by number. `slots` tasks can run at a time now; there are at most `tasks_max`
    tasks."""
    now = dict(tasks)
    _end_handovers(now)
    _replace_lost(now, now_ms)
    _fill_slots(now, slots, tasks_max)
    _even_out(now)
    return {number: task for number, task in now.items() if tasks.get(number) != task}


def hosting_of(tasks: Tasks, shards: int) -> Hosting:
    """Returns ALL if every shard has an engine that has caught up, in the task that owns it, and no shard is being handed over."""
    running = [tasks[number] for number in _running(dict(tasks))]
    able = {shard for task in running for shard in task.caught_up & {*task.shards}}
    return Hosting.SOME if len(able) < shards or any(task.handover_shards for task in running) else Hosting.ALL


def _end_handovers(tasks: dict[int, WatchedTask]) -> None:
    """Ends the hand-over of each shard whose engine has caught up in the task that owns it."""
    come = {shard for task in tasks.values() for shard in task.shards if shard in task.caught_up}
    for number, task in tasks.items():
        if come & task.handover_shards:
            tasks[number] = replace(task, handover_shards=task.handover_shards - come)


def _replace_lost(tasks: dict[int, WatchedTask], now_ms: int) -> None:
    if not _running(tasks):
        return
    for number, task in list(tasks.items()):
        if not _is_lost(task, now_ms):
            continue
        tasks[number] = replace(task, shards=(), handover_shards=frozenset())
        for shard in task.shards:
            keeper = next((n for n in _running(tasks) if shard in tasks[n].handover_shards), None)
            taker = min(_running(tasks), key=lambda n: (len(tasks[n].shards), n)) if keeper is None else keeper
            tasks[taker] = _with(tasks[taker], shard)


def _is_lost(task: WatchedTask, now_ms: int) -> bool:
    patience_ms = LOST_AFTER_MS if task.has_connected else FIRST_SLOT_MS
    return task.phase is TaskPhase.WAITING and bool(task.shards) and now_ms - task.waiting_since_ms > patience_ms


def _fill_slots(tasks: dict[int, WatchedTask], slots: int, tasks_max: int) -> None:
    while len(tasks) < min(slots, tasks_max):
        number = max(tasks) + 1
        giver = _giver(tasks)
        if giver is None or len(tasks[giver].shards) < 2:
            return
        tasks[number] = WatchedTask(number, ())
        _move(tasks, giver, number)


def _even_out(tasks: dict[int, WatchedTask]) -> None:
    for taker in sorted(_running(tasks), key=lambda n: (len(tasks[n].shards), n)):
        task, giver = tasks[taker], _giver(tasks)
        if giver is None or len(tasks[giver].shards) - len(task.shards) < 2:
            return
        if task.caught_up >= set(task.shards):  # otherwise it takes the next one later
            _move(tasks, giver, taker)


def _giver(tasks: dict[int, WatchedTask]) -> int | None:
    """Returns the task with most shards among those that can hand over one; None if no task can."""
    able = [n for n in _running(tasks) if _movable_shards(tasks, n)]
    return min(able, key=lambda n: (-len(tasks[n].shards), n), default=None)


def _movable_shards(tasks: dict[int, WatchedTask], number: int) -> set[int]:
    """Returns the shards that the task owns, whose engine is complete there, and which no task is still handing over."""
    kept = {shard for task in tasks.values() for shard in task.handover_shards}
    return ({*tasks[number].shards} & tasks[number].complete) - kept


def _move(tasks: dict[int, WatchedTask], giver: int, taker: int) -> None:
    task = tasks[giver]
    shard = max(_movable_shards(tasks, giver))
    tasks[giver] = replace(task, shards=tuple(s for s in task.shards if s != shard), handover_shards=task.handover_shards | {shard})
    tasks[taker] = _with(tasks[taker], shard)


def _with(task: WatchedTask, shard: int) -> WatchedTask:
    return replace(task, shards=tuple(sorted({*task.shards, shard})), handover_shards=task.handover_shards - {shard})


def _running(tasks: dict[int, WatchedTask]) -> list[int]:
    return [number for number, task in tasks.items() if task.phase is TaskPhase.RUNNING]
