"""A SQLite file shared by several processes: connections, short write transactions, and the meaning of each failure.

The bus and the coordination of one machine both use it; they supply the schema and the error classes.

WAL lets readers continue while one process writes. A write takes the lock at its start (BEGIN IMMEDIATE), so nothing is written
before the lock is held, and no transaction is refused half-way. This module waits for the lock itself, in pauses of at most 2 ms:
SQLite's own busy handler sleeps up to 100 ms at a time. A killed process releases its locks; a frozen one keeps them, and the
caller gets an error after `busy_timeout_ms`.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from hotspare.base.errors import BusLocked, HotspareError, UsageError
from hotspare.base.file_locks import lock_holder
from hotspare.base.retry import Retry

_PAUSE_FIRST_S = 0.0002
_PAUSE_MAX_S = 0.002
_BUSY_CODES = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL))
"""SQLITE_PROTOCOL is SQLite's answer after a hundred attempts to lock the log's index: the lock's holder makes no progress."""
_PRIMARY_CODE_MASK = 0xFF
BUSY_TIMEOUT_MS_MAX = 60_000
EXTENDED_BUSY_S = 30.0
"""The wait for the lock within `extended_timeouts`: longer than a writer delays another one on a machine short of processors."""
_WHILE_BUSY_EXTENDED = Retry(lasting_s=EXTENDED_BUSY_S, pause_s=_PAUSE_FIRST_S, pause_max_s=_PAUSE_MAX_S)
_WRITE_LOCK_BYTE = 120
"""Byte of the file `-shm` that a writer locks, by the format of SQLite's WAL."""

T = TypeVar("T")


class Sync(Enum):
    """The durability of a commit: with FULL it is on the disk before it returns, with NORMAL later (a power cut may undo the newest
    commits)."""

    FULL = "FULL"
    NORMAL = "NORMAL"


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of SQLite file: the application id in its header, the version of its tables, and their schema."""

    name: str
    application_id: int
    version: int
    schema: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileErrors:
    """The classes of the errors that a file raises. `locked`: another process holds the lock, nothing was written. `failed`:
    nothing was written. `unknown`: COMMIT failed; only the next read shows whether its frames reached the file."""

    locked: type[HotspareError]
    failed: type[HotspareError]
    unknown: type[HotspareError]


def parse_sqlite_url(url: str, busy_timeout_ms: int) -> tuple[Path, int]:
    """Returns file and busy timeout of `sqlite:///relative.db` or `sqlite:////absolute.db`. `?busy_timeout_ms=n` overrides the
    argument.

    The path is not unquoted. Raises UsageError for any other URL.
    """
    rest = url.removeprefix("sqlite://")
    path, _, options = rest.partition("?")
    if rest == url or not path.startswith("/") or len(path) < 2:
        raise UsageError("a SQLite URL has three slashes and a file", hint="use sqlite:///relative.db or sqlite:////absolute.db")
    for option in filter(None, options.split("&")):
        name, _, value = option.partition("=")
        if name != "busy_timeout_ms" or not value.isdecimal():
            raise UsageError(f"option {option!r} of a SQLite URL is not known", hint="use ?busy_timeout_ms=300")
        busy_timeout_ms = int(value)
    return Path(path[1:]), busy_timeout_ms


class _Session:
    """A connection that is closed when its thread has ended."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()

    def __del__(self) -> None:
        self.close()


