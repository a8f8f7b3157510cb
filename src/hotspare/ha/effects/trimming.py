"""What an embedded bus may forget: old messages that no restorable snapshot, and nobody who noted where he reads, still needs.

The active forgets, in the background, where its group was told for how long to keep messages. Of the inbound topics nothing is
forgotten that an engine would read that starts from the newest confirmed snapshot but one; who confirms a snapshot notes that on
the bus. A bus with a retention of its own passes all this over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hotspare.bus.contract import Bus, Partition
from hotspare.bus.naming import snapshot_readers
from hotspare.errors import HotspareError
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports

EXPIRE_MESSAGES_MAX = 20_000
"""Of one partition at once."""


def needed_by_snapshot(state: GroupState) -> dict[Partition, int]:
    """From where on an engine reads that starts from a snapshot of the present state."""
    offsets = state.core.next_offsets
    return {partition: offsets.get((index, partition.number), 0) for index, partition in state.topics.partitions}


def note_confirmed(bus: Bus, group: str, needed: Mapping[Partition, int]) -> None:
    """A snapshot was confirmed that needs messages from these offsets on. An older one that is confirmed late changes nothing."""
    newest, before = snapshot_readers(group)
    known = bus.readers().get(newest, {})
    if known and sum(needed.values()) <= sum(known.values()):
        return
    bus.note_reader(before, known or dict.fromkeys(needed, 0))
    bus.note_reader(newest, needed)


def begin(state: GroupState, ports: Ports) -> None:
    """Forget what is old, beside the engine; never twice at once."""
    state.rounds = replace(state.rounds, trimmed_ms=ports.clock_ms())
    if state.is_trim_running:
        return
    state.is_trim_running = True
    inbound = [partition for _, partition in state.topics.partitions]
    outbound = [state.topics.output_partition(topic) for topic in state.topics.output_topics]
    bus, group, keep_ms = ports.bus, state.group, state.settings.bus_retention_ms

    def trim() -> None:
        try:
            is_safe = snapshot_readers(group)[1] in bus.readers()
            for partition in (inbound if is_safe else []) + outbound:
                bus.expire(partition, keep_ms, EXPIRE_MESSAGES_MAX)
        except HotspareError:
            pass  # the next time
        finally:
            state.is_trim_running = False

    ports.background(trim)
