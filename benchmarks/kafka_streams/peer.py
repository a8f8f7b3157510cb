"""Kafka Streams 4.1, next to which projects are measured: an application whose instances are processes of their own.

The programs are in this folder. Streams' jars are pinned and fetched into the user's cache; the client's jars and common
dependencies are the test brokers'. With one standby replica two instances have each partition twice, like two engines of a group.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import psutil
from benchmarks._divided import TIMEOUT_S, Divided
from benchmarks._divided_load import bootstrap_of
from benchmarks._java import CONNECT_JSON, answer, fetched, program
from confluent_kafka import Consumer, TopicPartition

from hotspare.base.errors import ClusterError
from hotspare.bus.contract import EPOCH_HEADER
from hotspare.runners.spark.jars import Jar
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_jars import class_path

VERSION = "4.1.1"
INSTANCES = ("1", "2")
JARS = (
    Jar(f"org.apache.kafka:kafka-streams:{VERSION}", "e554318dbc2b07461f714be32bb324744ba993eb7a49f938792beff577d7044b"),
    Jar("org.rocksdb:rocksdbjni:9.7.3", "5ca63e0e955f101f7af1c1fb8ce260b5d3a5701cea7d8c2852b9d56031a57221"),
)
JVM_OPTIONS = ("-Xms1g", "-Xmx1g", "-XX:-UsePerfData")
SETTINGS: dict[str, str | int] = {
    "processing.guarantee": "exactly_once_v2",
    "num.standby.replicas": 1,
    "num.stream.threads": 1,
    "statestore.cache.max.bytes": 64 << 20,
    "acceptable.recovery.lag": 10_000,
    "probing.rebalance.interval.ms": 60_000,
    "main.consumer.max.poll.records": 10_000,
    "consumer.max.partition.fetch.bytes": 4 << 20,
    "producer.batch.size": 1 << 20,
}
"""Settings of both measurements; all others have Streams' defaults."""
CATCH_UP: dict[str, str | int] = {**SETTINGS, "commit.interval.ms": 1_000}
"""One transaction holds the outputs of a whole second; the default is 100 ms."""


def quick(session_ms: int) -> dict[str, str | int]:
    """Returns settings for quick failover: a dead instance is noticed when its session ends, and its input is free again when its
    transaction has ended."""
    return {
        **SETTINGS,
        "commit.interval.ms": 100,
        "poll.ms": 10,
        "main.consumer.session.timeout.ms": session_ms,
        "main.consumer.heartbeat.interval.ms": session_ms // 5,
        "producer.transaction.timeout.ms": session_ms,
        "producer.linger.ms": 0,
        "retry.backoff.ms": 20,
        "main.consumer.retry.backoff.ms": 20,
        "reconnect.backoff.ms": 20,
    }


BROKER_SETTINGS: dict[str, str | int] = {
    "group.min.session.timeout.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 50,
}
"""Otherwise a broker grants no session below 6 s, and ends expired transactions every 10 s. hotspare needs none of them."""
_LOG_SETTINGS = """<Configuration status="error"><Appenders><Console name="out" target="SYSTEM_ERR">
<PatternLayout pattern="%d %p %c: %m%n"/></Console></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""
_LOOK_S, _DONE_LOOK_S = 0.1, 0.2
_LOG_TAIL_LENGTH = 2_000


@dataclass(frozen=True, slots=True)
class Status:
    """An instance's report: the partitions of its active and standby tasks, and the count of records that it has to restore."""

    state: str
    active: tuple[int, ...]
    standby: tuple[int, ...]
    lag: int

    @classmethod
    def read(cls, line: str) -> Status:
        told = json.loads(line)
        return cls(told["state"], tuple(sorted(told["active"])), tuple(sorted(told["standby"])), told["lag"])


def is_whole(told: Sequence[Status], shards: int, replicas: int = 1) -> bool:
    """Whether each partition has one active task and `replicas` standby tasks, with less lag than Streams accepts."""
    everything = list(range(shards))
    active = sorted(number for each in told for number in each.active)
    standby = sorted(number for each in told for number in each.standby)
    lag_max = int(SETTINGS["acceptable.recovery.lag"])
    is_complete = active == everything and standby == sorted(everything * replicas)
    return is_complete and all(each.state == "RUNNING" and each.lag < lag_max for each in told)


