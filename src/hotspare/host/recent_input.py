"""Engines that rebuild their state from recent input (SPEC F11): which projects and engines can, and how far back they read."""

from __future__ import annotations

from dataclasses import replace

from hotspare.base.choices import JoinFrom, SpareKind
from hotspare.base.errors import UsageError
from hotspare.flow.plan import Plan
from hotspare.ha.rules.settings import GroupSettings
from hotspare.host.definition import with_slow_bus_limits
from hotspare.host.options import EngineOptions
from hotspare.model.project import Project
from hotspare.model.recent_input import TICK_GAP_US, recent_input

_SKEWS = 2
"""A clock that ran ahead by the accepted skew is caught up with within this many times the skew."""


def check_join(options: EngineOptions, project: Project) -> None:
    """Raises UsageError if other options of the engine contradict joining from recent input."""
    if options.join is not JoinFrom.RECENT:
        return
    if options.spare is SpareKind.COLD:
        hint = "a cold spare joins when no engine is left to compare with: leave one of the two out"
        raise UsageError("--spare cold and --join recent exclude each other", hint=hint)
    if options.restore or project.restore:
        raise UsageError("a snapshot to restore and --join recent exclude each other", hint="leave one of the two out")


def settings_of(options: EngineOptions, plan: Plan) -> GroupSettings:
    """Returns the group's settings. Raises UsageError if the project's state cannot be rebuilt from recent input."""
    settings = with_slow_bus_limits(options)
    if options.join is not JoinFrom.RECENT:
        return settings
    found = recent_input(plan.resolved, plan.windows_with_rows)
    if found.refusals:
        raise UsageError(
            "the state of this project cannot be rebuilt from recent input alone",
            detail="; ".join(found.refusals),
            hint="leave --join recent out: the engine starts from a snapshot, or from the group's first input",
        )
    span_us = found.span_us + _SKEWS * settings.skew_max_ms * 1_000
    return replace(settings, recent_span_us=span_us, recent_tick_gap_us=TICK_GAP_US)
