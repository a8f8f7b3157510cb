"""Several instances of one adapter, one of which works. It is chosen by epoch and lease, like an active engine (SPEC C14, E8, E9).

The lease only makes fail-over quick. Duplicates are prevented at the write. The bus refuses a publisher's append if the topic holds
more than that publisher knows (`Bus.append_guarded`). A subscriber's file has a record that is checked under the file's lock at
every write. So an instance that thaws, or wrongly believes that it has the turn, does no harm.

A thread renews the lease while the work makes progress, which shows in its checks of the turn. So an instance loses the lease if it
is frozen or dead, or its work hangs in a call. An instance that waits for an unreachable bus keeps it, since another one would wait
as well. Without contact to coordination the active instance works on.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from hotspare.adapters.failover.turn import Turn
from hotspare.base.errors import CoordinationError, UsageError
from hotspare.coordination.contract import Coordination, Member

LEASE_MS_DEFAULT = 1000
LEASE_MS_MIN = 100
GROUP_PREFIX = "adapter:"

_T = TypeVar("_T")


class AdapterRole(Enum):
    """The role of one instance; the values are shown to users and in the meta topic."""

    STANDBY = "standby"
    ACTIVE = "active"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """Settings of an adapter group. `group` is the shared name of the instances, free text. If an instance does not renew its lease
    for `lease_ms`, another one takes over.

    `hung_after_s`: the longest that the work may take for one piece, or one call of a bus or file system, before it counts as hung.
    """

    group: str
    lease_ms: int = LEASE_MS_DEFAULT
    renewals_per_lease: int = 4
    polls_per_lease: int = 10
    hung_after_s: float = 30.0

    def __post_init__(self) -> None:
        if not self.group:
            raise UsageError("an adapter group has no name", hint="use a name of at least 1 character")
        if self.lease_ms < LEASE_MS_MIN:
            raise UsageError(f"a lease of {self.lease_ms} ms is too short", hint=f"use at least {LEASE_MS_MIN} ms")


class AdapterGroup:
    """An instance of an adapter, of which one at a time works. `member` describes it (`Member.engine` is its name, unique in the
    group). `changed` is called with each new role and its epoch."""

    def __init__(
        self,
        coordination: Coordination,
        settings: AdapterSettings,
        member: Member,
        changed: Callable[[AdapterRole, int], None] = lambda role, epoch: None,
    ) -> None:
        self._coordination = coordination
        self._settings = settings
        self._group = GROUP_PREFIX + settings.group
        self._member = member
        self._changed = changed

    def run(self, work: Callable[[Turn], _T], stop: threading.Event) -> _T | None:
        """Waits for a turn and calls `work` until the turn is over. Repeats this until the work ends by itself or `stop` is set.

        Returns the result of the last work; None if there was no turn. An error of `work` ends the run, and another instance takes
        over.
        """
        result: _T | None = None
        self._changed(AdapterRole.STANDBY, 0)
        try:
            while (turn := self._next_turn(stop)) is not None:
                self._changed(AdapterRole.ACTIVE, turn.epoch)
                result, finished = self._work_one_turn(turn, work, stop)
                if finished:
                    break
                self._changed(AdapterRole.STANDBY, turn.epoch)
        finally:
            self._changed(AdapterRole.STOPPED, 0)
            self._quietly(lambda: self._coordination.remove_member(self._group, self._member.engine))
        return result

    def _work_one_turn(self, turn: Turn, work: Callable[[Turn], _T], stop: threading.Event) -> tuple[_T, bool]:
        """Returns the work's result, and whether it ended for another reason than the end of the turn."""
        done = threading.Event()
        lost = threading.Event()
        keeper = threading.Thread(target=self._renew_until_done, args=(turn, stop, done, lost), name="adapter-lease", daemon=True)
        keeper.start()
        try:
            result = work(turn)
            finished = not turn.is_over() or stop.is_set()
        finally:
            done.set()
            keeper.join()
            if not lost.is_set():
                self._quietly(lambda: self._coordination.release(self._group, turn.epoch, self._member.engine, ""))
        return result, finished

    def _next_turn(self, stop: threading.Event) -> Turn | None:
        """Waits for this instance's turn. None if `stop` is set."""
        lease_ms = self._settings.lease_ms
        while not stop.is_set():
            try:
                leader = self._coordination.leader(self._group)
                self._coordination.refresh_member(self._group, self._member)
                if not leader.holder or leader.lease_left_ms <= 0 or leader.holder == self._member.engine:
                    requested_s = time.monotonic()
                    epoch = self._coordination.campaign(self._group, leader.epoch, self._member, lease_ms)
                    if epoch is not None:
                        turn = Turn(epoch)
                        turn.extend(requested_s + lease_ms / 1000)
                        return turn
            except CoordinationError:
                pass  # without contact, no instance gets a turn
            stop.wait(lease_ms / 1000 / self._settings.polls_per_lease)
        return None

    def _renew_until_done(self, turn: Turn, stop: threading.Event, done: threading.Event, lost: threading.Event) -> None:
        """Renews the lease until the work is done. Ends the turn if the lease is lost or expired, or `stop` is set."""
        lease_s = self._settings.lease_ms / 1000
        renew_s = lease_s / self._settings.renewals_per_lease
        renew_at_s = time.monotonic() + renew_s
        while not done.wait(min(0.02, renew_s)):
            if stop.is_set():
                turn.set()
            requested_s = time.monotonic()
            if requested_s < renew_at_s or lost.is_set() or turn.unchecked_s() > self._settings.hung_after_s:
                continue
            renew_at_s = requested_s + renew_s
            try:
                held = self._coordination.renew(self._group, turn.epoch, self._member.engine, self._settings.lease_ms) is not None
            except CoordinationError:
                held = not turn.is_over()  # a frozen instance finds its turn over; this one is awake
            if held:
                turn.extend(requested_s + lease_s)
            else:
                lost.set()
                turn.set()

    def _quietly(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(CoordinationError):  # the lease expires by itself
            call()
