"""Updates what an engine knows of a stream once it learns what is committed: each function returns new facts of one stream.

`divergence` decides on the differences found here; snapshots wait for what is proven here (SPEC Z9, Z10, D14, D15).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hotspare.bus.contract import OutputId, Progress
from hotspare.ha.rules.facts import Difference, Lease, StreamFacts


@dataclass(frozen=True, slots=True)
class OwnOutput:
    """This engine's own output at a sequence. `digest` None: not known any more, or the state begins later. `output_id` None: the
    output was released, and only its digest is kept."""

    digest: int | None
    output_id: OutputId | None = None


def is_older_progress(known: StreamFacts, read: Progress) -> bool:
    """Whether `read` is behind what is known, as a delayed answer is."""
    return read.sequence < known.committed_sequence


def is_newer_progress(known: StreamFacts, read: Progress) -> bool:
    return read.sequence > known.committed_sequence


def after_commit_seen(lease: Lease) -> Lease:
    """Returns the lease after a commit took place: it may be one of this engine's, whose answer was lost."""
    return lease if lease.fruitless_since_ms is None else replace(lease, fruitless_since_ms=None)


def is_comparison_due(known: StreamFacts, point: Progress) -> bool:
    """Whether this engine's outputs are still to be compared with a committed point that it has passed."""
    return point.sequence > known.verified


def after_comparison(stream: str, known: StreamFacts, point: Progress, own: OwnOutput, now_ms: int) -> StreamFacts:
    """Compares this engine's output with the committed one at the same sequence: another id or digest is a difference.

    A second difference under one epoch is not recorded. If this engine has no output to compare, the facts stay: its state begins
    later, which `divergence.missing_outputs_reason` refuses if it matters, or too many outputs were released since.
    """
    if own.digest is None:
        return known
    if own.digest == point.digest and own.output_id in (None, point.output_id):
        return replace(known, verified=point.sequence, is_unproven=False, difference=None)
    if known.difference is not None and known.difference.epoch == point.epoch:
        return known
    return replace(known, difference=Difference(stream, point.sequence, own.digest, point.epoch, now_ms))


def after_overruling(known: StreamFacts) -> StreamFacts:
    """Returns the facts of an engine that continues from what is committed although it differs. A sequence that differs, or was not
    computed yet, does not prove its state."""
    if known.committed is None:
        return replace(known, difference=None)
    sequence = known.committed.sequence
    is_unproven = known.is_unproven or known.verified < sequence
    return replace(known, difference=None, verified=sequence, is_unproven=is_unproven)


def after_sending(known: StreamFacts, sequence: int, now_ms: int) -> StreamFacts:
    """Records that this engine committed the outputs up to `sequence`; their progress may follow later."""
    since_ms = now_ms if known.unrecorded_since_ms is None else known.unrecorded_since_ms
    return replace(known, sent=sequence, unrecorded_since_ms=since_ms, may_repeat=False)


def after_recording(known: StreamFacts, progress: Progress) -> StreamFacts:
    """Records progress that this engine committed. Re-recording lost progress proves nothing about the outputs."""
    known = replace(known, unrecorded=None)
    if not is_newer_progress(known, progress):
        return known
    return replace(known, committed=progress, verified=progress.sequence, is_unproven=False, unrecorded_since_ms=None)


def after_new_epoch(known: StreamFacts) -> StreamFacts:
    """Discards what this engine knows of its own commits when its epoch changes; from then on only progress counts.

    Under one epoch no other engine commits, so this is not called when an engine fences again after a commit of unknown result.
    Otherwise a trimmed stream whose commits fail more often than its progress is written would never advance.
    """
    return replace(known, sent=0, unrecorded_since_ms=None)


def with_lost_outputs(known: StreamFacts, held_after: int) -> StreamFacts:
    """Counts the outputs that will never be published, because an engine that takes over holds only those after `held_after`.

    Each is counted once, even if the engine takes over again before anything is committed.
    """
    before = max(known.committed_sequence, known.lost_before)
    return known if held_after <= before else replace(known, lost=known.lost + held_after - before, lost_before=held_after)
