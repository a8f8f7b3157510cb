"""The work of an engine before it joins. Its member records show the phase of its start: compiling kernels takes minutes once,
Spark half a minute. A cold spare waits until its group needs it (SPEC C13, Z18).

A record under this engine's name that another process wrote stays unchanged: joining uses it to decide whether the name is free.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum

from hotspare.base.errors import CoordinationError
from hotspare.coordination.contract import Coordination, Member
from hotspare.ha.rules import cold_spare, membership
from hotspare.host.alive import is_alive

STARTING = "starting"
"""The detail of a member record that names the phase."""
POLL_S = 1.0


class StartPhase(Enum):
    """The phases of an engine's start, as `hotspare status` shows them."""

    COMPILING = "compiling kernels"
    LOADING = "loading kernels"
    STATE = "state"
    SPARK = "Spark"


@contextlib.contextmanager
def shown_start(
    coordination: Coordination, groups: Sequence[tuple[str, Member]], phase: StartPhase, poll_s: float = POLL_S
) -> Iterator[None]:
    """Writes `phase` to the member records in `groups` (group name, record) while the block runs; in a group only until the
    engine's own record replaces it, and never while another process that may be alive has a record under this name.

    A block that raises removes the records, under the same condition. After any other block they stay until the engine writes its
    own. Coordination errors are ignored.
    """
    end = threading.Event()
    shown = [(group, replace(member, detail={**member.detail, STARTING: phase.value})) for group, member in groups]

    def write() -> None:
        left, written = dict(shown), set[str]()
        while not end.is_set():
            for group, member in list(left.items()):
                with contextlib.suppress(CoordinationError):
                    if group in written and _has_own_record(coordination, group, member):
                        del left[group]
                    elif _may_write(coordination, group, member):
                        coordination.refresh_member(group, member)
                        written.add(group)
            end.wait(poll_s)

    thread = threading.Thread(target=write, name="start-shown", daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        _end(end, thread)
        for group, member in shown:
            with contextlib.suppress(CoordinationError):
                if _may_write(coordination, group, member):
                    coordination.remove_member(group, member.engine)
        raise
    _end(end, thread)


def _end(end: threading.Event, thread: threading.Thread) -> None:
    end.set()
    thread.join()


def _has_own_record(coordination: Coordination, group: str, member: Member) -> bool:
    """Whether the engine replaced the record of its start, which means that it takes part in the group."""
    own = [each for each in coordination.members(group) if each.engine == member.engine]
    return any(membership.process_of(each) == membership.process_of(member) and STARTING not in each.detail for each in own)


def _may_write(coordination: Coordination, group: str, member: Member) -> bool:
    """Whether no other process that lives, or may live, has a record under this engine's name."""
    members = coordination.members(group)
    if membership.unseen_namesake(members, member) is not None:
        return False
    other = membership.namesake(members, member)
    return other is None or not is_alive(other)


COLD = "cold"
"""The role in the member records of a cold spare."""
_LOOK_MS_MAX = 1_000


class ColdSpareWatcher:
    """Watches the groups of a cold spare; `groups` has each group's name and the member record to write there. Polls may be any
    time apart.

    The process is loaded but holds no state: it reads no input, holds no outputs and runs no Spark. Once needed, it joins as any
    engine does, from the newest snapshot and the messages after it.
    """

    def __init__(
        self, coordination: Coordination, groups: Sequence[tuple[str, Member]], lease_ms: int, clock_ms: Callable[[], int]
    ) -> None:
        self._coordination = coordination
        self._groups = groups
        self._lease_ms = lease_ms
        self._clock_ms = clock_ms
        self._vacancies: dict[str, cold_spare.FreeRole | None] = {}

    @property
    def poll_ms(self) -> int:
        """The pause between two polls."""
        return min(_LOOK_MS_MAX, max(1, self._lease_ms // 4))

    def find_group_in_need(self) -> str | None:
        """Returns the first group that needs the spare, or None. While coordination does not answer, no group counts as in need."""
        for group, member in self._groups:
            try:
                self._coordination.refresh_member(group, replace(member, role=COLD))
                known = self._vacancies.get(group)
                self._vacancies[group] = cold_spare.updated_free_role(known, self._coordination.leader(group), self._clock_ms())
            except CoordinationError:
                self._vacancies[group] = None
        found = (g for g, _ in self._groups if cold_spare.is_needed(self._vacancies[g], self._clock_ms(), self._lease_ms))
        return next(found, None)

    def remove_records(self) -> None:
        """Removes the records of the cold spare."""
        for group, member in self._groups:
            with contextlib.suppress(CoordinationError):
                self._coordination.remove_member(group, member.engine)


def await_need(
    coordination: Coordination,
    groups: Sequence[tuple[str, Member]],
    lease_ms: int,
    clock_ms: Callable[[], int],
    stop: threading.Event,
) -> str | None:
    """Waits until one of the groups needs the spare and returns that group; None if `stop` is set first. Removes the records at the
    end."""
    lookout, needed = ColdSpareWatcher(coordination, groups, lease_ms, clock_ms), None
    while needed is None and not stop.is_set():
        needed = lookout.find_group_in_need()
        if needed is None:
            stop.wait(lookout.poll_ms / 1_000)
    lookout.remove_records()
    return needed
