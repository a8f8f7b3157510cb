"""Streams that another project of the group numbered before: where this engine's outputs of them begin (`StreamFacts.is_unplaced`).

What is committed is another project's outputs, or this one's; its numbers say nothing of what this engine computed. So it is
neither compared nor let go of by number. Who takes over goes on behind the newest output that is committed, by the position in the
input that it comes of, and from there on its outputs have the numbers that follow. Until it has taken the input up to there it
publishes the other streams alone.

While engines of two projects take part, what is committed is now the one's and now the other's (`makers`). With each change the
streams that are not the same in both are without a place again, in every engine. A spare whose project did not make what is
committed lets go of what comes before it, and does not compare. A stream that the other project does not have has no position of
its own there: of it counts all that the other one ever committed (`answered`), also what is computed only later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from hotspare.bus.contract import OutputId, Progress
from hotspare.ha.rules.facts import Projects, StreamFacts
from hotspare.ha.rules.makers import changes_of, is_stream, maker, newest_epoch


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


def answered(known: Projects, progress: Mapping[str, Progress]) -> tuple[OutputId, ...]:
    """Of each partition the newest output that another project made, after this progress was read, too. What one stream brought
    for an input, the others of that project did as well."""
    found = {(at.topic, at.partition): at for at in known.answered}
    for name, each in progress.items():
        at = each.output_id
        if at is not None and is_stream(name) and not is_own(known, each.epoch):
            place = (at.topic, at.partition)
            found[place] = max(found.get(place, at), at, key=_position)
    return tuple(found[place] for place in sorted(found))


def _position(at: OutputId) -> tuple[int, int, int]:
    return at.offset, at.index, at.ordinal


def are_news(known: Projects, progress: Mapping[str, Progress]) -> bool:
    """Whether progress says more than was known of what other projects committed, be it to streams that this one does not have."""
    return newest_epoch(changes_of(progress)) > known.newest_change or answered(known, progress) != known.answered


def answered_before(known: Projects, stream: str) -> tuple[OutputId, ...]:
    """Behind which outputs, beside the newest of its own, this engine's outputs of an unplaced stream begin."""
    return known.answered if stream in known.lacking else ()


def is_own_since(known: Projects, stream: str, committed: Progress | None) -> bool:
    """Whether the newest output of a stream tells the numbers of those that follow: this project publishes, and made it. Of a
    stream that the other one does not have it also came since this one publishes, as that one answered input after the others."""
    epoch, newest = 0 if committed is None else committed.epoch, known.newest_change
    return is_own(known, newest) and is_own(known, epoch) and (epoch >= newest or stream not in known.lacking)


def is_behind(
    known: StreamFacts,
    next_offsets: Mapping[tuple[int, int], int],
    reads: Collection[tuple[int, int]],
    before: tuple[OutputId, ...] = (),
) -> bool:
    """Whether an engine that reads on at `next_offsets`, of the partitions that it `reads`, may still compute what comes before the
    newest committed output, or any of those `before` (`answered_before`)."""
    own = None if known.committed is None else known.committed.output_id
    ends = before if own is None else (own, *before)
    return known.is_unplaced and any(
        (at.topic, at.partition) in reads and next_offsets.get((at.topic, at.partition), 0) <= at.offset for at in ends
    )


def placed(known: StreamFacts) -> StreamFacts:
    """From now on its outputs have the numbers that follow what is committed."""
    return replace(known, is_unplaced=False, verified=known.committed_sequence, difference=None)


def unplaced(known: StreamFacts) -> StreamFacts:
    return replace(known, is_unplaced=True, verified=0, difference=None)
