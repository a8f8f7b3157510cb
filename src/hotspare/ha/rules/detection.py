"""The result of an attempt to reach the holder of the role, and what it proves."""

from __future__ import annotations

from enum import Enum

from hotspare.ha.rules.view import PeerStatus


class Attempt(Enum):
    ANSWERED = "answered"
    """The holder's process answered."""
    REFUSED = "refused"
    """The holder's address no longer accepts connections, or another process answers there."""
    NO_ANSWER = "no answer"
    ENDED = "ended"
    """The holder's process has ended or is ending, as the system of this machine shows."""


class Reached(Enum):
    """Whether this spare ever reached the holder's process under the holder's present epoch."""

    NEVER = "never"
    BEFORE = "before"


def status_after(attempt: Attempt, reached: Reached) -> PeerStatus:
    """Returns the holder's status after an attempt to reach it.

    A refused connection proves that the holder has ended only to a spare that was connected to that process under that epoch. For
    any other spare, the holder may never have been reachable. A broken link or machine gives no answer, so the lease decides.
    """
    if attempt is Attempt.ANSWERED:
        return PeerStatus.CONNECTED
    if attempt is Attempt.ENDED:
        return PeerStatus.ENDED
    return PeerStatus.CLOSED if attempt is Attempt.REFUSED and reached is Reached.BEFORE else PeerStatus.UNKNOWN
