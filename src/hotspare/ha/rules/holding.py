"""What a spare keeps of outputs that are not known to be committed, by the quality of their stream (SPEC D2-D7, D15)."""

from __future__ import annotations

from collections.abc import Iterable

from hotspare.ha.rules.facts import StreamFacts
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.view import StreamView
from hotspare.model.quality import Quality, QualityKind


def keeps_all(role: Role) -> bool:
    """Whoever is promoting or active keeps every output until it is committed; who has yet to find its numbers needs them, too."""
    return role is not Role.STANDBY


def let_go_through(quality: Quality, last_sequence: int, arrivals: Iterable[tuple[int, int]], now_ms: int) -> int:
    """Up to which output a spare lets go: of all, of what stands before a window, or of none (0).

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
    """Up to which output any engine lets go, since it is committed. One that has not come as far lets go of all it has."""
    return min(known.committed_sequence, last_sequence)


def keeps_digests(known: StreamFacts) -> bool:
    """Whether digests of what is let go of stay: another spare may show that its are the same."""
    return known.difference is not None


def lacks(stream: StreamView) -> bool:
    """Whether outputs are neither committed nor held, though nothing of the stream may be lost."""
    return stream.quality.holds_all and not stream.facts.is_unplaced and stream.base_sequence > stream.facts.committed_sequence
