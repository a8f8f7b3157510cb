"""What an embedded bus may forget: old messages that no restorable snapshot still needs.

On the bus it is noted from where on the two newest confirmed snapshots are read on: of the inbound topics nothing goes that an
engine would read that starts from the older of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hotspare.bus.contract import Partition
from hotspare.bus.naming import snapshot_readers

Offsets = Mapping[Partition, int]


def notes_after(readers: Mapping[str, Offsets], group: str, needed: Offsets) -> Mapping[str, Offsets]:
    """What is to be noted, in this order, when a snapshot was confirmed that needs messages from `needed` on. Nothing where it is
    an older one that is confirmed late."""
    newest, before = snapshot_readers(group)
    known = readers.get(newest, {})
    both = known.keys() & needed.keys()  # a project that was changed may read other topics
    if known and both == needed.keys() and sum(needed[p] for p in both) <= sum(known[p] for p in both):
        return {}
    return {before: known or dict.fromkeys(needed, 0), newest: needed}


def forgettable(
    readers: Mapping[str, Offsets], group: str, inbound: Sequence[Partition], outbound: Sequence[Partition]
) -> tuple[Partition, ...]:
    """The partitions of which old messages may go: of inbound ones not before there are two snapshots to start from."""
    return (*(inbound if snapshot_readers(group)[1] in readers else ()), *outbound)
