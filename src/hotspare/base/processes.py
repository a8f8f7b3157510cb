"""Processes of this machine: whether one lives or is stopped, its command, and how to end it.

A spare watches the active engine with it, an engine checks another engine of its name, and a blocked process finds the lock's
holder.

An id together with its start identifies a process for good; the system may reuse an id. Both are valid only within one process
space: one boot of one machine, one namespace of ids. Host names prove nothing: containers choose theirs.

A start is counted from the machine's boot, not from 1970: otherwise every process would seem to be another one after the clock is
set.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
from pathlib import Path

import psutil

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_OWN_STAT = Path("/proc/self/stat")
_ID_NAMESPACE = Path("/proc/self/ns/pid")

_FLAGS_FIELD = 6
"""Index in /proc/ID/stat, counted after the name in brackets: the kernel's flags of the main thread."""
_EXITING = 0x4
_PENDING_FIELD = 28
"""Index in /proc/ID/stat, counted likewise: the pending signals of the main thread, as bits from signal 1 on."""
_KILL_PENDING = 1 << (signal.SIGKILL - 1)
_STAT_BYTES_MAX = 4_096
_PARENT_FIELD = 1
_START_FIELD = 19
"""Index in /proc/ID/stat, counted likewise: the start time in clock ticks since the boot."""
_COMMAND_WORDS_MAX = 3
_COMMAND_LENGTH_MAX = 80


def boot_id() -> str:
    """Returns the kernel's id of this boot of the machine, which differs after every restart; the time of the boot in seconds if
    the system has no such id."""
    try:
        return _BOOT_ID_FILE.read_text().strip()
    except OSError:
        return str(round(psutil.boot_time()))


def process_space() -> str:
    """Returns a name of the space in which this process's id is valid. Processes with equal names can see each other by their ids.

    The host's name is part of the result: machines that were cloned while running share a boot id, and only their names differ.
    """
    try:
        ids = str(_ID_NAMESPACE.readlink())
    except OSError:
        ids = ""
    return f"{socket.gethostname()} {boot_id()} {ids}".rstrip()


def process_start(process_id: int) -> int:
    """Returns the start of a process in whole milliseconds since the boot; 0 if the process does not exist. On systems that
    do not report the start since the boot, the milliseconds count from 1970."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return _start_ms(_stat(process_id))
    try:
        return int(psutil.Process(process_id).create_time() * 1000)
    except psutil.Error:
        return 0


def has_process_ended(process_id: int, started: int) -> bool:
    """Whether the process with this id and start has ended; false if that is unknown. A zombie counts as ended."""
    try:
        ended = psutil.Process(process_id).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return ended or process_start(process_id) != started
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def is_process_ending(process_id: int) -> bool:
    """Whether the main thread is past its last instruction, or SIGKILL awaits it; false if that is unknown.

    The system takes tens of milliseconds to free a large process before it closes its sockets. The kernel's flag is visible as soon
    as the main thread runs again, a pending SIGKILL before that. Costs one small read. Does not detect a reused id."""
    try:
        return _is_ending(_stat(process_id))
    except (OSError, ValueError, IndexError):
        return False


def is_process_ending_or_ended(process_id: int, started: int) -> bool:
    """Whether the process with this id and start is ending or has ended; false if that is unknown."""
    with contextlib.closing(EndProbe(process_id, started)) as probe:
        return probe.is_ending_or_ended()


class EndProbe:
    """Reads whether the process with this id and start is ending or has ended. Its file stays open until `close`, so that a look
    costs some microseconds. Not thread-safe."""

    def __init__(self, process_id: int, started: int) -> None:
        self._started = started
        self._is_missing = False
        self._file: int | None = None
        try:  # the file of the main thread alone: that of the process adds up the times of all its threads at each read
            self._file = os.open(f"/proc/{process_id}/task/{process_id}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError):
            self._is_missing = _OWN_STAT.exists()
        except OSError:
            pass

    def is_ending_or_ended(self) -> bool:
        """Returns false if that is unknown."""
        if self._file is None:
            return self._is_missing
        try:
            fields = _fields(os.pread(self._file, _STAT_BYTES_MAX, 0))
            return _is_ending(fields) or _start_ms(fields) != self._started
        except ProcessLookupError:
            return True
        except (OSError, ValueError, IndexError):
            return False

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def parent_of(process_id: int) -> int:
    """Returns the id of the parent process; 0 if none is visible."""
    try:
        return int(_stat(process_id)[_PARENT_FIELD])
    except (OSError, ValueError, IndexError):
        return 0


def _is_ending(fields: list[bytes]) -> bool:
    return bool(int(fields[_FLAGS_FIELD]) & _EXITING or int(fields[_PENDING_FIELD]) & _KILL_PENDING)


def _start_ms(fields: list[bytes]) -> int:
    return int(fields[_START_FIELD]) * 1000 // os.sysconf("SC_CLK_TCK")


def _stat(process_id: int) -> list[bytes]:
    return _fields(Path(f"/proc/{process_id}/stat").read_bytes())


def _fields(stat: bytes) -> list[bytes]:
    """Returns the fields after the bracketed name, which may contain blanks itself."""
    return stat.rpartition(b")")[2].split()


def is_process_stopped(process_id: int) -> bool:
    """Whether the process is stopped (SIGSTOP, a debugger, a frozen container), so that it does nothing until it is continued."""
    try:
        return psutil.Process(process_id).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP) or _is_frozen(process_id)
    except psutil.Error:
        return False


def _is_frozen(process_id: int) -> bool:
    """Whether the control group of the process is frozen, which the state of a process does not show."""
    try:
        group = Path(f"/proc/{process_id}/cgroup").read_text().partition("0::")[2].splitlines()[0]
        return "frozen 1" in Path(f"/sys/fs/cgroup{group}/cgroup.events").read_text()
    except (OSError, IndexError):
        return False


def process_command(process_id: int) -> str:
    """Returns the names of the program and of its arguments before the first option, cut to a length for messages. Leaves out
    addresses and assignments, which may be secret. Returns "unknown" if the process is not visible."""
    try:
        words = psutil.Process(process_id).cmdline()
    except psutil.Error:
        return "unknown"
    plain = itertools.takewhile(lambda word: not word.startswith("-"), words)
    names = [Path(word).name for word in plain if "=" not in word and "://" not in word]
    return " ".join(names[:_COMMAND_WORDS_MAX])[:_COMMAND_LENGTH_MAX] or "unknown"


def end_process(process_id: int, started: int) -> bool:
    """Sends SIGKILL to the process with this id and start, unless it is this process. Returns whether the signal was sent."""
    if process_id in (0, os.getpid()) or has_process_ended(process_id, started):
        return False
    try:
        os.kill(process_id, signal.SIGKILL)
    except OSError:
        return False
    return True
