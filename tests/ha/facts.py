"""Changing what an engine knows by the names of its facts: each name stands in one record only."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

from hotspare.ha.group_state import GroupState, view_of
from hotspare.ha.rules import facts
from hotspare.ha.rules.view import PeerStatus, View

_RECORDS: dict[str, type[Any]] = {
    "standing": facts.Standing,
    "leadership": facts.Leadership,
    "lease": facts.Lease,
    "contacts": facts.Contacts,
    "membership": facts.Membership,
    "rounds": facts.Rounds,
    "intake": facts.Intake,
    "publishing": facts.Publishing,
    "snapshots": facts.Snapshots,
    "persisting": facts.Persisting,
}
RECORD_OF = {each.name: record for record, kind in _RECORDS.items() for each in fields(kind)}
"""By the name of a fact that of its record."""


def records(holder: Any, **changes: Any) -> dict[str, Any]:
    """The records of a view or state in which these facts stand, with the changes."""
    by_record: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        by_record.setdefault(RECORD_OF[name], {})[name] = value
    return {record: replace(getattr(holder, record), **found) for record, found in by_record.items()}


def learn(state: GroupState, **changes: Any) -> None:
    """The engine gets to know these facts."""
    for record, value in records(state, **changes).items():
        setattr(state, record, value)


def learn_of_stream(state: GroupState, stream: str, **changes: Any) -> None:
    state.streams[stream] = replace(state.streams[stream], **changes)


def seen(state: GroupState, now_ms: int = 0) -> View:
    """The view of an engine that watches nobody."""
    peers = SimpleNamespace(status=lambda: PeerStatus.UNKNOWN)
    return view_of(state, SimpleNamespace(clock_ms=lambda: now_ms, wall_us=lambda: 0, peers=peers))  # type: ignore[arg-type]
