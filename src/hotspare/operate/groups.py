"""Finds groups, and opens their bus, coordination and snapshots; shows which engines of a group live.

Opens only what exists, and creates nothing: neither a read-only command nor a wrong name leaves a file behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from hotspare.base.errors import UsageError
from hotspare.base.places import has_named_file, named_path
from hotspare.base.processes import has_process_ended, process_space
from hotspare.bus.naming import own_partition, whole_group
from hotspare.coordination.contract import Coordination, Leader, Member
from hotspare.ha.rules.membership import recently_seen
from hotspare.ha.rules.roles import PARTICIPATING, Role
from hotspare.stores.contract import Access, Store

if TYPE_CHECKING:
    from hotspare.bus.contract import Bus

SILENT_MS_MAX = 2_000
"""An engine silent for longer gives no sign of life: it describes itself twice a second."""
_CREATED_BY_HINT = "`hotspare run` and `hotspare publish` create it; check the name"


def existing_bus(stack: ExitStack, url: str) -> Bus:
    """Returns the bus at `url`; closed with `stack`. Raises UsageError if it would be a file that does not exist."""
    from hotspare.bus.open import open_bus

    if not has_named_file(url):
        raise UsageError(f"no bus is at {url}", detail=f"there is no file {named_path(url)}", hint=_CREATED_BY_HINT)
    opened = open_bus(url)
    stack.callback(opened.close)
    return opened


def existing_coordination(stack: ExitStack, url: str, bus_url: str) -> Coordination:
    """Returns the coordination at `url`, else next to an existing bus; closed with `stack`. Empty if no engine was on that bus yet.

    Raises UsageError if `url` names a file that does not exist.
    """
    from hotspare.coordination.memory import MemoryCoordination
    from hotspare.coordination.open import default_coordination_url, open_coordination

    if url and not has_named_file(url):
        raise UsageError(f"no coordination is at {url}", detail=f"there is no file {named_path(url)}", hint="check the name")
    chosen = url or default_coordination_url(bus_url)
    if not has_named_file(chosen):
        return MemoryCoordination().client("nobody")
    opened = open_coordination(chosen)
    stack.callback(opened.close)
    return opened


def group_coordination(stack: ExitStack, bus_url: str, url: str) -> Coordination:
    """Returns the coordination at `url`, else next to an existing bus; closed with `stack`. Raises UsageError if neither is
    named."""
    _require_place(bus_url, url)
    if not url:
        existing_bus(stack, bus_url)
    return existing_coordination(stack, url, bus_url)


def _require_place(bus: str, coordination: str) -> None:
    if not bus and not coordination:
        raise UsageError("neither --bus nor --coordination was given", hint="give --bus URL")


def existing_store(stack: ExitStack, url: str, bus_url: str, access: Access = Access.LOOK) -> Store | None:
    """Returns the store at `url`, else next to the bus; closed with `stack`. None if there is none next to the bus, or neither is
    named."""
    from hotspare.stores.open import default_store_url, may_store_exist, open_existing_store

    chosen = url or (default_store_url(bus_url) if bus_url else "")
    if not chosen or not (url or may_store_exist(chosen)):
        return None
    opened = open_existing_store(chosen, access)
    stack.callback(opened.close)
    return opened


def existing_snapshots(stack: ExitStack, url: str, bus_url: str, coordination: Coordination) -> Store | None:
    """Returns `existing_store`, in which each group has the snapshots of the project that it runs now.

    None also if no URL is given and the bus has no place for snapshots: all the rest of a group can be seen.
    """
    from functools import partial

    from hotspare.ha.effects.upgrading import leading_snapshot_group
    from hotspare.stores.open import bus_store_url
    from hotspare.stores.renamed_groups import RenamedGroupsStore

    store = existing_store(stack, url, bus_url) if url or bus_store_url(bus_url) else None
    return None if store is None else RenamedGroupsStore(store, partial(leading_snapshot_group, coordination))


@dataclass(frozen=True)
class GroupSources:
    """The sources of a group's facts; without bus or store their part stays empty."""

    coordination: Coordination
    bus: Bus | None = None
    store: Store | None = None


