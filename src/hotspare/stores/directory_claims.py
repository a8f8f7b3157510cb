"""Claims: which pages the writers of a snapshot folder count on before a manifest names them, and who reads them later.

    <group>/claims/<random>    names of pages, a line each; locked by its writer from its first moment to its last

A writer claims a page before it looks whether the page is there, and lets go when the manifest stands. A collector hides the pages
that neither manifests nor claims name, reads both once more, and deletes what still nobody names; the rest it puts back. So either
the writer finds the page hidden, and writes it anew, or the collector finds it claimed, and puts it back. Who reads pages of a
snapshot later claims them as a writer does, until all are read. Nobody ever waits for the other: a writer that is frozen keeps its
own pages and no others, however long, and goes on when it wakes up.

The lock of a claim ends with its process, also by `kill -9`: a claim that can be locked by somebody else is of nobody. Where a lock
can be lost without that, as some networks do with a machine that was away, the collector deletes the claim with it, and the writer
sees that it is gone.
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
    """Of one writer; `name` is in the names of its temporary files."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path, self._handle = path, handle

    @classmethod
    def lasting(cls, folder: Path, names: Iterable[str]) -> Claim:
        """A claim in the folder of claims on these pages, as long as it lives: they are read later. OSError."""
        handle, path = _opened(folder)
        claim = cls(path, handle)
        weakref.finalize(claim, _let_go, path, handle)
        claim.add(names)
        return claim

    @property
    def name(self) -> str:
        return self._path.name

    def add(self, names: Iterable[str]) -> None:
        """Claim pages by name; on the disk when it returns, for other machines to see."""
        lines = "".join(f"{name}\n" for name in names).encode()
        while lines:
            lines = lines[os.write(self._handle, lines) :]
        os.fsync(self._handle)

    @property
    def stands(self) -> bool:
        """Whether no collector took it for one of nobody."""
        return _is_at(self._handle, self._path)


@contextlib.contextmanager
def claiming(folder: Path) -> Iterator[Claim]:
    """A claim in the folder of claims, until the end of the block."""
    handle, path = _opened(folder)
    try:
        yield Claim(path, handle)
    finally:
        _let_go(path, handle)


def _let_go(path: Path, handle: int) -> None:
    with contextlib.suppress(OSError):  # a claim that nobody locks is of nobody
        path.unlink(missing_ok=True)
    os.close(handle)


def _opened(folder: Path) -> tuple[int, Path]:
    while True:
        path = folder / uuid.uuid4().hex
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if _is_at(handle, path):
            return handle, path
        os.close(handle)  # a collector was between us and the lock


def _is_at(handle: int, path: Path) -> bool:
    try:
        there, ours = path.stat(), os.fstat(handle)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def claims(folder: Path) -> dict[str, set[str]]:
    """Pages by claim. Claims of nobody are deleted."""
    found: dict[str, set[str]] = {}
    for path in list(folder.iterdir()) if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            names = _claimed(path)
            if names is not None:
                found[path.name] = names
    return found


def _claimed(path: Path) -> set[str] | None:
    """None of one that is of nobody, which is deleted."""
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


def lost(name: str) -> StoreError:
    return StoreError(
        f"snapshot {name} cannot be written: its pages may have been collected meanwhile",
        detail="this process stood still so long that its lock was taken for one of nobody",
    )
