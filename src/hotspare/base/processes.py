"""Processes of this machine: whether one lives or is stopped, what it runs, and ending it.

Asked by a spare about the active, by an engine about another one of its name, and by whoever is hindered by a lock.

An id together with its start names a process for good; an id alone may have been given to another one. Both mean something only
within one process space: one boot of one machine, one namespace of ids. Host names prove nothing: containers choose theirs.
A start is counted from the machine's, and not from 1970: when the clock is set, every process would seem to be another one.
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
"""Of /proc/ID/stat, counted behind the name in brackets: the kernel's flags of the main thread."""
_EXITING = 0x4
_PARENT_FIELD = 1
_START_FIELD = 19
"""There, too: when it started, in ticks since the machine did."""
_COMMAND_WORDS_MAX = 3
_COMMAND_LENGTH_MAX = 80


def boot_id() -> str:
    """Names this run of the machine; differs after every restart."""
    try:
        return _BOOT_ID_FILE.read_text().strip()
    except OSError:
        return str(round(psutil.boot_time()))


def process_space() -> str:
    """Names where this process's id means something. Two processes that have the same one see each other by their ids.

    The host's name is part of it: machines that were copied while they ran have one boot id, and are told apart by it.
    """
    try:
        ids = str(_ID_NAMESPACE.readlink())
    except OSError:
        ids = ""
    return f"{socket.gethostname()} {boot_id()} {ids}".rstrip()


def process_start(process_id: int) -> int:
    """When a process started, in whole milliseconds since the machine did; 0 if there is none. Only where the system does not say
    that, they are since 1970."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return _start_ms(_stat(process_id))
    try:
        return int(psutil.Process(process_id).create_time() * 1000)
    except psutil.Error:
        return 0


def is_process_gone(process_id: int, started: int) -> bool:
    """True only if that very process has ended; a zombie has, and so has one whose id was given to another."""
    try:
        ended = psutil.Process(process_id).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return ended or process_start(process_id) != started
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def is_process_ending(process_id: int) -> bool:
    """Whether its main thread is past its last instruction. False where there is no telling.

    The system takes tens of milliseconds to free a large process before it closes its sockets; this is known at once. Costs one
    small read, so it can be asked every few milliseconds. Says nothing about an id that was given to another process.
    """
    try:
        return bool(int(_stat(process_id)[_FLAGS_FIELD]) & _EXITING)
    except (OSError, ValueError, IndexError):
        return False


def is_process_over(process_id: int, started: int) -> bool:
    """Whether that very process ends or has ended, by one small read, so that it can be asked every few milliseconds. False where
    there is no telling."""
    try:
        fields = _stat(process_id)
        return bool(int(fields[_FLAGS_FIELD]) & _EXITING) or _start_ms(fields) != started
    except (FileNotFoundError, ProcessLookupError):
        return _OWN_STAT.exists()
    except (OSError, ValueError, IndexError):
        return False


def parent_of(process_id: int) -> int:
    """The id of the process above it; 0 where there is none to be seen."""
    try:
        return int(_stat(process_id)[_PARENT_FIELD])
    except (OSError, ValueError, IndexError):
        return 0


def _start_ms(fields: list[bytes]) -> int:
    return int(fields[_START_FIELD]) * 1000 // os.sysconf("SC_CLK_TCK")


def _stat(process_id: int) -> list[bytes]:
    """The fields of /proc/ID/stat behind the name in brackets, which may have blanks itself."""
    return Path(f"/proc/{process_id}/stat").read_bytes().rpartition(b")")[2].split()


def is_process_stopped(process_id: int) -> bool:
    """Whether it was stopped (SIGSTOP, a debugger, a frozen container) and does nothing until somebody lets it go on."""
    try:
        return psutil.Process(process_id).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP) or _is_frozen(process_id)
    except psutil.Error:
        return False


def _is_frozen(process_id: int) -> bool:
    """By the freezer of its control group, which the state of a process does not show."""
    try:
        group = Path(f"/proc/{process_id}/cgroup").read_text().partition("0::")[2].splitlines()[0]
        return "frozen 1" in Path(f"/sys/fs/cgroup{group}/cgroup.events").read_text()
    except (OSError, IndexError):
        return False


def process_command(process_id: int) -> str:
    """What it runs, without what may be secret: the program and what stands before its first option, addresses left out."""
    try:
        words = psutil.Process(process_id).cmdline()
    except psutil.Error:
        return "unknown"
    plain = itertools.takewhile(lambda word: not word.startswith("-"), words)
    names = [Path(word).name for word in plain if "=" not in word and "://" not in word]
    return " ".join(names[:_COMMAND_WORDS_MAX])[:_COMMAND_LENGTH_MAX] or "unknown"


def end_process(process_id: int, started: int) -> bool:
    """SIGKILL, if it is still that very process and not this one; whether it was sent."""
    if process_id in (0, os.getpid()) or is_process_gone(process_id, started):
        return False
    try:
        os.kill(process_id, signal.SIGKILL)
    except OSError:
        return False
    return True
