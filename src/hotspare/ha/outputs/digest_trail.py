"""Digests of outputs that a spare has let go of before they were known to be committed, so that they are compared all the same.

A stream of which outputs may be lost is not held, or not for long. Eight bytes an output are enough to notice that its outputs
differ from those committed, and to keep a snapshot of such a state from being confirmed (SPEC D14).
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

ROWS_MAX = 1 << 16
"""Beyond it the oldest are forgotten, and not compared."""


class DigestTrail:
    """Digests by sequence, rising. Not thread-safe."""

    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._rows = 0
        self._parts: deque[tuple[int, NDArray[np.uint64]]] = deque()

    def append(self, first: int, digests: NDArray[np.uint64]) -> None:
        """The digests of the outputs from `first` on, which follow those appended before."""
        skipped = max(0, len(digests) - self._rows_max)
        kept = digests[skipped:].copy()
        self._parts.append((first + skipped, kept))
        self._rows += len(kept)
        while self._rows > self._rows_max:
            self._shorten(self._rows - self._rows_max)

    def at(self, sequence: int) -> int | None:
        for first, digests in self._parts:
            if first <= sequence < first + len(digests):
                return int(digests[sequence - first])
        return None

    def forget_through(self, sequence: int) -> None:
        while self._parts and self._parts[0][0] <= sequence:
            self._shorten(sequence - self._parts[0][0] + 1)

    def _shorten(self, count: int) -> None:
        """Forget `count` of the oldest part, or all of it."""
        first, digests = self._parts.popleft()
        rest = digests[count:]
        self._rows -= len(digests) - len(rest)
        if len(rest):
            self._parts.appendleft((first + count, rest))
