"""Records, per window type, that the machine code of its kernels is on disk: an engine compiles before it starts only if a record
is missing.

A record is an empty file next to the machine code. Its name has a hash of everything by which the code is found: the texts of the
kernels, the versions of numba and Python, the architecture. A changed comment changes the name, too: then the records are missing,
and loading the code writes them again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from sysconfig import get_platform

from hotspare.rows import compile as kernels
from hotspare.rows import machine_code

_CODE_SUFFIX = re.compile(r"(?:nbi|\d+\.nbc)$")


def incomplete(types: Iterable[str]) -> list[str]:
    """Returns those of the window types `types` that have no record, in order."""
    return [each for each in types if not any((folder / _record(each)).is_file() for folder in machine_code.folders())]


def record_complete(types: Iterable[str]) -> None:
    """Records that all machine code of these window types is on disk. Called after a process ran the examples of these types.
    Ignores OSError."""
    with suppress(OSError):
        for each in types:
            (machine_code.cache_folder() / _record(each)).touch()


def compiled_here() -> list[str]:
    """Returns the names of the kernels whose machine code this process did not find on disk."""
    return sorted(name for name, each in kernels.KERNELS.items() if each.cache_misses)


def files() -> Iterator[Path]:
    """Yields the files of the machine code of all kernels, and of the records. If two of `machine_code.folders()` have a file of
    one name, yields that of the first folder."""
    kernels.import_all()
    names = {each.index_name.removesuffix("nbi") for each in kernels.KERNELS.values()}
    found: set[str] = set()
    for folder in machine_code.folders():
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            base = _CODE_SUFFIX.sub("", path.name)
            if path.name not in found and (base in names or path.name.endswith(_found_by())):
                found.add(path.name)
                yield path


def on_disk() -> int:
    """Returns the count of imported kernels that have machine code on disk."""
    present = {path.name for folder in machine_code.folders() if folder.is_dir() for path in folder.glob("*.nbi")}
    return sum(each.index_name in present for each in kernels.KERNELS.values())


def _record(type_name: str) -> str:
    return f"complete-{type_name}-{_found_by()}"


@cache
def _found_by() -> str:
    texts = hashlib.sha256(MAGIC_NUMBER + f"{version('numba')} {get_platform()}".encode())
    for path in (Path(machine_code.__file__), Path(kernels.__file__), *kernels.loops()):
        texts.update(path.read_bytes())
    return texts.hexdigest()[:16]