def open_sources(stack: ExitStack, bus: str, coordination: str, store: str) -> GroupSources:
    """Returns bus, coordination and store by URL or next to the bus; closed with `stack`.

    Raises UsageError if neither bus nor coordination is named, or a named file does not exist.
    """
    _require_place(bus, coordination)
    opened_bus = existing_bus(stack, bus) if bus else None
    service = existing_coordination(stack, coordination, bus)
    return GroupSources(service, opened_bus, existing_snapshots(stack, store, bus, service))


def groups_named(service: Coordination, group: str) -> list[str]:
    """Returns the group of this name, or the groups of all shards if the project is divided.

    The name may be that of the project if only one prefix has it. Raises UsageError if no group has the name, or several do.
    """

    groups = service.groups()
    names = {*groups, *map(whole_group, groups)}
    found = [group] if group in names else sorted({name for name in names if name.endswith(f".{group}")})
    if not found:
        raise UsageError(f"no group is called {group}", hint="groups: " + (", ".join(groups) or "none"))
    if len(found) > 1:
        raise UsageError(f"{len(found)} groups belong to project {group}", hint="name one of them: " + ", ".join(found))
    shards = [each for each in groups if whole_group(each) == found[0] != each]
    return sorted(shards, key=own_partition) or found


def single_group_named(service: Coordination, group: str) -> str:
    """Returns the one group of this name, as `groups_named` finds it. Raises UsageError also if the project is divided."""

    found = groups_named(service, group)
    if len(found) > 1:
        raise UsageError(f"{group} is in {len(found)} shards", hint="name one of them: " + ", ".join(found[:3]) + " ...")
    return found[0]


def is_running(member: Member) -> bool | None:
    """Whether an engine's process lives; None if it cannot be seen from here, as on another machine."""
    if member.process_space != process_space():
        return None
    return not has_process_ended(member.process_id, member.process_start)


def participating_members(members: Sequence[Member]) -> list[Member]:
    """Returns the engines whose records are recent and that take part: active, about to be, or spares."""
    return [member for member in recently_seen(members, SILENT_MS_MAX) if member.role in PARTICIPATING]


def has_sign_of_life(member: Member, leader: Leader, newest_ms: int) -> bool:
    """Whether an engine gives signs of life: a word less than SILENT_MS_MAX before the newest one, and for an active engine a valid
    lease.

    The last word of an engine that has ended always counts.
    """
    if member.role in (Role.DIVERGED.value, Role.STOPPED.value):
        return True
    holds = leader.holder == member.engine and leader.lease_left_ms > 0
    if is_running(member) is False or (member.role == Role.ACTIVE.value and not holds):
        return False
    return newest_ms - member.seen_ms < SILENT_MS_MAX


class UnseenEngines(Enum):
    """The status of engines on other machines, whose processes cannot be seen from here."""

    UNKNOWN = "unknown"
    GONE = "gone"


def refuse_if_alive(service: Coordination, group: str, others: UnseenEngines) -> None:
    """Raises UsageError that names the engines that live, or may live."""
    states = {member.engine: is_running(member) for member in service.members(group)}
    alive = [engine for engine, running in states.items() if running]
    unseen = [engine for engine, running in states.items() if running is None and others is UnseenEngines.UNKNOWN]
    leader = service.leader(group)
    if leader.holder and leader.lease_left_ms > 0 and states.get(leader.holder, True):
        alive.append(leader.holder)
    if alive:
        raise UsageError(f"group {group} has engines that are alive: {', '.join(dict.fromkeys(alive))}", hint="stop them first")
    if unseen:
        raise UsageError(
            f"group {group} has engines on other machines: {', '.join(unseen)}",
            hint="stop them, or add --force if they no longer run",
        )
