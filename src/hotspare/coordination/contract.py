"""What hotspare asks of a coordination service: who may be active, who is alive, and a place for a group's few facts.

The epoch moves by compare-and-set only. Leases and members are best effort: a wrong answer costs delay, never correctness,
because the bus decides who may publish (DESIGN section 5). Time is the service's own clock, in milliseconds, and only
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

    `process_start` with `process_id` names a process for good (ids are used again), but only for those of the same
    `process_space` (`processes.process_space`); `host` is for people. `sequences` are its output sequences, which rank
    candidates. `role` is for people and `status`. `seen_ms` is the service's clock at its last word.
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
    """Who holds the newest epoch. `holder` is "" when the role was given up or never taken; then `successor` may name one.

    `lease_left_ms`: how much of the holder's lease was left when this was read; 0 or less means that it is over.
    `process_id`, `process_start`, `process_space`, `host`, `address`: the holder's, so that it can be probed, or ended when it is
    frozen.
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
    """A lease was renewed. `switchover`: as `switchover_asked` had it then, so that a holder need not ask for it besides."""

    switchover: str | None


NOBODY = Leader(epoch=0, holder="", successor="", lease_left_ms=0)


class Coordination(Protocol):
    """Safe to use from several threads and processes. `group` names are free text; two groups never meet.

    Every method may raise CoordinationSuspended or CoordinationLost.
    """

    def patiently(self) -> AbstractContextManager[None]:
        """Within the block, calls of this thread wait longer for an answer, as those of somebody's command do: for what has time,
        in a process whose other threads have none."""

    def join(self, group: str, member: Member) -> None:
        """Best effort: add or refresh a member's description. Members that gave no word for an hour, and of those without one for a
        minute all but the newest few, are forgotten when one is added, if they do not hold the role; where sessions tell who has
        ended, at once."""

    def leave(self, group: str, engine: str) -> None:
        """Best effort: remove a member; a role that it holds is not given up by this."""

    def members(self, group: str) -> Sequence[Member]:
        """Best effort: in order of joining."""

    def groups(self) -> Sequence[str]:
        """Best effort: every group ever seen here."""

    def leader(self, group: str) -> Leader:
        """Atomic read."""

    def campaign(self, group: str, expected_epoch: int, member: Member, lease_ms: int) -> int | None:
        """Compare-and-set: move the epoch from `expected_epoch` to `expected_epoch + 1`, held by `member` under a new lease.

        Returns the new epoch, or None when the epoch was another one: somebody else was faster.
        """

    def renew(self, group: str, epoch: int, engine: str, lease_ms: int) -> Renewed | None:
        """Compare-and-set: a new lease if `engine` still holds `epoch`; None if it does not."""

    def release(self, group: str, epoch: int, engine: str, successor: str) -> bool:
        """Compare-and-set: give the role up; the epoch stays. `successor` may be "" for whoever comes first."""

    def ask_switchover(self, group: str, successor: str) -> None:
        """Best effort: ask the holder to hand over to `successor`, or to anyone when ""."""

    def switchover_asked(self, group: str) -> str | None:
        """Best effort: the successor asked for, "" for anyone, None when nothing was asked. `release` and `campaign` clear it."""

    def withdraw_switchover(self, group: str) -> None:
        """Best effort: nothing is asked any more. A holder that has read the request before may still follow it."""

    def fact(self, group: str, name: str) -> bytes | None:
        """Atomic read of one of the group's facts (its origin, its project hash)."""

    def set_fact_once(self, group: str, name: str, value: bytes) -> bytes:
        """Compare-and-set from absent: returns the value that stands afterwards, which may be another engine's."""

    def fact_names(self, group: str) -> Sequence[str]:
        """Best effort: of which names the group has facts, in no order."""

    def remove_facts(self, group: str, names: Sequence[str]) -> None:
        """These facts are gone afterwards, whoever else removes them too. Not atomic: they go in this order, and who is cut short
        leaves the last ones."""

    def forget(self, group: str, first: Sequence[str] = (), last: Sequence[str] = ()) -> None:
        """Remove everything of the group but its epoch (`hotspare reset`); the epoch never falls. Atomic, or, where there is too
        much for that: the facts `first` in one, then others, and at the end in one all that is left, `last` among it. What a cut
        leaves goes the next time."""

    def close(self) -> None: ...
