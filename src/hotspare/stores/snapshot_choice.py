"""The choice of a group's snapshot by the user: by name, by time, by position, or the newest (SPEC H2, H6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

from hotspare.base.errors import UsageError
from hotspare.stores.contract import SnapshotInfo, SnapshotStatus

NEWEST = "newest"
FORMS = "newest, a name or its beginning, time:2026-01-31T08:00, or position:12345"
_TIME, _POSITION = "time:", "position:"
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


class SnapshotScope(Enum):
    """The snapshots that may be chosen by name. By time or position, only undamaged confirmed ones may."""

    CONFIRMED = "confirmed"
    """Undamaged confirmed snapshots, for a restore."""
    ALL = "all"
    """Candidates and damaged snapshots too, for inspection."""


@dataclass(frozen=True, slots=True)
class SnapshotChoice:
    """A choice by at most one field; without any field, the newest snapshot. `time_us`: the newest snapshot written at or before
    this time; `order`: the newest one with at most this order."""

    name: str = ""
    time_us: int | None = None
    order: int | None = None


def parse_choice(text: str) -> SnapshotChoice:
    """Parses one of FORMS. Any text that does not begin with `time:` or `position:` and is not `newest` is a name, or its
    beginning. A time without a zone is UTC. Raises UsageError for an invalid time or position."""
    if text in ("", NEWEST):
        return SnapshotChoice()
    if text.startswith(_TIME):
        try:
            at = datetime.fromisoformat(text.removeprefix(_TIME))
            at = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):
            raise UsageError(f"{text!r}: not a time", hint="write time:2026-01-31T08:00:00, in UTC or with a zone") from None
        within_us = 0 if at.microsecond else 999_999  # a time in seconds, as shown, covers the whole second
        return SnapshotChoice(time_us=(at - _BEGIN) // timedelta(microseconds=1) + within_us)
    if text.startswith(_POSITION):
        number = text.removeprefix(_POSITION)
        if not (number.isdecimal() and len(number) <= 18):
            raise UsageError(f"{text!r}: not a position", hint="write position:12345, as `hotspare state ls` shows positions")
        return SnapshotChoice(order=int(number))
    return SnapshotChoice(name=text)


def choose_snapshot(group: str, listed: Sequence[SnapshotInfo], choice: SnapshotChoice, among: SnapshotScope) -> SnapshotInfo:
    """Returns the chosen snapshot. `listed`: the group's snapshots, newest first. Raises UsageError if no snapshot matches, or
    several names begin with the given text."""
    confirmed = [info for info in listed if info.status is SnapshotStatus.CONFIRMED and not info.is_damaged]
    if choice.name:
        return _named(group, listed if among is SnapshotScope.ALL else confirmed, listed, choice.name)
    found = [
        info
        for info in confirmed
        if (choice.time_us is None or info.written_time_us <= choice.time_us)
        and (choice.order is None or info.order <= choice.order)
    ]
    if not found:
        raise UsageError(
            _none(group, choice), detail=_available_snapshots_text(listed), hint="list the snapshots with `hotspare state ls`"
        )
    return max(found, key=lambda info: info.order)


def _named(group: str, allowed: Sequence[SnapshotInfo], listed: Sequence[SnapshotInfo], name: str) -> SnapshotInfo:
    exact = [info for info in allowed if info.name == name]
    found = exact or [info for info in allowed if info.name.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{len(found)} snapshots of group {group} begin with {name}", hint="write more characters of the name")
    others = [info for info in listed if info.name.startswith(name)]
    if others and all(info.is_damaged for info in others):
        raise UsageError(f"snapshot {name} of group {group} is damaged", hint="choose another snapshot")
    if others:
        what = f"snapshot {name} of group {group} is not confirmed, so it may not be restored"
        raise UsageError(what, hint="wait until its outputs are committed, or choose another snapshot")
    raise UsageError(f"group {group} has no snapshot {name}", detail=_available_snapshots_text(listed), hint=f"write {FORMS}")


def _none(group: str, choice: SnapshotChoice) -> str:
    if choice.time_us is not None:
        return f"no snapshot of group {group} that may be restored was written by {time_text(choice.time_us)}"
    if choice.order is not None:
        return f"no snapshot of group {group} that may be restored is at or before position {choice.order}"
    return f"group {group} has no snapshot that may be restored"


def _available_snapshots_text(listed: Sequence[SnapshotInfo]) -> str:
    if not listed:
        return "the store has no snapshot of this group"
    texts = [
        f"{i.name} (damaged)" if i.is_damaged else f"{i.name} ({i.status.value}, written {time_text(i.written_time_us)})"
        for i in listed[:5]
    ]
    return f"the store has {len(listed)}: " + ", ".join(texts)


def time_text(time_us: int) -> str:
    """Returns the time in UTC, in seconds."""
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
