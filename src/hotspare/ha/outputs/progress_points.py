"""Retains committed progress that an engine has not reached: its outputs are compared at these points once it has computed them.

A spare reads progress several times a second and may lag by minutes. A new point must not replace earlier ones: the newest point
alone would advance as fast as the spare does, and the spare would never compare any output.
"""

from __future__ import annotations

from collections import deque

from hotspare.bus.contract import Progress

POINTS_MAX = 256
"""The maximum of points: about 25 s of lag at ten reads a second. A longer lag is compared at fewer points."""


class ProgressPoints:
    """The points of one stream, in the order of rising sequence. Not thread-safe."""

    def __init__(self, points_max: int = POINTS_MAX) -> None:
        self._points_max = points_max
        self._points: deque[Progress] = deque()

    def __len__(self) -> int:
        return len(self._points)

    def add(self, point: Progress) -> None:
        """Appends the newest point; ignores one that equals the last. Beyond the maximum, removes the inner point whose
        neighbours are closest to each other."""
        if self._points and point == self._points[-1]:
            return
        self._points.append(point)
        if len(self._points) > max(2, self._points_max):
            del self._points[self._closest()]

    def pop_through(self, sequence: int) -> list[Progress]:
        """Removes and returns the points up to and including `sequence`, oldest first."""
        taken = []
        while self._points and self._points[0].sequence <= sequence:
            taken.append(self._points.popleft())
        return taken

    def clear(self) -> None:
        self._points.clear()

    def _closest(self) -> int:
        """Returns the index of the inner point whose two neighbours have the smallest difference of sequences."""
        sequences = [point.sequence for point in self._points]
        return min(range(1, len(sequences) - 1), key=lambda i: sequences[i + 1] - sequences[i - 1])
