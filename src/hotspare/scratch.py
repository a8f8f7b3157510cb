"""Scratch folders that go with their process, also when it is killed: whoever makes the next one clears away the abandoned ones.

A folder is called `hotspare-<purpose>-<process id>-<start in milliseconds>-<random>`; id and start name a process for good.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from hotspare.processes import is_process_gone, process_start

_NAME = re.compile(r"hotspare-[a-z]+-(?P<id>\d+)-(?P<start>\d+)-\w+")


def make_scratch(purpose: str, root: Path | None = None) -> Path:
    """A fresh folder for this process below `root` (None: the system's for temporary files). `purpose`: a lower-case word.

    Folders there whose process has ended are removed first, whatever their purpose.
    """
    place = root or Path(tempfile.gettempdir())
    remove_abandoned(place)
    own = os.getpid()
    return Path(tempfile.mkdtemp(prefix=f"hotspare-{purpose}-{own}-{process_start(own)}-", dir=place))


def remove_abandoned(root: Path) -> None:
    """Best effort: what cannot be removed stays for the next one."""
    for folder in root.glob("hotspare-*"):
        name = _NAME.fullmatch(folder.name)
        if (
            name is not None
            and folder.is_dir()
            and folder.stat().st_uid == os.getuid()
            and is_process_gone(int(name["id"]), int(name["start"]))
        ):
            shutil.rmtree(folder, ignore_errors=True)
