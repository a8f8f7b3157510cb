"""A Spark session with its own JVM, which this module starts and watches, and which dies with this process.

The JVM is started without spark-submit, whose launcher is a JVM of its own and whose Python side forks with code between fork and
exec. On Linux the kernel kills the JVM when this process dies for any reason (`start_bound`). Elsewhere the JVM reads a pipe from
this process and exits when the pipe closes. Such a JVM first shuts Spark down, which occupies a core just when a spare on the same
machine takes over.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil
import pyspark
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import hotspare
from hotspare.base.errors import RunnerError
from hotspare.base.interpreter import ENVIRONMENT
from hotspare.base.scratch import make_scratch
from hotspare.runners.spark.jre import find_java
from hotspare.runners.spark.private import conf_of_gateway, reset_globals, silence_accumulators
from hotspare.runners.spark.settings import jvm_options, session_conf

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 3.0
ARCHIVE_TIMEOUT_S = 120.0
_POLL_S = 0.005
_LOG_TAIL_LENGTH = 2_000
_PLANNERS = "pyspark.sql.worker."
"""The prefix of the Python modules that plan a query. It identifies these processes by their commands."""
_BECOME = """
import ctypes, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the process that starts this one has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""A Python program that replaces itself by the command in its arguments. The command ignores Ctrl-C, and on Linux dies with its
parent. Doing this between fork and exec is not possible, because a process with threads must not run Python there."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The options of a session. `cores`: Spark's task slots. `bare_file_system` (a jar of jars.py) and `archive` (archive.py) make
    the session faster; they may be None. `jars`: further jars, last on the class path. `archive_to_write`: the path of an
    archive that the JVM writes when it ends, which takes some seconds.

    `conf` overrides the settings of settings.py. `given` overrides both and is passed to Spark alone: it may be secret, and every
    user can read a JVM's command line. `variables`: environment variables of the JVM and of its child processes.
    """

    cores: int
    bare_file_system: Path | None = None
    jars: tuple[Path, ...] = ()
    archive: Path | None = None
    archive_to_write: Path | None = None
    heap_mib: int = 1024
    conf: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    variables: Mapping[str, str] = field(default_factory=dict)


class Session:
    """A Spark session with its JVM; a process may have one at a time. `stop()` ends the JVM and removes the scratch folder."""

    def __init__(self, options: SessionOptions) -> None:
        """Starts the JVM and the session. Raises RunnerError if no JVM can be started. The caller's SIGINT handler remains in
        place."""
        self.scratch = make_scratch("spark", _scratch_root())
        try:
            self._stop_timeout_s = STOP_TIMEOUT_S if options.archive_to_write is None else ARCHIVE_TIMEOUT_S
            conf = session_conf(self.scratch, options.cores, options.bare_file_system) | dict(options.conf)
            self.jvm, info = _start_jvm(options, conf, self.scratch)
            try:
                _await_gateway(self.jvm, info, self.scratch)
                with _own_interrupt_handler():
                    self.spark = _connect(info, conf | dict(options.given))
            except BaseException:
                self.jvm.kill()
                raise
        except BaseException:
            shutil.rmtree(self.scratch, ignore_errors=True)
            raise

    def jvm_is_alive(self) -> bool:
        return self.jvm.poll() is None

    def wait_for_death(self) -> RunnerError:
        """Blocks until the JVM has died, and returns an error with its exit status and the end of its log."""
        status = self.jvm.wait()
        tail = log_tail(self.scratch)
        return RunnerError("the JVM of Spark has ended", detail=f"exit status {status}" + (f"; it wrote: {tail}" if tail else ""))

    def dies_within(self, seconds: float) -> bool:
        """Waits at most `seconds` for the JVM's death; returns whether it died."""
        with suppress(subprocess.TimeoutExpired):
            self.jvm.wait(seconds)
        return not self.jvm_is_alive()

    def end_planners(self) -> None:
        """Ends the Python processes that planned the query: three daemons with a worker each, some 180 MiB, which would otherwise
        run as long as the JVM. Spark starts them again if it plans another query."""
        with suppress(psutil.Error):
            for child in psutil.Process(self.jvm.pid).children():
                if any(word.startswith(_PLANNERS) for word in child.cmdline()):
                    child.terminate()  # a daemon ends its workers

    def stop(self) -> None:
        """Ends the session and its JVM; has no effect on one that has ended already."""
        if self.jvm_is_alive():
            stopping = threading.Thread(target=_stop_quietly, args=(self.spark,), name="spark-stop", daemon=True)
            stopping.start()
            stopping.join(STOP_TIMEOUT_S)
        reset_globals()
        end_process(self.jvm, self._stop_timeout_s)
        shutil.rmtree(self.scratch, ignore_errors=True)


