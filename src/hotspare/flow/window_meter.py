"""Counts what the windows of a core process. The counts are no part of the state: no snapshot contains them, and no output depends
on them. The core has no clock, so its host passes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hotspare.flow.plan import Plan, Stage
from hotspare.rows.chunk import Chunk


@dataclass(slots=True)
class WindowWork:
    """The rows that a window received and emitted, and the time for which it computed."""

    rows_in: int = 0
    rows_out: int = 0
    busy_ns: int = 0


class WindowMeter:
    """The counts of all cores of one group of this process, by node. Not thread-safe.

    A window that runs in the head is counted if its rows enter the core directly behind it, without its time.
    """

    def __init__(self, plan: Plan, clock_ns: Callable[[], int]) -> None:
        """`clock_ns`: a clock in nanoseconds, of any origin."""
        self._plan = plan
        self.clock_ns = clock_ns
        count = len(plan.nodes)
        self._rows_in, self._rows_out, self._busy_ns = [0] * count, [0] * count, [0] * count

    def record(self, node: int, begun_ns: int, inputs: Sequence[Chunk | None], outputs: Chunk) -> None:
        """Counts a call of a node's operator that began at `begun_ns` and ends now."""
        self._busy_ns[node] += self.clock_ns() - begun_ns
        self._rows_out[node] += len(outputs)
        for chunk in inputs:
            if chunk is not None:
                self._rows_in[node] += len(chunk)

    def record_head(self, node: int, rows: int) -> None:
        """Counts rows that a window in the head emitted to the core."""
        self._rows_in[node] += rows
        self._rows_out[node] += rows

    def by_window(self) -> dict[str, WindowWork]:
        """Returns the work of each window: its time is that of all its stages, its outputs are those behind its emission."""
        found: dict[str, WindowWork] = {}
        for number, node in enumerate(self._plan.nodes):
            work = found.setdefault(node.window, WindowWork())
            work.busy_ns += self._busy_ns[number]
            if node.stage is Stage.WINDOW:
                work.rows_in = self._rows_in[number]
            if node.stage in (Stage.WINDOW, Stage.EMISSION):
                work.rows_out = self._rows_out[number]
        return found
