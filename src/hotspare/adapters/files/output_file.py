"""The file that a subscriber writes, and its position record: the right to write, the valid length, and its parts.

A subscriber alone holds the file's lock as long as it runs. In a group it acquires the lock for each write only, and first checks
that the record is still its own: an instance that was frozen and thaws finds its successor's record and writes nothing. An instance
that is frozen inside a write holds the lock; the next one that needs it kills that process, on the same machine only.

On a network file system this is as reliable as its locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path

from hotspare.adapters.failover.subscriber_position import (
    SubscriberPosition,
    load_position,
    position_path,
    save_position,
    sync_folder,
)
from hotspare.adapters.failover.turn import Turn
from hotspare.base.errors import FileInUse, FileUnwritable, UsageError
from hotspare.base.file_locks import lock_holder
from hotspare.base.retry import Retry

LOCK_SUFFIX = ".lock"
LOCK_WAIT_S = 15.0
"""The time that an instance of a group waits for the file's lock before it reports that another subscriber has the file."""
_LOCK_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Rotation:
    """The limits at which the next part of the output begins: `part_bytes` written or `part_s` seconds passed; 0 for never (SPEC
    I6).

    Checked before rows are written, so a part may be longer by the rows of the messages that one call decodes.
    """

    part_bytes: int = 0
    part_s: int = 0

    def __post_init__(self) -> None:
        if self.part_bytes < 0 or self.part_s < 0:
            what = f"maxfilesize {self.part_bytes} or periodicity {self.part_s} of a file is negative"
            raise UsageError(what, hint="use 0 or more")

    @property
    def is_wanted(self) -> bool:
        return bool(self.part_bytes or self.part_s)


class TurnOver(Exception):
    """Raised if another instance writes the file now, or the turn is over: this instance may write nothing more."""


def part_path(path: Path, part: int, rotation: Rotation) -> Path:
    """Returns `out.csv`, or with rotation `out.000001.csv`, `out.000002.csv`, ..."""
    return path.with_name(f"{path.stem}.{part:06}{path.suffix}") if rotation.is_wanted else path


