"""Every error that hotspare raises on purpose, in one tree, so that callers can act on a class and users on a code.

HotspareError
├── UsageError              HS-01xx  a command line, URL or setting that cannot be used
│   ├── FileInUse                    may be retried: another process writes the file
│   ├── FileUnwritable               may be retried: the disk is full, or fails
│   └── MessageTooLarge              a message is larger than the bus accepts: send a smaller one
│       └── AppendTooLarge           the messages of one append are too large together: append fewer
├── ProjectError            HS-02xx  all errors of one project, each with its place
├── BusError                HS-03xx  a bus, its topics or the right to publish on them
│   ├── BusUnavailable               may be retried: nothing was written
│   ├── BusLocked                    may be retried: another process holds the bus's write lock
│   ├── PositionLost                 the topic no longer holds a position that is needed
│   ├── Fenced                       a newer epoch has the right to publish
│   ├── UnknownResult                no answer to a commit arrived: read the progress to learn its result
│   ├── TopicOwned                   the output topic belongs to another group
│   └── TopicMissing                 a topic that is needed does not exist
├── CoordinationError       HS-04xx  epochs, leases or membership
│   ├── CoordinationSuspended        no contact now; the engine may still hold its lease and membership
│   └── CoordinationLost             the session has ended, and with it membership and leases of this engine
├── StoreError              HS-05xx  a snapshot that cannot be written or read
│   ├── SnapshotDamaged              truncated, another checksum, or content that is unreadable or contradictory
│   └── SnapshotFormat               written in another format
├── StateError              HS-06xx  the engine's state and its input or output do not fit together
│   ├── PositionOrder                the engine got input whose offsets do not rise
│   ├── ProjectChanged               the group's state belongs to another project
│   ├── PoisonousEvent               the engine fails on an event, again and from the same state
│   ├── PageFileError                pages cannot be evicted: the disk is full, or fails
│   └── CodeOutOfMemory              user code needs more memory than the process has
├── RunnerError             HS-07xx  Spark, its JVM or its jars
└── ClusterError            HS-08xx  an engine process of the test kit missed a time limit

A message is a primary line (lower case, no full stop), a detail and a hint. A class exists only if a caller can act on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from errno import EACCES, EISDIR, ENOENT, ENOTDIR, EPERM, EROFS

RESET_HINT = "delete the group's state, and empty its output topics, with: hotspare reset PROJECT --bus URL"
"""The hint of errors for a group that has to start again."""


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
    """No change helps today: the project uses a feature that hotspare does not have yet."""
    NEVER = "never"
    """No change helps: the project uses a format that only its vendor's software reads."""


@dataclass(frozen=True, slots=True)
class MistakeKind:
    """The kind of an error that occurs in many places, for counting. `what` names the kind, such as `without effect`; `subjects`
    are the parts of a project that it concerns, such as `attribute pubsub`; `outlook` is the remedy."""

    what: str
    subjects: tuple[str, ...]
    outlook: RemedyKind = RemedyKind.CHANGE


@dataclass(frozen=True, slots=True)
class Mistake:
    """An error of a project: place, message and remedy. `kind` groups equal errors for counting; None: not counted."""

    place: Place
    message: str
    hint: str = ""
    kind: MistakeKind | None = None

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}"
        return f"{text}\n    hint: {self.hint}" if self.hint else text


class HotspareError(Exception):
    """The base class of all errors of hotspare. `code` is the same in all releases; `retryable`: whether the same call may succeed
    later."""

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
    """A message is larger than the bus accepts. Nothing was written."""

    code = "HS-0102"


class AppendTooLarge(MessageTooLarge):
    """The messages of one append are together larger than the bus accepts, although each alone is not. Nothing was written."""

    code = "HS-0104"


class FileUnwritable(UsageError):
    """An output file cannot be written now. The next start repairs a half-written file."""

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
    """Another process holds the bus's write lock. `holder`: its id and start (`processes.process_start`), if known."""

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
    """A file of evicted pages cannot be written or read. The engine exits before any state is wrong."""

    code = "HS-0605"


class CodeOutOfMemory(StateError):
    """User code needs more memory than the process has. The engine ends: other engines may have enough memory for the same event,
    so it cannot become a bad event."""

    code = "HS-0606"

    @classmethod
    def for_code_of(cls, name: str) -> CodeOutOfMemory:
        hint = "reduce the data that the code keeps at a time, or give the process more memory"
        return cls(f"the code of {name} needs more memory than the process has", hint=hint)


class RunnerError(HotspareError):
    code = "HS-0700"


class ClusterError(HotspareError):
    code = "HS-0800"
