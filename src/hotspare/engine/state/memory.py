"""Arrays that grow without being copied: address space is reserved once, and memory comes where it is written to first.

The operating system gives memory page by page at the first write, so an array may be declared far larger than the machine's memory.
Small arrays are ordinary ones: reserving costs system calls, and address space is not endless. Pages of two megabytes are not asked
for: random access would be a fifth faster, but the first write to one takes more than ten milliseconds.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")

RESERVED_BYTES = 1 << 37
"""Of address space for one array that may grow."""
_NO_RESERVE = 0x4000
"""MAP_NORESERVE of Linux, which the module has from Python 3.13 on: the kernel does not count what is not written to."""
SMALL_BYTES = 8 << 20
"""Up to so many, growing is copying: a few milliseconds."""


def grown(array: npt.NDArray[Any], used: int, length: int) -> npt.NDArray[Any]:
    """A copy of the first `used` entries, `length` entries long, with zeros behind them. Whoever has the old one keeps it."""
    larger: npt.NDArray[Any] = np.zeros((length, *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger


def longer(array: npt.NDArray[Any], used: int, length: int) -> npt.NDArray[Any]:
    """As `grown`; a large one takes memory only where it is written to. OSError where the system does not give so much address
    space."""
    size = length * _entry_bytes(array)
    if size <= SMALL_BYTES:
        return grown(array, used, length)
    larger: npt.NDArray[Any] = Space(array.dtype, size // array.itemsize).array
    larger = larger.reshape((length, *array.shape[1:]))
    larger[:used] = array[:used]
    return larger


def with_room(array: npt.NDArray[Any], used: int, length: int) -> npt.NDArray[Any]:
    """The array itself where it has so many entries, or a copy with room for more: once it is large, for all that can come."""
    if length <= len(array):
        return array
    length = max(length, 2 * len(array))
    if length * _entry_bytes(array) <= SMALL_BYTES:
        return grown(array, used, length)
    return as_much(RESERVED_BYTES // _entry_bytes(array), length, lambda most: longer(array, used, most))


def _entry_bytes(array: npt.NDArray[Any]) -> int:
    return array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))


class Space:
    """One array of reserved address space, zeros at first. OSError where the system does not give so much."""

    def __init__(self, dtype: np.dtype[Any], length: int) -> None:
        size = length * dtype.itemsize
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        self.array: npt.NDArray[Any] = np.frombuffer(self._memory, dtype)

    def give_back(self, begin: int, end: int) -> None:
        """Give the memory of entries from `begin` to before `end` back. They read as zeros then, and so do those before `begin` in
        the same page of the system's memory; those in the same one as `end` keep it."""
        first, last = (at * self.array.itemsize // mmap.PAGESIZE * mmap.PAGESIZE for at in (begin, end))
        if last > first:
            self._memory.madvise(mmap.MADV_DONTNEED, first, last - first)


def as_much(most: int, least: int, make: Callable[[int], T]) -> T:
    """What `make` makes of the greatest length for which the system gives address space: `most`, or half, and so on, but not less
    than `least`. OSError where it does not even give that."""
    length = max(most, least)
    while True:
        try:
            return make(length)
        except OSError:
            if length <= least:
                raise
            length = max(length // 2, least)