class OutputFile:
    """The output of a subscriber. Opened by `opened`; all writes happen inside `writing`. `wall_clock` returns seconds since
    1970."""

    def __init__(
        self,
        path: Path,
        turn: Turn,
        rotation: Rotation | None = None,
        wall_clock: Callable[[], float] = time.time,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> None:
        self.path, self._lock_wait_s = path, lock_wait_s
        self._turn = turn
        self._rotation = rotation or Rotation()
        self._wall_clock = wall_clock
        self._lock = -1
        self._locked_path = path.with_name(path.name + LOCK_SUFFIX) if self._rotation.is_wanted else path
        self._depth = 0
        self._file: FileIO | None = None
        self._recorded: SubscriberPosition | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Keeps the file open within the block, and in an adapter without a group also locked. Raises FileInUse if another process
        holds that lock, UsageError if the file cannot be opened, and FileUnwritable for an OSError of the block."""
        with contextlib.ExitStack() as stack:
            self._lock = _open(self._locked_path)
            stack.callback(os.close, self._lock)
            stack.callback(self._close_part)
            if not self._turn.epoch:
                self._lock_at_once()
            try:
                sync_folder(self.path.parent)
                yield
            except OSError as error:
                raise FileUnwritable.from_os_error(self.path, error) from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the file's lock within the block. Raises TurnOver if another instance has written the file or the turn is over,
        FileInUse if the lock is not free within `lock_wait_s`."""
        if self._depth or not self._turn.epoch:
            yield
            return
        self._acquire()
        self._depth += 1
        try:
            if self._recorded is not None and load_position(self.path) != self._recorded:
                self._turn.set()
                raise TurnOver
            yield
        finally:
            self._depth -= 1
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def recover_position(self, fresh: Callable[[], SubscriberPosition]) -> SubscriberPosition:
        """Opens the file at its recorded position, truncates it there and returns the position. `fresh` returns that of a new file.

        Call it inside `writing`. Raises UsageError if no subscriber wrote the file, or it is shorter than its record
        states; TurnOver if a newer epoch has written it.
        """
        position = load_position(self.path)
        if position is None:
            self._refuse_foreign_file()
            position = replace(fresh(), opened_s=int(self._wall_clock()))
        elif position.epoch > self._turn.epoch > 0:
            self._turn.set()  # a newer turn has written the file: a new epoch is needed
            raise TurnOver
        position = replace(position, epoch=max(position.epoch, self._turn.epoch))
        self._open_part(position)
        size = os.fstat(self._part.fileno()).st_size
        if size < position.file_bytes:
            part = part_path(self.path, position.part, self._rotation)
            raise UsageError(
                f"file {part} has {size} bytes, fewer than the {position.file_bytes} that its subscriber wrote",
                hint=f"restore the file, or remove it and {position_path(self.path).name} to start over",
            )
        self._part.truncate(position.file_bytes)
        self._part.seek(position.file_bytes)
        self._record(position)
        return position

    def _refuse_foreign_file(self) -> None:
        first = part_path(self.path, 1, self._rotation)
        if first.exists() and first.stat().st_size:
            raise UsageError(
                f"file {first} exists, and no subscriber wrote it",
                detail=f"file {position_path(self.path).name} does not exist next to it",
                hint="remove it, or name another file",
            )

    def write(self, data: bytes) -> None:
        """Writes inside `writing`, without a buffer, so that nothing is written later without the lock."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._part.write(rest) or 0 :]

    @property
    def size(self) -> int:
        """The size of the current part in bytes."""
        return self._part.tell()

    def sync_and_record(self, position: SubscriberPosition) -> SubscriberPosition:
        """Makes the rows durable, then writes the record; never in the other order. Call it inside `writing`."""
        os.fsync(self._part.fileno())
        position = replace(position, file_bytes=self.size)
        self._record(position)
        return position

    def is_rotation_due(self, position: SubscriberPosition) -> bool:
        """Whether new rows belong to the next part, because the current one has reached a limit of the rotation."""
        rotation, size = self._rotation, self.size
        age_s = self._wall_clock() - position.opened_s
        return size > 0 and (0 < rotation.part_bytes <= size or 0 < rotation.part_s <= age_s)

    def next_part(self, position: SubscriberPosition) -> SubscriberPosition:
        """Records what is written, and begins the next part. Call it inside `writing`, and only with rows to write, so that no
        part stays empty."""
        position = self.sync_and_record(position)
        position = replace(position, part=position.part + 1, file_bytes=0, opened_s=int(self._wall_clock()))
        self._record(position)
        self._open_part(position)
        self._part.truncate(0)
        return position

    def _record(self, position: SubscriberPosition) -> None:
        save_position(self.path, position)
        self._recorded = position

    def _open_part(self, position: SubscriberPosition) -> None:
        self._close_part()
        self._file = os.fdopen(_open(part_path(self.path, position.part, self._rotation)), "r+b", buffering=0)
        sync_folder(self.path.parent)

    def _close_part(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def _part(self) -> FileIO:
        if self._file is None:
            raise AssertionError("the file has no part yet")
        return self._file

    def _acquire(self) -> None:
        """Acquires the file's lock; waits at most `lock_wait_s` and as long as the turn lasts. Raises FileInUse or TurnOver. Kills
        a holder that is stopped, if possible."""

        def is_lock_error(error: Exception) -> bool:
            self._turn.record_lock_blocked(self._holder)
            return isinstance(error, OSError)

        def wait(pause_s: float) -> None:
            if self._turn.wait(pause_s):
                raise TurnOver

        locked = Retry(lasting_s=self._lock_wait_s, pause_s=_LOCK_POLL_S)
        try:
            locked.call(lambda: fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB), is_lock_error, wait)
        except OSError as error:
            raise self._in_use() from error
        self._turn.record_lock_free()

    def _lock_at_once(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise self._in_use() from error

    def _holder(self) -> tuple[int, int] | None:
        holder = lock_holder(self._locked_path)
        return None if holder is None else (holder.process_id, holder.start)

    def _in_use(self) -> FileInUse:
        holder = lock_holder(self._locked_path)
        detail = f"{holder} holds its lock" if holder else ""
        return FileInUse(f"file {self.path} is being written by another subscriber", detail=detail)


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise UsageError(f"file {path} cannot be written", detail=error.strerror or str(error)) from error
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return opened
    os.close(opened)
    raise UsageError(
        f"{path} is not a regular file, so it cannot be truncated after a crash",
        hint="name a file, or serve clients of a socket: `hotspare subscribe ... tcp://:PORT`",
    )
