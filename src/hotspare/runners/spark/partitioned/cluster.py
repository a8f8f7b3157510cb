"""The Spark session of an application: the master, the number of slots, and the shipment of Python and code to the executors.

    local[n]                 tasks are processes of this machine, below the driver's JVM
    local-cluster[n,c,MB]    n executors with c slots each, processes of this machine: used by tests
    spark://, yarn, k8s://   executors elsewhere: Python and hotspare are sent as archives (`Shipment`), unless
                             `--conf spark.pyspark.python=...` names a Python that has both

On one machine the executors run the Python and the hotspare package of this process.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pyspark

import hotspare
from hotspare.base.addresses import LOOPBACK, HostPort, address_towards
from hotspare.base.errors import RunnerError, UsageError
from hotspare.base.scratch import make_scratch
from hotspare.rows import kernel_files
from hotspare.rows.machine_code import MACHINE_CODE
from hotspare.runners.spark import private
from hotspare.runners.spark.archive import existing_archive
from hotspare.runners.spark.jars import BARE_FILE_SYSTEM, available, cache_folder
from hotspare.runners.spark.session import Session, SessionOptions
from hotspare.runners.spark.settings import PYTHON_SETTING, TASK_FAILURES_MAX, limits_conf

_LOCAL = re.compile(r"local(?:\[(?P<slots>\d+|\*)(?:,\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(?P<executors>\d+)\s*,\s*(?P<cores>\d+)\s*,\s*(?P<mib>\d+)\s*\]")
_REMOTE_MASTER = re.compile(r"(?:spark|k8s)://.+|yarn")
_STANDALONE_SERVER = re.compile(r"spark://(?P<host>[^:,/]+|\[[^\]]+\])(?::(?P<port>\d+))?.*")
CORES_SETTING = "spark.cores.max"
_SCALA_VERSION = "2.13"
"""The Scala version of PySpark's jars. Without this setting Spark searches for a build folder."""
SLOTS_TIMEOUT_S = 120.0
"""The longest wait for a first slot: executors, and their machines, may have to be started."""
SLOTS_QUIET_S = 20.0
"""The wait for another slot after the first. Slots that appear later are used for shards, too."""
_LOOK_S = 0.1
_ENVIRONMENT, _PACKAGE = "hotspare-environment", "hotspare-package"
EXECUTOR_PYTHON = f"./{_ENVIRONMENT}/bin/python"
_EXTRAS = ("sql", "redis", "s3")
"""The extras of hotspare whose installed packages are sent to executors."""
_PACKAGE_NAME = re.compile(r"[A-Za-z0-9._-]+")
_UNUSED_FILES = re.compile(
    r"^(?:pyspark/(?:jars|bin|sbin|examples|data|licenses|python/lib)/|lib/python[\d.]+/"
    r"(?:test|idlelib|tkinter|turtledemo|ensurepip|lib2to3|site-packages|dist-packages|config-[^/]*)/)|(?:^|/)(?:tests?/|__pycache__/)"
)
"""Matches files that no task reads: Spark's Java side, which executors already have, tests, and compiled Python files."""

OnSlots = Callable[[int, int], None]
"""Callback with the number of current slots and of wanted slots."""


@dataclass(frozen=True, slots=True)
class Master:
    """A master of Spark. `slots`: the number of tasks that can run at a time; None if the cluster decides. `executor_mib`: the
    memory of an executor if the URL sets it."""

    url: str
    slots: int | None = None
    executor_mib: int | None = None
    is_local: bool = True
    """Whether all executors run on this machine."""
    has_executors: bool = True
    """Whether the application has executor processes in addition to the driver."""


def parse_master(url: str) -> Master:
    """Parses the URL of a Spark master. Raises UsageError for any other text."""
    if match := _LOCAL.fullmatch(url):
        slots = (os.cpu_count() or 1) if match["slots"] == "*" else int(match["slots"] or "1")
        # Without the second number the first failed task would end its job: the limit of settings.py does not count here.
        return Master(f"local[{slots},{TASK_FAILURES_MAX}]", slots, has_executors=False)
    if match := _LOCAL_CLUSTER.fullmatch(url):
        return Master(url, int(match["executors"]) * int(match["cores"]), int(match["mib"]))
    if _REMOTE_MASTER.fullmatch(url):
        return Master(url, is_local=False)
    raise UsageError(
        f"--master {url[:80]!r}: not a master of Spark",
        hint="write local[N], local-cluster[EXECUTORS,CORES,MEMORY_IN_MB], spark://host:port, yarn or k8s://https://host:port",
    )


def check_reachable(what: str, url: str, master: Master) -> None:
    """Raises UsageError if tasks of `master`, which are other processes and may run on other machines, cannot reach `url`. `what`:
    the name of the place in the message."""
    if url.startswith("memory://"):
        raise UsageError(f"a {what} in memory exists in one process only", hint="use sqlite:///file.db, or servers")
    if url.startswith("sqlite://") and not master.is_local:
        raise UsageError(f"a {what} in a file exists on one machine only", hint="use servers if executors run on other machines")


