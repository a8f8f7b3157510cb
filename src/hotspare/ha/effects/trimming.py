"""Expires messages of an embedded bus: old ones that no restorable snapshot and no recorded reader still needs.

The active engine expires them in the background, if its group has a retention. In the inbound topics, no message expires that an
engine would read that starts from the newest confirmed snapshot but one. The engine that confirms a snapshot records that on the
bus. A bus with a retention of its own ignores all this.
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
"""Messages of one partition in one call."""


def needed_by_snapshot(state: GroupState) -> dict[Partition, int]:
    """Returns the offsets from which on an engine reads that starts from a snapshot of the present state."""
    offsets = state.core.next_offsets
    return {partition: offsets.get((index, partition.number), 0) for index, partition in state.topics.partitions}


def record_needed_offsets(bus: Bus, group: str, needed: Mapping[Partition, int]) -> None:
    """Records that a snapshot was confirmed that needs messages from these offsets on."""
    for reader, offsets in rules.readers_to_record(bus.readers(), group, needed).items():
        bus.record_reader(reader, offsets)


def start_trimming(state: GroupState, ports: Ports) -> None:
    """Starts expiring old messages in the background; never twice at once."""
    state.last_runs = replace(state.last_runs, trimmed_ms=ports.clock_ms())
    inbound = [partition for _, partition in state.topics.own_partitions]
    outbound = [state.topics.output_partition(topic) for topic in state.topics.output_topics]
    bus, group, keep_ms = ports.bus, state.group, state.settings.bus_retention_ms

    def trim() -> None:
        with contextlib.suppress(HotspareError):  # the next time
            for partition in rules.expirable_partitions(bus.readers(), group, inbound, outbound):
                bus.expire(partition, keep_ms, EXPIRE_MESSAGES_MAX)

    state.trim.start_unless_running(ports.background, trim)
