"""A project in shards for measurements: its topics and keys, the applications that run it, and the cost of their processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa

from hotspare.base.errors import ClusterError
from hotspare.base.processes import has_process_ended
from hotspare.base.shard import Shard, shards_of
from hotspare.bus.contract import Partition
from hotspare.bus.naming import group_name, inbound_topic, outbound_topic
from hotspare.coordination.contract import Leader, Member
from hotspare.demo.site import Site
from hotspare.model.project import WindowId
from hotspare.projects.load import load_text
from hotspare.rows.routing import routing_of
from hotspare.testing.cluster import Cluster, SpawnedEngine, wait_until

NAME, QUERY, SOURCE, RESULT = "scale", "q", "events", "totals"
STREAM = f"{QUERY}/{RESULT}"
KEYS = 10_000
PROJECT = f"""
project: {NAME}
queries:
  {QUERY}:
    windows:
      {SOURCE}: {{type: source, schema: "id*:int64,key:int64,value:double,created:int64", opcodes: insert-only, index: empty,
               partition_by: key}}
      {RESULT}:
        type: aggregate
        schema: "key*:int64,events:int64,total:double,created:int64"
        outputs: {{events: ESP_aCount(), total: ESP_aSum(value), created: ESP_aMax(created)}}
        publish: true
    edges: [{SOURCE} -> {RESULT}]
"""
"""Every event changes the totals of its key, so it has an output: an insert, or the two rows of an update."""
TIMEOUT_S = 300.0
LOOKUP_TIMEOUT_S = 0.1
JVM, PYTHON = "JVM", "Python"
CpuSeconds = dict[str, float]
"""Seconds of processor time by kind of process."""


@dataclass(frozen=True)
class Divided:
    """The project in `shards` on a site, under a prefix of its own, so measurements do not interfere. `text`: a project with the
    names above."""

    site: Site
    folder: Path
    prefix: str
    shards: int
    text: str = PROJECT

    @property
    def inbound(self) -> str:
        return inbound_topic(self.prefix, NAME, QUERY, SOURCE)

    @property
    def outbound(self) -> str:
        return outbound_topic(self.prefix, NAME, QUERY, RESULT)

    @property
    def all_shards(self) -> tuple[Shard, ...]:
        return shards_of(self.shards)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups in order of their shards."""
        return tuple(group_name(self.prefix, NAME, shard) for shard in self.all_shards)

    @property
    def inbound_places(self) -> tuple[Partition, ...]:
        return tuple(Partition(self.inbound, shard.number) for shard in self.all_shards)

    def outputs(self, number: int) -> Partition:
        return Partition(self.outbound, number)

    def keys_by_shard(self) -> list[npt.NDArray[np.int64]]:
        """Returns the keys of 0 to KEYS - 1 that belong to each shard."""
        routing = routing_of(load_text(self.text).resolved, WindowId(QUERY, SOURCE), self.shards)
        keys = np.arange(KEYS)
        if routing is None:
            return [keys]
        places = routing.partitions(pa.array(keys))
        return [keys[places == number] for number in range(self.shards)]

    @contextlib.contextmanager
    def cluster(self, *options: str) -> Iterator[Cluster]:
        """Yields a cluster without applications or engines; stops all that were started, and adds their account to an error."""
        file = self.folder / f"{self.prefix}.yaml"
        file.write_text(self.text)
        logs = self.folder / self.prefix
        logs.mkdir()
        run_options = ("--store", self.site.store_url, "--shards", str(self.shards), *options)
        made = Cluster(
            file, self.site.bus_url, self.groups[0], self.prefix, logs, run_options, coordination_url=self.site.coordination_url
        )
        try:
            yield made
        except ClusterError as failure:
            failure.add_note(made.state_report())
            raise
        finally:
            made.stop()


def host_of(member: Member) -> str:
    """Returns the application whose task this engine is, else the engine itself."""
    return member.detail.get("application", member.engine)


def live(cluster: Cluster, group: str) -> list[Member]:
    """Returns the engines of a group whose process runs and whose state is complete."""
    ready = [each for each in cluster.coordination.members(group) if each.role in ("standby", "active")]
    return [each for each in ready if not has_process_ended(each.process_id, each.process_start)]


def _is_hosted(cluster: Cluster, group: str) -> bool:
    members, leader = live(cluster, group), cluster.coordination.leader(group)
    active = [each.engine for each in members if each.role == "active"]
    return sorted(map(host_of, members)) == sorted(cluster.engines) and active == [leader.holder]


