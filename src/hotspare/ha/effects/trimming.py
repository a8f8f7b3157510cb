"""Expires old messages of an embedded bus that no restorable snapshot and no recorded reader needs.

The active engine expires them in the background, if its group has a retention. In the inbound topics, the messages that an engine
needs to start from the second newest confirmed snapshot remain. The engine that confirms a snapshot records its offsets on the bus.
A bus with a retention of its own ignores all this.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

from hotspare.base.errors import HotspareError
from hotspare.bus.contract import Bus, Partition
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.rules import trimming as rules

EXPIRE_MESSAGES_MAX = 20_000
"""The maximum of messages of one partition that one call expires."""


def needed_by_snapshot(state: GroupState) -> dict[Partition, int]:
    """Returns the offsets at which an engine begins to read that starts from a snapshot of the present state, by inbound
    partition."""
    offsets = state.core.next_offsets
    return {partition: offsets.get((index, partition.number), 0) for index, partition in state.topics.partitions}


def record_needed_offsets(bus: Bus, group: str, needed: Mapping[Partition, int]) -> None:
    """Records on the bus that a confirmed snapshot needs the messages from the offsets `needed` on."""
    for reader, offsets in rules.readers_to_record(bus.readers(), group, needed).items():
        bus.record_reader(reader, offsets)


def start_trimming(state: GroupState, ports: Ports) -> None:
    """Starts to expire old messages in the background, unless the previous run has not ended."""
    state.last_runs = replace(state.last_runs, trimmed_ms=ports.clock_ms())
    inbound = [partition for _, partition in state.topics.own_partitions]
    outbound = [state.topics.output_partition(topic) for topic in state.topics.output_topics]
    bus, group, keep_ms = ports.bus, state.group, state.settings.bus_retention_ms

    def trim() -> None:
        with contextlib.suppress(HotspareError):  # the next time
            for partition in rules.expirable_partitions(bus.readers(), group, inbound, outbound):
                bus.expire(partition, keep_ms, EXPIRE_MESSAGES_MAX)

    state.trim.start_unless_running(ports.background, trim)
