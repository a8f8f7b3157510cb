"""The role of an inbound topic in a project."""

from __future__ import annotations

from enum import Enum


class InboundRole(Enum):
    EVENTS = "events"
    """A topic of the project itself: publishers write events to it, and the active engine writes ticks."""
    OUTPUTS = "outputs"
    """The output topic of another project, which commits outputs and beats to it. Nothing else writes there (SPEC K10)."""
    TICKS = "ticks"
    """A topic of the project for ticks alone, if other inbound topics belong to other projects. The ticks show that the engine is
    alive, also while all other input waits for another project; they do not advance time."""
