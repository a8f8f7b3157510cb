"""What an inbound topic of a project is to it."""

from __future__ import annotations

from enum import Enum


class Inbound(Enum):
    EVENTS = "events"
    """Its own: publishers write events to it, the active engine ticks."""
    OUTPUTS = "outputs"
    """The output topic of another project, which commits outputs and beats to it. Nobody else writes there (SPEC K10)."""
    TICKS = "ticks"
    """Its own, for ticks alone, where others are of other projects: they show that the engine is alive, also while all else that it
    reads waits for another project, and tell no time."""