@dataclass(frozen=True, slots=True)
class SparkClusterOptions:
    """The options of a cluster. `name`: the application's name. `tasks_wanted`: the number of slots to wait for. `given`: the
    user's settings of Spark, which take precedence."""

    master: Master
    name: str
    tasks_wanted: int
    given: Mapping[str, str] = field(default_factory=dict, repr=False)


class SparkCluster:
    """A Spark session whose executors can run hotspare's tasks, until `stop`. The constructor raises RunnerError if Spark cannot be
    started."""

    def __init__(self, options: SparkClusterOptions) -> None:
        self._options = options
        master = options.master
        self.host = LOOPBACK if master.is_local else _own_address(master, options.given)
        """The address at which tasks reach this process."""
        self._place = make_scratch("cluster")
        self._shipment: Shipment | None = None
        try:
            if not master.is_local and PYTHON_SETTING not in options.given:
                self._shipment = shipment(cache_folder().parent / "environments", self._place)
            self.session = Session(self._session_options())
        except BaseException:
            shutil.rmtree(self._place, ignore_errors=True)
            raise
        self._set_python()

    def _session_options(self) -> SessionOptions:
        options, master = self._options, self._options.master
        jar, _ = available(BARE_FILE_SYSTEM)
        archive = existing_archive(cache_folder(), jar)
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
                # Only this machine's class path has the class of the bare file system.
                "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
                "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss8m",
                CORES_SETTING: str(master.slots or options.tasks_wanted),
            }
            variables |= {"SPARK_HOME": str(self._own_spark_home()), "SPARK_SCALA_VERSION": _SCALA_VERSION}
        if master.executor_mib is not None:
            conf["spark.executor.memory"] = f"{master.executor_mib}m"
        if not master.is_local:
            conf |= {
                # The folder of the sockets is on this machine.
                "spark.python.unix.domain.socket.enabled": "false",
                # Without a Spark home its zipped Python files do not precede those that are sent.
                "spark.executorEnv.SPARK_HOME": "none",
            }
        if self._shipment is not None:
            conf |= {"spark.archives": self._shipment.archives}
        return SessionOptions(cores=1, bare_file_system=jar, archive=archive, conf=conf, given=options.given, variables=variables)

    def _own_spark_home(self) -> Path:
        """Makes a Spark home for the executors of this machine and returns its path. It has only the jars, because executors write
        into their Spark home, and would compile its zipped Python files again at each start."""
        home = self._place / "home"
        home.mkdir()
        (home / "jars").symlink_to(Path(pyspark.__file__).parent / "jars")
        return home

    def _set_python(self) -> None:
        """Sets the Python of the tasks, and the paths of its imports."""
        context, given = self.session.spark.sparkContext, self._options.given
        context.pythonExec = given.get(PYTHON_SETTING, EXECUTOR_PYTHON if self._shipment is not None else sys.executable)
        if self._shipment is not None:
            context.environment.update(self._shipment.variables)

    def slots(self) -> int:
        """Returns the number of tasks that can currently run at a time."""
        return private.slots(self.session.spark.sparkContext)

    def await_slots(self, told: OnSlots = lambda slots, wanted: None) -> int:
        """Waits until the wanted number of slots exists, or no more slots appear (`await_stable_slots`); returns their number.
        Raises UsageError if no slot exists after SLOTS_TIMEOUT_S."""
        wanted = min(self._options.tasks_wanted, self._options.master.slots or self._options.tasks_wanted)
        slots = await_stable_slots(self.slots, wanted, told)
        if not slots:
            raise UsageError(
                f"the cluster provided no executor within {SLOTS_TIMEOUT_S:.0f} s",
                hint="check that the master has workers with free cores and with the memory that spark.executor.memory requests",
            )
        return slots

    def stop(self) -> None:
        self.session.stop()
        shutil.rmtree(self._place, ignore_errors=True)


def await_stable_slots(
    look: Callable[[], int],
    wanted: int,
    told: OnSlots,
    wait: Callable[[float], object] = time.sleep,
    clock_s: Callable[[], float] = time.monotonic,
) -> int:
    """Waits until `look` reports `wanted` slots, or no further slot appeared for SLOTS_QUIET_S, at most SLOTS_TIMEOUT_S; returns
    the number of slots. Calls `told` at first and at each change, while slots are missing."""
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
    """Returns the address at which executors on other machines reach this machine: the configured one, else this machine's address
    on the route to the master. Raises UsageError if the master's URL names no host."""
    if host := given.get("spark.driver.host"):
        return host
    match = _STANDALONE_SERVER.fullmatch(master.url)
    if match is None:
        raise UsageError(
            f"no address at which executors of {master.url} reach this process", hint="name one: --conf spark.driver.host=ADDRESS"
        )
    return address_towards([HostPort(match["host"].strip("[]"), int(match["port"] or 7077))])


