"""Address space whose parts can be evicted: they are written to an unnamed file, and the file is mapped in their place.

So a kernel finds everything at its address, and the system loads the parts that the kernel reads, page by page. Evicted parts must
not be written until they are released: a faulty write ends the process and changes nothing. The file is written before it is
mapped, and grows by being written to: a full disk is an error here, never a signal. It is a cache that ends with the process.
"""

from __future__ import annotations

import errno
import mmap
import os
import uuid
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hotspare.base.errors import PageFileError, UsageError
from hotspare.rows.runs import runs
from hotspare.table.page_cache import system
from hotspare.table.page_cache.system import PAGE, Int64s

_NO_RESERVE = 0x4000
_TRUE_BYTES = 1 << 20
"""The size of the piece of the file that is mapped for entries that are all true."""


class PageFile:
    """An open, unnamed file in a folder, which no other process can open. Raises PageFileError if it cannot be created."""

    def __init__(self, folder: Path) -> None:
        try:
            self.number = _unnamed(folder)
        except OSError as error:
            raise _unusable(f"no page file can be created in folder {folder}", error) from error
        self._end = weakref.finalize(self, os.close, self.number)
        self._direct = _direct(self.number)
        if self._direct >= 0:
            self._end_direct = weakref.finalize(self, os.close, self._direct)

    def write(self, data: memoryview, offset: int) -> None:
        """Writes `data`, complete system pages, at `offset`, a multiple of their size. Written data is not cached in memory a
        second time. Raises PageFileError."""
        try:
            file = self._direct if self._direct >= 0 else self.number
            done = 0
            while done < len(data):
                done += os.pwrite(file, data[done:], offset + done)
            if self._direct < 0:
                os.fdatasync(self.number)
                os.posix_fadvise(self.number, offset, len(data), os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise _unusable("the page file cannot be written", error) from error


def _unusable(message: str, error: OSError) -> PageFileError:
    hint = "free space there, name another folder with --page-folder, or raise --memory"
    return PageFileError(message, detail=error.strerror or str(error), hint=hint)


def _unmapped(error: OSError) -> PageFileError:
    hint = "raise the mappings of a process (sysctl vm.max_map_count), or raise --memory"
    return PageFileError("the system cannot map more of the page file", detail=error.strerror or str(error), hint=hint)


def _unnamed(folder: Path) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
    path = folder / f".hotspare-pages-{uuid.uuid4().hex}"  # other threads, and other containers, have this process id, too
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    path.unlink()
    return number


def _direct(number: int) -> int:
    """Returns a second descriptor of the file, with O_DIRECT, so that written data is in memory only once; -1 if the file system
    has no O_DIRECT."""
    try:
        return os.open(f"/proc/self/fd/{number}", os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return -1


def _true_piece() -> mmap.mmap:
    """Returns `_TRUE_BYTES` bytes of value 1 (True), which begin at a system page, as O_DIRECT requires."""
    piece = mmap.mmap(-1, _TRUE_BYTES)
    piece[:] = b"\x01" * _TRUE_BYTES
    return piece


def check_folder(folder: Path) -> None:
    """Raises PageFileError if no page file can be created in the folder, UsageError if the folder is in memory."""
    file = PageFile(folder)
    if system.is_in_memory_only(file.number):
        hint = "name a folder on a disk with --page-folder"
        raise UsageError(f"folder {folder} is in memory: evicting pages to it frees none", hint=hint)


class PagedSpace:
    """An array of reserved address space, zeros at first, whose parts can be evicted. Raises OSError if the system does not grant
    that much.

    `now`: the time that is recorded for pages when they are prefetched. Entries are elements of the array; evicted parts are whole
    system pages.
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any], length: int) -> None:
        self.now = 1
        self.away = 0
        """The count of evicted system pages."""
        self.fetched = 0
        """The count of pages of the file that are in memory, as far as is known."""
        self._size = length * dtype.itemsize // PAGE * PAGE
        self._memory = mmap.mmap(-1, self._size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        self.array: npt.NDArray[Any] = np.frombuffer(self._memory, dtype)
        self._base, self._item = self.array.ctypes.data, dtype.itemsize
        self._file = PageFile(folder)
        self._is_filed = np.zeros(self._size // PAGE, np.bool_)
        self._is_mapped = np.zeros(self._size // PAGE, np.bool_)
        """`_is_filed`: pages whose content is in the file. `_is_mapped`: these pages, and pages that are mapped to its all-true
        piece."""
        self._is_emptied = np.zeros(self._size // PAGE, np.bool_)
        """Pages that are mapped to places of the file whose room was freed."""
        self._has_true = False
        self._used = np.zeros(self._size // PAGE, np.int64)
        """The time at which each page of the file was last prefetched; 0 while it is not in memory."""
        self._high = 0
        self._looked = 0

    def evict_range(self, begin: int, end: int) -> None:
        """Evicts entries. They can still be read, and must not be written until `release_range`. Raises PageFileError, without any
        change."""
        first, last = begin * self._item, end * self._item
        with memoryview(self._memory) as memory, memory[first:last] as part:
            self._file.write(part, first)
        try:
            system.map_file(self._base + first, last - first, self._file.number, first)
        except OSError as error:
            raise _unmapped(error) from error
        self._is_filed[first // PAGE : last // PAGE] = True
        self._record_evicted(first, last)

    def _record_evicted(self, first: int, last: int) -> None:
        self._is_mapped[first // PAGE : last // PAGE] = True
        self.away += (last - first) // PAGE
        self._high = max(self._high, last // PAGE)

    def evict_if_all_true(self, begin: int, end: int) -> bool:
        """Evicts one-byte entries if all are true: they share one piece of the file, in memory once. Returns whether they were
        evicted. Raises PageFileError."""
        first, last = begin * self._item, end * self._item
        if not self.array[begin:end].all():
            return False
        if not self._has_true:
            self._file.write(memoryview(_true_piece()), self._size)
            self._has_true = True
        try:
            for at in range(first, last, _TRUE_BYTES):
                system.map_file(self._base + at, min(_TRUE_BYTES, last - at), self._file.number, self._size)
        except OSError as error:
            raise _unmapped(error) from error
        self._record_evicted(first, last)
        return True

    def release_range(self, begin: int, end: int) -> None:
        """Releases the memory and the file room of entries from `begin` to before `end`, which then read as zeros. So do those
        before `begin` in the same system page; those in the page of `end` keep their memory."""
        first, last = begin * self._item // PAGE, end * self._item // PAGE
        if last <= first:
            return
        if not (self._is_mapped[first:last] | self._is_emptied[first:last]).any():
            self._memory.madvise(mmap.MADV_DONTNEED, first * PAGE, (last - first) * PAGE)
            return
        try:
            system.map_nothing(self._base + first * PAGE, (last - first) * PAGE)
        except OSError as error:
            raise _unmapped(error) from error
        self._free_file_room(first, last)
        self._is_emptied[first:last] = False

    def _free_file_room(self, first: int, last: int) -> None:
        system.punch(self._file.number, first * PAGE, (last - first) * PAGE)
        self.fetched -= int(np.count_nonzero(self._used[first:last]))
        self._used[first:last] = 0
        self.away -= int(np.count_nonzero(self._is_mapped[first:last]))
        self._is_mapped[first:last] = False
        self._is_filed[first:last] = False

    def discard_evicted(self, begin: int, end: int) -> None:
        """Frees the file room of evicted entries that are not needed; these are whole system pages. They stay mapped, so that the
        system keeps few mappings, and must not be written until `release_range`."""
        first, last = begin * self._item // PAGE, end * self._item // PAGE
        self._is_emptied[first:last] |= self._is_mapped[first:last]
        self._free_file_room(first, last)

    def prefetch_each(self, begins: Int64s, entries: int) -> None:
        """Prefetches, together, the evicted ones of the `entries` entries from each of `begins` on."""
        first, last = begins * self._item // PAGE, ((begins + entries) * self._item - 1) // PAGE
        pages = [first, last, *(first + i for i in range(1, entries * self._item // PAGE))]
        self._prefetch(np.unique(np.concatenate(pages)))

    def prefetch_one_range(self, begin: int, end: int) -> None:
        """Prefetches the evicted entries from `begin` to before `end`."""
        self._prefetch(np.arange(begin * self._item // PAGE, (end * self._item - 1) // PAGE + 1))

    def prefetch_many_ranges(self, begins: Int64s, ends: Int64s) -> None:
        """Prefetches the evicted entries from `begins[i]` to before `ends[i]`, for each i; no range is empty."""
        self._prefetch(self._pages_of(begins, ends))

    def read_many_ranges_ahead(self, begins: Int64s, ends: Int64s) -> None:
        """Prefetches entries that are read once, as `prefetch_many_ranges` does; callable from any thread."""
        pages = self._pages_of(begins, ends)
        if len(pages := pages[self._is_filed[pages]]):
            system.fetch(self._base, pages)

    def _pages_of(self, begins: Int64s, ends: Int64s) -> Int64s:
        """Returns the system pages of these ranges, ascending."""
        first = begins * self._item // PAGE
        counts = (ends * self._item - 1) // PAGE - first + 1
        return np.unique(np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum())))

    def read_ahead(self, begin: int, end: int) -> None:
        """Prefetches the entries from `begin` to before `end`, which are read once; callable from any thread."""
        first, last = begin * self._item // PAGE, -(-end * self._item // PAGE)
        if self._is_filed[first:last].any():
            system.fetch(self._base, np.arange(first, last))

    def _prefetch(self, pages: Int64s) -> None:
        pages = pages[self._is_filed[pages]]
        absent = pages[self._used[pages] == 0]
        self._used[pages] = self.now
        self.fetched += len(absent)
        if len(absent):
            system.fetch(self._base, absent)

    def uses(self) -> Int64s:
        """Returns, for the evicted pages that are in memory, the value of `now` when each was last prefetched, or found in memory
        without that; in no order.
        """
        used = self._used[: self._high]
        return used[used > 0]

    def drop_prefetched(self, until: int) -> None:
        """Drops from memory the evicted pages that were last prefetched at time `until` or earlier (times as in `uses`)."""
        used = self._used[: self._high]
        pages = np.flatnonzero((used > 0) & (used <= until))
        system.page_out(self._base, pages)
        self._used[pages] = 0
        self.fetched -= len(pages)

    def poll_in_memory(self, pages: int) -> None:
        """Updates which of the next `pages` evicted pages are in memory: kernels may have read them without a prefetch, or the
        system may have dropped them."""
        begin = self._looked if self._looked < self._high else 0
        self._looked = end = min(begin + pages, self._high)
        is_here = system.in_memory(self._base + begin * PAGE, end - begin) & self._is_filed[begin:end]
        used = self._used[begin:end]
        for first, last in (runs(np.flatnonzero(is_here & (used == 0))) + begin).tolist():
            os.posix_fadvise(self._file.number, first * PAGE, (last - first) * PAGE, os.POSIX_FADV_DONTNEED)  # unless it is mapped
        self.fetched += int(np.count_nonzero(is_here)) - int(np.count_nonzero(used))
        used[is_here & (used == 0)] = self.now
        used[~is_here] = 0
