"""Choices that the command line and programs share. Imports nothing heavy, so that `hotspare --help` stays quick."""

from __future__ import annotations

from enum import Enum


class RunnerKind(Enum):
    ORDERED = "ordered"
    """Spark reads and runs the head; the core runs in the driver. The default."""
    LOCAL = "local"
    """No Spark: the reference runner, for tests."""
    PARTITIONED = "partitioned"
    """Long-lived tasks of a Spark application host the engines of the shards."""


class CsvForm(Enum):
    """The format of a CSV file."""

    EVENTS = "events"
    """Rows of opcode, flags and fields, unless a connector configures other columns."""
    PLAIN = "plain"
    """A title line that names the columns; an opcode column only if not all rows are inserts."""


class HeadPlace(Enum):
    """The process that runs the head (decoding and stateless first windows); the outputs are the same."""

    DRIVER = "driver"
    """The engine's process: for blocks of many rows, which are smaller than their decoded rows."""
    WORKERS = "workers"
    """Spark's tasks, which run concurrently with the core. The default."""


class OnDivergence(Enum):
    """The action of a spare if its outputs alone differ from the committed ones."""

    STOP = "stop"
    CONTINUE = "continue"
    """The spare stays a standby, records the alarm in its member record, and takes over only if no other engine can."""


class OtherStore(Enum):
    """The action of an engine if its group's snapshots are in another store."""

    REFUSE = "refuse"
    ACCEPT = "accept"
    """The engine makes its store the group's: the former one is lost for good, or its snapshots were moved."""


class SnapshotForm(Enum):
    """The extent of a snapshot."""

    INCREMENTAL = "incremental"
    """Only the changes since the previous snapshot; all other content is shared with that snapshot. The default."""
    FULL = "full"
    """All rows that exist, written again."""


class CreateTime(Enum):
    """The action of an engine on an inbound topic whose messages carry the timestamps of their publishers (CreateTime)."""

    REFUSE = "refuse"
    ACCEPT = "accept"
    """A single wrong time does no harm. A publisher whose times are all wrong blocks its topic, or moves the clock of all
    windows."""


class EventPolicy(Enum):
    """The action of a group on an event that it cannot compute: the engine itself fails on it, again and from the same state, or a
    call of user code for it does not end."""

    BAD_EVENT = "bad-event"
    """The event becomes a bad event, and the group continues."""
    STOP = "stop"
    """Every engine of the group exits at the event, and names it."""


class StartWhen(Enum):
    """The time at which a loaded engine joins its group."""

    AT_ONCE = "at-once"
    ASKED = "asked"
    """The engine waits for `hotspare start`."""


class Since(Enum):
    """The first event of a running group that is shown."""

    NOW = "now"
    SNAPSHOT = "snapshot"
    """The first event after the newest snapshot; without a snapshot, the group's first event."""


class SpareKind(Enum):
    """The state of an engine while another one publishes."""

    HOT = "hot"
    """The engine has the full state, and takes over at once."""
    COLD = "cold"
    """The engine has no state, and joins when the group has no active engine."""


class JoinFrom(Enum):
    """The source of an engine's state when it joins."""

    SNAPSHOT = "snapshot"
    """The newest snapshot and the input after it, else all input since the group began. The default."""
    RECENT = "recent"
    """The newest input alone, as far back as the windows retain. The engine may take over once its outputs match the committed
    ones."""


class LogFormat(Enum):
    HUMAN = "human"
    JSON = "json"


class MissingTopic(Enum):
    """The action of a publisher if an inbound topic does not exist."""

    REFUSE = "refuse"
    """The publisher refuses to start: engines create the topic, with as many partitions as they read. The default."""
    CREATE = "create"


class LogLevel(Enum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class DemoProject(Enum):
    """The project that the demo runs."""

    MEMORY = "memory"
    """A chain of windows that sums readings of this machine's memory."""
    WINDOWS = "windows"
    """Aggregate, join, pattern, Python and Lua windows."""


class RunUntil(Enum):
    """The event time at which a run over finite input stops."""

    END = "end"
    """All time limits of patterns expire, as if time continued until no pattern waits."""
    LAST_ROW = "last-row"
    """Time stops at the last row: later time limits do not expire."""


class Doubles(Enum):
    """The notation of numbers with a fraction in CSV output."""

    FIXED = "fixed"
    """Six decimals."""
    EXACT = "exact"
    """The shortest text that parses to the same number."""


class Restart(Enum):
    """The action of `hotspare run` when its engine ends by a call of user code or a crash."""

    ALWAYS = "always"
    """A parent process, which watches the engine, starts it again. The default."""
    NEVER = "never"
    """The engine has no parent; whatever supervises it may start it again."""
