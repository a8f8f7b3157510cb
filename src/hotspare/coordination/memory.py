"""Coordination in the memory of one process: the twin of the durable services, with an injected clock and injected outages.

All engines share one `MemoryCoordination`; `client(name)` opens a session for each. An outage affects one session: calls raise
SUSPENDED while it lasts. When a session is LOST, its members are removed and the lease that it holds ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from hotspare.base.errors import CoordinationLost, CoordinationSuspended
from hotspare.coordination import record as rules
from hotspare.coordination.contract import Leader, Member, Renewed
from hotspare.coordination.record import RoleRecord


class CoordinationFault(Enum):
    """The fault to inject into one call of a client."""

    NONE = "none"
    SUSPENDED = "suspended"
    """The call has no effect."""
    SUSPENDED_DONE = "suspended-done"
    """The call takes effect, but its answer is lost."""
    LOST = "lost"
    """The session has ended and the call has no effect; the next call without a fault opens a new session."""


class CoordinationFaults(Protocol):
    def fault_of_call(self, client: str, operation: str) -> CoordinationFault:
        """Returns the fault to inject into a call of the method `operation` by `client`. Called once per call, before the call has
        any effect."""


class NoCoordinationFaults:
    def fault_of_call(self, client: str, operation: str) -> CoordinationFault:
        return CoordinationFault.NONE


def clock_ms() -> int:
    """Returns milliseconds of a monotonic clock, which counts from an arbitrary time."""
    return time.monotonic_ns() // 1_000_000


@dataclass(slots=True)
class _Group:
    role: RoleRecord = field(default_factory=RoleRecord)
    members: dict[str, Member] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)
    """The client through which each engine joined."""
    holder_session: str = ""
    facts: dict[str, bytes] = field(default_factory=dict)


class MemoryCoordination:
    """The state of the service, shared by its clients. `clock` returns milliseconds; a group has at most `members_max` members."""

    def __init__(
        self,
        clock: Callable[[], int] = clock_ms,
        faults: CoordinationFaults | None = None,
        members_max: int = rules.MEMBERS_MAX,
    ) -> None:
        self.clock = clock
        self.members_max = members_max
        self.faults: CoordinationFaults = faults or NoCoordinationFaults()
        self.lock = threading.Lock()
        self.groups: dict[str, _Group] = {}

    def client(self, name: str = "") -> MemoryCoordinationClient:
        """Opens a session for one engine. `name` identifies the session in `faults`; names must differ."""
        return MemoryCoordinationClient(self, name)

    def group(self, name: str) -> _Group:
        return self.groups.setdefault(name, _Group())

    def end_session(self, client: str) -> None:
        """Ends the session of `client`, as a service does after a silence: removes its members, and ends the lease that it
        holds."""
        with self.lock:
            for group in self.groups.values():
                for engine in [engine for engine, session in group.sessions.items() if session == client]:
                    del group.sessions[engine]
                    group.members.pop(engine, None)
                if group.holder_session == client:
                    group.role = replace(group.role, lease_end_ms=self.clock())


class _FaultyCall:
    """A context for one call of a client, which holds the lock of the shared state. Raises the injected fault before the call, or
    after it if only the answer is lost."""

    def __init__(self, shared: MemoryCoordination, client: str, operation: str) -> None:
        self._shared = shared
        self._detail = f"client {client}, {operation}"
        self._fault = shared.faults.fault_of_call(client, operation)
        if self._fault is CoordinationFault.LOST:
            shared.end_session(client)

    def __enter__(self) -> None:
        if self._fault is CoordinationFault.SUSPENDED:
            raise CoordinationSuspended("coordination cannot be reached", detail=self._detail)
        if self._fault is CoordinationFault.LOST:
            raise CoordinationLost("the coordination session is over", detail=self._detail)
        self._shared.lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._shared.lock.release()
        if kind is None and self._fault is CoordinationFault.SUSPENDED_DONE:
            raise CoordinationSuspended("coordination did not answer", detail=self._detail)


class MemoryCoordinationClient:
    """A `Coordination` (contract) over a `MemoryCoordination`."""

    def __init__(self, shared: MemoryCoordination, name: str) -> None:
        self._shared = shared
        self._name = name

    def _call(self, operation: str) -> _FaultyCall:
        return _FaultyCall(self._shared, self._name, operation)

    def extended_timeouts(self) -> AbstractContextManager[None]:
        return nullcontext()

    def refresh_member(self, group: str, member: Member) -> None:
        rules.check_group(group)
        rules.check_engine(member.engine)
        with self._call("join"):
            entry = self._shared.group(group)
            if member.engine not in entry.members:
                seen_ms = {each.engine: each.seen_ms for each in entry.members.values()}
                for engine in rules.expired_members(seen_ms, entry.role.holder, self._shared.clock()):
                    del entry.members[engine], entry.sessions[engine]
                if len(entry.members) >= self._shared.members_max:
                    raise rules.too_many_members_error(group, self._shared.members_max)
            entry.members[member.engine] = replace(member, seen_ms=self._shared.clock())
            entry.sessions[member.engine] = self._name

    def remove_member(self, group: str, engine: str) -> None:
        with self._call("leave"):
            entry = self._shared.groups.get(group)
            if entry is not None:
                entry.members.pop(engine, None)
                entry.sessions.pop(engine, None)

    def members(self, group: str) -> Sequence[Member]:
        with self._call("members"):
            entry = self._shared.groups.get(group)
            return tuple(entry.members.values()) if entry is not None else ()

    def groups(self) -> Sequence[str]:
        with self._call("groups"):
            return tuple(sorted(self._shared.groups))

    def leader(self, group: str) -> Leader:
        with self._call("leader"):
            entry = self._shared.groups.get(group)
            return rules.leader_of(entry.role if entry is not None else RoleRecord(), self._shared.clock())

    def campaign(self, group: str, expected_epoch: int, member: Member, lease_ms: int) -> int | None:
        rules.check_group(group)
        rules.check_engine(member.engine)
        rules.check_lease(lease_ms)
        with self._call("campaign"):
            entry = self._shared.group(group)
            role = rules.after_campaign(entry.role, expected_epoch, member, self._shared.clock() + lease_ms)
            if role is None:
                return None
            entry.role = role
            entry.holder_session = self._name
            return role.epoch

    def renew(self, group: str, epoch: int, engine: str, lease_ms: int) -> Renewed | None:
        rules.check_lease(lease_ms)
        with self._call("renew"):
            entry = self._shared.groups.get(group)
            if entry is None:
                return None
            role = rules.after_renewal(entry.role, epoch, engine, self._shared.clock() + lease_ms)
            if role is None:
                return None
            entry.role = role
            entry.holder_session = self._name
            return Renewed(role.asked)

    def release(self, group: str, epoch: int, engine: str, successor: str) -> bool:
        with self._call("release"):
            entry = self._shared.groups.get(group)
            if entry is None:
                return False
            role = rules.after_release(entry.role, epoch, engine, successor)
            if role is None:
                return False
            entry.role = role
            return True

    def request_switchover(self, group: str, successor: str) -> None:
        rules.check_group(group)
        with self._call("request_switchover"):
            entry = self._shared.group(group)
            entry.role = replace(entry.role, asked=successor)

    def requested_successor(self, group: str) -> str | None:
        with self._call("switchover_asked"):
            entry = self._shared.groups.get(group)
            return entry.role.asked if entry is not None else None

    def withdraw_switchover(self, group: str) -> None:
        with self._call("withdraw_switchover"):
            entry = self._shared.groups.get(group)
            if entry is not None:
                entry.role = replace(entry.role, asked=None)

    def fact(self, group: str, name: str) -> bytes | None:
        with self._call("fact"):
            entry = self._shared.groups.get(group)
            return entry.facts.get(name) if entry is not None else None

    def set_fact_once(self, group: str, name: str, value: bytes) -> bytes:
        rules.check_group(group)
        rules.check_fact(name, value)
        with self._call("set_fact_once"):
            return self._shared.group(group).facts.setdefault(name, bytes(value))

    def fact_names(self, group: str) -> Sequence[str]:
        with self._call("fact_names"):
            entry = self._shared.groups.get(group)
            return tuple(entry.facts) if entry is not None else ()

    def remove_facts(self, group: str, names: Sequence[str]) -> None:
        with self._call("remove_facts"):
            entry = self._shared.groups.get(group)
            if entry is not None:
                for name in names:
                    entry.facts.pop(name, None)

    def reset_group(self, group: str, first: Sequence[str] = (), last: Sequence[str] = ()) -> None:
        with self._call("forget"):
            entry = self._shared.groups.get(group)
            if entry is not None:
                self._shared.groups[group] = _Group(role=rules.after_reset(entry.role))

    def facts(self, group: str) -> Mapping[str, bytes]:
        """Returns all facts of a group by name, without faults, for tests."""
        with self._shared.lock:
            entry = self._shared.groups.get(group)
            return dict(entry.facts) if entry is not None else {}

    def close(self) -> None:
        """Does nothing: a client holds no resources."""