def instance_of(epoch: int) -> str:
    """Returns the instance that emitted outputs with this epoch."""
    return str(epoch % 10)


class Epochs(Enum):
    """Whether outputs name their instance and the time of its start: the header's name."""

    SAID = EPOCH_HEADER
    LEFT_OUT = ""


@dataclass(frozen=True, slots=True)
class Program:
    """A program of this folder, and the jars that it needs besides Streams' own."""

    file: str
    jars: tuple[Jar, ...] = ()


KEYED_SUM = Program("KeyedSum.java")
JSON_COPY = Program("JsonCopy.java", CONNECT_JSON)


@dataclass
class Streams:
    """The application for a project's topics. Its instances are named by digits."""

    project: Divided
    settings: Mapping[str, str | int]
    epochs: Epochs
    folder: Path
    program: Program = KEYED_SUM
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    @property
    def application(self) -> str:
        return f"streams-{self.project.prefix}"

    def start_instance(self, name: str) -> None:
        """Starts an instance; a killed one restarts with the files that it left."""
        properties = self.folder / f"{name}.properties"
        own = {
            "application.id": self.application,
            "bootstrap.servers": bootstrap_of(self.project.site.bus_url),
            "state.dir": self.folder / f"state-{name}",
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in {**self.settings, **own}.items()))
        log_settings = self.folder / "log4j2.xml"
        log_settings.write_text(_LOG_SETTINGS)
        jars = [*fetched(JARS, "kafka-streams"), *fetched(self.program.jars, "connect"), *class_path().split(os.pathsep)]
        options = (f"-Dlog4j2.configurationFile={log_settings}", *JVM_OPTIONS)
        command = program(Path(__file__).parent / self.program.file, jars, options)
        asked = [*command, str(properties), self.project.inbound, self.project.outbound, name, self.epochs.value]
        with self._log(name).open("a") as log:
            self.processes[name] = subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    def status(self, name: str) -> Status:
        """Returns an instance's report. Raises ClusterError if it has ended."""
        line = answer(self.processes[name], "\n")
        if not line:
            tail = self._log(name).read_text(errors="replace")[-_LOG_TAIL_LENGTH:]
            raise ClusterError(f"instance {name} of Kafka Streams has ended", detail=tail)
        return Status.read(line)

    def wait_both_hosted(self) -> None:
        replicas = int(self.settings["num.standby.replicas"])
        wait_until(
            lambda: is_whole([self.status(name) for name in self.processes], self.project.shards, replicas),
            "instances of Kafka Streams with all partitions and their standbys",
            TIMEOUT_S,
            _LOOK_S,
        )

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def cpu_s(self) -> float:
        """Returns the processor time of all instances so far."""
        times = [psutil.Process(process.pid).cpu_times() for process in self.processes.values()]
        return sum(each.user + each.system for each in times)

    def wait_done(self, ends: Sequence[int]) -> None:
        """Waits until the input of each partition is processed up to its offset in `ends`, and its outputs are committed."""
        places = [TopicPartition(self.project.inbound, number) for number in range(self.project.shards)]
        settings = {"group.id": self.application, "isolation.level": "read_uncommitted", "enable.auto.commit": False}
        group = Consumer({"bootstrap.servers": bootstrap_of(self.project.site.bus_url), **settings})

        def is_done() -> bool:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    self.status(name)
            return all(found.offset >= end for found, end in zip(group.committed(places, 10), ends, strict=True))

        with contextlib.closing(group):
            wait_until(is_done, f"Kafka Streams' committed offsets to reach {ends}", TIMEOUT_S, _DONE_LOOK_S)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


@contextlib.contextmanager
def streams(
    project: Divided,
    settings: Mapping[str, str | int],
    epochs: Epochs,
    program: Program = KEYED_SUM,
    instances: Sequence[str] = INSTANCES,
) -> Iterator[Streams]:
    """Starts an application and waits until it is whole; kills what is left of it at the end."""
    folder = project.folder / f"streams-{project.prefix}"
    folder.mkdir()
    made = Streams(project, settings, epochs, folder, program)
    try:
        for name in instances:
            made.start_instance(name)
        made.wait_both_hosted()
        yield made
    finally:
        for name in list(made.processes):
            made.kill(name)
