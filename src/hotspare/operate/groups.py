"""Finds groups, and opens their bus, coordination and snapshots; shows which engines of a group live.

Opens only what exists, and creates nothing: neither a read-only command nor a wrong name leaves a file behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

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
"""The age in ms of an engine's record from which the engine counts as dead; a running engine writes its record twice a second."""
_NAMED_MAX = 3
"""The number of shards that an error names."""
_CREATED_BY_HINT = "`hotspare run` and `hotspare publish` create it; check the name"


class ServiceUrls(NamedTuple):
    """The URLs of bus, coordination and store; "" for the default next to the bus, or for a bus that is not used."""

    bus: str
    coordination: str = ""
    store: str = ""


def existing_bus(stack: ExitStack, url: str) -> Bus:
    """Returns the bus at `url`; closed with `stack`. Raises UsageError if it would be a file that does not exist."""
    from hotspare.bus.open import open_bus

    if not has_named_file(url):
        raise UsageError(f"no bus is at {url}", detail=f"there is no file {named_path(url)}", hint=_CREATED_BY_HINT)
    opened = open_bus(url)
    stack.callback(opened.close)
    return opened


def existing_coordination(stack: ExitStack, url: str, bus_url: str) -> Coordination:
    """Returns the coordination at `url`, else next to an existing bus; closed with `stack`. Returns an empty one if no engine has
    used that bus yet.

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
    """Returns the store at `url`, else the one next to the bus; closed with `stack`. None if both URLs are "", or nothing exists
    next to the bus. Raises UsageError if `url` names a folder or file that does not exist, or is "" and the bus is on a server."""
    from hotspare.stores.open import default_store_url, may_store_exist, open_existing_store

    chosen = url or (default_store_url(bus_url) if bus_url else "")
    if not chosen or not (url or may_store_exist(chosen)):
        return None
    opened = open_existing_store(chosen, access)
    stack.callback(opened.close)
    return opened


def existing_snapshots(stack: ExitStack, url: str, bus_url: str, coordination: Coordination) -> Store | None:
    """Returns the store as `existing_store` does. In it, each group has the snapshots of the project that leads now.

    Returns None, too, if `url` is "" and the bus is on a server, so that commands can show all other facts of a group.
    """
    from functools import partial

    from hotspare.ha.effects.upgrading import leading_snapshot_group
    from hotspare.stores.open import bus_store_url
    from hotspare.stores.renamed_groups import RenamedGroupsStore

    store = existing_store(stack, url, bus_url) if url or bus_store_url(bus_url) else None
    return None if store is None else RenamedGroupsStore(store, partial(leading_snapshot_group, coordination))


@dataclass(frozen=True)
class GroupSources:
    """The sources of a group's facts. Without bus or store, reports lack the facts that only they have."""

    coordination: Coordination
    bus: Bus | None = None
    store: Store | None = None


def open_sources(stack: ExitStack, bus: str, coordination: str, store: str) -> GroupSources:
    """Returns bus, coordination and store, each by its URL, else next to the bus; closed with `stack`.

    Raises UsageError if neither bus nor coordination is named, or a named file does not exist.
    """
    _require_place(bus, coordination)
    opened_bus = existing_bus(stack, bus) if bus else None
    service = existing_coordination(stack, coordination, bus)
    return GroupSources(service, opened_bus, existing_snapshots(stack, store, bus, service))


def groups_named(service: Coordination, group: str) -> list[str]:
    """Returns the group of this name, or the groups of all shards if the project is divided.

    `group` may also be a project's name without its prefix if that is unambiguous. Raises UsageError if no group, or several
    groups, have the name.
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
    """Returns the only group of this name, as `groups_named` finds it. Raises UsageError also if the project is divided into
    shards."""

    found = groups_named(service, group)
    if len(found) > 1:
        raise UsageError(
            f"{group} is in {len(found)} shards",
            hint="name one of them: " + ", ".join(found[:_NAMED_MAX]) + " ..." * (len(found) > _NAMED_MAX),
        )
    return found[0]


def is_running(member: Member) -> bool | None:
    """Whether an engine's process runs; None if the process cannot be seen, for instance because it is on another machine."""
    if member.process_space != process_space():
        return None
    return not has_process_ended(member.process_id, member.process_start)


def recent_members(service: Coordination, group: str) -> list[Member]:
    """Returns the records of a group's engines, only those less than SILENT_MS_MAX older than the newest."""
    return recently_seen(service.members(group), SILENT_MS_MAX)


def participating_members(members: Sequence[Member]) -> list[Member]:
    """Returns the engines with a recent record that are active, about to become active, or spares."""
    return [member for member in recently_seen(members, SILENT_MS_MAX) if member.role in PARTICIPATING]


def has_sign_of_life(member: Member, leader: Leader, newest_ms: int) -> bool:
    """Whether an engine counts as alive: its record is less than SILENT_MS_MAX older than the group's newest (`newest_ms`), and an
    active engine holds a valid lease. False if its process is known to have ended.
    The last record of an engine that stopped or diverged always counts, so that reports show why it ended.
    """
    if member.role in (Role.DIVERGED.value, Role.STOPPED.value):
        return True
    holds = leader.holder == member.engine and leader.lease_left_ms > 0
    if is_running(member) is False or (member.role == Role.ACTIVE.value and not holds):
        return False
    return newest_ms - member.seen_ms < SILENT_MS_MAX


class UnseenEngines(Enum):
    """The treatment of engines on other machines, whose processes cannot be seen: as possibly alive (UNKNOWN), or as ended
    (GONE)."""

    UNKNOWN = "unknown"
    GONE = "gone"


def refuse_if_alive(service: Coordination, group: str, others: UnseenEngines) -> None:
    """Raises UsageError with the names of the group's engines that are alive, or may be. `others`: see `UnseenEngines`."""
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