def wait_hosted(cluster: Cluster, project: Divided) -> None:
    """Waits until each of the cluster's applications hosts a complete engine of every shard, and one of these is active.

    Raises ClusterError if one of them has ended.
    """
    left = list(project.groups)

    def is_whole() -> bool:
        for engine in cluster.engines.values():
            if not engine.is_running:
                raise ClusterError(f"{engine.name} ended with {engine.process.returncode}", detail=engine.log_tail())
        while left and _is_hosted(cluster, left[-1]):
            left.pop()
        return not left

    wait_until(is_whole, f"{', '.join(cluster.engines)} host {project.shards} shards", TIMEOUT_S, LOOKUP_TIMEOUT_S)


# --- cost ----------------------------------------------------------------------------------------------------------------------


def processes_of(engine: SpawnedEngine) -> list[psutil.Process]:
    """Returns its own process and all below it: the JVMs of driver and executors, Spark's Python daemons and the tasks."""
    own = psutil.Process(engine.process.pid)
    return [own, *own.children(recursive=True)]


def cpu_seconds(cluster: Cluster) -> CpuSeconds:
    """Returns the processor time so far of all processes, including ended ones, which are counted with their parents."""
    found = {JVM: 0.0, PYTHON: 0.0}
    for engine in cluster.engines.values():
        for process in processes_of(engine):
            with contextlib.suppress(psutil.NoSuchProcess):
                kind, times = JVM if process.name() == "java" else PYTHON, process.cpu_times()
                found[kind] += times.user + times.system + times.children_user + times.children_system
    return found


def passed(before: CpuSeconds, after: CpuSeconds) -> CpuSeconds:
    return {kind: after[kind] - before[kind] for kind in before}


def connections(cluster: Cluster, ports: Sequence[int]) -> int:
    """Returns the count of connections that all processes have to servers at these ports."""
    found = 0
    for engine in cluster.engines.values():
        for process in processes_of(engine):
            with contextlib.suppress(psutil.Error):
                known = process.net_connections(kind="tcp")
                found += sum(each.status == psutil.CONN_ESTABLISHED and each.raddr.port in ports for each in known if each.raddr)
    return found


# --- kills ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Struck:
    """The result of a kill: the `leaders` that it ended, by shard, as they were before, and the ids of their `processes`."""

    application: str
    what: str
    at_us: int
    leaders: dict[int, Leader]
    processes: dict[int, int]


def _active(cluster: Cluster, project: Divided) -> dict[int, tuple[Member, Leader]]:
    """Returns the active engine and the leader of each shard whose active engine lives."""
    found = {}
    for number, group in enumerate(project.groups):
        leader = cluster.coordination.leader(group)
        holder = next((each for each in live(cluster, group) if each.engine == leader.holder), None)
        if holder is not None:
            found[number] = (holder, leader)
    return found


def kill_executor(cluster: Cluster, project: Divided) -> Struck:
    """Sends SIGKILL to the executor with most active shards; if tasks run below the driver, to the task's own process."""
    active = _active(cluster, project)
    tasks: dict[tuple[str, str, int], dict[int, Leader]] = {}
    for number, (member, leader) in active.items():
        executor = member.detail.get("executor", "")
        place = (host_of(member), executor, member.process_id if executor == "driver" else 0)
        tasks.setdefault(place, {})[number] = leader
    application, executor, process_id = max(tasks, key=lambda place: len(tasks[place]))
    victim = process_id or _executor(cluster.engines[application], executor).pid
    at_us = time.time_ns() // 1000
    os.kill(victim, signal.SIGKILL)
    leaders = tasks[application, executor, process_id]
    return Struck(application, "executor" if not process_id else "task", at_us, leaders, _processes(active, leaders))


def _processes(active: Mapping[int, tuple[Member, Leader]], struck: Iterable[int]) -> dict[int, int]:
    return {number: active[number][0].process_id for number in struck}


def _executor(application: SpawnedEngine, number: str) -> psutil.Process:
    for process in processes_of(application):
        with contextlib.suppress(psutil.NoSuchProcess):
            words = process.cmdline()
            if "--executor-id" in words and words[words.index("--executor-id") + 1] == number:
                return process
    raise ClusterError(f"{application.name} has no executor {number}", detail=application.log_tail())


def kill_driver(cluster: Cluster, project: Divided) -> Struck:
    """Sends SIGKILL to the driver of the application with most active shards, and removes it from the cluster's engines."""
    hosts: dict[str, dict[int, Leader]] = {}
    active = _active(cluster, project)
    for number, (member, leader) in active.items():
        hosts.setdefault(host_of(member), {})[number] = leader
    application = max(hosts, key=lambda name: len(hosts[name]))
    engine = cluster.engines.pop(application)
    at_us = time.time_ns() // 1000
    engine.kill()
    return Struck(application, "driver", at_us, hosts[application], _processes(active, hosts[application]))
