"""Claims: the pages that writers of a snapshot folder rely on before a manifest names them, and those that readers still need.

    <group>/claims/<random>    names of pages, a line each; locked by its writer from its first moment to its last

A writer claims a page before it checks whether the page exists, and releases it when the manifest is written. A collector hides the
pages that neither manifests nor claims name, reads both again, deletes what still has no reference, and restores the rest. So
either the writer finds the page hidden, and writes it again, or the collector finds it claimed, and restores it. A reader of a
large snapshot claims pages as a writer does, until all are read. Neither ever waits for the other: a frozen writer keeps its own
pages and no others, however long, and goes on when it wakes up.

The lock of a claim ends with its process, also by `kill -9`: a claim that another process can lock is orphaned. If a lock can be
lost otherwise, as some networks do with a machine that was offline, the collector deletes the claim with it, and the writer finds
it missing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path

from hotspare.base.errors import StoreError


class Claim:
    """The claim of one writer or reader; `name` is part of the names of its temporary files."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path, self._handle = path, handle

    @classmethod
    def for_reader(cls, folder: Path, names: Iterable[str]) -> Claim:
        """Returns a claim on pages to be read later, in the folder of claims, released when the object is freed. Raises OSError if
        the claim cannot be written."""
        handle, path = _open_claim(folder)
        claim = cls(path, handle)
        weakref.finalize(claim, _release_claim, path, handle)
        claim.add(names)
        return claim

    @property
    def name(self) -> str:
        return self._path.name

    def add(self, names: Iterable[str]) -> None:
        """Claims pages by name. When it returns, the claim is on the disk and visible to other machines."""
        lines = "".join(f"{name}\n" for name in names).encode()
        while lines:
            lines = lines[os.write(self._handle, lines) :]
        os.fsync(self._handle)

    @property
    def is_still_claimed(self) -> bool:
        """Whether the claim is still valid: no collector has deleted it as orphaned."""
        return _is_at(self._handle, self._path)


@contextlib.contextmanager
def claiming(folder: Path) -> Iterator[Claim]:
    """Context manager: yields a new claim in the folder of claims, which is released at the end of the block."""
    handle, path = _open_claim(folder)
    try:
        yield Claim(path, handle)
    finally:
        _release_claim(path, handle)


def _release_claim(path: Path, handle: int) -> None:
    with contextlib.suppress(OSError):  # an unlocked claim counts as orphaned anyway
        path.unlink(missing_ok=True)
    os.close(handle)


def _open_claim(folder: Path) -> tuple[int, Path]:
    while True:
        path = folder / uuid.uuid4().hex
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_at(handle, path):
            return handle, path
        os.close(handle)  # a collector deleted the file before it was locked


def _is_at(handle: int, path: Path) -> bool:
    try:
        there, ours = path.stat(), os.fstat(handle)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def claimed_pages_by_claim(folder: Path) -> dict[str, set[str]]:
    """Returns the claimed pages by name of the claim, after deleting orphaned claims."""
    found: dict[str, set[str]] = {}
    for path in list(folder.iterdir()) if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            names = _claimed(path)
            if names is not None:
                found[path.name] = names
    return found


def _claimed(path: Path) -> set[str] | None:
    """Returns the claimed pages; None for an orphaned claim, after deleting it."""
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return set(path.read_text("ascii").split())
        path.unlink(missing_ok=True)
        return None
    finally:
        os.close(handle)


def claim_lost(name: str) -> StoreError:
    return StoreError(
        f"snapshot {name} cannot be written: its pages may have been collected meanwhile",
        detail="this process was suspended so long that its lock counted as orphaned",
    )
