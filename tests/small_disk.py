"""A disk that is full when a test says so: one in memory, of a size that changes."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class SmallDisk:
    """`folder` is where it is; any user may look for what is in it."""

    folder: Path

    def resize(self, size_bytes: int) -> None:
        """Not to less than what is on it."""
        subprocess.run(["mount", "-o", f"remount,size={size_bytes}", self.folder], check=True)

    def leave(self, room_bytes: int) -> None:
        """From now on so much can be written."""
        self.resize(shutil.disk_usage(self.folder).used + room_bytes)


@contextmanager
def mounted(size_bytes: int) -> Iterator[SmallDisk]:
    """The test is skipped where none can be mounted."""
    folder = Path(tempfile.mkdtemp(prefix="hotspare-disk-"))
    try:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=0755", "tmpfs", folder]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no small disk can be mounted: {done.stderr.strip()}")
        try:
            yield SmallDisk(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)
    finally:
        folder.rmdir()
