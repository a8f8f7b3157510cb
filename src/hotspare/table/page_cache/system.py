"""The few system calls that a page file needs and Python lacks: mapping at a given address, advice for many ranges."""

from __future__ import annotations

import ctypes
import mmap
import os
from functools import cache

import numpy as np
import numpy.typing as npt

from hotspare.rows.runs import runs

PAGE = mmap.PAGESIZE
_FIXED, _NO_RESERVE = 0x10, 0x4000
_DONT_NEED, _WILL_NEED, _PAGE_OUT, _RANDOM = 4, 3, 21, 1
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_RANGES_MAX = 1024
_TMPFS = 0x01021994
_STATFS_BYTES = 256

Int64s = npt.NDArray[np.int64]


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    libc.mmap.restype, libc.mmap.argtypes = pointer, [pointer, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.madvise.argtypes = [pointer, size, ctypes.c_int]
    libc.mincore.argtypes = [pointer, size, pointer]
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    libc.fstatfs.argtypes = [ctypes.c_int, pointer]
    return libc


def _failed() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def map_file(address: int, size: int, file: int, offset: int) -> None:
    """Maps the file, read-only, at these addresses, which are mapped already. Raises OSError."""
    _map(address, size, mmap.PROT_READ, mmap.MAP_PRIVATE | _NO_RESERVE, file, offset)
    _libc().madvise(address, size, _RANDOM)


def map_nothing(address: int, size: int) -> None:
    """Maps writable zeros, which take no memory yet, at these addresses, which are mapped already. Raises OSError."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    _map(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)


def _map(address: int, size: int, protection: int, flags: int, file: int, offset: int) -> None:
    if _libc().mmap(address, size, protection, flags | _FIXED, file, offset) != address:
        raise _failed()


def punch(file: int, offset: int, size: int) -> None:
    """Frees the disk room of a part of a file; best effort."""
    _libc().fallocate(file, _PUNCH_HOLE | _KEEP_SIZE, offset, size)


def fetch(base: int, pages: Int64s) -> None:
    """Starts reading these system pages, ascending numbers counted from address `base`; best effort."""
    _advise(base, pages, _WILL_NEED)


def page_out(base: int, pages: Int64s) -> None:
    """Drops these pages of a mapped file, numbered as in `fetch`, from memory; best effort."""
    _advise(base, pages, _PAGE_OUT)


def _advise(base: int, pages: Int64s, advice: int) -> None:
    ranges = runs(pages)
    vectors = np.empty((len(ranges), 2), np.int64)
    vectors[:, 0] = base + ranges[:, 0] * PAGE
    vectors[:, 1] = (ranges[:, 1] - ranges[:, 0]) * PAGE
    at = 0
    if (process := _this_process()) >= 0:
        while at < len(vectors):
            some = vectors[at : at + _RANGES_MAX]
            if _process_madvise(process, some, advice) < 0:
                break
            at += len(some)
    for address, size in vectors[at:].tolist():
        _libc().madvise(address, size, advice)


def _process_madvise(process: int, vectors: Int64s, advice: int) -> int:
    call = getattr(_libc(), "process_madvise", None)
    if call is None:
        return -1
    call.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint]
    call.restype = ctypes.c_ssize_t
    return int(call(process, vectors.ctypes.data, len(vectors), advice, 0))


@cache
def _this_process() -> int:
    """Returns a handle of this process; -1 if the system has none."""
    try:
        return os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return -1


def in_memory(address: int, pages: int) -> npt.NDArray[np.bool_]:
    """Returns bool[pages]: whether each of the `pages` pages from `address` on is in memory; all False if the system cannot
    tell."""
    found = np.zeros(pages, np.uint8)
    if pages and _libc().mincore(address, pages * PAGE, found.ctypes.data) != 0:
        return np.zeros(pages, np.bool_)
    return (found & 1).view(np.bool_)


def is_in_memory_only(file: int) -> bool:
    """Whether the open file `file` is on a file system in memory (tmpfs)."""
    about = ctypes.create_string_buffer(_STATFS_BYTES)
    return _libc().fstatfs(file, about) == 0 and int.from_bytes(about.raw[:4], "little") == _TMPFS
