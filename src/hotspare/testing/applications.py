"""Applications of `--runner partitioned` for tests: finds the shards that they host, and kills or freezes parts of them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

import psutil

from hotspare.base.errors import ClusterError
from hotspare.base.processes import has_process_ended
from hotspare.coordination.contract import Leader, Member
from hotspare.testing.cluster import Cluster, SpawnedEngine, wait_until

_LOOK_S = 0.1
_READY = ("standby", "active")


class Strike(Enum):
    """A fault that ends a part of an application, or stops it for a while."""

    EXECUTOR = "kill -9 of an executor of"
    WORKER = "kill -9 of a Python worker of"
    FREEZE = "SIGSTOP of a Python worker of"
    DRIVER = "kill -9 of the driver of"
    APPLICATION = "kill -9 of all processes of"

    @property
    def ends_application(self) -> bool:
        return self in (Strike.DRIVER, Strike.APPLICATION)


@dataclass(frozen=True, slots=True)
class StrikeRecord:
    """The record of a strike at the time `at_us`. `leaders`: by shard, the leader before the strike, of each shard whose active
    engine was struck."""

    application: str
    at_us: int
    leaders: dict[int, Leader]


@dataclass(frozen=True, slots=True)
class StrikeTarget:
    """The target of a strike: an engine and its application. `leaders`: by shard, the leaders of all shards whose active engine
    would be struck."""

    application: SpawnedEngine
    member: Member
    leaders: dict[int, Leader]

    def record_strike(self) -> StrikeRecord:
        """Returns the record of a strike made now."""
        return StrikeRecord(self.application.name, time.time_ns() // 1000, self.leaders)


@dataclass(frozen=True)
class Applications:
    """The applications of a cluster. `groups[n]` is the name of the group of shard n."""

    cluster: Cluster
    groups: Sequence[str]

    def live_engines(self, shard: int) -> list[Member]:
        """Returns the engines of a shard whose process runs and whose state is complete."""
        ready = [each for each in self.cluster.coordination.members(self.groups[shard]) if each.role in _READY]
        return [each for each in ready if not has_process_ended(each.process_id, each.process_start)]

    def is_hosted(self) -> bool:
        """Whether each application, and no other process, has a complete engine of every shard, and one of these is active.

        Raises ClusterError if an application has ended.
        """
        for engine in self.cluster.engines.values():
            if not engine.is_running:
                raise ClusterError(f"application {engine.name} ended with {engine.process.returncode}", detail=engine.log_tail())
        return all(map(self._has_all, range(len(self.groups))))

    def _has_all(self, shard: int) -> bool:
        members, leader = self.live_engines(shard), self.cluster.coordination.leader(self.groups[shard])
        active = [each.engine for each in members if each.role == "active"]
        return sorted(map(application_of, members)) == sorted(self.cluster.engines) and active == [leader.holder]

    def wait_hosted(self, timeout_s: float) -> None:
        wait_until(self.is_hosted, f"{', '.join(self.cluster.engines)} host all shards", timeout_s, _LOOK_S)

    def active_by_shard(self) -> dict[int, Member]:
        """Returns the active engines that run, by shard."""
        found = {}
        for shard, group in enumerate(self.groups):
            holder = self.cluster.coordination.leader(group).holder
            member = next((each for each in self.live_engines(shard) if each.engine == holder), None)
            if member is not None:
                found[shard] = member
        return found

    def busiest_place(self, place: Callable[[Member], object], application: str = "") -> StrikeTarget:
        """Returns the place with the most active shards, in `application`, "" for any. Two engines are in one place if `place`
        returns equal values for them. Raises ClusterError if no shard has an active engine."""
        places: dict[object, list[int]] = {}
        active = {shard: member for shard, member in self.active_by_shard().items() if application in ("", application_of(member))}
        for shard, member in active.items():
            places.setdefault(place(member), []).append(shard)
        if not places:
            raise ClusterError("no shard has an active engine to strike")
        shards = max(places.values(), key=len)
        member = active[shards[0]]
        leaders = {shard: self.cluster.coordination.leader(self.groups[shard]) for shard in shards}
        return StrikeTarget(self.cluster.engines[application_of(member)], member, leaders)

    def strike(self, strike: Strike) -> StrikeRecord:
        """Applies the fault to the place with the most active shards, and returns the record. An application whose driver is killed
        is removed from the cluster; a frozen worker stays frozen until it is killed."""
        place = {Strike.EXECUTOR: executor_of, Strike.WORKER: process_of, Strike.FREEZE: process_of}.get(strike, application_of)
        return self.strike_at(strike, self.busiest_place(place))

    def strike_at(self, strike: Strike, target: StrikeTarget) -> StrikeRecord:
        """Applies the fault to `target`, and returns the record; see `strike`."""
        application = target.application
        if strike.ends_application:
            del self.cluster.engines[application.name]
        end: Callable[[], object]
        if strike is Strike.EXECUTOR:
            end = executor_process(application, target.member.detail["executor"]).kill
        elif strike is Strike.DRIVER:
            end = application.kill
        elif strike is Strike.APPLICATION:
            end = partial(kill_all, application)
        else:
            end = partial(os.kill, target.member.process_id, signal.SIGSTOP if strike is Strike.FREEZE else signal.SIGKILL)
        struck = target.record_strike()
        end()
        return struck


def application_of(member: Member) -> str:
    """Returns the name of the engine's application."""
    return member.detail.get("application", member.engine)


def executor_of(member: Member) -> tuple[str, str]:
    return application_of(member), member.detail.get("executor", "")


def process_of(member: Member) -> int:
    return member.process_id


def executor_process(application: SpawnedEngine, number: str) -> psutil.Process:
    """Returns the process of an executor. Raises ClusterError if the application has none of that number."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(application.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                words = process.cmdline()
                if "--executor-id" in words and words[words.index("--executor-id") + 1] == number:
                    return process
    raise ClusterError(f"{application.name} has no executor {number}", detail=application.log_tail())


def process_tree(first: psutil.Process) -> list[psutil.Process]:
    """Returns the process and all its descendants; empty if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [first, *first.children(recursive=True)]
    return []


def driver_processes(application: SpawnedEngine) -> list[psutil.Process]:
    """Returns the Python process of the application's driver, and its JVM, without their descendants."""
    first = psutil.Process(application.process.pid)
    return [first, *(child for child in first.children() if child.name() == "java")]


def kill_all(application: SpawnedEngine) -> None:
    """Sends SIGKILL to all processes of the application, so that none is left to notify another one."""
    signal_all(process_tree(psutil.Process(application.process.pid)), signal.SIGKILL)
    application.kill()


def signal_all(processes: Sequence[psutil.Process], sign: signal.Signals) -> None:
    """Sends a signal to those of the processes that still run."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(sign)
