"""Records, per window type, that the machine code of its kernels is on disk: only otherwise an engine compiles before it starts.

A record is an empty file next to the machine code. Its name hashes all by which the code is found: the texts of the kernels, the
versions of numba and Python, the architecture. After a change of a comment the records are missing, and loading the code writes
them again.
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
    """Returns the window types without a record, in order."""
    return [each for each in types if not any((folder / _record(each)).is_file() for folder in machine_code.folders())]


def record_complete(types: Iterable[str]) -> None:
    """Records that all code of these types is on disk. To be called after a process ran their examples. Ignores errors of
    writing."""
    with suppress(OSError):
        for each in types:
            (machine_code.cache_folder() / _record(each)).touch()


def compiled_here() -> list[str]:
    """Returns the kernels that this process did not find on disk."""
    return sorted(name for name, each in kernels.KERNELS.items() if each.cache_misses)


def files() -> Iterator[Path]:
    """Yields the machine code of all kernels, and the records. Both folders may have a file of one name: the first counts."""
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
