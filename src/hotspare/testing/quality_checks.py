"""Checks the delivered sequence numbers of a stream against its quality of service (docs/qualities.md), as pure functions.
The reference is an uninterrupted run: outputs 1, 2, 3 ... up to the newest. `delivered` is the content of the outbound topic, in
its order. Values are not checked: `verify.compare_stream` compares each output with the reference output of the same sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hotspare.model.quality import Quality, QualityKind

VIOLATIONS_MAX = 20


@dataclass(frozen=True, slots=True)
class DeliveredOutput:
    """An output on the topic: its sequence, its epoch, and the time of its publication by the clock of the reference."""

    sequence: int
    epoch: int
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class Reference:
    """The uninterrupted run of one stream. `last`: the newest sequence at the time of the check.

    `times_ms`: the time at which each output could first be computed (sequence n at index n - 1), for windows by time; may be
    empty.

    `epochs_short_of_window`: epochs whose engine was restored less than a window before it became active, so its buffer was not
    full.
    """

    last: int
    times_ms: Sequence[int] = ()
    epochs_short_of_window: frozenset[int] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class _Gap:
    """Outputs `first`..`last` that were not delivered before `next_output`. `is_takeover`: whether `next_output` has a new
    epoch."""

    first: int
    last: int
    next_output: DeliveredOutput
    is_takeover: bool


def quality_violations(quality: Quality, delivered: Sequence[DeliveredOutput], reference: Reference) -> tuple[str, ...]:
    """Returns the violations of the quality, as sentences; empty if it was kept. `delivered` must be complete.

    Under every quality: no epoch decreases, no output is missing in the reference, and new outputs arrive in order.

        simple     no output is repeated; a gap begins with a new epoch; the end may be missing
        buffered   no output is repeated; a gap begins with a new epoch, and has only outputs older than the window
        trimmed    no gap; repeated outputs begin fewer than `progress_events` before the newest
        precise    every output once
    """
    found = [*_epoch_violations(delivered), *_range_violations(delivered, reference)]
    gaps = list(_gaps(delivered))
    found += _repeat_violations(quality, delivered)
    if quality.holds_all:
        found += [f"{_span(g.first, g.last)} lost before {g.next_output.sequence} of epoch {g.next_output.epoch}" for g in gaps]
        newest = max((d.sequence for d in delivered), default=0)
        if newest < reference.last:
            found.append(f"{_span(newest + 1, reference.last)} not delivered")
    else:
        found += [f"{_span(g.first, g.last)} lost within epoch {g.next_output.epoch}" for g in gaps if not g.is_takeover]
    if quality.kind is QualityKind.BUFFERED:
        found += [
            c
            for g in gaps
            if g.next_output.epoch not in reference.epochs_short_of_window
            for c in _window_violations(quality, g, reference)
        ]
    return tuple(found[:VIOLATIONS_MAX])


def count_lost(delivered: Sequence[DeliveredOutput], reference: Reference) -> int:
    """Returns the number of outputs of the reference that were never delivered."""
    return reference.last - len({d.sequence for d in delivered if d.sequence <= reference.last})


def count_doubled(delivered: Sequence[DeliveredOutput]) -> int:
    """Returns the number of repeated outputs, which a receiver that remembers the greatest sequence can drop."""
    return len(delivered) - len({d.sequence for d in delivered})


def without_repeats(delivered: Sequence[DeliveredOutput]) -> list[DeliveredOutput]:
    """Returns the outputs whose sequence is greater than that of all earlier ones."""
    kept: list[DeliveredOutput] = []
    for output in delivered:
        if not kept or output.sequence > kept[-1].sequence:
            kept.append(output)
    return kept


def _span(first: int, last: int) -> str:
    return f"output {first}" if first == last else f"outputs {first} to {last}"


def _epoch_violations(delivered: Sequence[DeliveredOutput]) -> Iterator[str]:
    for before, after in pairwise(delivered):
        if after.epoch < before.epoch:
            yield f"output {after.sequence} of epoch {after.epoch} delivered after one of epoch {before.epoch}"


def _range_violations(delivered: Sequence[DeliveredOutput], reference: Reference) -> Iterator[str]:
    for output in delivered:
        if not 1 <= output.sequence <= reference.last:
            yield f"output {output.sequence} delivered, the reference ends with {reference.last}"


def _gaps(delivered: Sequence[DeliveredOutput]) -> Iterator[_Gap]:
    newest, epoch = 0, 0
    for output in delivered:
        if output.sequence > newest + 1:
            yield _Gap(newest + 1, output.sequence - 1, output, output.epoch > epoch)
        newest, epoch = max(newest, output.sequence), output.epoch


def _repeat_violations(quality: Quality, delivered: Sequence[DeliveredOutput]) -> Iterator[str]:
    """Yields violations of the rule on repeated outputs: repeats form a run of consecutive sequences that begins at most the
    allowed count before the newest output, 0 except under trimmed."""
    allowed = quality.progress_events - 1 if quality.kind is QualityKind.TRIMMED else 0
    newest, previous = 0, 0
    for output in delivered:
        if output.sequence <= newest and output.sequence != previous + 1 and newest - output.sequence + 1 > allowed:
            yield f"output {output.sequence} of epoch {output.epoch} delivered after {newest}, at most {max(allowed, 0)} may repeat"
        newest, previous = max(newest, output.sequence), output.sequence


def _window_violations(quality: Quality, gap: _Gap, reference: Reference) -> Iterator[str]:
    """Yields violations of the rule on buffered windows: an output may be lost only if it is older than the window."""
    if quality.window_events and gap.last + quality.window_events > reference.last:
        yield f"{_span(gap.first, gap.last)} lost, among the newest {quality.window_events} of {reference.last}"
    if quality.window_ms and len(reference.times_ms) >= gap.last:
        age_ms = gap.next_output.time_ms - reference.times_ms[gap.last - 1]
        if age_ms < quality.window_ms:
            yield f"output {gap.last} lost {age_ms} ms after it could be computed, the window is {quality.window_ms} ms"
