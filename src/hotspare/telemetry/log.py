"""The log of hotspare: a closed list of events, each with its level and meaning, so that operators can search and alert on names.

Lines are written to standard error, by default as text for users, on request as one JSON object per line. Every line of an engine
has its group, engine and role. Field names end in their units. structlog, which loads asyncio, is imported at the first line.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, MutableMapping
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TextIO

from hotspare.base.choices import LogFormat as LogFormat
from hotspare.telemetry.secrets import masked_value

if TYPE_CHECKING:
    import structlog


class Level(Enum):
    """The importance of a log line to its reader."""

    DEBUG = 10
    """Routine events that recur every few seconds, for debugging hotspare itself."""
    INFO = 20
    """One line for each start, end, readiness or change of role, and none while nothing changes."""
    WARNING = 30
    """The engine continues, but an operator should check it."""
    ERROR = 40
    """An action failed, or an engine ended."""


class LogEvent(Enum):
    """Every event that may be logged: its name, its level, and its meaning. Names are stable."""

    ENGINE_STARTING = "engine_starting", Level.INFO, "an engine process begins to load its project"
    KERNELS_COMPILING = "kernels_compiling", Level.INFO, "kernels are compiled, once after the installation: some minutes"
    ENGINE_WAITS = "engine_waits", Level.INFO, "an engine is loaded, and joins at `hotspare start`"
    ENGINE_COLD = "engine_cold", Level.INFO, "a cold spare is loaded, and joins when its group has no engine that publishes"
    ENGINE_NEEDED = "engine_needed", Level.WARNING, "a group has no engine that publishes: the cold spare joins it"
    SPARK_STARTING = "spark_starting", Level.INFO, "Spark starts: up to half a minute; then the engine reads its input"
    SPARK_UI = "spark_ui", Level.INFO, "the address of Spark's user interface"
    ENGINE_STARTED = "engine_started", Level.INFO, "an engine is ready: it has its state and reads its input"
    ENGINE_STOPPING = "engine_stopping", Level.INFO, "an engine received a request to stop and finishes its transaction"
    ENGINE_STOPPED = "engine_stopped", Level.INFO, "an engine ended on request"
    ENGINE_FAILED = "engine_failed", Level.ERROR, "an engine ended because of an error"
    APPLICATION_STARTING = "application_starting", Level.INFO, "a driver begins to start Spark for the tasks of its shards"
    APPLICATION_WAITS = "application_waits", Level.INFO, "a driver waits for more slots before it gives its shards to tasks"
    APPLICATION_STARTED = "application_started", Level.INFO, "a driver has slots and gives its shards to tasks"
    APPLICATION_ENDED = "application_ended", Level.INFO, "a driver has ended its tasks and Spark"
    TASK_RUNS = "task_runs", Level.INFO, "a task of Spark has connected and hosts the engines of its shards"
    TASK_ENDED = "task_ended", Level.WARNING, "a task of Spark ended; it is started again"
    TASK_ABANDONED = (
        "task_abandoned",
        Level.WARNING,
        "a task that did not report is replaced, and its executor ended",
    )
    TASK_AWAITED = "task_awaited", Level.WARNING, "a task's process or executor is lost, and Spark starts the task again"
    SHARDS_MOVED = "shards_moved", Level.INFO, "a task of Spark hosts other shards from now on, because executors joined or left"
    SHARE_TAKEN = "share_taken", Level.INFO, "an application requests an active role, to have its share of them"
    RUNNER_ENDED = "runner_ended", Level.ERROR, "the runner ended by itself"
    RUNNER_WARNING = "runner_warning", Level.WARNING, "the runner works, but slower than it could"
    ROLE_CHANGED = "role_changed", Level.INFO, "an engine changed its role"
    HA_ACTION = (
        "ha_action",
        Level.DEBUG,
        "an engine acts upon its role; if that succeeds, `role_changed` follows with the same reason",
    )
    HA_NOTICE = "ha_notice", Level.INFO, "an event in the group, for the operator's information"
    HA_ALARM = "ha_alarm", Level.WARNING, "an event in the group that an operator should look at"
    COORDINATION_LATE = (
        "coordination_late",
        Level.DEBUG,
        "a call to coordination failed once; `ha_alarm` follows if calls keep failing for a second",
    )
    DIVERGED = "diverged", Level.ERROR, "an engine's outputs differ from those committed"
    SNAPSHOT_WRITTEN = "snapshot_written", Level.DEBUG, "a snapshot was written as a candidate"
    SNAPSHOT_CONFIRMED = "snapshot_confirmed", Level.DEBUG, "a snapshot may be restored from now on"
    SNAPSHOT_REJECTED = "snapshot_rejected", Level.WARNING, "a snapshot is damaged or differs from what was published"
    STATE_RESTORED = "state_restored", Level.INFO, "an engine continues from a snapshot"
    CATCHING_UP = (
        "catching_up",
        Level.INFO,
        "an engine processes the input that its topics held when it started: the count and the rate",
    )
    PROJECT_WARNING = "project_warning", Level.WARNING, "a part of a project has no effect or was corrected"
    RETENTION_WARNING = "retention_warning", Level.WARNING, "a topic may delete messages that an engine would need"
    TOPIC_WARNING = "topic_warning", Level.WARNING, "a topic's settings are weaker than exactness or availability require"
    CONNECTOR_STARTED = "connector_started", Level.INFO, "a connector of the project runs on this engine"
    CONNECTOR_FINISHED = "connector_finished", Level.INFO, "a publishing connector reached the end of its file"
    CONNECTOR_STOPPED = "connector_stopped", Level.INFO, "a connector stopped on request"
    CONNECTOR_FAILED = "connector_failed", Level.ERROR, "a connector failed; it is retried, and the engine continues"
    CONNECTOR_WAITS = "connector_waits", Level.WARNING, "a connector of the project cannot continue yet, for the reason given"
    SOURCE_WARNING = (
        "source_warning",
        Level.WARNING,
        "a source looks wrong: times before 1971, titles or members of no field, a file without rows",
    )
    LOCK_HOLDER_ENDED = "lock_holder_ended", Level.WARNING, "a stopped process that held a lock was ended"
    CONNECTOR_BUILT_IN = "connector_built_in", Level.INFO, "the engine itself does the work of a connector to its bus"
    SEQUENCE_BROKEN = "sequence_broken", Level.ERROR, "an output stream has a gap or a repetition in its sequence"
    INPUT_LOST = (
        "input_lost",
        Level.ERROR,
        "a topic deleted messages before they were imported: its publisher continues after them",
    )
    OUTPUT_NOT_FROM_BEGINNING = "output_not_from_beginning", Level.WARNING, "an output topic no longer holds its first outputs"
    EVENT_POISONOUS = (
        "event_poisonous",
        Level.ERROR,
        "the engine fails on an event or a step: a defect of hotspare",
    )
    HUNG_CALL = (
        "hung_call",
        Level.ERROR,
        "a call of user code exceeded its deadline or memory, or crashed its engine; or the group stops before it, or decided",
    )
    ATTEMPT_LOST = "attempt_lost", Level.ERROR, "an engine was ended because of a call, and this cannot be recorded"
    HUNG_LOADING = "hung_loading", Level.ERROR, "the code of the project does not finish loading: the engine is ended"
    ENGINE_RESTARTED = "engine_restarted", Level.WARNING, "an engine ended by a call or a crash and is started again"
    STOP_OVERDUE = "stop_overdue", Level.ERROR, "an engine that was to stop did not finish a call of user code, and is ended"
    TRACE = "trace", Level.INFO, "an event of a traced window (SPEC A40)"

    def __init__(self, label: str, level: Level, meaning: str) -> None:
        self.label = label
        self.level = level
        self.meaning = meaning


class Log:
    """A logger whose bound fields are part of every line that it writes."""

    def __init__(self, logger: structlog.typing.FilteringBoundLogger | None = None) -> None:
        self._bound = logger

    @cached_property
    def _logger(self) -> structlog.typing.FilteringBoundLogger:
        import structlog

        return structlog.get_logger("hotspare") if self._bound is None else self._bound

    def bind(self, **fields: object) -> Self:
        """Returns a logger with additional bound fields (`group`, `engine`, `role`, `connector`, ...); this one stays as it is."""
        return type(self)(self._logger.bind(**fields))

    def event(self, event: LogEvent, message: str = "", **fields: object) -> None:
        """Writes one line with the level of `event`. `message` is a sentence for users; `fields` are values for programs."""
        if message:
            fields["message"] = message
        self._logger.log(event.level.value, event.label, **fields)


def configure_logging(format_: LogFormat = LogFormat.HUMAN, level: Level = Level.INFO, stream: TextIO | None = None) -> None:
    """Configures logging for the whole process; call it once, before the first line. Lines below `level` are dropped; `stream` is
    standard error by default."""
    import structlog

    out = stream if stream is not None else sys.stderr
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(sort_keys=True)
        if format_ is LogFormat.JSON
        else structlog.dev.ConsoleRenderer(colors=out.isatty(), pad_event_to=22, exception_formatter=structlog.dev.plain_traceback)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _mask_secrets,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level.value),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )


def configured_format() -> LogFormat:
    """Returns the form of log lines of this process."""
    import structlog

    renderer = structlog.get_config()["processors"][-1]
    return LogFormat.JSON if isinstance(renderer, structlog.processors.JSONRenderer) else LogFormat.HUMAN


_SEPARATORS = frozenset(" \t=\r\n\"'")
"""Characters because of which a value is quoted in a line for users."""


def plain_line(format_: LogFormat, event: LogEvent, message: str, **fields: object) -> str:
    """Returns the line that `Log.event` would write, for processes that must not load structlog."""
    now_s = time.time()
    stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now_s))}.{int(now_s % 1 * 1e6):06d}Z"
    shown = {name: masked_value(name, value) for name, value in sorted({**fields, "message": message}.items())}
    level = event.level.name.lower()
    if format_ is LogFormat.JSON:
        return json.dumps({**shown, "event": event.label, "level": level, "timestamp": stamp}, sort_keys=True) + "\n"
    return f"{stamp} [{level:<9}] {event.label:<22} " + " ".join(f"{name}={_quoted(value)}" for name, value in shown.items()) + "\n"


def _quoted(value: object) -> str:
    return repr(value) if isinstance(value, str) and _SEPARATORS.intersection(value) else str(value)


def _mask_secrets(logger: object, method: str, fields: MutableMapping[str, Any]) -> Mapping[str, Any]:
    return {name: masked_value(name, value) for name, value in fields.items()}
