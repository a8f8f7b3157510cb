"""A real standalone cluster of Spark for tests: a master, and workers on separate hosts, from PySpark's jars.
Each is a JVM that ends when this process ends, also after `kill -9`; executors end with their worker.
"""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hotspare.base.errors import ClusterError
from hotspare.runners.spark.jre import find_java
from hotspare.testing.server_process import Machine, ServerProcess, free_ports

START_TIMEOUT_S = 120.0
_POLL_S = 0.1
_DAEMON_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
_EXECUTOR_RETRIES = "-Dspark.deploy.maxExecutorRetries=-1"
"""Unlimited retries of executors; only the master's own options can set this (docs/scale.md)."""
_REGISTERED = "Registering worker"
_LOG_SETTINGS = """status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c: %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


@dataclass(frozen=True, slots=True)
class WorkerSize:
    """The resources that each worker offers."""

    cores: int = 1
    memory_mib: int = 1_024


class StandaloneCluster:
    """A master on `place`, with a worker on each of `workers`. `url` is the value for `--master`. Logs and the files of executors
    are in `folder`. As a context manager it starts and stops all of them."""

    def __init__(self, folder: Path, place: Machine, workers: Sequence[Machine], size: WorkerSize | None = None) -> None:
        self._folder = folder
        size = size or WorkerSize()
        (port,) = free_ports(1)
        self.url = f"spark://{place.address}:{port}"
        self._master = self._daemon("master", place, "master.Master", ["--port", str(port)])
        offered = ["--cores", str(size.cores), "--memory", f"{size.memory_mib}m"]
        self._workers = [
            self._daemon(
                f"worker-{number}", worker, "worker.Worker", [*offered, "--work-dir", str(folder / f"work-{number}"), self.url]
            )
            for number, worker in enumerate(workers, 1)
        ]

    def _daemon(self, name: str, place: Machine, kind: str, arguments: Sequence[str]) -> ServerProcess:
        home = _spark_home()
        variables = {
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(self._folder / "conf"),
            "SPARK_LOCAL_IP": place.address,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": _DAEMON_JVM,
            "SPARK_MASTER_OPTS": _EXECUTOR_RETRIES,
            "JAVA_HOME": str(find_java().parent.parent),
        }
        said = [f"{key}={value}" for key, value in variables.items()]
        program = ["env", *said, str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        where = ["--host", place.address, "--webui-port", "0"]
        return ServerProcess(name, place.command([*program, *where, *arguments]), self._folder)

    def start(self) -> None:
        """Starts master and workers; returns when all workers are registered. Raises ClusterError if one does not start."""
        settings = self._folder / "conf"
        settings.mkdir(parents=True, exist_ok=True)
        (settings / "log4j2.properties").write_text(_LOG_SETTINGS, encoding="utf-8")
        for each in (self._master, *self._workers):
            each.launch()
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._registered_workers() < len(self._workers):
            for each in (self._master, *self._workers):
                if not each.is_running or time.monotonic() > deadline:
                    raise ClusterError(f"spark's {each.name} did not start", detail=each.log_tail())
            time.sleep(_POLL_S)

    def _registered_workers(self) -> int:
        with contextlib.suppress(OSError):
            return self._master.log.read_text(errors="replace").count(_REGISTERED)
        return 0

    def stop(self) -> None:
        for each in (*self._workers, self._master):
            each.stop()

    def __enter__(self) -> StandaloneCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ClusterError("pyspark, which contains spark, is not installed")
    return Path(spec.origin).parent
