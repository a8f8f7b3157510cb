"""What the bus forgets by itself in a simulated run: messages that are older than their topic keeps them."""

from __future__ import annotations

from hotspare.bus.contract import Partition
from tests.simulation.world import World


def forget_older(world: World, keep_ms: int) -> int:
    """Inbound and outbound topics lose what is older; returns how many messages. The reference still knows the input."""
    before_us = (world.bus_ms() - keep_ms) * 1_000
    forgotten = 0
    for index, partition in world.kit.topics.partitions:
        end = _first_since(world, partition, before_us)
        world.recorded.archive_before(index, partition.number, end)
        forgotten += _trim(world, partition, end)
    for output in world.topics.outbound:
        partition = world.topics.output_partition(output.topic)
        forgotten += _trim(world, partition, _first_since(world, partition, before_us))
    world.forgotten += forgotten
    return forgotten


def forget_outputs(world: World, kept: int) -> None:
    """All output topics lose all but so many of their newest messages."""
    for output in world.topics.outbound:
        if output.topic not in world.bus.logs:
            continue  # no engine has come to make it
        partition = world.topics.output_partition(output.topic)
        log = world.bus.log(partition)
        offset = log.messages[-kept].offset if 0 < kept <= len(log.messages) else log.begin if kept else log.end
        world.forgotten += _trim(world, partition, offset)


def _first_since(world: World, partition: Partition, time_us: int) -> int:
    """The offset of the first message since then; the end where there is none."""
    log = world.bus.log(partition)
    return next((m.offset for m in log.messages if m.append_time_us >= time_us), log.end)


def _trim(world: World, partition: Partition, before: int) -> int:
    log = world.bus.log(partition)
    count = log.index(before)
    log.trim(before)
    return count
