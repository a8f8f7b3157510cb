"""Arrays that grow without being copied: address space is reserved once, and memory comes where it is written to first.

The operating system gives memory page by page at the first write, so an array may be declared far larger than the machine's memory.
Small arrays are ordinary ones: reserving costs system calls, and address space is not endless. Pages of two megabytes are not asked
for: random access would be a fifth faster, but the first write to one takes more than ten milliseconds.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

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
    entry_bytes = array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    size = length * entry_bytes
    if size <= SMALL_BYTES:
        return grown(array, used, length)
    space = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    larger: npt.NDArray[Any] = np.frombuffer(space, array.dtype).reshape((length, *array.shape[1:]))
    larger[:used] = array[:used]
    return larger
