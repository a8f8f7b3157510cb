"""Streams that another project of the group numbered before: where this engine's outputs of them begin (`StreamFacts.is_unplaced`).

What is committed is another project's outputs, or this one's; its numbers say nothing of what this engine computed. So it is
neither compared nor let go of by number. Who takes over goes on behind the newest output that is committed, by the position in the
input that it comes of, and from there on its outputs have the numbers that follow. Until it has taken the input up to there it
publishes the other streams alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from hotspare.ha.rules.facts import StreamFacts


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
