"""What an attempt to reach the holder of the role says about it (DESIGN section 5)."""

from __future__ import annotations

from enum import Enum

from hotspare.ha.rules.view import PeerStatus


class Attempt(Enum):
    ANSWERED = "answered"
    """By that very process."""
    REFUSED = "refused"
    """Nobody listens there any more, or another process does."""
    NO_ANSWER = "no answer"
    ENDED = "ended"
    """The process is seen to have ended, or to end."""


class Reached(Enum):
    """Whether the very process was ever reached under this epoch."""

    NEVER = "never"
    BEFORE = "before"


def status_after(attempt: Attempt, reached: Reached) -> PeerStatus:
    """Refused says that the holder is gone only to a spare that was connected to that very process under that epoch: it may never
    have been reachable from here. A link that is down, and a machine that is, gives no answer: the lease decides."""
    if attempt is Attempt.ANSWERED:
        return PeerStatus.CONNECTED
    if attempt is Attempt.ENDED:
        return PeerStatus.ENDED
    return PeerStatus.CLOSED if attempt is Attempt.REFUSED and reached is Reached.BEFORE else PeerStatus.UNKNOWN
