"""Which outputs, not known to be committed, a spare keeps, by the quality of their stream (SPEC D2-D7, D15)."""

from __future__ import annotations

from collections.abc import Iterable

from hotspare.ha.rules.facts import StreamFacts
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.view import StreamView
from hotspare.model.quality import Quality, QualityKind


def has_to_hold_all(role: Role) -> bool:
    """Whether every output is kept until it is committed: a spare releases some by quality, any other role none.

    A warming engine needs them all to find its numbers.
    """
    return role is not Role.STANDBY


def releasable_through(quality: Quality, last_sequence: int, arrivals: Iterable[tuple[int, int]], now_ms: int) -> int:
    """Returns the last output that a spare releases: all outputs, all before a window, or none (0).

    `last_sequence` is the newest output; `arrivals` are (sequence, when it was computed), needed for a window of time.
    """
    if quality.kind is QualityKind.SIMPLE:
        return last_sequence
    if quality.window_events:
        return max(0, last_sequence - quality.window_events)
    if quality.window_ms:
        return max((sequence for sequence, at_ms in arrivals if at_ms <= now_ms - quality.window_ms), default=0)
    return 0


def committed_through(known: StreamFacts, last_sequence: int) -> int:
    """Returns the last output that any engine releases because it is committed; all of them if the engine is behind what is
    committed."""
    return min(known.committed_sequence, last_sequence)


def has_to_keep_digests(known: StreamFacts) -> bool:
    """Whether digests of released outputs are kept: another spare may show that its own are the same."""
    return known.difference is not None


def has_missing_outputs(stream: StreamView) -> bool:
    """Whether outputs are neither committed nor held, though the stream's quality allows no loss."""
    return stream.quality.holds_all and not stream.facts.is_shift_unknown and stream.base_sequence > stream.facts.committed_sequence
