"""The options of an engine process, for `hotspare run` and for programs that embed an engine."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hotspare.base.addresses import checked_host_port
from hotspare.base.choices import CreateTime, HeadPlace, JoinFrom, RunnerKind, SpareKind, StartWhen
from hotspare.base.errors import UsageError
from hotspare.base.places import absolute_path, absolute_url
from hotspare.bus.limits import PARTITIONS_MAX
from hotspare.ha.rules.settings import GroupSettings as GroupSettings
from hotspare.runners.contract import BatchLimits as BatchLimits
from hotspare.runners.contract import SparkOptions as SparkOptions

_ENGINE_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")


def default_engine_name() -> str:
    return f"{socket.gethostname().split('.')[0]}-{os.getpid()}"


@dataclass(frozen=True)
class EngineOptions:
    """The options of an engine process that runs one group, or the groups of the `shards` of a divided project.

    `coordination_url` and `store_url` default to places next to an embedded bus. `properties` are those of the project (SPEC A4),
    `bindings` override connector properties from outside. `home` is the value of `@ESP_PROJECT_HOME@`. `project_name` chooses
    among several projects of one file. Paths become absolute here: tasks of Spark run elsewhere.

    `place` is what member records show about where the engine runs: a task of Spark gives application, task and executor.

    `memory_bytes` is the budget for the state of all groups together; 0: nothing is evicted. `page_folder` holds evicted pages.

    `restore`, `PATH-OR-URL#SNAPSHOT`, names a persisted snapshot to start from; "" uses the one that the project names, if any. An
    engine starts from the furthest snapshot that may be restored: this one, or one of the group's own.

    `code_deadline_ms` and `code_memory_bytes` limit the processor time and the memory of one call of user code; 0: no limit. A
    watcher ends the process at the limit (`host.watchdog`).

    `address`, `HOST` or `HOST:PORT`, is where the group's other engines reach this one; "" uses the default of
    `host.process.peer_addresses`. `listen` is the address that it binds, by default the same; the two differ behind address
    translation."""

    project: Path
    bus_url: str
    prefix: str = "hotspare"
    coordination_url: str = ""
    store_url: str = ""
    engine: str = field(default_factory=default_engine_name)
    address: str = ""
    listen: str = ""
    runner: RunnerKind = RunnerKind.ORDERED
    head_place: HeadPlace = HeadPlace.WORKERS
    spark: SparkOptions = field(default_factory=SparkOptions)
    create_time: CreateTime = CreateTime.REFUSE
    limits: BatchLimits = field(default_factory=BatchLimits)
    settings: GroupSettings = field(default_factory=GroupSettings)
    properties: Mapping[str, str] = field(default_factory=dict)
    bindings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    home: Path | None = None
    project_name: str = ""
    shards: int = 1
    place: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int = 0
    page_folder: Path | None = None
    restore: str = ""
    start: StartWhen = StartWhen.AT_ONCE
    spare: SpareKind = SpareKind.HOT
    join: JoinFrom = JoinFrom.SNAPSHOT
    code_deadline_ms: int = 0
    code_memory_bytes: int = 0

    def __post_init__(self) -> None:
        if not _ENGINE_NAME.fullmatch(self.engine):
            raise UsageError(f"engine name {self.engine!r} cannot be used", hint="use up to 64 letters, digits, '_', '-' and '.'")
        if not 1 <= self.shards <= PARTITIONS_MAX:
            raise UsageError(f"a project cannot run in {self.shards} shards", hint=f"use 1 to {PARTITIONS_MAX}")
        for text, option in ((self.address, "--address"), (self.listen, "--listen")):
            if text:
                checked_host_port(text, option)
        given = {name: getattr(self, name) for name in ("project", "home", "page_folder")}
        paths = {name: absolute_path(path) for name, path in given.items() if path is not None}
        urls = {name: absolute_url(getattr(self, name)) for name in ("bus_url", "coordination_url", "store_url")}
        for name, value in {**paths, **urls}.items():
            object.__setattr__(self, name, value)

    @property
    def folder(self) -> Path:
        """The base folder of the project's relative paths."""
        return self.home or self.project.parent
