"""Determines which outputs a spare retains until they are known to be committed, by the quality of their stream (SPEC D2-D7,
D15)."""

from __future__ import annotations

from collections.abc import Iterable

from hotspare.ha.rules.facts import StreamFacts
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.view import StreamView
from hotspare.model.quality import Quality, QualityKind


def has_to_hold_all(role: Role) -> bool:
    """Whether an engine with this role holds every output until it is committed. Only a standby releases outputs by quality.

    A warming engine needs all of them to find its numbers.
    """
    return role is not Role.STANDBY


def releasable_through(quality: Quality, last_sequence: int, arrivals: Iterable[tuple[int, int]], now_ms: int) -> int:
    """Returns the sequence up to which a spare may release outputs by `quality`. Simple: the newest, `last_sequence`. Buffered:
    the last one before the window that ends with the newest. All others: 0, so none is released.

    `arrivals`: pairs (sequence, time computed), used only for a window of time.
    """
    if quality.kind is QualityKind.SIMPLE:
        return last_sequence
    if quality.window_events:
        return max(0, last_sequence - quality.window_events)
    if quality.window_ms:
        return max((sequence for sequence, at_ms in arrivals if at_ms <= now_ms - quality.window_ms), default=0)
    return 0


def committed_through(known: StreamFacts, last_sequence: int) -> int:
    """Returns the sequence up to which any engine releases outputs because they are committed: at most its own newest,
    `last_sequence`."""
    return min(known.committed_sequence, last_sequence)


def has_to_keep_digests(known: StreamFacts) -> bool:
    """Whether the digests of released outputs are retained: this engine differs, and another spare may yet show that it computed
    the same outputs."""
    return known.difference is not None


def has_missing_outputs(stream: StreamView) -> bool:
    """Whether outputs of the stream are neither committed nor held although its quality forbids loss. False while the shift is
    unknown."""
    return stream.quality.holds_all and not stream.facts.is_shift_unknown and stream.base_sequence > stream.facts.committed_sequence
