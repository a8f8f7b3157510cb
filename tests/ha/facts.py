"""Changes an engine's facts by their names; each name is a field of one record only."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

from hotspare.ha.group_state import GroupState, view_of
from hotspare.ha.rules import facts
from hotspare.ha.rules.view import PeerStatus, View

_RECORDS: dict[str, type[Any]] = {
    "role_state": facts.RoleState,
    "leadership": facts.Leadership,
    "lease": facts.Lease,
    "contacts": facts.Contacts,
    "membership": facts.Membership,
    "last_runs": facts.LastRuns,
    "intake": facts.Intake,
    "publishing": facts.Publishing,
    "snapshots": facts.Snapshots,
    "persisting": facts.Persisting,
}
RECORD_OF = {each.name: record for record, kind in _RECORDS.items() for each in fields(kind)}
"""The record of each fact, by the fact's name."""


def records(holder: Any, **changes: Any) -> dict[str, Any]:
    """Returns the changed records of a view or state, by the names of the changed facts."""
    by_record: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        by_record.setdefault(RECORD_OF[name], {})[name] = value
    return {record: replace(getattr(holder, record), **found) for record, found in by_record.items()}


def learn(state: GroupState, **changes: Any) -> None:
    """Changes these facts of the engine."""
    for record, value in records(state, **changes).items():
        setattr(state, record, value)


def learn_of_stream(state: GroupState, stream: str, **changes: Any) -> None:
    state.streams[stream] = replace(state.streams[stream], **changes)


def seen(state: GroupState, now_ms: int = 0) -> View:
    """Returns the view of an engine that watches no peer."""
    peers = SimpleNamespace(status=lambda: PeerStatus.UNKNOWN)
    return view_of(state, SimpleNamespace(clock_ms=lambda: now_ms, wall_us=lambda: 0, peers=peers))  # type: ignore[arg-type]
