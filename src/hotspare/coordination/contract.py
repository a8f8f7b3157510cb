"""The contract of a coordination service: which engine may be active, which are alive, and a place for a group's few facts.

The epoch moves by compare-and-set only. Leases and members are best effort: a wrong answer costs delay, never correctness, because
the bus decides which engine may publish (docs/design/failover.md). Time is the service's own clock, in milliseconds, and only
differences of it are used.

"Unknown result": a method that raised CoordinationSuspended may have happened. Read the leader again; never assume.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Member:
    """An engine of a group as it describes itself. `address` is `host:port` of its liveness socket.

    `process_start` with `process_id` names a process permanently (ids are reused), but only within one `process_space`
    (`processes.process_space`); `host` is for users. `sequences` are its output sequences, which rank candidates. `role` is for
    users and `hotspare status`. `seen_ms` is the service's clock at its last refresh.
    """

    engine: str
    address: str
    process_id: int
    process_start: int
    host: str
    project_hash: str
    versions: str
    cpu: str
    role: str
    sequences: Mapping[str, int]
    detail: Mapping[str, str]
    seen_ms: int = 0
    process_space: str = ""


@dataclass(frozen=True, slots=True)
class Leader:
    """The holder of the newest epoch. `holder` is "" if the role was released or never held; then `successor` may name an engine.

    `lease_left_ms`: how much of the holder's lease was left when this was read; 0 or less means that it is over. `process_id`,
    `process_start`, `process_space`, `host`, `address`: the holder's, so that it can be probed, or ended if it is frozen.
    """

    epoch: int
    holder: str
    successor: str
    lease_left_ms: int
    address: str = ""
    host: str = ""
    process_id: int = 0
    process_start: int = 0
    process_space: str = ""


@dataclass(frozen=True, slots=True)
class Renewed:
    """The result of a renewed lease. `switchover`: what `requested_successor` would have returned then, which saves the holder a
    call."""

    switchover: str | None


NO_LEADER = Leader(epoch=0, holder="", successor="", lease_left_ms=0)


class Coordination(Protocol):
    """A coordination service. Safe to use from several threads and processes. `group` names are free text; groups are independent.

    Every method may raise CoordinationSuspended or CoordinationLost.
    """

    def extended_timeouts(self) -> AbstractContextManager[None]:
        """Lets calls of this thread within the block wait longer for an answer, as those of a command do.

        For a thread that has time, in a process whose other threads have none.
        """

    def refresh_member(self, group: str, member: Member) -> None:
        """Best effort: adds or refreshes a member's description.

        Adding one removes silent members that do not hold the role: those silent for an hour, and all but the newest few of those
        silent for a minute. A service with sessions removes ended members at once.
        """

    def remove_member(self, group: str, engine: str) -> None:
        """Best effort: removes a member; a role that it holds is not released."""

    def members(self, group: str) -> Sequence[Member]:
        """Best effort: returns the members in order of joining."""

    def groups(self) -> Sequence[str]:
        """Best effort: returns every group ever seen here."""

    def leader(self, group: str) -> Leader:
        """Atomic read: returns the holder of the newest epoch."""

    def campaign(self, group: str, expected_epoch: int, member: Member, lease_ms: int) -> int | None:
        """Compare-and-set: moves the epoch from `expected_epoch` to `expected_epoch + 1`, held by `member` under a new lease.

        Returns the new epoch, or None if the epoch was another one: another engine was faster.
        """

    def renew(self, group: str, epoch: int, engine: str, lease_ms: int) -> Renewed | None:
        """Compare-and-set: begins a new lease if `engine` still holds `epoch`; returns None if it does not."""

    def release(self, group: str, epoch: int, engine: str, successor: str) -> bool:
        """Compare-and-set: releases the role; the epoch stays. `successor` "" leaves the role to any engine. Returns whether it was
        held."""

    def request_switchover(self, group: str, successor: str) -> None:
        """Best effort: requests the holder to hand over to `successor`, or to any engine if ""."""

    def requested_successor(self, group: str) -> str | None:
        """Best effort: returns the requested successor, "" for any engine, None without a request. `release` and `campaign` clear
        it."""

    def withdraw_switchover(self, group: str) -> None:
        """Best effort: removes the request. A holder that has read it before may still follow it."""

    def fact(self, group: str, name: str) -> bytes | None:
        """Atomic read: returns one of the group's facts (its origin, its project hash), or None."""

    def set_fact_once(self, group: str, name: str, value: bytes) -> bytes:
        """Compare-and-set from absent: returns the value that is stored afterwards, which may be another engine's."""

    def fact_names(self, group: str) -> Sequence[str]:
        """Best effort: returns the names of the group's facts, in no order."""

    def remove_facts(self, group: str, names: Sequence[str]) -> None:
        """Removes facts, even if other callers remove them concurrently. Not atomic: they go in this order, and an interruption
        leaves the last ones."""

    def reset_group(self, group: str, first: Sequence[str] = (), last: Sequence[str] = ()) -> None:
        """Removes all of the group except its epoch (`hotspare reset`); the epoch never falls.

        Atomic, unless it is too much for one transaction: then the facts `first` go in one, others next, and in the last one all
        the rest, with `last`. The next call removes what an interruption left.
        """

    def close(self) -> None: ...
