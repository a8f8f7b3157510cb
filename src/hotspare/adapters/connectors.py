"""The connectors of a project at work: they run on the active engine only, and stop when it gives its role up (SPEC I1, I12).

Publishers go on where the topic says that the last one stopped, subscribers where the position beside their file says, so it does
not matter which engine runs them, or how the last one ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from hotspare.adapters.connector_options import connector_file, header_property, publish_options, subscribe_options
from hotspare.adapters.file_publisher import publish_file
from hotspare.adapters.file_subscriber import SubscribeReport, subscribe_file
from hotspare.adapters.output_rows import FileStyle, HeaderLine, OutputRows
from hotspare.bus.contract import Bus, Partition
from hotspare.bus.naming import inbound_topic, outbound_topic
from hotspare.errors import FileInUse, HotspareError
from hotspare.ha.roles import Role
from hotspare.model.project import Connector, ConnectorDirection, WindowId
from hotspare.model.resolve import Resolved
from hotspare.telemetry.log import Log, LogEvent

FILE_KIND = "fs"
_RETRY_S = 0.5
_STOP_TIMEOUT_S = 10.0


class ConnectorState(Enum):
    """SPEC I12."""

    RUNNING = "running"
    FINISHED = "finished"
    """A publisher at the end of its file."""
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class _Task:
    """A connector and what it does until the event is set."""

    window: WindowId
    connector: Connector
    work: Callable[[threading.Event], None]

    @property
    def name(self) -> str:
        return f"{self.window}/{self.connector.name}"


class ConnectorSet:
    """All file connectors of a valid project. `home` is the folder of relative file names, by default the current one.

    `follow`, `start` and `stop` may be called again and again, from one thread. A connector that fails is logged and stays failed
    until the next start; it never ends the engine. Connectors of other kinds name the bus itself, which is given by URL: they are
    not run.
    """

    def __init__(self, resolved: Resolved, bus: Bus, prefix: str, home: Path | None = None, log: Log | None = None) -> None:
        self._resolved = resolved
        self._bus = bus
        self._prefix = prefix
        self._home = home or Path.cwd()
        self._log = log or Log()
        self._stop = threading.Event()
        self._running: list[threading.Thread] = []
        self._leaving: list[threading.Thread] = []
        self._states: dict[str, ConnectorState] = {}

    def states(self) -> Mapping[str, ConnectorState]:
        """State per `query/window/connector`."""
        return dict(sorted(self._states.items()))

    def follow(self, role: Role) -> None:
        """Run while the engine is active. Does not wait for connectors that are to stop."""
        if role is Role.ACTIVE:
            self.start()
        else:
            self._ask_stop()

    def start(self) -> None:
        """Start every connector in a thread of its own; harmless when they run."""
        if self._running:
            return
        self._join()
        self._stop = threading.Event()
        for task in self._tasks():
            self._states[task.name] = ConnectorState.RUNNING
            name = f"connector-{task.connector.name}"
            self._running.append(threading.Thread(target=self._run, args=(task, self._stop), name=name, daemon=True))
        for thread in self._running:
            thread.start()

    def stop(self) -> None:
        """Stop them all; what they wrote is durable when this returns. Harmless when they do not run."""
        self._ask_stop()
        self._join()

    def _ask_stop(self) -> None:
        self._stop.set()
        self._leaving += self._running
        self._running = []

    def _join(self) -> None:
        for thread in self._leaving:
            thread.join(timeout=_STOP_TIMEOUT_S)
        self._leaving = []

    def _tasks(self) -> list[_Task]:
        tasks = []
        for window in self._resolved.windows:
            for connector in window.window.connectors:
                if connector.kind == FILE_KIND:
                    tasks.append(_Task(window.id, connector, self._work(window.id, connector)))
                else:
                    self._log.event(
                        LogEvent.CONNECTOR_SKIPPED, f"{connector.kind} is the bus itself", connector=f"{window.id}/{connector.name}"
                    )
        return tasks

    def _work(self, window: WindowId, connector: Connector) -> Callable[[threading.Event], None]:
        if connector.direction is ConnectorDirection.PUBLISH:
            return lambda stop: self._publish(window, connector, stop)
        return lambda stop: self._subscribe(window, connector, stop)

    def _publish(self, window: WindowId, connector: Connector, stop: threading.Event) -> None:
        project = self._resolved.project.name
        source = f"connector:{project}/{window}/{connector.name}"
        options = publish_options(connector, self._resolved.schema(window), source)
        topic = inbound_topic(self._prefix, project, window.query, window.window)
        publish_file(self._bus, Partition(topic), connector_file(connector, self._home), options, stop)

    def _subscribe(self, window: WindowId, connector: Connector, stop: threading.Event) -> None:
        topic = outbound_topic(self._prefix, self._resolved.project.name, window.query, window.window)
        style = FileStyle(header=HeaderLine(header_property(connector)), date_format=connector.get("dateformat"))
        log = self._log.bind(connector=f"{window}/{connector.name}")
        report = SubscribeReport(
            broken=lambda place: log.event(LogEvent.SEQUENCE_BROKEN, str(place), topic=topic),
            incomplete=lambda first: log.event(LogEvent.OUTPUT_NOT_FROM_BEGINNING, topic=topic, first_sequence=first),
        )
        rows = OutputRows(style, self._resolved.schema(window))
        subscribe_file(self._bus, topic, connector_file(connector, self._home), rows, subscribe_options(connector), stop, report)

    def _run(self, task: _Task, stop: threading.Event) -> None:
        log = self._log.bind(connector=task.name)
        log.event(LogEvent.CONNECTOR_STARTED)
        try:
            self._until_done(task, stop)
        except HotspareError as error:
            self._end(task, stop, ConnectorState.FAILED)
            log.event(LogEvent.CONNECTOR_FAILED, str(error), code=error.code)
        except Exception as error:
            self._end(task, stop, ConnectorState.FAILED)
            log.event(LogEvent.CONNECTOR_FAILED, f"{type(error).__name__}: {error}")
        else:
            stopped = stop.is_set()
            self._end(task, stop, ConnectorState.STOPPED if stopped else ConnectorState.FINISHED)
            log.event(LogEvent.CONNECTOR_STOPPED if stopped else LogEvent.CONNECTOR_FINISHED)

    def _until_done(self, task: _Task, stop: threading.Event) -> None:
        """Do the task's work; again while the last engine, which may be frozen, still holds the file or the bus is away."""
        while True:
            try:
                task.work(stop)
            except FileInUse:
                pass
            except HotspareError as error:
                if not error.retryable:
                    raise
            else:
                return
            if stop.wait(_RETRY_S):
                return

    def _end(self, task: _Task, stop: threading.Event, state: ConnectorState) -> None:
        if stop is self._stop:  # a later start has states of its own
            self._states[task.name] = state
