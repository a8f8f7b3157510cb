"""The result of an attempt to reach the holder of the role, and what it proves."""

from __future__ import annotations

from enum import Enum

from hotspare.ha.rules.view import PeerStatus


class Attempt(Enum):
    ANSWERED = "answered"
    """That very process answered."""
    REFUSED = "refused"
    """That address does not accept connections any more, or another process does."""
    NO_ANSWER = "no answer"
    ENDED = "ended"
    """The process is seen to have ended, or to end."""


class Reached(Enum):
    """Whether the very process was ever reached under this epoch."""

    NEVER = "never"
    BEFORE = "before"


def status_after(attempt: Attempt, reached: Reached) -> PeerStatus:
    """Returns the holder's status after an attempt.

    A refused connection proves that the holder is gone only to a spare that was connected to that very process under that epoch. To
    any other, it may never have been reachable. A broken link or machine gives no answer, so the lease decides.
    """
    if attempt is Attempt.ANSWERED:
        return PeerStatus.CONNECTED
    if attempt is Attempt.ENDED:
        return PeerStatus.ENDED
    return PeerStatus.CLOSED if attempt is Attempt.REFUSED and reached is Reached.BEFORE else PeerStatus.UNKNOWN
