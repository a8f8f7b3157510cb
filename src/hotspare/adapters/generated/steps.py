"""Sources that generate their events in steps, each of which follows from those before it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from hotspare.adapters.failover.source_position import SourcePosition
from hotspare.base.errors import BusError

GENERATOR_STATE_BYTES_MAX = 48 * 1024
"""Limit on a generator's state between two steps, which is in a header of the messages and in the source's record."""


class StepOutcome(Enum):
    GOES_ON = "goes on"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class GeneratedStep:
    """The result of one step: rows as inbound topics hold them (CSV), possibly none, and whether another step follows."""

    rows: Sequence[bytes]
    step_outcome: StepOutcome = StepOutcome.GOES_ON


@dataclass(frozen=True, slots=True)
class GeneratedPosition:
    """The published position of a source. `began_us`: the time at which its first step was due, microseconds since 1970; `events`:
    the number of events of all its steps."""

    steps: int = 0
    events: int = 0
    began_us: int = 0
    is_done: bool = False
    generator_state: str = ""

    def to_source_position(self) -> SourcePosition:
        rest = {"events": self.events, "began_us": self.began_us, "is_done": self.is_done, "kept": self.generator_state}
        return SourcePosition(self.steps, json.dumps(rest, separators=(",", ":")))

    @staticmethod
    def from_source_position(position: SourcePosition, name: str) -> GeneratedPosition:
        """Decodes a recorded position. Raises BusError if the source was not generated."""
        if not position.published_bytes:
            return GeneratedPosition()
        try:
            rest = json.loads(position.check)
            return GeneratedPosition(
                position.published_bytes, int(rest["events"]), int(rest["began_us"]), bool(rest["is_done"]), str(rest["kept"])
            )
        except (ValueError, KeyError, TypeError) as error:
            raise BusError(
                f"source {name} was published by another kind of connector before",
                detail=repr(position.check[:80]),
                hint="rename the connector",
            ) from error


class Generator(Protocol):
    """A source of steps, new before its first step. Each step depends only on the steps before, so it is equal in every process."""

    def resume(self, position: GeneratedPosition) -> None:
        """Continues a new generator at a position; also called at the beginning, when the first step is due at
        `position.began_us`."""

    def next_step(self) -> GeneratedStep:
        """Returns the next step. Raises UsageError if the step fails."""

    def save_state(self) -> str:
        """Returns the state that is needed, besides the number of steps, to continue; at most
        GENERATOR_STATE_BYTES_MAX bytes."""

    def due_us(self, step: int) -> int:
        """Returns the time at which step `step`, from 0, is due: microseconds after the first step."""
