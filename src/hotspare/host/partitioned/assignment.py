"""Which task hosts which shards. Pure."""

from __future__ import annotations


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
