"""What an embedded bus may forget: old messages that no restorable snapshot, and nobody who noted where he reads, still needs.

The active forgets, in the background, where its group was told for how long to keep messages. Of the inbound topics nothing is
forgotten that an engine would read that starts from the newest confirmed snapshot but one; who confirms a snapshot notes that on
the bus. A bus with a retention of its own passes all this over.
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
"""Of one partition at once."""


def needed_by_snapshot(state: GroupState) -> dict[Partition, int]:
    """From where on an engine reads that starts from a snapshot of the present state."""
    offsets = state.core.next_offsets
    return {partition: offsets.get((index, partition.number), 0) for index, partition in state.topics.partitions}


def note_confirmed(bus: Bus, group: str, needed: Mapping[Partition, int]) -> None:
    """A snapshot was confirmed that needs messages from these offsets on."""
    for reader, offsets in rules.notes_after(bus.readers(), group, needed).items():
        bus.note_reader(reader, offsets)


def begin(state: GroupState, ports: Ports) -> None:
    """Forget what is old, beside the engine; never twice at once."""
    state.rounds = replace(state.rounds, trimmed_ms=ports.clock_ms())
    inbound = [partition for _, partition in state.topics.own_partitions]
    outbound = [state.topics.output_partition(topic) for topic in state.topics.output_topics]
    bus, group, keep_ms = ports.bus, state.group, state.settings.bus_retention_ms

    def trim() -> None:
        with contextlib.suppress(HotspareError):  # the next time
            for partition in rules.forgettable(bus.readers(), group, inbound, outbound):
                bus.expire(partition, keep_ms, EXPIRE_MESSAGES_MAX)

    state.trim.begin(ports.background, trim)
