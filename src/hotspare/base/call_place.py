"""The place of a call of user code, and what a group records about calls that did not end: attempts and decisions.

    attempt    one start of an engine that was ended because a call used too much processor time or memory; a fact of the group
               in coordination, which counts starts and decides nothing
    decision   the group's agreement that a window refuses what one position causes in it; committed on the bus with progress

Both name topics, not their indexes in a project, since projects are upgraded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from enum import StrEnum
from typing import Any

ATTEMPT_PREFIX = "hang/"
"""The prefix of the names of facts with attempts."""


class HangCause(StrEnum):
    """Why a call did not end: the limit that it exceeded, or a crash of its process."""

    DEADLINE = "deadline"
    MEMORY = "memory"
    CRASH = "crash"
    """A signal of the process's own, such as SIGSEGV, ended it within the call."""


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
        return f"window {self.window}, event {self.index} of {message}"


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

    @classmethod
    def from_list(cls, stored: Sequence[Any]) -> Decision:
        """Parses the form of `to_list`. Raises ValueError or TypeError."""
        topic, partition, offset, index, window, version, cause, number = stored
        place = CallPlace(str(topic), int(partition), int(offset), int(index), str(window), str(version))
        return cls(place, HangCause(cause), int(number))
