"""A disk that a test can fill: one in memory, whose size can be changed."""

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
    """A mounted disk. `folder` is its mount point, which any user may read."""

    folder: Path

    def resize(self, size_bytes: int) -> None:
        """Changes the size, not below the space used."""
        subprocess.run(["mount", "-o", f"remount,size={size_bytes}", self.folder], check=True)

    def leave(self, room_bytes: int) -> None:
        """Resizes it so that `room_bytes` more can be written."""
        self.resize(shutil.disk_usage(self.folder).used + room_bytes)


@contextmanager
def mounted(size_bytes: int) -> Iterator[SmallDisk]:
    """Mounts a disk; skips the test if that is impossible."""
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
