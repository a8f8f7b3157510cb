"""Servers for development that run in the background. Records in a folder allow later commands to report and to end them.
A keeper process, which runs this module, starts the servers, writes a record when they answer, and waits for SIGTERM.
The servers end with the keeper, for any reason. A process is identified by its id and its start time, so that no other process is
ever signalled.

    FOLDER/<kind>/record.json     `DevRecord`
    FOLDER/<kind>/keeper.log      the output of the keeper
    FOLDER/<kind>/data/           the servers' data and logs, removed by `take_down`
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from types import FrameType

from hotspare.base.errors import ClusterError, UsageError
from hotspare.base.places import user_folder
from hotspare.base.processes import has_process_ended, process_start
from hotspare.base.retry import Retry
from hotspare.testing.cluster import wait_until

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 30.0
_LOG_TAIL_LENGTH = 2_000


class DevKind(Enum):
    KAFKA = "kafka"
    ZOOKEEPER = "zookeeper"


@dataclass(frozen=True, slots=True)
class DevProcess:
    """A process, identified by `process_id` and `process_start`."""

    name: str
    process_id: int
    process_start: int

    @property
    def has_exited(self) -> bool:
        return has_process_ended(self.process_id, self.process_start)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process if it still runs; never to another process with the same id."""
        if not self.has_exited:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process_id, number)


def identify_process(name: str, process_id: int) -> DevProcess:
    return DevProcess(name, process_id, process_start(process_id))


@dataclass(frozen=True, slots=True)
class DevRecord:
    """The record of running servers. `url` is the value for `--bus` or `--coordination`."""

    url: str
    keeper: DevProcess
    servers: tuple[DevProcess, ...]


def default_folder() -> Path:
    """Returns the default folder of the records, `$XDG_STATE_HOME/hotspare/dev`."""
    return user_folder("XDG_STATE_HOME", ".local/state") / "dev"


def record_path(folder: Path, kind: DevKind) -> Path:
    return folder / kind.value / "record.json"


def write_record(folder: Path, kind: DevKind, record: DevRecord) -> None:
    """Writes the record atomically."""
    path = record_path(folder, kind)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(record)), encoding="utf-8")
    fresh.replace(path)


def read_record(folder: Path, kind: DevKind) -> DevRecord | None:
    """Returns the record of the last start, whose processes may have ended since. None if it is missing or unreadable."""
    try:
        values = json.loads(record_path(folder, kind).read_text(encoding="utf-8"))
        servers = tuple(DevProcess(**server) for server in values["servers"])
        return DevRecord(str(values["url"]), DevProcess(**values["keeper"]), servers)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def running_record(folder: Path, kind: DevKind) -> DevRecord | None:
    """Returns the record if its keeper runs, else None."""
    record = read_record(folder, kind)
    return None if record is None or record.keeper.has_exited else record


def bring_up(folder: Path, kind: DevKind, count: int | None = None) -> DevRecord:
    """Returns the record of `count` servers (None: one) that run already, else starts them and waits until they answer. Raises
    ClusterError if they do not start, UsageError if another number of servers runs already.
    """
    with _alone(folder, kind) as place:
        found = running_record(folder, kind)
        if found is not None:
            if count not in (None, len(found.servers)):
                raise UsageError(
                    f"{kind.value} runs already with {len(found.servers)} servers",
                    hint=f"stop them: hotspare dev {kind.value} down",
                )
            return found
        _clear(folder, kind)
        log = place / "keeper.log"
        with log.open("wb") as out:
            keeper = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-m", "hotspare.testing.dev_servers", kind.value, str(folder), str(count or 1)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            wait_until(lambda: keeper.poll() is not None or running_record(folder, kind) is not None, kind.value, START_TIMEOUT_S)
        except BaseException:
            keeper.terminate()
            keeper.wait()
            raise
        record = running_record(folder, kind)
        if record is None:
            raise ClusterError(f"{kind.value} did not start", detail=_tail(log))
        keeper.returncode = 0  # the keeper goes on after this process, by design
        return record


def take_down(folder: Path, kind: DevKind) -> DevRecord | None:
    """Ends exactly the processes of the record, removes their data, and returns the record; None if there was none."""
    with _alone(folder, kind):
        record = read_record(folder, kind)
        if record is not None:
            everything = (record.keeper, *record.servers)
            record.keeper.send(signal.SIGTERM)
            with contextlib.suppress(ClusterError):
                _wait_exited(everything)
            for process in everything:
                process.send(signal.SIGKILL)
            _wait_exited(everything)
        _clear(folder, kind)
        return record


def _run_keeper(arguments: list[str]) -> None:
    """The main function of the keeper process that `bring_up` starts: runs servers until SIGTERM. `arguments`: kind, folder, number
    of servers."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, _end)
    kind, folder, count = DevKind(arguments[0]), Path(arguments[1]), int(arguments[2])
    data = folder / kind.value / "data"
    data.mkdir(parents=True, exist_ok=True)
    with _servers(kind, data, count) as (url, servers):
        write_record(folder, kind, DevRecord(url, identify_process("keeper", os.getpid()), servers))
        threading.Event().wait()


@contextlib.contextmanager
def _servers(kind: DevKind, data: Path, count: int) -> Iterator[tuple[str, tuple[DevProcess, ...]]]:
    """Context manager: starts servers, yields their URL and processes, and ends them at the end of the block."""
    if kind is DevKind.ZOOKEEPER:
        from hotspare.testing.zookeeper_server import ZooKeeperServer

        with ZooKeeperServer.start(data) as server:
            yield server.url, (identify_process("zookeeper", server.process.process_id),)
    else:
        from hotspare.testing.kafka_server import KafkaServers

        with KafkaServers.start(data, count) as servers:
            yield servers.url, tuple(identify_process(f"broker {each.number}", each.process_id) for each in servers.brokers)


def _end(number: int, _frame: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def _wait_exited(processes: tuple[DevProcess, ...]) -> None:
    wait_until(lambda: all(process.has_exited for process in processes), "the servers end", STOP_TIMEOUT_S)


def _clear(folder: Path, kind: DevKind) -> None:
    record_path(folder, kind).unlink(missing_ok=True)
    shutil.rmtree(folder / kind.value / "data", ignore_errors=True)


@contextlib.contextmanager
def _alone(folder: Path, kind: DevKind) -> Iterator[Path]:
    """Context manager: locks the servers of a kind against other commands, and yields their folder. Raises ClusterError if another
    command holds the lock for too long."""
    place = folder / kind.value
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = (place / "lock").open("w")
    except OSError as error:
        raise UsageError(f"folder {place} cannot be used", detail=str(error), hint="name another one with --folder") from error
    with lock:
        busy = Retry(lasting_s=START_TIMEOUT_S, pause_s=0.05)
        try:
            busy.call(lambda: fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB), lambda error: isinstance(error, OSError))
        except OSError:
            raise ClusterError(f"another command is busy with {kind.value} in {folder}") from None
        yield place


def _tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        return log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL_LENGTH:].strip()
    return ""


if __name__ == "__main__":
    _run_keeper(sys.argv[1:])
