"""Which machine uses a bus in a SQLite file: one, as SQLite's locks do not reach another one over a shared folder.

The file names the boot of the machine that uses it: the kernel's, so containers of one machine have the same. Another boot takes
the file over when that machine was started again, and else only if nobody writes for a while; every transaction looks whether the
file was taken over, so that who slept meanwhile writes nothing.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from hotspare.base import processes
from hotspare.base.errors import BusError, UsageError
from hotspare.base.sqlite_file import SqliteFile

WATCH_S = 3.0
"""An active engine writes a tick at least every second."""
_FIND = "SELECT boot, machine FROM machine"
_ADD = "INSERT INTO machine(only, boot, machine) VALUES(1, ?, ?)"
_TAKE_OVER = "UPDATE machine SET boot=?, machine=? WHERE boot=?"
_WRITTEN = "SELECT total(end_offset), max(newest_us) FROM partitions"
_MACHINE_FILE = Path("/etc/machine-id")
_CLOCK_SLACK_US = 60_000_000
_HINT = "locks in files do not reach across machines: run all of them on one machine, or use kafka:// and zookeeper://"


class ClaimedFile:
    """A bus's file, for as long as this machine uses it. As `SqliteFile`; UsageError while another machine writes to it. A file
    that another machine claimed is watched for `watch_s`."""

    def __init__(self, file: SqliteFile, watch_s: float = WATCH_S) -> None:
        self._file = file
        self._boot = processes.boot_id()
        self.query = file.query
        self.reading = file.reading
        self.close = file.close
        try:
            _claim(file, self._boot, watch_s)
        except BaseException:
            file.close()
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """As `SqliteFile.writing`. BusError if another machine has taken the file over."""
        with self._file.writing() as connection:
            row = connection.execute(_FIND).fetchone()
            if row is not None and row[0] != self._boot:
                raise BusError(
                    f"bus {self._file.path.name} was taken over by another machine", detail=f"its boot is {row[0]}", hint=_HINT
                )
            yield connection


def _claim(file: SqliteFile, boot: str, watch_s: float) -> None:
    machine = _machine_id()
    found = file.query(_FIND)
    if not found:
        with file.writing() as connection:
            found = connection.execute(_FIND).fetchall()
            if not found:
                connection.execute(_ADD, (boot, machine))
                return
    other_boot, other_machine = found[0]
    if other_boot == boot:
        return
    if not (machine == other_machine and _was_started_since(file)) and _is_written(file, watch_s):
        raise UsageError(
            f"bus {file.path.name} is in use on another machine",
            detail=f"it is written to now under boot {other_boot}, this machine's is {boot}",
            hint=_HINT,
        )
    with file.writing() as connection:
        connection.execute(_TAKE_OVER, (boot, machine, other_boot))


def _was_started_since(file: SqliteFile) -> bool:
    """Whether nothing was written since this machine was started, as far as clocks can tell."""
    newest_us = file.query(_WRITTEN)[0][1]
    return newest_us is None or int(newest_us) + _CLOCK_SLACK_US < int(psutil.boot_time() * 1_000_000)


def _is_written(file: SqliteFile, watch_s: float) -> bool:
    before = file.query(_WRITTEN)
    deadline = time.monotonic() + watch_s
    while time.monotonic() < deadline:
        time.sleep(watch_s / 30)
        if file.query(_WRITTEN) != before:
            return True
    return False


def _machine_id() -> str:
    """Of the installation; machines that were copied may have the same."""
    try:
        return _MACHINE_FILE.read_text().strip()
    except OSError:
        return ""
