"""Derives facts from the engines' descriptions: which engines are present, which one gives up a name, and what the active engine
has learned.

The record of a crashed engine remains, so a record counts only while it is renewed (SPEC C10, M5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hotspare.base.errors import UsageError
from hotspare.coordination.contract import Member
from hotspare.ha.rules.facts import Leadership, OtherMember
from hotspare.ha.rules.roles import Role


def recently_seen(members: Sequence[Member], stale_ms: int) -> list[Member]:
    """Returns the members whose records are less than `stale_ms` older than the newest record."""
    newest_ms = max((m.seen_ms for m in members), default=0)
    return [m for m in members if newest_ms - m.seen_ms < stale_ms]


def version_differences(members: Sequence[Member], own: Member) -> tuple[str, ...]:
    """Returns a sentence for each engine with other versions, or another processor, than this engine: either may make outputs
    differ."""
    return tuple(
        f"engine {m.engine} runs {theirs or 'unknown'}, this engine runs {ours or 'unknown'}"
        for m in members
        for theirs, ours in ((m.versions, own.versions), (m.cpu, own.cpu))
        if m.engine != own.engine and theirs != ours
    )


def membership_changes(before: Sequence[OtherMember], now: Sequence[OtherMember]) -> tuple[list[str], list[str]]:
    """Returns (names of engines only in `now`, names of engines only in `before`), each in the order of its list."""
    known, found = [each.engine for each in before], [each.engine for each in now]
    return [each for each in found if each not in known], [each for each in known if each not in found]


# --- two processes under one name ----------------------------------------------------------------------------------------------


def process_of(member: Member) -> tuple[str, str, int, int]:
    """Returns (host, process space, process id, process start), which identify the process that wrote a record."""
    return member.host, member.process_space, member.process_id, member.process_start


def namesake(members: Iterable[Member], own: Member) -> Member | None:
    """Returns the record under this engine's name that another process wrote, alive or not; None without one."""
    return next((m for m in members if m.engine == own.engine and process_of(m) != process_of(own)), None)


def unseen_namesake(members: Iterable[Member], own: Member) -> Member | None:
    """Returns the record of a namesake whose process cannot be seen from here, as it is on another machine or in another container;
    None without one."""
    other = namesake(members, own)
    is_seen = other is not None and (other.process_space, other.host) == (own.process_space, own.host)
    return None if is_seen else other


def is_renewed_since(record: Member, before: Member | None) -> bool:
    """Whether `record` was written after `before` was read under the same name, by any process, so that a process of that name
    lives.

    A record with an older time than `before` is a delayed answer.
    """
    return before is not None and record.seen_ms > before.seen_ms


def has_to_yield_name(own: Member, other: Member) -> bool:
    """Whether `own` has to give up its name to another process of the same name: the process that started later does.

    Start times of two machines are not comparable, but both processes decide alike.
    """
    return (own.process_start, process_of(own)) > (other.process_start, process_of(other))


def name_taken_error(group: str, other: Member) -> UsageError:
    return UsageError(
        f"engine {other.engine} already takes part in group {group}, as process {other.process_id} on {other.host}",
        hint="give this engine another name, or end that process",
    )


# --- what a spare takes from the active ----------------------------------------------------------------------------------------


def holder_report(leadership: Leadership, role: Role, others: Iterable[OtherMember]) -> OtherMember | None:
    """Returns the description in which the present holder reports to be active under the present epoch; None without one, or if
    this engine is not a spare."""
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
    """Returns the facts with the time since which the holder is active by its own report `told`, if earlier. Used once per epoch,
    for a spare that joined later."""
    if told.active_epoch_age is None or leadership.reported_epoch == told.active_epoch_age[0]:
        return leadership
    epoch, age_ms = told.active_epoch_age
    return replace(leadership, reported_epoch=epoch, leader_since_ms=min(leadership.leader_since_ms, now_ms - age_ms))
