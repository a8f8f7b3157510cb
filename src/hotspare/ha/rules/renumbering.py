"""Decides how this engine numbers its outputs of streams that another project of the group numbered before
(`StreamFacts.is_shift_unknown`).

What is committed may be another project's outputs, so its numbers prove nothing about what this engine computed. Such a stream is
neither compared nor released by number. An engine that takes over continues after the newest committed output, found by its input
position, and numbers its own outputs from there. Until it has processed the input up to that position it publishes only the other
streams.

While engines of two projects take part, either may have made what is committed (`project_changes`). At each change, every engine
regards the shift of the streams that differ between the projects as unknown again. A spare whose project did not make what is
committed releases its outputs before that, and does not compare. In a stream that the other project lacks, the newest committed
output shows no position of that project. For such a stream, all that the other project ever committed counts
(`with_other_project_outputs`), even for outputs that this engine computes only later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from hotspare.bus.contract import OutputId, Progress
from hotspare.ha.rules.facts import Projects, StreamFacts
from hotspare.ha.rules.project_changes import is_stream_record, newest_change_epoch, parsed_changes, project_at_epoch


def streams_with_unknown_shift(known: Projects) -> frozenset[str] | None:
    """Returns the streams whose shift is unknown because another project publishes, or published since this engine's shifts were
    known.

    None: all streams, as this engine has not read the agreement on that project. Empty: no other project published.
    """
    since = {number for epoch, number in known.changes if epoch > known.changes_epoch} | {
        project_at_epoch(known.changes, known.newest_change)
    }
    if since == {known.own}:
        return frozenset()
    return (
        None
        if known.group_agreement is None or max(since) > known.cut_overs
        else known.group_agreement.changed_streams_of(since | {known.own})
    )


def is_own_epoch(known: Projects, epoch: int) -> bool:
    """Whether this engine's project made what was committed under `epoch`."""
    return project_at_epoch(known.changes, epoch) == known.own


def with_other_project_outputs(known: Projects, progress: Mapping[str, Progress]) -> tuple[OutputId, ...]:
    """Returns, for each input partition, the id of the newest committed output of another project, those in `progress` included;
    sorted by partition.

    An input that one stream of that project answered is answered in all its streams.
    """
    found = {(at.topic, at.partition): at for at in known.other_project_outputs}
    for name, each in progress.items():
        at = each.output_id
        if at is not None and is_stream_record(name) and not is_own_epoch(known, each.epoch):
            place = (at.topic, at.partition)
            found[place] = max(found.get(place, at), at, key=_position)
    return tuple(found[place] for place in sorted(found))


def _position(at: OutputId) -> tuple[int, int, int]:
    return at.offset, at.index, at.ordinal


def has_other_project_news(known: Projects, progress: Mapping[str, Progress]) -> bool:
    """Whether `progress` shows a project change, or outputs of another project, that this engine has not recorded, even in streams
    that its own project lacks."""
    return (
        newest_change_epoch(parsed_changes(progress)) > known.newest_change
        or with_other_project_outputs(known, progress) != known.other_project_outputs
    )


def other_outputs_before(known: Projects, stream: str) -> tuple[OutputId, ...]:
    """Returns the newest outputs of the other project, by partition, if only this engine's project has the stream; else (). This
    engine's outputs of the stream may begin only after their input positions, as after the stream's newest committed output."""
    return known.other_project_outputs if stream in known.own_only_streams else ()


def is_numbering_own(known: Projects, stream: str, committed: Progress | None) -> bool:
    """Whether the newest committed output of a stream proves its numbers for this engine: its own project published it, and
    publishes now.

    In a stream that the other project lacks, the output must also be newer than the last change, because the other project
    answered input after the earlier outputs.
    """
    epoch, newest = 0 if committed is None else committed.epoch, known.newest_change
    return is_own_epoch(known, newest) and is_own_epoch(known, epoch) and (epoch >= newest or stream not in known.own_only_streams)


def is_behind(
    known: StreamFacts,
    next_offsets: Mapping[tuple[int, int], int],
    reads: Collection[tuple[int, int]],
    before: tuple[OutputId, ...] = (),
) -> bool:
    """Whether an engine that continues at `next_offsets` may still compute outputs, of a stream with an unknown shift, that
    precede committed ones.

    The committed ones are the newest of the stream and those in `before` (`other_outputs_before`). Only the partitions in `reads`
    count.
    """
    own = None if known.committed is None else known.committed.output_id
    ends = before if own is None else (own, *before)
    return known.is_shift_unknown and any(
        (at.topic, at.partition) in reads and next_offsets.get((at.topic, at.partition), 0) <= at.offset for at in ends
    )


def with_known_shift(known: StreamFacts) -> StreamFacts:
    """Returns the facts of a stream after its outputs were renumbered to follow what is committed."""
    return replace(known, is_shift_unknown=False, verified=known.committed_sequence, difference=None)


def with_unknown_shift(known: StreamFacts) -> StreamFacts:
    return replace(known, is_shift_unknown=True, verified=0, difference=None)
