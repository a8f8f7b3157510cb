"""Locks of files: a block that holds one, and the process that holds one, for the message of a long wait and to end a stopped
process that holds a lock.

Linux lists locks in /proc/locks. Reading that list neither locks nor opens the locked file, because a process that closes a
file loses all its locks on it. On other systems, and for processes of other machines or containers, nothing is known.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hotspare.base.processes import end_process, is_process_stopped, process_command, process_start

_LOCKS = Path("/proc/locks")
_FIELDS_MIN = 8


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Holds the lock of the file within the block, and creates the file. Waits while another process holds the lock. Raises OSError
    if the file cannot be opened for writing."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A process of this machine that holds a lock. `start` is the value of `processes.process_start`."""

    process_id: int
    start: int
    command: str
    is_stopped: bool

    def __str__(self) -> str:
        state = ", which is stopped" if self.is_stopped else ""
        return f"process {self.process_id} ({self.command}){state}"


def lock_holder(path: Path, byte: int | None = None) -> LockHolder | None:
    """Returns another process with a write lock on the file, or on byte `byte` of it; preferably a stopped one. None if no other
    process has one, or the system does not list locks."""
    found = [holder for holder in _holders(path, byte) if holder.process_id != os.getpid()]
    return min(found, key=lambda holder: (not holder.is_stopped, holder.process_id), default=None)


def end_if_stopped(process_id: int, start: int) -> bool:
    """Sends SIGKILL to the process with this id and start if it is stopped now. Returns whether the signal was sent."""
    return is_process_stopped(process_id) and end_process(process_id, start)


def _holders(path: Path, byte: int | None) -> Iterator[LockHolder]:
    try:
        file, lines = path.stat(), _LOCKS.read_text().splitlines()
    except OSError:
        return
    for process_id in sorted({found for line in lines if (found := _holder_in(line, file.st_ino, byte))}):
        if (start := process_start(process_id)) and _has_open(process_id, file):
            yield LockHolder(process_id, start, process_command(process_id), is_process_stopped(process_id))


def _holder_in(line: str, inode: int, byte: int | None) -> int:
    """Returns the process id of a line that lists a granted write lock on this inode and byte; else 0."""
    fields = line.split()
    if len(fields) < _FIELDS_MIN or fields[1] == "->" or fields[3] != "WRITE" or fields[5].rpartition(":")[2] != str(inode):
        return 0
    first, last = int(fields[6]), fields[7]
    covers = byte is None or (first <= byte and (last == "EOF" or byte <= int(last)))
    return max(0, int(fields[4])) if covers else 0


def _has_open(process_id: int, file: os.stat_result) -> bool:
    """Whether the process has this very file open. Files of other file systems may have the same inode number."""
    try:
        names = list(Path(f"/proc/{process_id}/fd").iterdir())
    except OSError:
        return False
    for name in names:
        try:
            if os.path.samestat(name.stat(), file):
                return True
        except OSError:
            continue
    return False
