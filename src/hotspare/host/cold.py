"""A cold spare (SPEC C13, Z18): an engine process that is loaded and holds no state, until its group needs it.

It reads no input, keeps nothing that was put out and runs no Spark; snapshots are where they are. Then it joins as any engine does:
from the newest snapshot, through what the topics hold behind it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from hotspare.coordination.contract import Coordination, Member
from hotspare.errors import CoordinationError
from hotspare.ha.rules import cold

ROLE = "cold"
"""What its member records say."""
_POLL_MS_MAX = 1_000


def await_need(
    coordination: Coordination,
    groups: Sequence[tuple[str, Member]],
    lease_ms: int,
    clock_ms: Callable[[], int],
    stop: threading.Event,
) -> str | None:
    """Until one of the groups needs it: which. None where `stop` is set first. While coordination does not answer, nobody knows."""
    vacancies: dict[str, cold.FreeRole | None] = {}
    needed: str | None = None
    while needed is None and not stop.is_set():
        for group, member in groups:
            try:
                coordination.join(group, replace(member, role=ROLE))
                vacancies[group] = cold.seen(vacancies.get(group), coordination.leader(group), clock_ms())
            except CoordinationError:
                vacancies[group] = None
        needed = next((group for group, _ in groups if cold.is_needed(vacancies[group], clock_ms(), lease_ms)), None)
        if needed is None:
            stop.wait(min(_POLL_MS_MAX, max(1, lease_ms // 4)) / 1_000)
    for group, member in groups:
        with contextlib.suppress(CoordinationError):
            coordination.leave(group, member.engine)
    return needed
