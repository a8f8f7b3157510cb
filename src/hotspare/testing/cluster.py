"""Starts and ends engines as separate processes, for the demo, the end-to-end tests and the kill loop.
Only processes that this module started are signalled, each by its id. `ParentWatch` ends the engines if the test run itself
is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from hotspare.base.errors import ClusterError
from hotspare.base.interpreter import ENVIRONMENT
from hotspare.base.retry import Retry
from hotspare.coordination.contract import Leader, Member
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.ha.member_record import other_members_of
from hotspare.testing.server_process import LOOPBACK, Machine

WAIT_TIMEOUT_S = 180.0
"""The default timeout of waits. A long one costs nothing on success, and two cores may have to run twenty processes."""
_POLL_S = 0.01
_LOOK_S = 0.05
"""The pause between checks of starting engines, which need the processor themselves."""
_STOP_TIMEOUT_S = 60.0
_LEFT_S = 20.0
"""The longest time that ending processes may take: a JVM follows its engine within seconds."""
_STALE_MS = 60_000
_WATCHER = """
left=
while read -r word id; do
  case $word in
    began) left="$left $id" ;;
    ended) now=$left; left=; for each in $now; do [ "$each" = "$id" ] || left="$left $each"; done ;;
    over) exit 0 ;;
  esac
done
for each in $left; do kill -9 "$each"; done
"""


def hotspare_command(*arguments: str) -> list[str]:
    """Returns the command line that runs hotspare with these arguments, by this process's interpreter."""
    return [sys.executable, "-m", "hotspare", *arguments]


def settings_options(folder: Path, settings: Mapping[str, object]) -> tuple[str, str]:
    """Writes the settings file `settings.yaml` into `folder`, and returns the options of `hotspare run` that name it."""
    file = folder / "settings.yaml"
    file.write_text("".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items()))
    return "--settings", str(file)


class StartedProcess(Protocol):
    """The part of `subprocess.Popen` that a cluster uses."""

    pid: int

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int, /) -> None: ...


class Launcher(Protocol):
    """A function that starts the hotspare command with `arguments` at `place`, in a new session, in `folder`. Its output goes to
    `log`."""

    def __call__(self, arguments: Sequence[str], folder: Path, log: Path, place: Machine) -> StartedProcess: ...


def launch(arguments: Sequence[str], folder: Path, log: Path, place: Machine) -> StartedProcess:
    """The default `Launcher`: starts the command in a new interpreter, as users do."""
    with log.open("wb") as out:
        return subprocess.Popen(  # noqa: S603 - our own command
            place.command(hotspare_command(*arguments)),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=folder,
            env={**os.environ, **ENVIRONMENT},
        )


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_TIMEOUT_S, poll_s: float = _POLL_S) -> None:
    """Polls `condition` every `poll_s` until it is true. Raises ClusterError with `what` after `timeout_s`."""
    if not any(condition() for _ in Retry(lasting_s=timeout_s, pause_s=poll_s).tries()):
        raise ClusterError(f"timed out after {timeout_s:.0f} s: {what}")


def reported_orders(members: Iterable[Member]) -> dict[str, int]:
    """Returns, by engine, the sum of its input positions (`order`) that it last reported; only for engines with a recent record."""
    return {each.engine: each.order for each in other_members_of(tuple(members), "", _STALE_MS)}


