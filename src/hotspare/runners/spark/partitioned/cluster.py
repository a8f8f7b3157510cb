"""The Spark session of an application: which master, how many slots, and how code and Python reach the executors.

    local[n]                 tasks are processes of this machine, below the driver's JVM
    local-cluster[n,c,MB]    n executors with c slots each, processes of this machine: what tests use
    spark://, yarn, k8s://   executors elsewhere: Python and hotspare go along as an archive (environment.py), unless
                             `--conf spark.pyspark.python=...` says where there are both

On one machine the executors run this very Python and this very package.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from hotspare.base.addresses import LOOPBACK, HostPort, address_towards
from hotspare.base.errors import UsageError
from hotspare.base.scratch import make_scratch
from hotspare.runners.spark.archive import existing_archive
from hotspare.runners.spark.jars import BARE_FILE_SYSTEM, available, cache_folder, cached_kafka_source
from hotspare.runners.spark.partitioned.environment import EXECUTOR_PYTHON, Shipment, shipment
from hotspare.runners.spark.partitioned.limits import TASK_FAILURES_MAX, limits_conf
from hotspare.runners.spark.session import Session, SessionOptions
from hotspare.runners.spark.settings import PYTHON_SETTING

_LOCAL = re.compile(r"local(?:\[(?P<slots>\d+|\*)(?:,\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(?P<executors>\d+)\s*,\s*(?P<cores>\d+)\s*,\s*(?P<mib>\d+)\s*\]")
_ELSEWHERE = re.compile(r"(?:spark|k8s)://.+|yarn")
_STANDALONE_SERVER = re.compile(r"spark://(?P<host>[^:,/]+|\[[^\]]+\])(?::(?P<port>\d+))?.*")
CORES_SETTING = "spark.cores.max"
_SCALA_VERSION = "2.13"
"""Of PySpark's jars; without it Spark looks for the folder that built them."""
SLOTS_TIMEOUT_S = 120.0
"""So long a first slot is waited for: executors may have to be started on machines that have to be started."""
SLOTS_QUIET_S = 20.0
"""So long another one is waited for where there are some; those that come later get shards, too."""
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Master:
    """`slots` is None where the cluster decides how many there are."""

    url: str
    slots: int | None = None
    executor_mib: int | None = None
    is_here: bool = True
    """Whether all executors run on this machine."""
    has_executors: bool = True
    """Whether there are executors beside the driver."""


def parse_master(url: str) -> Master:
    """UsageError for what is no master."""
    if match := _LOCAL.fullmatch(url):
        slots = (os.cpu_count() or 1) if match["slots"] == "*" else int(match["slots"] or "1")
        # Without the second number the first task that fails would end its job: the limit of limits.py does not count here.
        return Master(f"local[{slots},{TASK_FAILURES_MAX}]", slots, has_executors=False)
    if match := _LOCAL_CLUSTER.fullmatch(url):
        return Master(url, int(match["executors"]) * int(match["cores"]), int(match["mib"]))
    if _ELSEWHERE.fullmatch(url):
        return Master(url, is_here=False)
    raise UsageError(
        f"--master {url[:80]!r} is no master of Spark",
        hint="use local[N], local-cluster[EXECUTORS,CORES,MEMORY_IN_MB], spark://host:port, yarn or k8s://https://host:port",
    )


@dataclass(frozen=True, slots=True)
class SparkClusterOptions:
    """`given` are settings of Spark as the user says them; they win. `tasks_wanted`: slots that are waited for."""

    master: Master
    name: str
    tasks_wanted: int
    given: Mapping[str, str] = field(default_factory=dict, repr=False)


Told = Callable[[int, int], None]
"""(slots that there are, slots that are waited for)."""


