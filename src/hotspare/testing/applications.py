"""Applications of `--runner partitioned` whose parts are killed and frozen: who hosts which shard of them, and what ends what."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import psutil

from hotspare.coordination.contract import Leader, Member
from hotspare.errors import ClusterError
from hotspare.processes import is_process_gone
from hotspare.testing.cluster import Cluster, SpawnedEngine, wait_until

_LOOK_S = 0.1
_READY = ("standby", "active")


class Strike(Enum):
    """What ends a part of an application, or stops it for a while."""

    EXECUTOR = "kill -9 of an executor of"
    WORKER = "kill -9 of a Python worker of"
    FREEZE = "SIGSTOP of a Python worker of"
    APPLICATION = "kill -9 of the driver of"


@dataclass(frozen=True, slots=True)
class Struck:
    """`leaders`: by the number of the shard, of those whose active engine was there, as they were before."""

    application: str
    at_us: int
    leaders: dict[int, Leader]


@dataclass(frozen=True)
class Applications:
    """Those of a cluster, by their names; `groups` by the numbers of the shards."""

    cluster: Cluster
    groups: Sequence[str]

    def live(self, shard: int) -> list[Member]:
        """The engines of a shard whose process runs and whose state is complete."""
        ready = [each for each in self.cluster.coordination.members(self.groups[shard]) if each.role in _READY]
        return [each for each in ready if not is_process_gone(each.process_id, each.process_start)]

    def is_hosted(self) -> bool:
        """Whether each application, and nobody else, has a complete engine of every shard, and one of these is active.

        ClusterError where one has ended."""
        for engine in self.cluster.engines.values():
            if not engine.is_running:
                raise ClusterError(f"application {engine.name} ended with {engine.process.returncode}", detail=engine.log_tail())
        return all(map(self._has_all, range(len(self.groups))))

    def _has_all(self, shard: int) -> bool:
        members, leader = self.live(shard), self.cluster.coordination.leader(self.groups[shard])
        active = [each.engine for each in members if each.role == "active"]
        return sorted(map(application_of, members)) == sorted(self.cluster.engines) and active == [leader.holder]

    def wait_hosted(self, timeout_s: float) -> None:
        wait_until(self.is_hosted, f"{', '.join(self.cluster.engines)} host all shards", timeout_s, _LOOK_S)

    def active(self) -> dict[int, Member]:
        """By shard, whose active engine is there."""
        found = {}
        for shard, group in enumerate(self.groups):
            holder = self.cluster.coordination.leader(group).holder
            member = next((each for each in self.live(shard) if each.engine == holder), None)
            if member is not None:
                found[shard] = member
        return found

    def strike(self, strike: Strike) -> Struck:
        """At the application, and there at the place, with most active shards. One whose driver is killed is none of the cluster's
        any more; a worker that is frozen stays so until somebody ends it."""
        key = {Strike.APPLICATION: application_of, Strike.EXECUTOR: executor_of}.get(strike, process_of)
        places: dict[object, list[int]] = {}
        active = self.active()
        for shard, member in active.items():
            places.setdefault(key(member), []).append(shard)
        shards = max(places.values(), key=len)
        member = active[shards[0]]
        leaders = {shard: self.cluster.coordination.leader(self.groups[shard]) for shard in shards}
        application = self.cluster.engines[application_of(member)]
        if strike is Strike.APPLICATION:
            del self.cluster.engines[application.name]
            end: Callable[[], object] = application.kill
        elif strike is Strike.EXECUTOR:
            executor = executor_process(application, member.detail["executor"])
            end = executor.kill
        else:
            sign = signal.SIGSTOP if strike is Strike.FREEZE else signal.SIGKILL
            end = lambda: os.kill(member.process_id, sign)  # noqa: E731
        at_us = time.time_ns() // 1000
        end()
        return Struck(application.name, at_us, leaders)


def application_of(member: Member) -> str:
    """Whose task this engine is."""
    return member.detail.get("application", member.engine)


def executor_of(member: Member) -> tuple[str, str]:
    return application_of(member), member.detail.get("executor", "")


def process_of(member: Member) -> int:
    return member.process_id


def executor_process(application: SpawnedEngine, number: str) -> psutil.Process:
    """ClusterError where there is none below it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(application.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                words = process.cmdline()
                if "--executor-id" in words and words[words.index("--executor-id") + 1] == number:
                    return process
    raise ClusterError(f"{application.name} has no executor {number}", detail=application.log_tail())
