"""Runs of neighbours in rising numbers: what is done for pages is done once for those that stand side by side."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


def runs(numbers: Int64s) -> Int64s:
    """int64[., 2]: the first of each run, and the one behind its last."""
    if not len(numbers):
        return np.empty((0, 2), np.int64)
    ends = np.flatnonzero(np.diff(numbers) != 1)
    begin, end = np.concatenate(([0], ends + 1)), np.append(ends, len(numbers) - 1)
    return np.stack((numbers[begin], numbers[end] + 1), axis=1)
