"""Moves the active role of a group to a spare, with nothing lost or duplicated (SPEC C3, Z15)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hotspare.base.errors import UsageError
from hotspare.base.retry import Retry
from hotspare.bus.naming import own_partition, whole_group
from hotspare.coordination.contract import Coordination, Leader
from hotspare.ha.member_record import spares_of
from hotspare.host.partitioned.role_sharing import shard_role
from hotspare.host.starting import STARTING
from hotspare.operate.groups import SILENT_MS_MAX

_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Switchover:
    """The active engine of a group and its epoch, after a switch-over and before it; `previous` is "" if no engine was active."""

    engine: str
    epoch: int
    previous: str
    previous_epoch: int

    @property
    def has_moved(self) -> bool:
        """Whether an engine became active; False if the requested engine was active already."""
        return self.epoch != self.previous_epoch


def switch_over(service: Coordination, group: str, to: str, timeout_s: float) -> Switchover:
    """Moves the active role of a group to the engine `to`, "" for the best spare.

    Raises UsageError if the group has no active engine, no spare or no engine `to`. Also raises UsageError if no engine, or
    another one, becomes active within `timeout_s`.
    """
    before = service.leader(group)
    members = service.members(group)
    names = [m.engine for m in members]
    if not before.holder:
        raise UsageError(f"group {group} has no active engine", hint="`hotspare status` shows the groups")
    if to and to not in names:
        raise UsageError(f"group {group} has no engine {to}", hint="engines: " + ", ".join(names))
    if to == before.holder:
        return Switchover(to, before.epoch, to, before.epoch)
    if [m.engine for m in members if STARTING not in m.detail] == [before.holder]:
        hint = "start another engine: the same command, on this machine or another"
        if names != [before.holder]:
            hint = "one is starting: wait until `hotspare status` shows it as a spare"
        raise UsageError(f"group {group} has no spare", hint=hint)
    return request_switchover_and_wait(service, group, before, to, timeout_s)


def groups_of_shards(groups: Sequence[str], shards: Collection[int]) -> list[str]:
    """Returns the groups of these shards, all groups if `shards` is empty. Raises UsageError if a shard does not exist."""
    if not shards:
        return list(groups)
    numbers = {own_partition(group): group for group in groups if whole_group(group) != group}
    if unknown := sorted(set(shards) - numbers.keys()):
        hint = f"shards: {', '.join(map(str, sorted(numbers)))}" if numbers else f"{groups[0]} is not divided: leave --shard out"
        raise UsageError(f"there is no shard {unknown[0]}", hint=hint)
    return [numbers[shard] for shard in sorted(set(shards))]


def moves_to_application(service: Coordination, groups: Sequence[str], application: str) -> dict[str, str]:
    """Returns the application's engine by group, for the groups whose active engine is in another application. Raises UsageError if
    the application has no spare in one of them."""
    moves: dict[str, str] = {}
    for group in groups:
        role = shard_role(service, group)
        if role.active == application:
            continue
        if application not in role.spares:
            others = ", ".join(sorted(role.spares)) or "none"
            raise UsageError(
                f"application {application} has no spare of group {group}", hint=f"applications with a spare: {others}"
            )
        moves[group] = role.spares[application]
    return moves


def moves_to_equal_shares(service: Coordination, groups: Collection[str]) -> dict[str, str]:
    """Returns the new active engine by group, for the groups that have to move (`moves_to_spread`). Only engines with a recent
    record count."""
    active = {group: service.leader(group).holder for group in groups}
    spares = {
        group: {m.engine for m in spares_of(service.members(group), holder, SILENT_MS_MAX)} for group, holder in active.items()
    }
    return moves_to_spread(active, spares)


def moves_to_spread(active: Mapping[str, str], spares: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Returns the new active engine by group, for as few groups as possible. Afterwards no engine is active in two or more groups
    more than any of its spares.
    `active`: the active engine of each group, "" for none; `spares`: the engines of each group that may become active.
    """
    now, moved = dict(active), dict[str, str]()
    while True:
        count = {engine: 0 for each in spares.values() for engine in each}
        for engine in filter(None, now.values()):
            count[engine] = count.get(engine, 0) + 1
        gains = [
            (count[holder] - count[engine], group, engine)
            for group, holder in now.items()
            if holder and group not in moved
            for engine in spares[group]
            if engine != holder and count[holder] - count[engine] > 1
        ]
        if not gains:
            return moved
        _, group, engine = min(gains, key=lambda gain: (-gain[0], gain[1:]))
        now[group] = moved[group] = engine


def request_switchover_and_wait(service: Coordination, group: str, before: Leader, to: str, timeout_s: float) -> Switchover:
    """Requests a switch-over from the leader `before` to `to` ("" for any spare), and waits until an engine is active. Raises
    UsageError if another engine than `to` became active, or none within `timeout_s`; the request is then withdrawn."""
    hint = "`hotspare status` shows the engines"
    service.request_switchover(group, to)
    try:
        leader = _next_leader(service, group, before.epoch, timeout_s)
    except BaseException:
        service.withdraw_switchover(group)
        raise
    if leader is None:
        # otherwise the role would be released later, unexpectedly
        service.withdraw_switchover(group)
        leader = _next_leader(service, group, before.epoch, 0)
    if leader is None:
        raise UsageError(f"no other engine became active within {timeout_s:g} s", detail="the request is withdrawn", hint=hint)
    if to and leader.holder != to:
        raise UsageError(f"{leader.holder} became active under epoch {leader.epoch}, not {to}", hint=hint)
    return Switchover(leader.holder, leader.epoch, before.holder, before.epoch)


def _next_leader(service: Coordination, group: str, epoch: int, timeout_s: float) -> Leader | None:
    """Returns the leader under a newer epoch than `epoch`; None if there is none within `timeout_s`."""
    for _ in Retry(lasting_s=timeout_s, pause_s=_POLL_S).tries():
        leader = service.leader(group)
        if leader.epoch > epoch and leader.holder:
            return leader
    return None
