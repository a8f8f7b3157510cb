"""Decides whether an engine can rebuild a project's state from recent input alone, and how much input that takes (SPEC F11). Pure.

A bound by time (`retention_needs.state_bound`) is not enough. Time by a field of the events need not advance. A row that is updated
again and again is never evicted. And a window type must not remember anything else that affects its outputs: a law checks
this for the types that declare it (`WindowType.is_time_bounded`).
"""

from __future__ import annotations

from dataclasses import dataclass

from hotspare.model.durations import format_duration
from hotspare.model.project import DEFAULT_EMISSION, AcceptedOpcodes, Emit
from hotspare.model.resolved import Resolved
from hotspare.model.retention_needs import RowFacts, state_bound
from hotspare.model.window_type import type_of

TICK_GAP_US = 2_000_000
"""The largest gap between ticks that counts as continuous: an active engine's ticks are at most a second apart in a partition.
After a larger gap the engine restarts its count at the end of the gap (`ha.rules.warming`).
"""


@dataclass(frozen=True, slots=True)
class RecentInput:
    """The input from which the state can be rebuilt: the newest `span_us` microseconds. If `refusals` is not empty, the state
    cannot be rebuilt from recent input, for these reasons.

    The span is twice as long as any row is remembered. An engine that lacks an old row accepts an event that other engines refuse
    because of that row, and then keeps the event for the full time.
    """

    span_us: int
    refusals: tuple[str, ...]

    def __str__(self) -> str:
        if self.refusals:
            return f"it cannot be rebuilt from recent input alone: {'; '.join(self.refusals)}"
        return f"an engine can rebuild it from the newest {format_duration(self.span_us)} of the input (hotspare run --join recent)"


def recent_input(resolved: Resolved, keeping: RowFacts) -> RecentInput:
    bound = state_bound(resolved, keeping)
    found = [f"window {need.window} {need.what}" for need in bound.unbounded]
    found += [f"window {need.window} {need.what}, which need not advance with the topic's time" for need in bound.by_fields]
    named = {need.window for need in (*bound.unbounded, *bound.by_fields)}
    for window in resolved.windows:
        type_, what = type_of(window.window), f"window {window.id}"
        if window.id in named:
            continue
        if not type_.is_time_bounded:
            found.append(f"{what} is of type {type_.name}, for which this is not proven")
        elif type_.reads(window.window):
            found.append(f"{what} reads a stream of another project")
        elif not window.inputs and getattr(window.window, "accepts", None) is not AcceptedOpcodes.INSERT_ONLY:
            found.append(f"{what} accepts updates, and a row that is updated again and again is never evicted")
        elif window.window.emission.emit is Emit.NEW:
            found.append(f"{what} emits only new rows, which depends on all earlier input")
        elif window.window.emission != DEFAULT_EMISSION:
            found.append(f"{what} does not emit its outputs at once")
    late_us = resolved.project.heartbeat_interval_us + TICK_GAP_US  # time evicts at the first tick of a heartbeat
    return RecentInput(2 * (bound.span_us + late_us * (1 + len(resolved.windows))), tuple(found))
