"""Which messages an embedded bus may expire: old ones that no restorable snapshot still needs.

The bus records from which offsets on the two newest confirmed snapshots continue. In the inbound topics, no message expires that an
engine would read that starts from the older of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hotspare.bus.contract import Partition
from hotspare.bus.naming import snapshot_readers

Offsets = Mapping[Partition, int]


def readers_to_record(readers: Mapping[str, Offsets], group: str, needed: Offsets) -> Mapping[str, Offsets]:
    """Returns the readers to record, in this order, after a snapshot was confirmed that needs messages from `needed` on.

    Empty if it is an older one that is confirmed late.
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
    """Returns the partitions whose old messages may expire; inbound ones only once there are two snapshots to start from."""
    return (*(inbound if snapshot_readers(group)[1] in readers else ()), *outbound)
