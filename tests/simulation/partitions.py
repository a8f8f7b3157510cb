"""The end of a run in which an inbound topic got another partition: every engine stops with that reason, and none joins.

An engine that continued would never see what is written to the new partition.
"""

from __future__ import annotations

from tests.simulation.checkers import Violation
from tests.simulation.healing import Healing

_STEPS_AFTERWARDS = 200


def refuse_partitions(healing: Healing) -> None:
    """Raises Violation if an engine continues, or joins. Checks that what was delivered by then is right."""
    world = healing.world
    healing.end_faults()
    healing.alone = ""
    for process in world.processes.values():
        process.paused_until_ms = -1
    world.trace(f"{world.now_ms} the world heals; all must stop")
    before = set(world.lives.items())
    healing.until(lambda: not before & {(p.name, p.life) for p in world.processes.values()})
    if left := before & {(p.name, p.life) for p in world.processes.values()}:
        raise Violation(f"partitions: {sorted(left)} go on, though a partition is not read; engines: {world.describe()}")
    for _ in range(_STEPS_AFTERWARDS):
        healing.step()
    if joined := [p.door for p in world.processes.values() if p.state is not None]:
        raise Violation(f"partitions: {', '.join(joined)} joined, though a partition is not read")
    world.observer.compare(world.reference(), frozenset(world.short_of_window))
