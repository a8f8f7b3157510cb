"""Scratch folders that are removed once their process has ended, even if killed: the next process that makes one removes abandoned
folders.

A folder is named `hotspare-<purpose>-<process id>-<random>`. Its process keeps the file `lock` in it locked, and the system
releases the lock when the process ends. This also works between containers that share the parent folder, where process ids mean
nothing.
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
"""Folder of this process -> descriptor of its lock."""


def make_scratch(purpose: str, root: Path | None = None) -> Path:
    """Makes a new folder for this process below `root` (None: the system's temporary folder). `purpose`: a lower-case word.

    First removes folders there whose process has ended, whatever their purpose.
    """
    place = root or Path(tempfile.gettempdir())
    remove_abandoned(place)
    made = Path(tempfile.mkdtemp(prefix=f".hotspare-{purpose}-{os.getpid()}-", dir=place))
    handle = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    folder = made.rename(made.with_name(made.name.removeprefix(".")))  # visible to other processes from here on
    with _guard:
        for gone in [each for each in _held if not each.exists()]:
            os.close(_held.pop(gone))
        _held[folder] = handle
    return folder


def remove_abandoned(root: Path) -> None:
    """Removes abandoned folders as far as possible; the next call tries the rest again."""
    for folder in root.glob("hotspare-*"):
        with contextlib.suppress(OSError):
            if _NAME.fullmatch(folder.name) and folder.stat().st_uid == os.getuid():
                _remove_unless_held(folder)


def _remove_unless_held(folder: Path) -> None:
    """Removes the folder. Raises OSError if the folder's process lives, or it is not a scratch folder."""
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
