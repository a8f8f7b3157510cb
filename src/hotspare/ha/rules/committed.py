"""What an engine knows of a stream once it learns what is committed: each function gives the facts of one stream anew.

What differs here is what `divergence` goes on from; what is proven is what snapshots wait for (SPEC Z9, Z10, D14, D15).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hotspare.bus.contract import OutputId, Progress
from hotspare.ha.rules.facts import Difference, Lease, StreamFacts


@dataclass(frozen=True, slots=True)
class OwnOutput:
    """What this engine computed itself at a sequence. `digest` None: it no longer knows, or its state begins later. `output_id`
    None: of an output that was let go of the digest alone is left."""

    digest: int | None
    output_id: OutputId | None = None


def is_older(known: StreamFacts, read: Progress) -> bool:
    """Whether what was read stands before what is known, as an answer that was long under way does."""
    return read.sequence < known.committed_sequence


def is_news(known: StreamFacts, read: Progress) -> bool:
    return read.sequence > known.committed_sequence


def after_news(lease: Lease) -> Lease:
    """A commit took place: perhaps one of this engine's, to which no answer came."""
    return lease if lease.fruitless_since_ms is None else replace(lease, fruitless_since_ms=None)


def is_compared_at(known: StreamFacts, point: Progress) -> bool:
    """Whether this engine's outputs are still to be compared with a committed point that it has passed."""
    return point.sequence > known.verified


def compared(stream: str, known: StreamFacts, point: Progress, own: OwnOutput, now_ms: int) -> StreamFacts:
    """The same sequence with another id or digest: these are not the group's outputs.

    A second difference under one epoch says nothing new. Where this engine has no output of its own to compare, nothing follows:
    its state begins after it, which `divergence.begins_ahead` refuses where it matters, or too much was let go of since.
    """
    if own.digest is None:
        return known
    if own.digest == point.digest and own.output_id in (None, point.output_id):
        return replace(known, verified=point.sequence, is_unproven=False, difference=None)
    if known.difference is not None and known.difference.epoch == point.epoch:
        return known
    return replace(known, difference=Difference(stream, point.sequence, own.digest, point.epoch, now_ms))


def overruled(known: StreamFacts) -> StreamFacts:
    """This engine goes on from what is committed although it differs. What differs, or was not computed yet, is no proof of its
    state."""
    if known.committed is None:
        return replace(known, difference=None)
    sequence = known.committed.sequence
    is_unproven = known.is_unproven or known.verified < sequence
    return replace(known, difference=None, verified=sequence, is_unproven=is_unproven)


def sent(known: StreamFacts, sequence: int, now_ms: int) -> StreamFacts:
    """This engine committed the outputs up to `sequence`; their progress perhaps comes later."""
    since_ms = now_ms if known.unrecorded_since_ms is None else known.unrecorded_since_ms
    return replace(known, sent=sequence, unrecorded_since_ms=since_ms, may_repeat=False)


def recorded(known: StreamFacts, progress: Progress) -> StreamFacts:
    """This engine committed progress. A lost record, written again, says nothing about its outputs."""
    known = replace(known, unrecorded=None)
    if not is_news(known, progress):
        return known
    return replace(known, committed=progress, verified=progress.sequence, is_unproven=False, unrecorded_since_ms=None)


def under_new_epoch(known: StreamFacts) -> StreamFacts:
    """What this engine committed before says nothing about where the topics end, and progress does.

    Under one epoch nobody else commits. So who fences again, because of a commit whose result it does not know, keeps what it knows
    of those before it: else a trimmed stream whose commits fail more often than its progress is written would never come on.
    """
    return replace(known, sent=0, unrecorded_since_ms=None)


def with_lost(known: StreamFacts, held_after: int) -> StreamFacts:
    """Of an engine that takes over and holds outputs after `held_after` only: those before it that are not committed nobody will
    ever publish. Each is counted once, also where the engine takes over again before anything is committed."""
    before = max(known.committed_sequence, known.lost_before)
    return known if held_after <= before else replace(known, lost=known.lost + held_after - before, lost_before=held_after)
