"""Decides which messages an embedded bus may expire: old ones that no restorable snapshot needs.

The bus records at which offsets engines continue that start from the two newest confirmed snapshots. In the inbound topics, the
messages from the offsets of the older one on remain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hotspare.bus.contract import Partition
from hotspare.bus.naming import snapshot_readers

Offsets = Mapping[Partition, int]


def readers_to_record(readers: Mapping[str, Offsets], group: str, needed: Offsets) -> Mapping[str, Offsets]:
    """Returns the readers to record on the bus, in this order, after a snapshot was confirmed that needs the messages from `needed`
    on.

    Empty if a snapshot at a later position is already recorded: this one was confirmed late.
    """
    newest, before = snapshot_readers(group)
    known = readers.get(newest, {})
    both = known.keys() & needed.keys()  # a project that was changed may read other topics
    if known and both == needed.keys() and sum(needed[p] for p in both) <= sum(known[p] for p in both):
        return {}
    return {before: known or dict.fromkeys(needed, 0), newest: needed}


def expirable_partitions(
    readers: Mapping[str, Offsets], group: str, inbound: Sequence[Partition], outbound: Sequence[Partition]
) -> tuple[Partition, ...]:
    """Returns the partitions whose old messages may expire: all outbound ones, and the inbound ones once two snapshots are
    recorded."""
    return (*(inbound if snapshot_readers(group)[1] in readers else ()), *outbound)
