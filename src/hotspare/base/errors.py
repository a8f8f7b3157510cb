"""Every error that hotspare raises on purpose, in one tree, so that callers can act on a class and users on a code.

HotspareError
├── UsageError              HS-01xx  a command line, URL or setting that cannot be used
│   ├── FileInUse                    may be retried: another process writes the file
│   ├── FileUnwritable               may be retried: the disk is full, or fails
│   └── MessageTooLarge              a message is larger than the bus takes: put less into it
│       └── AppendTooLarge           all messages of one append together are: append fewer at once
├── ProjectError            HS-02xx  all mistakes of one project, each with its place
├── BusError                HS-03xx  a bus, its topics or the right to publish on them
│   ├── BusUnavailable               may be retried: nothing was written
│   ├── BusLocked                    may be retried: another process holds the bus's write lock
│   ├── PositionLost                 the topic no longer holds a position that is needed
│   ├── Fenced                       a newer epoch has the right to publish
│   ├── UnknownResult                a commit was sent and no answer came: read progress to learn the truth
│   ├── TopicOwned                   the output topic belongs to another group
│   └── TopicMissing                 a topic that is needed does not exist
├── CoordinationError       HS-04xx  epochs, leases or membership
│   ├── CoordinationSuspended        no contact now; what was held may still be held
│   └── CoordinationLost             the session is over: membership and leases of this engine are gone
├── StoreError              HS-05xx  a snapshot that cannot be written or read
│   ├── SnapshotDamaged              truncated, or its checksum differs
│   └── SnapshotFormat               written in another format
├── StateError              HS-06xx  the engine's state and its input or output do not fit together
│   ├── PositionOrder                the door was given an input that does not rise
│   ├── ProjectChanged               the group's state belongs to another project
│   ├── PoisonousEvent               the engine fails on an event, again and from the same state
│   ├── PageFileError                cold state cannot leave memory: the disk is full, or fails
│   └── CodeOutOfMemory              user code needs more memory than the process has
├── RunnerError             HS-07xx  Spark, its JVM or its jars
└── ClusterError            HS-08xx  an engine process of the test kit did not do in time what was waited for

A message is a primary line (lower case, no full stop), a detail and a hint. A class exists only where a caller can act on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from errno import EACCES, EISDIR, ENOENT, ENOTDIR, EPERM, EROFS


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a text. `line` and `column` count from 1; 0 means unknown."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        parts = [self.file or "project"]
        if self.line:
            parts.append(str(self.line))
            if self.column:
                parts.append(str(self.column))
        return ":".join(parts)


class RemedyKind(Enum):
    """The remedy for an error of a project."""

    CHANGE = "change"
    """The user changes the project."""
    MISSING = "missing"
    """Something that hotspare does not have yet."""
    NEVER = "never"
    """A format that only its vendor's software reads."""


@dataclass(frozen=True, slots=True)
class MistakeKind:
    """A kind of error that occurs in many places: `what` is reported of `subjects`, such as `attribute pubsub`."""

    what: str
    subjects: tuple[str, ...]
    outlook: RemedyKind = RemedyKind.CHANGE


@dataclass(frozen=True, slots=True)
class Mistake:
    """An error of a project: place, message and remedy. `kind` is None if errors like it are not counted."""

    place: Place
    message: str
    hint: str = ""
    kind: MistakeKind | None = None

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}"
        return f"{text}\n    hint: {self.hint}" if self.hint else text


class HotspareError(Exception):
    """Root of the tree. `code` is stable; `retryable`: whether the same call may succeed later."""

    code = "HS-0000"
    retryable = False

    def __init__(self, message: str, *, detail: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        lines = [f"{self.code} {self.message}"]
        if self.detail:
            lines.append(f"  {self.detail}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    @property
    def in_one_line(self) -> str:
        """The message with its detail, for logs and tables."""
        return f"{self.message}: {self.detail}" if self.detail else self.message


def is_retryable(error: Exception) -> bool:
    return isinstance(error, HotspareError) and error.retryable


class UsageError(HotspareError):
    code = "HS-0100"


class FileInUse(UsageError):
    """Another process writes the file."""

    code = "HS-0101"
    retryable = True


class MessageTooLarge(UsageError):
    """A message is larger than the bus takes. Nothing was written."""

    code = "HS-0102"


class AppendTooLarge(MessageTooLarge):
    """The messages of one append are larger together than the bus takes, and none of them alone is. Nothing was written."""

    code = "HS-0104"


class FileUnwritable(UsageError):
    """An output file cannot be written now. The next start repairs a half-written one."""

    code = "HS-0103"
    retryable = True

    @classmethod
    def from_os_error(cls, path: object, error: OSError) -> FileUnwritable:
        elsewhere = error.errno in (ENOENT, ENOTDIR, EISDIR, EACCES, EPERM, EROFS)
        hint = "check that its folder exists and is writable" if elsewhere else "free disk space, and start again"
        return cls(f"file {path} cannot be written now", detail=error.strerror or str(error), hint=hint)


class ProjectError(HotspareError):
    """The errors of one project, reported together."""

    code = "HS-0200"

    def __init__(self, name: str, mistakes: Sequence[Mistake]) -> None:
        count = f"{len(mistakes)} mistake" + ("" if len(mistakes) == 1 else "s")
        super().__init__(f"project {name} has {count}", detail="\n  ".join(str(m) for m in mistakes))
        self.mistakes = tuple(mistakes)


class BusError(HotspareError):
    code = "HS-0300"


class BusUnavailable(BusError):
    code = "HS-0301"
    retryable = True


class BusLocked(BusError):
    """`holder`: id and start (`processes.process_start`) of the process that holds the lock, if known."""

    code = "HS-0302"
    retryable = True
    holder: tuple[int, int] | None = None


class PositionLost(BusError):
    code = "HS-0303"


class Fenced(BusError):
    code = "HS-0304"


class UnknownResult(BusError):
    code = "HS-0305"


class TopicOwned(BusError):
    code = "HS-0306"


class TopicMissing(BusError):
    code = "HS-0307"


class CoordinationError(HotspareError):
    code = "HS-0400"


class CoordinationSuspended(CoordinationError):
    code = "HS-0401"
    retryable = True


class CoordinationLost(CoordinationError):
    code = "HS-0402"


class StoreError(HotspareError):
    code = "HS-0500"


class SnapshotDamaged(StoreError):
    code = "HS-0501"


class SnapshotFormat(StoreError):
    code = "HS-0502"


class StateError(HotspareError):
    code = "HS-0600"


class PositionOrder(StateError):
    code = "HS-0601"


class ProjectChanged(StateError):
    code = "HS-0602"


class PoisonousEvent(StateError):
    """An event on which the engine itself fails. With `on_poison: stop` it ends every engine of the group."""

    code = "HS-0604"


class PageFileError(StateError):
    """The engine exits before any state is wrong."""

    code = "HS-0605"


class CodeOutOfMemory(StateError):
    """Ends the engine: when memory ends depends on the engine, so the event cannot be a bad event."""

    code = "HS-0606"

    @classmethod
    def for_code_of(cls, name: str) -> CodeOutOfMemory:
        hint = "reduce the data that the code keeps at a time, or give the process more memory"
        return cls(f"the code of {name} needs more memory than the process has", hint=hint)


class RunnerError(HotspareError):
    code = "HS-0700"


class ClusterError(HotspareError):
    code = "HS-0800"
