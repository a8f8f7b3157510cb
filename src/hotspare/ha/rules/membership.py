"""The conclusions of engines from each other's descriptions: which are present, which gives way, and what the active has learned.

Records stay behind when an engine is killed, so a record counts only while it is renewed (SPEC C10, M5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hotspare.base.errors import UsageError
from hotspare.coordination.contract import Member
from hotspare.ha.rules.facts import Leadership, OtherMember
from hotspare.ha.rules.roles import Role


def recently_seen(members: Sequence[Member], stale_ms: int) -> list[Member]:
    """Returns the members that gave word less than `stale_ms` before the newest word of any."""
    newest_ms = max((m.seen_ms for m in members), default=0)
    return [m for m in members if newest_ms - m.seen_ms < stale_ms]


def version_differences(members: Sequence[Member], own: Member) -> tuple[str, ...]:
    """Returns sentences on engines with other versions or another processor than this one: a reason for outputs to differ."""
    return tuple(
        f"engine {m.engine} runs {theirs or 'unknown'}, this engine runs {ours or 'unknown'}"
        for m in members
        for theirs, ours in ((m.versions, own.versions), (m.cpu, own.cpu))
        if m.engine != own.engine and theirs != ours
    )


def membership_changes(before: Sequence[OtherMember], now: Sequence[OtherMember]) -> tuple[list[str], list[str]]:
    """Returns (names of new engines, names of engines that are gone), each in the order of their list."""
    known, found = [each.engine for each in before], [each.engine for each in now]
    return [each for each in found if each not in known], [each for each in known if each not in found]


# --- two processes under one name ----------------------------------------------------------------------------------------------


def process_of(member: Member) -> tuple[str, str, int, int]:
    """Names the process of a record."""
    return member.host, member.process_space, member.process_id, member.process_start


def namesake(members: Iterable[Member], own: Member) -> Member | None:
    """Returns another process, living or dead, that described itself under this engine's name."""
    return next((m for m in members if m.engine == own.engine and process_of(m) != process_of(own)), None)


def unseen_namesake(members: Iterable[Member], own: Member) -> Member | None:
    """Returns a namesake whose process cannot be seen from here, as it is on another machine or in another container; None if there
    is none."""
    other = namesake(members, own)
    is_seen = other is not None and (other.process_space, other.host) == (own.process_space, own.host)
    return None if is_seen else other


def is_renewed_since(record: Member, before: Member | None) -> bool:
    """Whether the record of a name was written again since it was read as `before`, by any process: so one lives.

    A record with an older time than before is an old answer.
    """
    return before is not None and record.seen_ms > before.seen_ms


def has_to_yield_name(own: Member, other: Member) -> bool:
    """Whether `own` gives way to another process of the same name: the one that started later does.

    On two machines this is arbitrary, but the same for both.
    """
    return (own.process_start, process_of(own)) > (other.process_start, process_of(other))


def name_taken_error(group: str, other: Member) -> UsageError:
    return UsageError(
        f"engine {other.engine} already takes part in group {group}, as process {other.process_id} on {other.host}",
        hint="give this engine another name, or end that process",
    )


# --- what a spare takes from the active ----------------------------------------------------------------------------------------


def holder_report(leadership: Leadership, role: Role, others: Iterable[OtherMember]) -> OtherMember | None:
    """Returns the description in which the present holder reports to be active under the present epoch; None for an engine that is
    not a spare."""
    leader = leadership.leader
    if role is not Role.STANDBY or leader is None:
        return None
    return next(
        (
            o
            for o in others
            if o.engine == leader.holder and o.active_epoch_age is not None and o.active_epoch_age[0] == leader.epoch
        ),
        None,
    )


def with_reported_start(leadership: Leadership, told: OtherMember, now_ms: int) -> Leadership:
    """Records since when the holder is active by its own report, as a spare that joined later has not seen it begin. Used once per
    epoch."""
    if told.active_epoch_age is None or leadership.reported_epoch == told.active_epoch_age[0]:
        return leadership
    epoch, age_ms = told.active_epoch_age
    return replace(leadership, reported_epoch=epoch, leader_since_ms=min(leadership.leader_since_ms, now_ms - age_ms))
