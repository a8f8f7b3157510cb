"""The contract of a coordination service: which engine may be active, which engines are alive, and a group's facts, which are
written once.

The epoch moves by compare-and-set only. Leases and members are best effort: a wrong answer costs delay, never correctness, because
the bus decides which engine may publish (docs/design/failover.md). Times are milliseconds of the service's own clock, and only
differences count. ZooKeeper has no clock that clients can read: there each watcher measures leases by its own monotonic clock, and
only `seen_ms` is by the servers' clock.

"Unknown result": a method that raised CoordinationSuspended may have taken effect. Read the leader again; never assume either
result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Member:
    """An engine of a group as it describes itself. `address` is `host:port` of its liveness socket.

    `process_id` and `process_start` together identify a process for ever (ids are reused), but only within one `process_space`
    (`processes.process_space`). `sequences` are the engine's newest output sequences by stream, which rank candidates. `host` and
    `role` are for users and `hotspare status`. `seen_ms` is the service's clock at the last refresh.
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

    `lease_left_ms`: the time left of the holder's lease when the record was read; at 0 or less the lease is over. `address`,
    `host`, `process_id`, `process_start`, `process_space`: those of the holder, to probe its process, or to end a frozen one.
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
    """The result of a renewed lease. `switchover` is the requested successor, as `requested_successor` returns it; the holder saves
    that call."""

    switchover: str | None


NO_LEADER = Leader(epoch=0, holder="", successor="", lease_left_ms=0)


class Coordination(Protocol):
    """A coordination service. Thread-safe, and shared by several processes. `group` names are free text; groups are independent.

    Every method may raise CoordinationSuspended or CoordinationLost.
    """

    def extended_timeouts(self) -> AbstractContextManager[None]:
        """Returns a context within which calls of this thread wait longer for an answer, as long as the calls of a command.

        A background thread of an engine's process uses it; the other threads keep their short time-out.
        """

    def refresh_member(self, group: str, member: Member) -> None:
        """Best effort: adds or refreshes a member's description. Raises UsageError if the group has too many members.

        Adding a member removes those silent for an hour and, except for the newest few, those silent for a minute; the holder of
        the role stays. A service with sessions removes a member as soon as its session ends.
        """

    def remove_member(self, group: str, engine: str) -> None:
        """Best effort: removes the member `engine`, if it exists. A role that it holds is not released."""

    def members(self, group: str) -> Sequence[Member]:
        """Best effort: returns the members in order of joining."""

    def groups(self) -> Sequence[str]:
        """Best effort: returns the name of every group that this service ever stored anything of."""

    def leader(self, group: str) -> Leader:
        """Atomic read: returns the holder of the newest epoch."""

    def campaign(self, group: str, expected_epoch: int, member: Member, lease_ms: int) -> int | None:
        """Compare-and-set: moves the epoch from `expected_epoch` to `expected_epoch + 1`, held by `member` under a new lease.

        Returns the new epoch, or None if the present epoch is not `expected_epoch`: another engine was faster.
        """

    def renew(self, group: str, epoch: int, engine: str, lease_ms: int) -> Renewed | None:
        """Compare-and-set: begins a new lease of `lease_ms` if `engine` still holds `epoch`; returns None if it does not."""

    def release(self, group: str, epoch: int, engine: str, successor: str) -> bool:
        """Compare-and-set: releases the role if `engine` holds `epoch`; the epoch stays. With `successor` "" any engine may take
        the role. Returns whether the role was held."""

    def request_switchover(self, group: str, successor: str) -> None:
        """Best effort: requests that the holder hands the role over to engine `successor`, or to any engine if ""."""

    def requested_successor(self, group: str) -> str | None:
        """Best effort: returns the requested successor; "" for any engine, None without a request. `release` and `campaign` clear
        the request."""

    def withdraw_switchover(self, group: str) -> None:
        """Best effort: removes the request for a switch-over. A holder that has already read the request may still hand over."""

    def fact(self, group: str, name: str) -> bytes | None:
        """Atomic read: returns the value of the group's fact `name` (for example "origin" or "project"); None if it was never
        set."""

    def set_fact_once(self, group: str, name: str, value: bytes) -> bytes:
        """Compare-and-set: stores `value` if the fact does not exist. Returns the stored value, which may be another engine's.
        Raises UsageError for an empty name, or for a value of more than FACT_BYTES_MAX bytes."""

    def fact_names(self, group: str) -> Sequence[str]:
        """Best effort: returns the names of the group's facts, in any order."""

    def remove_facts(self, group: str, names: Sequence[str]) -> None:
        """Removes the named facts in the order of `names`; missing ones are ignored. Not atomic: an interruption leaves the last
        ones."""

    def reset_group(self, group: str, first: Sequence[str] = (), last: Sequence[str] = ()) -> None:
        """Removes everything of the group except its epoch (`hotspare reset`); the epoch never falls.

        Atomic unless the group is too large for one transaction. Then the facts `first` are removed first, facts in neither list
        next, and the facts `last` in the final transaction. A repeated call removes what an interruption left.
        """

    def close(self) -> None: ...
