"""Arrays that grow without being copied: address space is reserved once, and memory is allocated at the first write.

The operating system allocates page by page at the first write, so an array may be far larger than the machine's memory. Small
arrays are ordinary ones: reserving costs system calls, and address space is limited. Huge pages (2 MiB) are not requested: random
access would be a fifth faster, but the first write to one takes more than 10 ms.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from hotspare.rows import tuning

T = TypeVar("T")

_NO_RESERVE = 0x4000
"""MAP_NORESERVE of Linux, which the module `mmap` has from Python 3.13 on: the kernel does not count unwritten memory."""
_ENDLESS = 1 << 62
"""More bytes than any array has."""


def grown(array: npt.NDArray[Any], used: int, length: int) -> npt.NDArray[Any]:
    """Returns a copy of the first `used` entries, `length` entries long and padded with zeros. The old array stays valid."""
    larger: npt.NDArray[Any] = np.zeros((length, *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger


def longer(array: npt.NDArray[Any], used: int, length: int) -> npt.NDArray[Any]:
    """Returns the same as `grown`; a large array takes memory only as it is written. Raises OSError if the system lacks the address
    space."""
    size = length * entry_bytes(array)
    if size <= tuning.current().small_bytes:
        return grown(array, used, length)
    larger: npt.NDArray[Any] = Space(array.dtype, size // array.itemsize).array
    larger = larger.reshape((length, *array.shape[1:]))
    larger[:used] = array[:used]
    return larger


def with_room(array: npt.NDArray[Any], used: int, length: int) -> npt.NDArray[Any]:
    """Returns the array itself if it has at least `length` entries, else a longer copy of its first `used` entries. A large copy
    reserves the address space of the maximum.
    """
    if length <= len(array):
        return array
    length = max(length, 2 * len(array))
    if length * entry_bytes(array) <= tuning.current().small_bytes:
        return grown(array, used, length)
    return largest_granted(tuning.current().reserved_bytes // entry_bytes(array), length, lambda most: longer(array, used, most))


def entry_bytes(array: npt.NDArray[Any]) -> int:
    """Returns the bytes of one entry of the first dimension."""
    return array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))


class EvictableSpace(Protocol):
    """A `Space` whose parts can be evicted. Entries are the elements of the flat array."""

    @property
    def array(self) -> npt.NDArray[Any]: ...

    def release_range(self, begin: int, end: int) -> None:
        """Releases memory as `Space.release_range` does. Evicted entries among these may be written again."""

    def discard_evicted(self, begin: int, end: int) -> None:
        """Frees the room in the page file of evicted entries that are not needed. They must not be written until
        `release_range`."""

    def evict_range(self, begin: int, end: int) -> None:
        """Evicts entries, whole system pages. They can still be read, and must not be written until `release_range`. Raises
        PageFileError."""

    def evict_if_all_true(self, begin: int, end: int) -> bool:
        """Evicts entries as `evict_range` does if all are true. Returns whether they were evicted. All such entries share one copy
        in memory, so they are never fetched."""

    def prefetch_each(self, begins: npt.NDArray[np.int64], entries: int) -> None:
        """Prefetches `entries` entries from each of `begins` on."""

    def prefetch_one_range(self, begin: int, end: int) -> None:
        """Prefetches the entries from `begin` to before `end`."""

    def prefetch_many_ranges(self, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        """Prefetches the entries from `begins[i]` to before `ends[i]`, for each i; no range is empty."""

    def read_ahead(self, begin: int, end: int) -> None:
        """Prefetches entries that a snapshot reads once, as `prefetch_one_range` does; callable from any thread."""

    def read_many_ranges_ahead(self, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        """Prefetches entries that a snapshot reads once, as `prefetch_many_ranges` does; callable from any thread."""


class Tenant(Protocol):
    """Rows whose pages may be evicted; called between steps only."""

    @property
    def pinned_bytes(self) -> int:
        """Bytes that can never be evicted."""

    @property
    def evictable_bytes(self) -> int:
        """Bytes that may be evicted and have not been."""

    def date_writes(self, now: int) -> None:
        """Records `now` as the time of everything written since the last call."""

    def coldest(self) -> tuple[int, int] | None:
        """Returns the page that is evicted next as (0, or 1 if the page is needed more; the time at which it was written). Returns
        None if no page can be evicted."""

    def evict_coldest(self, size: int) -> int:
        """Evicts the page of `coldest`, and the next ones that are needed as little, up to about `size` bytes. Returns the bytes
        evicted."""


class CountedMemory(Protocol):
    """Structures kept next to rows; called between steps only."""

    @property
    def pinned_bytes(self) -> int:
        """Bytes that can never be evicted, computed without touching pages."""


class WindowMemory(Protocol):
    """The memory in which the rows of one window live."""

    @property
    def small_bytes(self) -> int:
        """Rows of at most this size are never evicted."""

    def space(self, dtype: np.dtype[Any], length: int) -> EvictableSpace | None:
        """Returns address space whose parts can be evicted; None if this memory evicts nothing. Raises OSError if the system does
        not grant that much."""

    def register_tenant(self, tenant: Tenant) -> None:
        """Registers rows whose cold pages may be evicted, as long as the tenant lives."""

    def register_counted(self, what: CountedMemory) -> None:
        """Registers a structure whose bytes count as long as it lives: the more bytes, the earlier rows are evicted."""

    def evict_during_restore(self) -> None:
        """Evicts loaded rows if memory is short; called during a restore, between two pages. Raises PageFileError."""

    @property
    def loadable_bytes(self) -> int:
        """Bytes that may be loaded before something must be evicted."""


class PageCache(Protocol):
    """The page cache (`hotspare.table.page_cache`), which decides what is evicted. No output depends on it."""

    def window_memory(self, rank: int, window: str = "") -> WindowMemory:
        """Returns the memory for the rows of one window; rows of windows with lower rank are evicted first."""

    def evict_between_steps(self) -> None:
        """Evicts pages between two steps, if needed. Raises PageFileError."""

    def counts(self) -> Mapping[str, int]:
        """Returns bytes by kind, for display; empty without a budget."""

    def counts_by_window(self) -> Mapping[str, Mapping[str, int]]:
        """Returns bytes by kind as `counts`, for each window with evictable memory."""


class _PinnedMemory:
    """Memory from which nothing is evicted."""

    small_bytes = _ENDLESS

    def space(self, dtype: np.dtype[Any], length: int) -> EvictableSpace | None:
        return None

    def register_tenant(self, tenant: Tenant) -> None:
        pass

    def register_counted(self, what: CountedMemory) -> None:
        pass

    def evict_during_restore(self) -> None:
        pass

    @property
    def loadable_bytes(self) -> int:
        return _ENDLESS

    def __deepcopy__(self, memo: object) -> _PinnedMemory:
        return self


class _NoBudget:
    def window_memory(self, rank: int, window: str = "") -> WindowMemory:
        return PINNED_MEMORY

    def evict_between_steps(self) -> None:
        pass

    def counts(self) -> Mapping[str, int]:
        return {}

    def counts_by_window(self) -> Mapping[str, Mapping[str, int]]:
        return {}


PINNED_MEMORY: WindowMemory = _PinnedMemory()
NO_BUDGET: PageCache = _NoBudget()


class PinnedPart(ABC):
    """A part that is never evicted. Its bytes, and those of its copies, count in the memory of its window."""

    _home: WindowMemory = PINNED_MEMORY

    @property
    @abstractmethod
    def pinned_bytes(self) -> int:
        """Bytes of the part, which can never be evicted."""

    def set_window_memory(self, home: WindowMemory) -> None:
        self._home = home
        home.register_counted(self)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._home.register_counted(self)


class Space:
    """An array of reserved address space, zeros at first. Raises OSError if the system does not grant that much."""

    def __init__(self, dtype: np.dtype[Any], length: int) -> None:
        size = length * dtype.itemsize
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        self.array: npt.NDArray[Any] = np.frombuffer(self._memory, dtype)

    def release_range(self, begin: int, end: int) -> None:
        """Releases the memory of entries from `begin` to before `end`, which then read as zeros. So do those before `begin` in the
        same system page; those in the page of `end` keep their memory."""
        first, last = (at * self.array.itemsize // mmap.PAGESIZE * mmap.PAGESIZE for at in (begin, end))
        if last > first:
            self._memory.madvise(mmap.MADV_DONTNEED, first, last - first)


def largest_granted(most: int, least: int, make: Callable[[int], T]) -> T:
    """Returns `make(length)` for the greatest length that the system grants: `most`, half of it, and so on, but at least `least`.
    Raises OSError if it does not grant that."""
    length = max(most, least)
    while True:
        try:
            return make(length)
        except OSError:
            if length <= least:
                raise
            length = max(length // 2, least)