class ParentWatch:
    """Ends the engines of a cluster if the process that started them dies without notice, as a killed test run does. Used by one
    thread at a time.

    A shell reads from a pipe which processes began and ended, and when the watch is over. If the pipe closes before that, the shell
    kills the remaining processes by SIGKILL, also frozen ones. An engine's JVM then ends by itself.
    """

    def __init__(self) -> None:
        self._shell: subprocess.Popen[bytes] | None = None

    def add_process(self, process_id: int) -> None:
        if self._shell is None:
            self._shell = subprocess.Popen(  # noqa: S603 - our own words
                ["/bin/sh", "-c", _WATCHER],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._write_line(f"began {process_id}")

    def remove_process(self, process_id: int) -> None:
        """Removes a process from the watch; call it before another process may get its id."""
        self._write_line(f"ended {process_id}")

    def close(self) -> None:
        """Ends the watch of all processes without killing them; does nothing if none was added."""
        if self._shell is None:
            return
        self._write_line("over")
        assert self._shell.stdin is not None
        with contextlib.suppress(OSError):
            self._shell.stdin.close()
        self._shell.wait()
        self._shell = None

    def _write_line(self, line: str) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            with contextlib.suppress(OSError):  # an ended watcher watches no process
                self._shell.stdin.write(line.encode() + b"\n")
                self._shell.stdin.flush()


@dataclass
class SpawnedEngine:
    """The process of an engine. `jvm_ids` returns the ids of its Java descendants."""

    name: str
    process: StartedProcess
    log: Path
    watch: ParentWatch = field(default_factory=ParentWatch)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=_STOP_TIMEOUT_S)
        self.watch.remove_process(self.process.pid)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def jvm_ids(self) -> list[int]:
        found: list[int] = []
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):  # a worker that ends now has no JVM below it
                    found += [child.pid] if child.name() == "java" else []
        return found

    def kill_jvm(self) -> None:
        """Kills the engine's JVM by SIGKILL; the Python process has to detect it."""
        for process_id in self.jvm_ids():
            os.kill(process_id, signal.SIGKILL)

    def request_stop(self) -> None:
        """Requests the engine to stop, as Ctrl-C does, after thawing a frozen one."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
                self.process.send_signal(signal.SIGINT)

    def wait_stopped(self, timeout_s: float = _STOP_TIMEOUT_S) -> int:
        """Waits until the engine has ended, and kills it after `timeout_s`. Returns the exit status."""
        try:
            status = self.process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return int(self.process.wait())
        self.watch.remove_process(self.process.pid)
        return status

    def log_tail(self, lines: int = 30) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""


@dataclass
class Cluster:
    """The engines of one group, on this machine or on hosts of a test network. Their logs are in `folder`."""

    project: Path
    bus_url: str
    group: str
    prefix: str
    folder: Path
    run_options: Sequence[str] = ()
    coordination_url: str = ""
    places: Mapping[str, Machine] = field(default_factory=dict)
    """By name, the places of engines that do not run on this machine itself."""
    engines: dict[str, SpawnedEngine] = field(default_factory=dict)
    others: list[SpawnedEngine] = field(default_factory=list)
    session_ids: list[int] = field(default_factory=list)
    """The session ids of all processes that the cluster ever started. Children share the session, also after the process ended."""
    watch: ParentWatch = field(default_factory=ParentWatch)
    """Kills the cluster's processes if this process is killed."""
    launcher: Launcher = launch

    def __post_init__(self) -> None:
        self.coordination = open_coordination(self.coordination_url or default_coordination_url(self.bus_url))

    def start_engine(self, name: str, *options: str) -> SpawnedEngine:
        """Starts `hotspare run` for the engine `name` at its place. `options` follow the cluster's own, so they have precedence."""
        engine = self._spawn_engine(name, options, self.places.get(name, LOOPBACK))
        self.engines[name] = engine
        return engine

    def start_twin(self, name: str, place: Machine) -> SpawnedEngine:
        """Starts an engine at `place` whose name another engine has already; it is not in `engines`."""
        twin = self._spawn_engine(name, (), place)
        self.others.append(twin)
        return twin

    def _spawn_engine(self, name: str, options: Sequence[str], place: Machine) -> SpawnedEngine:
        arguments = ["run", str(self.project), "--bus", self.bus_url, "--prefix", self.prefix, "--engine", name]
        arguments += ["--restart", "never"]  # the process that is killed or frozen is the engine
        if self.coordination_url:
            arguments += ["--coordination", self.coordination_url]
        return self._spawn(name, [*arguments, *self.run_options, *options], place)

    def start_other(self, name: str, *arguments: str, place: Machine = LOOPBACK) -> SpawnedEngine:
        """Starts another hotspare command, such as an adapter, concurrently with the engines."""
        other = self._spawn(name, arguments, place)
        self.others.append(other)
        return other

    def _spawn(self, name: str, arguments: Sequence[str], place: Machine) -> SpawnedEngine:
        log = self.next_log(name)
        process = self.launcher(arguments, self.folder, log, place)
        return self.track_process(SpawnedEngine(name, process, log, self.watch))

    def next_log(self, name: str) -> Path:
        return self.folder / f"{len(self.session_ids) + 1:03d}-{name}.log"

    def track_process(self, begun: SpawnedEngine) -> SpawnedEngine:
        """Includes a process in the watch and in the search of `leftovers`; returns it."""
        self.session_ids.append(begun.process.pid)
        self.watch.add_process(begun.process.pid)
        return begun

    def leader(self) -> Leader:
        return self.coordination.leader(self.group)

    def members(self) -> dict[str, Member]:
        return {m.engine: m for m in self.coordination.members(self.group)}

    def role(self, engine: str) -> str:
        """Returns the role in the record of an engine; "" without a record."""
        member = self.members().get(engine)
        return "" if member is None else member.role

    def active_engine(self) -> SpawnedEngine | None:
        """Returns the running engine that holds the newest epoch and reports the active role; None if there is none."""
        leader = self.leader()
        member = self.members().get(leader.holder)
        engine = self.engines.get(leader.holder)
        if member is None or engine is None or member.role != "active" or not engine.is_running:
            return None
        return engine if member.process_id == engine.process.pid else None

    def wait_active(self, timeout_s: float = WAIT_TIMEOUT_S) -> SpawnedEngine:
        """Waits for an active engine and returns it. Use the returned engine: another call may return a different one."""
        found: list[SpawnedEngine] = []

        def is_there() -> bool:
            found.extend(filter(None, (self.active_engine(),)))
            return bool(found)

        wait_until(is_there, "an active engine", timeout_s)
        return found[0]

    def is_ready(self, name: str) -> bool:
        """Whether the running process of an engine is standby or active, and so has a complete state."""
        member, engine = self.members().get(name), self.engines[name]
        return member is not None and member.process_id == engine.process.pid and member.role in ("standby", "active")

    def wait_ready(self, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Waits until one engine is active and every engine ready (`is_ready`). Raises ClusterError after `timeout_s`, and with the
        log of an engine that ended meanwhile."""

        def ready() -> bool:
            for engine in self.engines.values():
                if not engine.is_running:
                    raise ClusterError(f"engine {engine.name} ended with {engine.process.returncode}", detail=engine.log_tail())
            return self.active_engine() is not None and all(self.is_ready(name) for name in self.engines)

        wait_until(ready, "one active engine and all others standby", timeout_s, _LOOK_S)

    def wait_caught_up(self, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Waits until every engine has read as far as the active one had at the call. `wait_ready` is not enough: a spare is ready
        before it has begun to read."""
        self.wait_read(self._orders().get(self.leader().holder, 0), timeout_s)

    def wait_read(self, order: int, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Waits until every engine reports input positions of at least `order`, which is the offset if there is one partition."""

        def along() -> bool:
            orders = self._orders()
            return all(orders.get(name, -1) >= order for name in self.engines)

        wait_until(along, "all engines reading along", timeout_s)

    def _orders(self) -> dict[str, int]:
        return reported_orders(self.members().values())

    def leftovers(self, within_s: float = _LEFT_S) -> list[str]:
        """Returns the processes of the cluster and their descendants that still run after `within_s`, each as id and command
        line."""
        found: list[str] = []
        for _ in Retry(lasting_s=within_s, pause_s=_LOOK_S).tries():
            found = self._leftover_processes()
            if not found:
                break
        return found

    def _leftover_processes(self) -> list[str]:
        found = []
        for process in psutil.process_iter(["pid", "status", "cmdline"]):
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(process.pid) in self.session_ids and process.info["status"] != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {' '.join(process.info['cmdline'] or ())[:100]}")
        return found

    def state_report(self) -> str:
        """Returns a text for errors: the group's records, and state and end of the log of every process."""
        said = [f"leader: {self.leader()}", *(f"member: {member}" for member in self.members().values())]
        for process in (*self.engines.values(), *self.others):
            state = "runs" if process.is_running else f"ended with {process.process.returncode}"
            said.append(f"--- {process.name}, {state}: {process.log.name}\n{process.log_tail()}")
        return "\n".join(said)

    def stop(self) -> None:
        """Stops all processes of the cluster and waits for their end."""
        everything = [*self.others, *self.engines.values()]
        for each in everything:
            each.request_stop()
        for each in everything:
            each.wait_stopped()
        self.watch.close()
        self.coordination.close()
