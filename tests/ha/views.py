"""Views of a healthy standby and a healthy active, and changes to them, for tests of the rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hotspare.coordination.contract import Leader
from hotspare.ha.rules.facts import Difference, NewestSnapshot, RoleState, StreamFacts, Vacancy
from hotspare.ha.rules.roles import Reason, Role, Step
from hotspare.ha.rules.settings import GroupSettings
from hotspare.ha.rules.view import CommitUnderWay, CoreView, StreamView, View
from hotspare.model.quality import Quality, QualityKind
from hotspare.rows.batch import NextInput
from tests.ha.facts import RECORD_OF, records

SETTINGS = GroupSettings()
NOW_MS = 1_000_000
RECENT = (
    "leader_read_ms",
    "member_refreshed_ms",
    "qualities_read_ms",
    "persist_read_ms",
    "inbound_checked_ms",
    "progress_read_ms",
    "switchover_read_ms",
    "renewed_ms",
    "snapshot_ms",
)
HELD = Leader(7, "other", "", 800, "127.0.0.1:1", "host", 11, 12)
OWN = replace(HELD, holder="me")


TRIMMED = Quality(QualityKind.TRIMMED, progress_events=100, progress_ms=1_000)
SIMPLE = Quality(QualityKind.SIMPLE)
MUCH = 1 << 40


def changed(view: View, **changes: Any) -> View:
    """Returns `view` with other facts, by their names, or other parts."""
    known = {name: value for name, value in changes.items() if name in RECORD_OF}
    return replace(view, **records(view, **known), **{name: value for name, value in changes.items() if name not in known})


BLANK = View(
    now_ms=NOW_MS, settings=SETTINGS, engine="me", role_state=RoleState(role=Role.STANDBY), commit_rows=MUCH, commit_bytes=MUCH
)
STANDBY = changed(
    BLANK, leader=HELD, leader_since_ms=0, snapshot_order=0, newest=NewestSnapshot(seen_ms=NOW_MS), **dict.fromkeys(RECENT, NOW_MS)
)
"""A caught-up standby of a healthy active; nothing is due."""
ACTIVE = changed(STANDBY, role=Role.ACTIVE, epoch=7, leader=OWN, has_progressed=True)
NEW_STATE = {"core": CoreView(order=1), "snapshot_ms": 0}


def standby(**changes: Any) -> View:
    return changed(STANDBY, **changes)


def active(**changes: Any) -> View:
    return changed(ACTIVE, **changes)


def promoting(step: Step, **changes: Any) -> View:
    return changed(ACTIVE, role=Role.PROMOTING, step=step, **changes)


def later(view: View, ms: int) -> View:
    """Returns the same view `ms` later, with everything just read again."""
    moved = {name: getattr(getattr(view, RECORD_OF[name]), name) + ms for name in RECENT}
    newest = changed(view.snapshots.newest, seen_ms=view.snapshots.newest.seen_ms + ms)
    return changed(view, now_ms=view.now_ms + ms, newest=newest, **moved)


def pending(due_ms: int) -> dict[str, Any]:
    """Returns changes by which a held output has to be published at `due_ms`."""
    return {
        "streams": {"p": StreamView(last_sequence=1)},
        "next_input": NextInput.AT_HAND,
        "published_ms": due_ms - SETTINGS.commit_wait_ms,
    }


def lagging(due_ms: int) -> dict[str, Any]:
    """Returns changes by which progress of an output on its topic has to be written at `due_ms`."""
    facts = StreamFacts(sent=1, unrecorded_since_ms=due_ms - TRIMMED.progress_ms)
    return {"streams": {"t": StreamView(facts, TRIMMED, last_sequence=1)}}


def under_way(due_ms: int) -> dict[str, Any]:
    """Returns changes by which a transaction under way is awaited at `due_ms`."""
    return {"under_way": CommitUnderWay(due_ms - SETTINGS.commit_patience_ms, is_over=False, sent={})}


def differing(difference: Difference) -> dict[str, Any]:
    return {"streams": {difference.stream: StreamView(StreamFacts(difference=difference))}}


def vacant(reason: Reason, since_ms: int = NOW_MS, epoch: int = 7) -> Vacancy:
    return Vacancy(epoch, reason, since_ms)
