"""The place of a call of user code, and what a group records about calls that did not end: attempts and decisions.

    attempt    one start of an engine that was ended because a call used too much processor time or memory; a fact of the group
               in coordination, which counts starts and decides nothing
    decision   the group's agreement that a window refuses what one position causes in it; committed on the bus with progress.
               After three of them the window is in quarantine: it refuses everything, until a decision of another kind, at a
               place that the group chooses on request, lifts the quarantine

Both name topics, not their indexes in a project, since projects are upgraded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass
from enum import StrEnum
from typing import Any

ATTEMPT_PREFIX = "hang/"
"""The prefix of the names of facts with attempts."""
LIFT_PREFIX = "lift/"
"""The prefix of the names of facts with requests to lift a quarantine."""
QUARANTINE_DECISIONS = 3
"""The number of decisions about a window after which it refuses every event."""
BEFORE_EVENTS = -1
"""The index of a place before all events of its message."""


class HangCause(StrEnum):
    """Why a decision was made: the limit that a call exceeded, a crash of its process, or a request."""

    DEADLINE = "deadline"
    MEMORY = "memory"
    CRASH = "crash"
    """A signal of the process's own, such as SIGSEGV, ended it within the call."""
    LIFTED = "lifted"
    """No call: a user requested to lift the quarantine of the window. The index of the place is BEFORE_EVENTS."""


def decisions_left(causes: Iterable[HangCause]) -> int:
    """Returns the number of decisions, 0 to QUARANTINE_DECISIONS, that a window is from its quarantine; 0: it is in quarantine.
    `causes`: those of all decisions about the window, in their order."""
    counted = 0
    for cause in causes:
        counted = 0 if cause is HangCause.LIFTED else counted + 1
    return max(0, QUARANTINE_DECISIONS - counted)


@dataclass(frozen=True, slots=True, order=True)
class CallPlace:
    """The position of the event or tick that caused a call, and the window whose code was called. Equal in every engine of a
    group.

    `version`: that of the window (`Plan.window_versions`). A window that an upgrade changed is another one, so neither attempts nor
    decisions about it count any more.
    """

    topic: str
    partition: int
    offset: int
    index: int
    window: str
    version: str = ""

    def __str__(self) -> str:
        message = f"the message at offset {self.offset} of {self.topic}, partition {self.partition}"
        event = "" if self.index == BEFORE_EVENTS else f"event {self.index} of "
        return f"window {self.window}, {event}{message}"


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """A call that was ended together with its engine.

    `rows`: the rows of the call; a call over columns has several, of which `place` names the first. `start` identifies the start of
    the engine: process space, process id and start of the process. `engine`, `host` and `used_ms` are for users.
    """

    place: CallPlace
    cause: HangCause
    start: str
    rows: int = 1
    engine: str = ""
    host: str = ""
    used_ms: int = 0

    @property
    def fact_name(self) -> str:
        """The name of the fact: equal for equal place, rows and start."""
        at = self.place
        position = f"{at.topic}/{at.partition}/{at.offset}/{at.index}"
        return f"{ATTEMPT_PREFIX}{position}/{at.window}/{at.version}/{self.rows}/{self.start}"

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> CallAttempt | None:
        """Parses a stored attempt; returns None if it was not written by `to_bytes`."""
        try:
            read = json.loads(stored)
            return cls(**{**read, "place": CallPlace(**read["place"]), "cause": HangCause(read["cause"])})
        except (ValueError, TypeError, KeyError):
            return None


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one place. `number` counts the group's decisions from 1."""

    place: CallPlace
    cause: HangCause
    number: int

    def to_list(self) -> list[str | int]:
        """Returns the form in which decisions are stored: the fields of the place, the cause, the number."""
        return [*astuple(self.place), self.cause.value, self.number]

    @property
    def sentence(self) -> str:
        is_lifted = self.cause is HangCause.LIFTED
        what = "the quarantine is lifted from here on" if is_lifted else f"the window refuses what did not end ({self.cause.value})"
        return f"decision {self.number} of the group: {what}: {self.place}"

    @classmethod
    def from_list(cls, stored: Sequence[Any]) -> Decision:
        """Parses the form of `to_list`. Raises ValueError or TypeError."""
        topic, partition, offset, index, window, version, cause, number = stored
        place = CallPlace(str(topic), int(partition), int(offset), int(index), str(window), str(version))
        return cls(place, HangCause(cause), int(number))


@dataclass(frozen=True, slots=True, order=True)
class LiftRequest:
    """A user's request to lift the quarantine of a window; a fact of the group without a value. `number`: that of the newest
    decision about the window. So a request never lifts a later quarantine."""

    window: str
    version: str
    number: int

    @property
    def fact_name(self) -> str:
        return f"{LIFT_PREFIX}{self.window}/{self.version}/{self.number}"
