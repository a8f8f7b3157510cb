"""Retention of the bus in a simulated run: messages older than their topic keeps them are deleted."""

from __future__ import annotations

from hotspare.bus.contract import Partition
from tests.simulation.world import World


def forget_older(world: World, keep_ms: int) -> int:
    """Deletes older messages of inbound and outbound topics; returns their count. The reference still has the input."""
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


def release_outputs(world: World, kept: int) -> None:
    """Deletes all but the `kept` newest messages of each output topic."""
    for output in world.topics.outbound:
        if output.topic not in world.bus.logs:
            continue  # no engine has created it yet
        partition = world.topics.output_partition(output.topic)
        log = world.bus.log(partition)
        offset = log.messages[-kept].offset if 0 < kept <= len(log.messages) else log.begin if kept else log.end
        world.forgotten += _trim(world, partition, offset)


def _first_since(world: World, partition: Partition, time_us: int) -> int:
    """Returns the offset of the first message since then; the end if there is none."""
    log = world.bus.log(partition)
    return next((m.offset for m in log.messages if m.append_time_us >= time_us), log.end)


def _trim(world: World, partition: Partition, before: int) -> int:
    log = world.bus.log(partition)
    count = log.index(before)
    log.trim(before)
    return count
