"""Records that the machine code of all kernels is on disk, so that an engine need not load all of it to find out.

The record is a file next to the machine code. Its name hashes everything by which numba finds the code: the texts of the kernels,
the versions of numba and Python, the processor. So a process that would not find the code does not find the record either.
"""

from __future__ import annotations

import hashlib
import sys
from contextlib import suppress
from pathlib import Path

import numba
from numba.core.registry import cpu_target

from hotspare.rows import compile as kernels
from hotspare.table.loops import hashing


def folder() -> Path:
    """Returns the folder where numba keeps the machine code of `table.loops` for this location of the source; it may not exist."""
    return hashing.xxh64.cache_path


def is_complete() -> bool:
    """Whether a record exists that all of it is on disk."""
    return _record_file().is_file()


def record_if_complete() -> None:
    """Records that all of it is on disk, if this process compiled nothing. To be called after every kernel was compiled or loaded.
    Best effort: ignores errors of writing."""
    if not compiled_here():
        with suppress(OSError):
            _record_file().touch()


def compiled_here() -> list[str]:
    """Returns the kernels that this process did not find on disk."""
    return sorted(name for name, each in kernels.KERNELS.items() if each.cache_misses)


def _record_file() -> Path:
    found_by = (kernels.TEXT_HASH, numba.__version__, sys.version, cpu_target.target_context.codegen().magic_tuple())
    return folder() / f"complete-{hashlib.sha256(repr(found_by).encode()).hexdigest()[:16]}"