class SparkCluster:
    """A session whose executors can run our tasks. `stop` ends it. RunnerError where Spark cannot be started."""

    def __init__(self, options: SparkClusterOptions) -> None:
        self._options = options
        master = options.master
        self.host = LOOPBACK if master.is_here else _own_address(master, options.given)
        """The address at which tasks reach this process."""
        self._place = make_scratch("cluster")
        self._shipment: Shipment | None = None
        try:
            if not master.is_here and PYTHON_SETTING not in options.given:
                self._shipment = shipment(cache_folder().parent / "environments", self._place)
            self.session = Session(self._session_options())
        except BaseException:
            shutil.rmtree(self._place, ignore_errors=True)
            raise
        self._set_python()

    def _session_options(self) -> SessionOptions:
        options, master = self._options, self._options.master
        jar, _ = available(BARE_FILE_SYSTEM)
        kafka = cached_kafka_source()
        archive = existing_archive(cache_folder(), jar, kafka)
        conf = limits_conf() | {
            "spark.master": master.url,
            "spark.app.name": options.name,
            "spark.driver.host": self.host,
            "spark.driver.bindAddress": self.host,
            "spark.local.dir": str(self._place / "local"),
        }
        variables: dict[str, str] = {"SPARK_LOCAL_IP": self.host}
        if master.has_executors:
            conf |= {
                # The class of the other one is on this machine's class path alone.
                "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
                "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss8m",
                CORES_SETTING: str(master.slots or options.tasks_wanted),
            }
            variables |= {"SPARK_HOME": str(self._own_spark_home()), "SPARK_SCALA_VERSION": _SCALA_VERSION}
        if master.executor_mib is not None:
            conf["spark.executor.memory"] = f"{master.executor_mib}m"
        if not master.is_here:
            conf |= {
                # The folder of the sockets is on this machine.
                "spark.python.unix.domain.socket.enabled": "false",
                # Where there is no Spark, its zipped Python files are not put before those that go along.
                "spark.executorEnv.SPARK_HOME": "none",
            }
        if self._shipment is not None:
            conf |= {"spark.archives": self._shipment.archives}
        return SessionOptions(
            cores=1, bare_file_system=jar, kafka_source=kafka, archive=archive, conf=conf, given=options.given, variables=variables
        )

    def _own_spark_home(self) -> Path:
        """A folder with Spark's jars alone: executors of this machine write beside them, and find none of its zipped Python files,
        which their Python would compile anew at each start."""
        home = self._place / "home"
        home.mkdir()
        (home / "jars").symlink_to(Path(pyspark.__file__).parent / "jars")
        return home

    def _set_python(self) -> None:
        """Which Python the tasks run, and where it finds what it imports."""
        context, given = self.session.spark.sparkContext, self._options.given
        context.pythonExec = given.get(PYTHON_SETTING, EXECUTOR_PYTHON if self._shipment is not None else sys.executable)
        if self._shipment is not None:
            context.environment.update(self._shipment.variables)

    def slots(self) -> int:
        """How many tasks can run at a time now."""
        scala = self.session.spark.sparkContext._jsc.sc()
        return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))

    def await_slots(self, told: Told = lambda slots, wanted: None) -> int:
        """As many as are wanted, or as there are when no more come; `told` how many there are, and each time that changes.
        UsageError where there is none for SLOTS_TIMEOUT_S."""
        wanted = min(self._options.tasks_wanted, self._options.master.slots or self._options.tasks_wanted)
        slots = slots_that_came(self.slots, wanted, told)
        if not slots:
            raise UsageError(
                f"the cluster gave no executor within {SLOTS_TIMEOUT_S:.0f} s",
                hint="look at the master: has it workers with free cores, and with the memory of spark.executor.memory?",
            )
        return slots

    def stop(self) -> None:
        self.session.stop()
        shutil.rmtree(self._place, ignore_errors=True)


def slots_that_came(
    look: Callable[[], int],
    wanted: int,
    told: Told,
    wait: Callable[[float], object] = time.sleep,
    clock_s: Callable[[], float] = time.monotonic,
) -> int:
    """How many there are, once these are as many as wanted, or none came for SLOTS_QUIET_S, or after SLOTS_TIMEOUT_S, in which a
    first one may come."""
    slots, end_s = look(), clock_s() + SLOTS_TIMEOUT_S
    while slots < wanted:
        told(slots, wanted)
        quiet_s = min(end_s, clock_s() + SLOTS_QUIET_S) if slots else end_s
        while (found := look()) == slots:
            if clock_s() >= quiet_s:
                return slots
            wait(_LOOK_S)
        slots = found
    return slots


def _own_address(master: Master, given: Mapping[str, str]) -> str:
    """At which executors elsewhere reach this machine: what was said, else the address by which the master is reached."""
    if host := given.get("spark.driver.host"):
        return host
    match = _STANDALONE_SERVER.fullmatch(master.url)
    if match is None:
        raise UsageError(f"where do executors of {master.url} reach this process?", hint="say it: --conf spark.driver.host=ADDRESS")
    return address_towards([HostPort(match["host"].strip("[]"), int(match["port"] or 7077))])
