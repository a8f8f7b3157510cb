"""Runs of consecutive numbers, so that work on pages is done once per run of adjacent pages."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


def runs(numbers: Int64s) -> Int64s:
    """Returns the runs of consecutive numbers in ascending `numbers`, int64[., 2]: each run's first number, and its last plus 1."""
    if not len(numbers):
        return np.empty((0, 2), np.int64)
    ends = np.flatnonzero(np.diff(numbers) != 1)
    begin, end = np.concatenate(([0], ends + 1)), np.append(ends, len(numbers) - 1)
    return np.stack((numbers[begin], numbers[end] + 1), axis=1)
