"""Words among which a command line and a program choose alike. Loads nothing, so that `hotspare --help` stays quick."""

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
    """How a CSV file is written."""

    EVENTS = "events"
    """Rows of opcode, flags and fields, or what a connector says."""
    PLAIN = "plain"
    """A title line, which names the columns; opcodes where there are not only inserts."""


class HeadPlace(Enum):
    """Where the head runs; the outputs are the same."""

    DRIVER = "driver"
    """In the engine's process, which then has to decode too."""
    WORKERS = "workers"
    """In Spark's Python workers, beside the core."""


class KafkaReaderKind(Enum):
    """How Spark reads a Kafka bus; the outputs are the same."""

    SPAN = "span"
    """A task that follows the topics (runners/spark/span.py): least latency and least processor time. The default."""
    SOURCE = "source"
    """Spark's own Kafka source, in micro-batches."""


class OnDivergence(Enum):
    """What a spare does whose outputs alone differ from the committed ones."""

    STOP = "stop"
    CONTINUE = "continue"
    """It stays a standby, goes on raising the alarm in its member record, and takes over only where nobody else can."""


class OtherStore(Enum):
    """What an engine does whose store is not the one in which its group's snapshots are."""

    REFUSE = "refuse"
    ACCEPT = "accept"
    """From then on this is the group's store: the one before is gone for good, or its snapshots were moved here."""


class SnapshotForm(Enum):
    """How much a snapshot writes."""

    INCREMENTAL = "incremental"
    """What has changed since the one before; the rest it shares with it. The default."""
    FULL = "full"
    """Everything anew, without rows that are gone."""


class CreateTime(Enum):
    """What an engine does with an inbound topic whose messages have the times that publishers set."""

    REFUSE = "refuse"
    ACCEPT = "accept"
    """One wrong time harms nobody; a publisher whose times are all wrong holds its topic up, or moves time for all."""


class OnPoison(Enum):
    """What a group does about an event on which the engine itself fails, again and from the same state."""

    BAD_EVENT = "bad-event"
    """It becomes a bad event, and the group goes on."""
    STOP = "stop"
    """Every engine of the group ends there, and names the event."""


class StartWhen(Enum):
    """When an engine that is loaded joins its group."""

    AT_ONCE = "at-once"
    ASKED = "asked"
    """When `hotspare start` says so."""


class Since(Enum):
    """From where on the events of a running group are shown."""

    NOW = "now"
    SNAPSHOT = "snapshot"
    """All that came since the newest snapshot; where there is none, since the group began."""


class SpareKind(Enum):
    """What an engine is while another one publishes."""

    HOT = "hot"
    """It has the state, and goes on at once."""
    COLD = "cold"
    """It has none, and joins when nobody is left who publishes."""


class JoinFrom(Enum):
    """What an engine makes its state from when it joins."""

    SNAPSHOT = "snapshot"
    """The newest snapshot and the input behind it, else all input since the group began. The default."""
    RECENT = "recent"
    """The newest input alone, as far back as the windows remember; it may take over once its outputs match what is committed."""


class LogFormat(Enum):
    HUMAN = "human"
    JSON = "json"


class MissingTopic(Enum):
    """The action of a publisher if an inbound topic does not exist."""

    REFUSE = "refuse"
    """Engines create it, with as many partitions as they read. The default."""
    CREATE = "create"


class LogLevel(Enum):
    """The least level of the lines that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class DemoProject(Enum):
    """Which project the demo runs."""

    MEMORY = "memory"
    """A chain of the first window types."""
    WINDOWS = "windows"
    """Aggregate, join, pattern, Python and Lua windows."""


class RunUntil(Enum):
    """How far time goes in input that ends."""

    END = "end"
    """Every limit of a pattern ends, as if time went on until nothing waits for it."""
    LAST_ROW = "last-row"
    """No further than the input."""


class Doubles(Enum):
    """How a number with a fraction is written."""

    FIXED = "fixed"
    """Six decimals."""
    EXACT = "exact"
    """The shortest text that reads back."""
