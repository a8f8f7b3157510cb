"""Which task hosts which shards, as executors come and go. Pure: no clock, no Spark, no socket.

    a slot is there that no task has          a task is started for it, with one shard of the task that has most
    a task has two shards more than another   the other one takes one of them, and so on, one at a time
    a task waits for its slot for too long    its shards are taken by those that run; it is given others when it comes back

Every shard is one task's own. A shard that moves is kept by the task that had it until its new owner's engine for it has caught up,
so it is hosted all the time; then who kept it gives up its role and leaves. A task that ended by itself, and rests, keeps its
shards: what ended it may be an event of theirs, which would end the next task, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hotspare.host.partitioned.sharing import Hosting
from hotspare.host.partitioned.watch import HELLO_MS, TaskPhase, WatchedTask

LOST_AFTER_MS = 10_000
"""So long a task that has run may be without a slot; an executor that ends is replaced within seconds."""
FIRST_SLOT_MS = HELLO_MS
"""So long one that never ran may be without."""
Tasks = Mapping[int, WatchedTask]


def tasks_for(shards: int, slots: int, wanted: int = 0) -> int:
    """How many tasks run `shards` on so many free slots: as many as are `wanted` (0: as there are slots), but none without a slot,
    none without a shard, and at least one."""
    return max(1, min(shards, slots, wanted or slots))


def assigned_shards(shards: int, tasks: int) -> tuple[tuple[int, ...], ...]:
    """The shards of each task: every shard once, and no task has two more than another one. Shard k is with task k mod `tasks`, so
    that shards whose keys came to be next to each other are spread. ValueError unless 1 <= tasks <= shards."""
    if not 1 <= tasks <= shards:
        raise ValueError(f"{shards} shards cannot be spread over {tasks} tasks")
    return tuple(tuple(range(task, shards, tasks)) for task in range(tasks))


def placed(tasks: Tasks, slots: int, tasks_max: int, now_ms: int) -> dict[int, WatchedTask]:
    """The tasks as they are to be from now on, those that change and new ones. `slots`: how many can run at a time now."""
    now = dict(tasks)
    _let_go(now)
    _replace_lost(now, now_ms)
    _fill_slots(now, slots, tasks_max)
    _even_out(now)
    return {number: task for number, task in now.items() if tasks.get(number) != task}


def hosting_of(tasks: Tasks, shards: int) -> Hosting:
    """Whether all have an engine that has caught up, each where it belongs."""
    running = [tasks[number] for number in _running(dict(tasks))]
    able = {shard for task in running for shard in task.caught_up & {*task.shards}}
    return Hosting.SOME if len(able) < shards or any(task.keeps for task in running) else Hosting.ALL


def _let_go(tasks: dict[int, WatchedTask]) -> None:
    """What has come to its owner is no longer kept."""
    come = {shard for task in tasks.values() for shard in task.shards if shard in task.caught_up}
    for number, task in tasks.items():
        if come & task.keeps:
            tasks[number] = replace(task, keeps=task.keeps - come)


def _replace_lost(tasks: dict[int, WatchedTask], now_ms: int) -> None:
    if not _running(tasks):
        return
    for number, task in list(tasks.items()):
        if not _is_lost(task, now_ms):
            continue
        tasks[number] = replace(task, shards=(), keeps=frozenset())
        for shard in task.shards:
            keeper = next((n for n in _running(tasks) if shard in tasks[n].keeps), None)
            taker = min(_running(tasks), key=lambda n: (len(tasks[n].shards), n)) if keeper is None else keeper
            tasks[taker] = _with(tasks[taker], shard)


def _is_lost(task: WatchedTask, now_ms: int) -> bool:
    patience_ms = LOST_AFTER_MS if task.has_come else FIRST_SLOT_MS
    return task.phase is TaskPhase.WAITING and bool(task.shards) and now_ms - task.waits_since_ms > patience_ms


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
        if task.caught_up >= set(task.shards):  # else it takes the next one later
            _move(tasks, giver, taker)


def _giver(tasks: dict[int, WatchedTask]) -> int | None:
    """Who has most of those that have one to give."""
    able = [n for n in _running(tasks) if _to_give(tasks, n)]
    return min(able, key=lambda n: (-len(tasks[n].shards), n), default=None)


def _to_give(tasks: dict[int, WatchedTask], number: int) -> set[int]:
    """Shards of its own whose engine is complete there, which no other task still keeps for it."""
    kept = {shard for task in tasks.values() for shard in task.keeps}
    return ({*tasks[number].shards} & tasks[number].complete) - kept


def _move(tasks: dict[int, WatchedTask], giver: int, taker: int) -> None:
    task = tasks[giver]
    shard = max(_to_give(tasks, giver))
    tasks[giver] = replace(task, shards=tuple(s for s in task.shards if s != shard), keeps=task.keeps | {shard})
    tasks[taker] = _with(tasks[taker], shard)


def _with(task: WatchedTask, shard: int) -> WatchedTask:
    return replace(task, shards=tuple(sorted({*task.shards, shard})), keeps=task.keeps - {shard})


def _running(tasks: dict[int, WatchedTask]) -> list[int]:
    return [number for number, task in tasks.items() if task.phase is TaskPhase.RUNNING]
