"""Updates the facts of one stream after an engine learned what is committed: each function returns new `StreamFacts`.

`divergence` decides on the differences that are found here; snapshots wait for the sequences that are verified here (SPEC Z9, Z10,
D14, D15).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hotspare.bus.contract import OutputId, Progress
from hotspare.ha.rules.facts import Difference, Lease, StreamFacts


@dataclass(frozen=True, slots=True)
class OwnOutput:
    """This engine's output at a sequence. `digest` None: it is not retained, or the state begins later. `output_id` None: the
    output was released, and only its digest is retained."""

    digest: int | None
    output_id: OutputId | None = None


def is_older_progress(known: StreamFacts, read: Progress) -> bool:
    """Whether the progress `read` is older than the known one; a delayed answer may be."""
    return read.sequence < known.committed_sequence


def is_newer_progress(known: StreamFacts, read: Progress) -> bool:
    return read.sequence > known.committed_sequence


def after_commit_seen(lease: Lease) -> Lease:
    """Returns the lease facts after any commit was seen: commits no longer count as failing, as it may be a commit of this engine
    whose answer was lost."""
    return lease if lease.fruitless_since_ms is None else replace(lease, fruitless_since_ms=None)


def is_comparison_due(known: StreamFacts, point: Progress) -> bool:
    """Whether `point` is later than all outputs that this engine has compared, so that it has to compare its output there."""
    return point.sequence > known.verified


def after_comparison(stream: str, known: StreamFacts, point: Progress, own: OwnOutput, now_ms: int) -> StreamFacts:
    """Returns the facts after comparing this engine's output `own` with the committed `point` at the same sequence: another id or
    digest is a difference.

    Of several differences under one epoch only the first is recorded. If the engine has no digest to compare, the facts stay: too
    many outputs were released since, or its state begins later, which `divergence.missing_outputs_reason` refuses if it matters.
    """
    if own.digest is None:
        return known
    if own.digest == point.digest and own.output_id in (None, point.output_id):
        return replace(known, verified=point.sequence, is_unproven=False, difference=None)
    if known.difference is not None and known.difference.epoch == point.epoch:
        return known
    return replace(known, difference=Difference(stream, point.sequence, own.digest, point.epoch, now_ms))


def after_overruling(known: StreamFacts) -> StreamFacts:
    """Returns the facts of an engine that continues after what is committed although it differs. Its state is unproven unless it
    had verified the newest committed sequence."""
    if known.committed is None:
        return replace(known, difference=None)
    sequence = known.committed.sequence
    is_unproven = known.is_unproven or known.verified < sequence
    return replace(known, difference=None, verified=sequence, is_unproven=is_unproven)


def after_sending(known: StreamFacts, sequence: int, now_ms: int) -> StreamFacts:
    """Returns the facts after this engine committed the outputs up to `sequence`; their progress may be written later."""
    since_ms = now_ms if known.unrecorded_since_ms is None else known.unrecorded_since_ms
    return replace(known, sent=sequence, unrecorded_since_ms=since_ms, may_repeat=False)


def after_recording(known: StreamFacts, progress: Progress) -> StreamFacts:
    """Returns the facts after this engine committed `progress`. Recording lost progress again proves nothing about the outputs."""
    known = replace(known, unrecorded=None)
    if not is_newer_progress(known, progress):
        return known
    return replace(known, committed=progress, verified=progress.sequence, is_unproven=False, unrecorded_since_ms=None)


def after_new_epoch(known: StreamFacts) -> StreamFacts:
    """Returns the facts after a new epoch was won, without what this engine sent under the last one: from now on only progress
    counts.

    An engine that fences again under the same epoch, after a commit of unknown result, keeps these facts, since no other engine
    commits under it. Otherwise a trimmed stream whose commits fail more often than its progress is written would never advance.
    """
    return replace(known, sent=0, unrecorded_since_ms=None)


def with_lost_outputs(known: StreamFacts, held_after: int) -> StreamFacts:
    """Returns the facts with the count of lost outputs: neither committed nor held by an engine that takes over and holds only
    those after `held_after`.

    Each lost output is counted once, even if the engine takes over again before anything is committed.
    """
    before = max(known.committed_sequence, known.lost_before)
    return known if held_after <= before else replace(known, lost=known.lost + held_after - before, lost_before=held_after)
