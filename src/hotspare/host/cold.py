"""A cold spare (SPEC C13, Z18): an engine process that is loaded and holds no state, until its group needs it.

It reads no input, keeps nothing that was put out and runs no Spark; snapshots are where they are. Then it joins as any engine does:
from the newest snapshot, through what the topics hold behind it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from hotspare.base.errors import CoordinationError
from hotspare.coordination.contract import Coordination, Member
from hotspare.ha.rules import cold

ROLE = "cold"
"""What its member records say."""
_POLL_MS_MAX = 1_000


class Lookout:
    """Looks after its groups, as the member that each of them knows. It makes no difference how long nobody looks."""

    def __init__(
        self, coordination: Coordination, groups: Sequence[tuple[str, Member]], lease_ms: int, clock_ms: Callable[[], int]
    ) -> None:
        self._coordination = coordination
        self._groups = groups
        self._lease_ms = lease_ms
        self._clock_ms = clock_ms
        self._vacancies: dict[str, cold.FreeRole | None] = {}

    @property
    def poll_ms(self) -> int:
        """Between two looks."""
        return min(_POLL_MS_MAX, max(1, self._lease_ms // 4))

    def look(self) -> str | None:
        """The first group that needs it, if any does. While coordination does not answer, nobody knows."""
        for group, member in self._groups:
            try:
                self._coordination.join(group, replace(member, role=ROLE))
                known = self._vacancies.get(group)
                self._vacancies[group] = cold.seen(known, self._coordination.leader(group), self._clock_ms())
            except CoordinationError:
                self._vacancies[group] = None
        found = (g for g, _ in self._groups if cold.is_needed(self._vacancies[g], self._clock_ms(), self._lease_ms))
        return next(found, None)

    def leave(self) -> None:
        """From here on it is no cold spare."""
        for group, member in self._groups:
            with contextlib.suppress(CoordinationError):
                self._coordination.leave(group, member.engine)


def await_need(
    coordination: Coordination,
    groups: Sequence[tuple[str, Member]],
    lease_ms: int,
    clock_ms: Callable[[], int],
    stop: threading.Event,
) -> str | None:
    """Until one of the groups needs it: which. None where `stop` is set first."""
    lookout, needed = Lookout(coordination, groups, lease_ms, clock_ms), None
    while needed is None and not stop.is_set():
        needed = lookout.look()
        if needed is None:
            stop.wait(lookout.poll_ms / 1_000)
    lookout.leave()
    return needed