def _is_busy(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and (code & _PRIMARY_CODE_MASK) in _BUSY_CODES


class SqliteFile:
    """A SQLite file of hotspare. Safe for several threads (each has its own connection) and several processes.

    Raises UsageError if the file is not of this kind, or has another version.
    """

    def __init__(self, path: Path, kind: FileKind, errors: FileErrors, sync: Sync, busy_timeout_ms: int) -> None:
        if not 1 <= busy_timeout_ms <= BUSY_TIMEOUT_MS_MAX:
            raise UsageError(f"a busy timeout of {busy_timeout_ms} ms cannot be used", hint=f"use 1 to {BUSY_TIMEOUT_MS_MAX} ms")
        self.path = path.absolute()
        self._kind = kind
        self._errors = errors
        self._sync = sync
        self._while_busy = Retry(lasting_s=busy_timeout_ms / 1000, pause_s=_PAUSE_FIRST_S, pause_max_s=_PAUSE_MAX_S)
        self._local = threading.local()
        self._sessions: weakref.WeakSet[_Session] = weakref.WeakSet()
        self._sessions_lock = threading.Lock()
        self._closed = False
        self._opened: tuple[int, int] | None = None
        if not self.path.parent.is_dir():
            raise UsageError(f"folder {self.path.parent} of {kind.name} {self.path.name} does not exist", hint="create it")
        self._prepare()

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Returns all rows of a statement outside a transaction."""
        return self.reading(lambda connection: connection.execute(sql, parameters).fetchall())

    def reading(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Returns the result of `read`, which is called again while the file is busy. So `read` must not write."""
        self._check_place()
        return self._read(read)

    @contextlib.contextmanager
    def extended_timeouts(self) -> Iterator[None]:
        """Returns a context within which calls of this thread wait for the lock as long as EXTENDED_BUSY_S."""
        local = self._local
        local.while_busy = _WHILE_BUSY_EXTENDED
        try:
            yield
        finally:
            local.while_busy = self._while_busy

    @property
    def _waits(self) -> Retry:
        """How long calls of this thread wait for the lock."""
        waits: Retry = getattr(self._local, "while_busy", self._while_busy)
        return waits

    def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self._waits.call(
                lambda: read(self._connection()), lambda error: isinstance(error, sqlite3.Error) and _is_busy(error)
            )
        except sqlite3.Error as error:
            raise self._failure(error) from error

    @contextlib.contextmanager
    def writing(self, sync: Sync | None = None) -> Iterator[sqlite3.Connection]:
        """Runs the block in a write transaction, committed at its end and rolled back if it raises.

        `sync` overrides the file's setting for this transaction.
        """
        wanted = sync or self._sync
        if wanted is not self._sync:
            self._set_sync(wanted)
        try:
            self.reading(lambda connection: connection.execute("BEGIN IMMEDIATE"))
            connection = self._connection()
            try:
                yield connection
            except sqlite3.Error as error:
                self._undo(connection)
                raise self._failure(error) from error
            except BaseException:
                self._undo(connection)
                raise
            self._commit(connection)
        finally:
            if wanted is not self._sync:
                self._set_sync(self._sync)

    def close(self) -> None:
        """Closes the connections of all threads; no call may be in progress."""
        self._closed = True
        with self._sessions_lock:
            sessions = list(self._sessions)
        for session in sessions:
            session.close()
        self._local = threading.local()

    def _connection(self) -> sqlite3.Connection:
        session: _Session | None = getattr(self._local, "session", None)
        if session is None:
            if self._closed:
                raise self._errors.failed(f"{self._kind.name} {self.path.name} was closed")
            session = _Session(self._connect())
            self._local.session = session
            with self._sessions_lock:
                self._sessions.add(session)
        return session.connection

    def _connect(self) -> sqlite3.Connection:
        url = f"{self.path.as_uri()}?mode=rw"  # SQLite would create an empty file, which is not a bus, in place of a deleted one
        connection = sqlite3.connect(url, timeout=0, isolation_level=None, check_same_thread=False, uri=True)
        try:
            connection.execute(f"PRAGMA synchronous={self._sync.value}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _set_sync(self, sync: Sync) -> None:
        self._read(lambda connection: connection.execute(f"PRAGMA synchronous={sync.value}").fetchall())

    def _check_place(self) -> None:
        """Refuses a file that other processes no longer find at its path: they would not see each other's writes."""
        if self._opened is None:
            return
        try:
            found = _identity(self.path)
        except OSError as error:
            raise self._moved("no longer exists", error.strerror or str(error)) from error
        if found != self._opened:
            raise self._moved("was replaced", "another file has its name")

    def _moved(self, what: str, detail: str) -> HotspareError:
        return self._errors.failed(
            f"{self._kind.name} {self.path.name} {what}", detail=f"{self.path}: {detail}", hint="restore the original file"
        )

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._undo(connection)
            self._forget_connection()
            raise self._errors.unknown(
                f"the result of a commit to {self._kind.name} {self.path.name} is unknown",
                detail=str(error),
                hint="read the file to see whether it was written",
            ) from error

    def _undo(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")

    def _forget_connection(self) -> None:
        session: _Session | None = getattr(self._local, "session", None)
        if session is not None:
            session.close()
            self._local.session = None

    def _locked(self) -> HotspareError:
        holder = lock_holder(self.path.with_name(self.path.name + "-shm"), _WRITE_LOCK_BYTE) or lock_holder(self.path)
        error = self._errors.locked(
            f"{self._kind.name} {self.path.name} is locked by another process",
            detail=f"waited {1000 * (self._waits.lasting_s or 0):.0f} ms for its write lock"
            + (f"; {holder} holds it" if holder else ""),
            hint="end that process, or resume it" if holder and holder.is_stopped else "",
        )
        if holder is not None and isinstance(error, BusLocked):
            error.holder = holder.process_id, holder.start
        return error

    def _failure(self, error: sqlite3.Error) -> HotspareError:
        if _is_busy(error):
            return self._locked()
        return self._errors.failed(f"{self._kind.name} {self.path.name} cannot be used now", detail=f"{self.path}: {error}")

    def _prepare(self) -> None:
        """Creates the file if it does not exist, then checks its kind and version. Several processes may do this at once."""
        if self.path.is_dir():
            raise self._foreign()
        try:
            if not self.path.exists():
                _make(self.path, self._kind)
            self._check()
            self._opened = _identity(self.path)
        except (OSError, sqlite3.Error) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            hint = "check the free disk space and the permissions of its folder"
            raise UsageError(f"{self._kind.name} {self.path} cannot be created", detail=why, hint=hint) from error
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        try:
            found = self.query("PRAGMA application_id")[0][0]
            version = self.query("PRAGMA user_version")[0][0]
        except HotspareError as error:
            cause = error.__cause__
            if isinstance(cause, sqlite3.DatabaseError) and cause.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
                raise self._foreign() from cause
            raise
        if found != self._kind.application_id:
            raise self._foreign()
        if version != self._kind.version:
            raise UsageError(
                f"{self._kind.name} {self.path} has format {version}, this hotspare reads {self._kind.version}",
                hint="use the hotspare that wrote it, or a new file",
            )

    def _foreign(self) -> UsageError:
        return UsageError(
            f"{self.path} is not a {self._kind.name} of hotspare", hint="give the name of a file that does not exist yet"
        )


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _make(path: Path, kind: FileKind) -> None:
    """Creates the file under another name, then links it: a half-made file is never visible, and of several creators one wins."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
    try:
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            if mode != "wal":
                raise UsageError(
                    f"{kind.name} {path} cannot be kept in this folder",
                    detail=f"journal mode is {mode}, not wal",
                    hint="use a folder on a disk of this machine",
                )
            connection.execute("BEGIN IMMEDIATE")
            for statement in kind.schema:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={kind.version}")
            connection.execute(f"PRAGMA application_id={kind.application_id}")
            connection.execute("COMMIT")
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                draft.with_name(draft.name + suffix).unlink(missing_ok=True)
