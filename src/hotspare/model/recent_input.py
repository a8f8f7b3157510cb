"""Whether an engine can make a project's state from recent input alone, and from how much (SPEC F11). Pure.

That all state is bounded by time (`retention_needs.state_bound`) is not enough. Time by a field of the events need not come on.
A row that is updated again and again lives for ever. And what a type of window remembers has to be shown to depend on nothing
else: a law shows it of those that say so (`WindowType.of_recent_input`).
"""

from __future__ import annotations

from dataclasses import dataclass

from hotspare.model.durations import format_duration
from hotspare.model.project import AS_MADE, AcceptedOpcodes, Emit
from hotspare.model.resolved import Resolved
from hotspare.model.retention_needs import Keeping, state_bound
from hotspare.model.window_type import type_of

TICK_GAP_US = 2_000_000
"""While an engine is active, ticks of a partition are a second apart at most. Where they are farther apart than this, the engine
counts anew from there (`ha.rules.warming`)."""


@dataclass(frozen=True, slots=True)
class RecentInput:
    """The state is made of the newest `span_us` microseconds of input where `refusals` is empty; else these say what forbids it.

    That is twice as long as anything is remembered: an event that the others refuse, for the sake of a row from before, is taken by
    an engine that does not have that row, and stays as long as any.
    """

    span_us: int
    refusals: tuple[str, ...]

    def __str__(self) -> str:
        if self.refusals:
            return f"no engine makes it from recent input alone: {'; '.join(self.refusals)}"
        return f"an engine can make it from the newest {format_duration(self.span_us)} of the input (hotspare run --join recent)"


def recent_input(resolved: Resolved, keeping: Keeping) -> RecentInput:
    bound = state_bound(resolved, keeping)
    found = [f"window {need.window} {need.what}" for need in bound.unbounded]
    found += [f"window {need.window} {need.what}, which need not come on with the topic's" for need in bound.by_fields]
    named = {need.window for need in (*bound.unbounded, *bound.by_fields)}
    for window in resolved.windows:
        type_, what = type_of(window.window), f"window {window.id}"
        if window.id in named:
            continue
        if not type_.of_recent_input:
            found.append(f"{what} is of type {type_.name}, of which it is not shown")
        elif type_.reads(window.window):
            found.append(f"{what} reads a stream of another project")
        elif not window.inputs and getattr(window.window, "accepts", None) is not AcceptedOpcodes.INSERT_ONLY:
            found.append(f"{what} takes updates, and what is updated again and again stays for ever")
        elif window.window.emission.emit is Emit.NEW:
            found.append(f"{what} emits what is new in it, which depends on all that came before")
        elif window.window.emission != AS_MADE:
            found.append(f"{what} does not put out at once what it makes")
    late_us = resolved.project.heartbeat_interval_us + TICK_GAP_US  # what leaves by time leaves at the first tick of a heartbeat
    return RecentInput(2 * (bound.span_us + late_us * (1 + len(resolved.windows))), tuple(found))
