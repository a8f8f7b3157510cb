"""Streams that another project of the group numbered before: where this engine's outputs of them begin (`StreamFacts.is_unplaced`).

What is committed is another project's outputs, or this one's; its numbers say nothing of what this engine computed. So it is
neither compared nor let go of by number. Who takes over goes on behind the newest output that is committed, by the position in the
input that it comes of, and from there on its outputs have the numbers that follow. Until it has taken the input up to there it
publishes the other streams alone.

While engines of two projects take part, what is committed is now the one's and now the other's (`makers`). With each change the
streams that are not the same in both are without a place again, in every engine. A spare whose project did not make what is
committed lets go of what comes before it, and does not compare; of a stream that the other project does not have, what comes before
all that it committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from hotspare.ha.rules.facts import Projects, StreamFacts
from hotspare.ha.rules.makers import maker


def unplaced_by(known: Projects) -> frozenset[str] | None:
    """The streams that are without a place, as another project publishes, or did since their numbers were known; None: all, as it
    is one that this engine knows nothing of. An empty set where there was no other."""
    since = {number for epoch, number in known.changes if epoch > known.changes_epoch} | {maker(known.changes, known.newest_change)}
    if since == {known.own}:
        return frozenset()
    return None if known.known is None or max(since) > known.moves else known.known.differing(since | {known.own})


def is_own(known: Projects, epoch: int) -> bool:
    """Whether this engine's project made what was committed under an epoch."""
    return maker(known.changes, epoch) == known.own


def are_anothers(known: Projects) -> frozenset[str]:
    """The streams that the project does not have which made the newest that is committed."""
    if known.known is None or is_own(known, known.newest_change):
        return frozenset()
    return known.known.lacking(known.own)


def is_behind(known: StreamFacts, next_offsets: Mapping[tuple[int, int], int], reads: Collection[tuple[int, int]]) -> bool:
    """Whether an engine that reads on at `next_offsets`, of the partitions that it `reads`, may still compute what comes before the
    newest committed output."""
    at = None if known.committed is None else known.committed.output_id
    if at is None or not known.is_unplaced or (at.topic, at.partition) not in reads:
        return False
    return next_offsets.get((at.topic, at.partition), 0) <= at.offset


def placed(known: StreamFacts) -> StreamFacts:
    """From now on its outputs have the numbers that follow what is committed."""
    return replace(known, is_unplaced=False, verified=known.committed_sequence, difference=None)


def unplaced(known: StreamFacts) -> StreamFacts:
    return replace(known, is_unplaced=True, verified=0, difference=None)
