"""Whether the machine code of all kernels is on disk, so that an engine need not load all of it to find out.

It is noted beside the machine code, under a name that is made of all that numba finds it by: the texts of the kernels, the versions
of numba and Python, the processor. So a note counts for nobody who would not find the code.
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
    """Returns the folder where numba keeps the machine code of `table.loops` for this place of their source; it may not exist."""
    return hashing.xxh64.cache_path


def is_complete() -> bool:
    """Whether all of it is on disk, as somebody noted."""
    return _note().is_file()


def note_if_complete() -> None:
    """To be called when every kernel was compiled or loaded: all of it is on disk where none had to be compiled. Best effort: where
    nothing can be written, nobody knows."""
    if not compiled_here():
        with suppress(OSError):
            _note().touch()


def compiled_here() -> list[str]:
    """The kernels that this process did not find on disk."""
    return sorted(name for name, each in kernels.KERNELS.items() if each.cache_misses)


def _note() -> Path:
    found_by = (kernels.TEXT_HASH, numba.__version__, sys.version, cpu_target.target_context.codegen().magic_tuple())
    return folder() / f"complete-{hashlib.sha256(repr(found_by).encode()).hexdigest()[:16]}"