def _scratch_root() -> Path | None:
    """Returns /dev/shm if it is writable, else None. Spark writes two small files per batch that are not read again, which is
    faster in memory."""
    shared = Path("/dev/shm")  # noqa: S108 - a fresh folder with a random name is made in it
    return shared if os.access(shared, os.W_OK) else None


def _start_jvm(options: SessionOptions, conf: dict[str, str], scratch: Path) -> tuple[subprocess.Popen[bytes], Path]:
    home = Path(pyspark.__file__).parent
    info = scratch / "gateway"
    for folder in ("local", "sockets", "work", "home"):
        (scratch / folder).mkdir()
    class_path = [str(home / "jars" / "*"), *map(str, options.jars)]
    if options.bare_file_system is not None:
        class_path.insert(0, str(options.bare_file_system))
    command = [
        str(find_java()),
        *jvm_options(options.heap_mib, options.archive, options.archive_to_write),
        f"-Djava.io.tmpdir={scratch / 'local'}",
        f"-Duser.dir={scratch / 'work'}",
        *(f"-D{key}={value}" for key, value in conf.items()),
        "-cp",
        os.pathsep.join(class_path),
        "org.apache.spark.api.python.PythonGatewayServer",
    ]
    with (scratch / "jvm.log").open("wb") as log:
        return start_bound(command, log, _environment(scratch / "home", info) | dict(options.variables)), info


def _environment(home: Path, info: Path) -> dict[str, str]:
    ours = str(Path(hotspare.__file__).parent.parent)
    python_path = [ours, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        # An empty home: with a real one Spark puts its zipped Python files first on the path of its workers, which compile
        # all of it again at each start (1.9 s of CPU instead of 0.5 s). They import what this process imports.
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONNECT_MODE": "0",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(python_path),
        # With another locale the JVM reads and writes other files than the named ones, if names are not ASCII.
        "LC_ALL": "C.UTF-8",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info),
    }


def start_bound(command: Sequence[str], log: IO[bytes], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Starts `command`, an absolute path and its arguments, as a process that on Linux dies at once with this process. The
    process's standard input is a pipe; its output and errors are written to `log`.

    The process ignores Ctrl-C, although it is in this process's group. Raises RunnerError if it cannot be started.
    """
    whole = [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *command]
    started: queue.SimpleQueue[subprocess.Popen[bytes] | Exception] = queue.SimpleQueue()

    def hold() -> None:
        # The kernel kills the process when the thread that started it ends, so this thread waits.
        try:
            process = subprocess.Popen(whole, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment)  # noqa: S603 - ours
        except Exception as error:
            started.put(error)
            return
        started.put(process)
        process.wait()

    threading.Thread(target=hold, name="bound-process", daemon=True).start()
    outcome = started.get()
    if isinstance(outcome, Exception):
        raise RunnerError(f"{command[0]} cannot be started", detail=str(outcome)) from outcome
    return outcome


def log_tail(scratch: Path) -> str:
    """Returns the last `_LOG_TAIL_LENGTH` bytes of the JVM's output as text; "" without a log."""
    try:
        with (scratch / "jvm.log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_LENGTH))
            return log.read().decode(errors="replace").strip()
    except OSError:
        return ""


def _await_gateway(jvm: subprocess.Popen[bytes], info: Path, scratch: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not info.exists():
        if jvm.poll() is not None or time.monotonic() > deadline:
            what = "ended" if jvm.poll() is not None else f"did not answer within {START_TIMEOUT_S:.0f} s"
            raise RunnerError(f"the JVM of Spark {what} while it started", detail=log_tail(scratch))
        time.sleep(_POLL_S)


def _connect(info: Path, conf: dict[str, str]) -> SparkSession:
    """Attaches PySpark to a running JVM and returns a session with the settings `conf`. `info`: the file in which the JVM wrote its
    port and secret."""
    content = info.read_bytes()
    port, secret_length = (int.from_bytes(content[i : i + 4], "big") for i in (0, 4))
    os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = content[8 : 8 + secret_length].decode()
    try:
        gateway = launch_gateway()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    spark_conf = conf_of_gateway(gateway)
    spark_conf.setAll(conf.items())
    context = SparkContext(gateway=gateway, conf=spark_conf)
    context.pythonExec = sys.executable  # workers run what we run, whatever `python3` on PATH is
    context.environment.update(ENVIRONMENT)
    return SparkSession(context)


@contextmanager
def _own_interrupt_handler() -> Iterator[None]:
    """Restores the caller's SIGINT handler after the block, because SparkContext replaces it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _stop_quietly(spark: SparkSession) -> None:
    with suppress(Exception):  # a dying JVM may raise any error
        silence_accumulators(spark.sparkContext)
        spark.stop()


def end_process(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Ends a process: closes its standard input, at which a JVM exits, and kills the process if it still runs after `timeout_s`."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
