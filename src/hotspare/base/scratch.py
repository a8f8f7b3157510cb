"""Scratch folders that go with their process, also when it is killed: whoever makes the next one clears away the abandoned ones.

A folder is called `hotspare-<purpose>-<process id>-<random>`. Its process keeps the file `lock` in it locked for as long as it
lives, and the system ends the lock with the process. That holds between containers that share the place of such folders, where ids
of processes say nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import threading
from pathlib import Path

_NAME = re.compile(r"hotspare-[a-z]+-\d+-\w+")
_LOCK = "lock"
_guard = threading.Lock()
_held: dict[Path, int] = {}
"""The locks of this process's folders."""


def make_scratch(purpose: str, root: Path | None = None) -> Path:
    """A fresh folder for this process below `root` (None: the system's for temporary files). `purpose`: a lower-case word.

    Folders there whose process has ended are removed first, whatever their purpose.
    """
    place = root or Path(tempfile.gettempdir())
    remove_abandoned(place)
    made = Path(tempfile.mkdtemp(prefix=f".hotspare-{purpose}-{os.getpid()}-", dir=place))
    handle = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    folder = made.rename(made.with_name(made.name.removeprefix(".")))  # from now on others look at it
    with _guard:
        for gone in [each for each in _held if not each.exists()]:
            os.close(_held.pop(gone))
        _held[folder] = handle
    return folder


def remove_abandoned(root: Path) -> None:
    """Best effort: what cannot be removed stays for the next one."""
    for folder in root.glob("hotspare-*"):
        with contextlib.suppress(OSError):
            if _NAME.fullmatch(folder.name) and folder.stat().st_uid == os.getuid():
                _remove_unless_held(folder)


def _remove_unless_held(folder: Path) -> None:
    """OSError where it is held, or is none of these folders."""
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