@dataclass(frozen=True, slots=True)
class Shipment:
    """The files for executors on other machines: this Python, the packages that hotspare needs, and hotspare itself. `archives`:
    the value of spark.archives. `variables`: environment variables for the tasks' Python.

    Spark copies two archives to every executor and unpacks them in its folder. The environment archive is made once for each set of
    versions and cached. The package archive, with compiled kernels, is small and made at every start. The machines need the same
    system and architecture as this one, but no installation.
    """

    archives: str
    variables: dict[str, str] = field(default_factory=dict)


def shipment(cache: Path, place: Path) -> Shipment:
    """Makes the archives and returns the shipment: the environment in `cache`, if it is missing there, and the package in `place`.

    Raises RunnerError if the archives cannot be written, or hotspare is not installed.
    """
    packages = _needed_distributions()
    versions = [sys.version, sys.executable, *(f"{each.name} {each.version}" for each in packages)]
    name = hashlib.sha256("\n".join(versions).encode()).hexdigest()[:16]
    environment, package = cache / f"environment-{name}.tar.gz", place / "package.tar.gz"
    try:
        if not environment.is_file():
            cache.mkdir(parents=True, exist_ok=True)
            _write_archive(environment, _environment_files(packages))
        _write_archive(package, _package_files())
    except OSError as error:
        raise RunnerError("the archive of this Python for the executors cannot be written", detail=str(error)) from error
    variables = {"PYTHONPATH": os.pathsep.join((_PACKAGE, f"{_ENVIRONMENT}/site")), "LD_LIBRARY_PATH": f"{_ENVIRONMENT}/lib"}
    return Shipment(f"{environment.as_uri()}#{_ENVIRONMENT},{package.as_uri()}#{_PACKAGE}", variables)


def _needed_distributions() -> list[Distribution]:
    """Returns all installed packages that hotspare needs, directly or indirectly, in order of their names. Raises RunnerError if
    hotspare is not installed."""
    try:
        own = distribution("hotspare")
    except PackageNotFoundError as error:
        what = "hotspare is not installed, so the packages that it needs are unknown"
        raise RunnerError(what, hint="install it, or set --conf spark.pyspark.python") from error
    found: dict[str, Distribution] = {}
    open_names = list(_requirements(own, _EXTRAS))
    while open_names:
        name = open_names.pop()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # for another system, or of an extra that is not installed
        open_names += _requirements(found[name], ())
    return [found[name] for name in sorted(found)]


def _requirements(package: Distribution, extras: tuple[str, ...]) -> Iterator[str]:
    for text in package.requires or ():
        requirement, _, marker = text.partition(";")
        if "extra" in marker and not any(f"'{extra}'" in marker or f'"{extra}"' in marker for extra in extras):
            continue
        match = _PACKAGE_NAME.match(requirement)
        if match is not None:
            yield match[0].lower().replace("_", "-")


def _environment_files(packages: list[Distribution]) -> Iterator[tuple[Path, str]]:
    """Yields the files of the environment archive as (path, name in the archive): the interpreter, the standard library, and
    `packages`."""
    yield Path(sys._base_executable).resolve(), "bin/python"  # type: ignore[attr-defined]
    library = Path(sysconfig.get_path("stdlib", vars={"base": sys.base_prefix, "installed_base": sys.base_prefix}))
    for path in sorted(library.rglob("*")):
        yield path, f"lib/{library.name}/{path.relative_to(library).as_posix()}"
    shared = sysconfig.get_config_var("INSTSONAME")
    folder = sysconfig.get_config_var("LIBDIR")
    if shared and folder and (Path(folder) / shared).is_file() and ".so" in shared:
        yield Path(folder) / shared, f"lib/{shared}"
    for package in packages:
        for file in package.files or ():
            if ".." not in file.parts:
                yield Path(str(package.locate_file(file))), f"site/{file.as_posix()}"


def _package_files() -> Iterator[tuple[Path, str]]:
    """Yields the files of the hotspare package and its compiled kernels as (path, name in the archive). Compiling kernels on an
    executor would take minutes."""
    root = Path(hotspare.__file__).parent
    for path in sorted(root.rglob("*")):
        if path.suffix != ".pyc" and MACHINE_CODE not in path.parts:
            yield path, f"hotspare/{path.relative_to(root).as_posix()}"
    for path in kernel_files.files():
        yield path, f"hotspare/{MACHINE_CODE}/{path.name}"


def _write_archive(target: Path, files: Iterator[tuple[Path, str]]) -> None:
    """Writes the archive `target` atomically. `files`: (path, name in the archive); unused files are skipped."""
    handle, fresh = tempfile.mkstemp(dir=target.parent, suffix=".tar.gz")
    os.close(handle)
    try:
        with tarfile.open(fresh, "w:gz", compresslevel=1, dereference=True) as archive:
            for path, name in files:
                if path.is_file() and not _is_unused_file(name):
                    archive.add(path, name, recursive=False)
        Path(fresh).replace(target)
    finally:
        Path(fresh).unlink(missing_ok=True)


def _is_unused_file(name: str) -> bool:
    return name.startswith(("lib/", "site/")) and _UNUSED_FILES.search(name.removeprefix("site/")) is not None
