"""The gain and the cost of executors: a project in shards over Spark's executors, `hotspare run --runner partitioned`.

    catch-up   events/s with 1, 2 and 4 executors of one core, and processor time per million events over all processes of the
               application, the JVMs' and Python's apart, next to one `local` engine over the same partitions, and two of them
               with half of the events each
    latency    from the creation of an event to when a reader of committed messages has its output, at an even rate, with one
               `local` engine, with one application and with two
    gap        per shard, after kill -9 of an executor and of a driver next to a second application: until the first output of
               the shard's new active was appended, and until a reader had it, with the phases of both
    rest       many shards without input: processor time, connections to the servers, transactions of the brokers

Brokers, ZooKeeper, load and executors share this machine's cores, so executors beyond its cores gain nothing here. All events of a
catch-up exist at its start: on Kafka they are one transaction, which ends when the clock starts.

    python -m benchmarks.scale_out                             all, on Kafka
    python -m benchmarks.scale_out --small --only catch-up     small sizes: shows that it works, no more
    python -m benchmarks.scale_out --only gap --kinds driver --kills 5
    python -m benchmarks.scale_out --master local              tasks below the driver: local[n] in place of local-cluster[n,1,1024]

The last line is `scale_2 X cpu_per_event_ratio Y`: events/s with two executors divided by those with one; processor time per event
with two executors divided by that of the local engine. `-` means not measured.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from benchmarks._divided import (
    JVM,
    PYTHON,
    CpuSeconds,
    Divided,
    connections,
    cpu_seconds,
    passed,
    wait_hosted,
)
from benchmarks._divided_gap import KILLS, TIMEOUT_S, gap
from benchmarks._divided_load import Watch, blocks, fed_evenly, held_back, last_output_us, outputs_of, wait_outputs
from benchmarks._latency import Window, now_us, table
from benchmarks._site import opened
from benchmarks._transactions import TransactionLog

from hotspare.bus.contract import Bus
from hotspare.bus.open import open_bus
from hotspare.demo.site import Site
from hotspare.testing.cluster import Cluster, wait_until
from hotspare.testing.kafka_server import BrokerTuning, Compilers

PARTS = ("catch-up", "latency", "gap", "rest")
EXECUTOR_MIB = 1024
SERVERS = "servers"
SCALE_GOAL, CPU_RATIO_GOAL = 0.85, 1.15
LATENCY_GOAL = "goal p50 40, p99 120"
FED_S = 24 * 3600.0
CATCH_UP_LEASE = ("--lease-ms", "30000")
"""A long lease, so that only the load decides the rate: while its transaction is open no engine reads, and no spare exists."""
SMALL = {
    "events": 200_000,
    "warm_events": 40_000,
    "warm": 5.0,
    "seconds": 10.0,
    "kills": 2,
    "rest_shards": 16,
    "rest_seconds": 10.0,
    "compilers": Compilers.FIRST.value,
}


def master(kind: str, executors: int) -> str:
    return f"local[{executors}]" if kind == "local" else f"local-cluster[{executors},1,{EXECUTOR_MIB}]"


def on_spark(options: argparse.Namespace, executors: int) -> tuple[str, ...]:
    return ("--runner", "partitioned", "--master", master(options.master, executors))


# --- catching up ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The result of a catch-up. `cpu`: of all processes of the application, per million events; `servers_cpu_s`: of the servers."""

    events_per_s: float
    cpu: CpuSeconds
    servers_cpu_s: float

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu.values())


def caught_up(projects: Sequence[Divided], run: Sequence[str], options: argparse.Namespace) -> CaughtUp:
    """Runs all projects at once, each with its share of the events. Warms up first, then measures from the moment at which all
    events can be read to the append of the last output."""
    events, warm_events = options.events // len(projects), options.warm_events // len(projects)
    with contextlib.ExitStack() as stack:
        bus = stack.enter_context(contextlib.closing(open_bus(projects[0].site.bus_url)))
        clusters = [stack.enter_context(project.cluster(*run, *CATCH_UP_LEASE)) for project in projects]
        for project, cluster in zip(projects, clusters, strict=True):
            cluster.start_engine("a")
            wait_hosted(cluster, project)
            rows = min(options.block, max(1, warm_events // project.shards))
            with held_back(project, blocks(project, 0, warm_events, rows)):
                pass
            wait_outputs(bus, project, outputs_of(project, warm_events))
        with contextlib.ExitStack() as held:
            for project in projects:
                held.enter_context(held_back(project, blocks(project, warm_events, events, options.block)))
            before, begin_us = all_cpu_seconds(clusters), now_us()
        for project in projects:
            wait_outputs(bus, project, outputs_of(project, warm_events + events))
        cpu, end_us = passed(before, all_cpu_seconds(clusters)), max(last_output_us(bus, project) for project in projects)
    millions = events * len(projects) / 1e6
    servers = cpu.pop(SERVERS) / millions
    return CaughtUp(millions * 1e12 / (end_us - begin_us), {kind: seconds / millions for kind, seconds in cpu.items()}, servers)


def all_cpu_seconds(clusters: Sequence[Cluster]) -> CpuSeconds:
    """Returns the processor time of the engines' processes by kind, and of the servers, which this process started."""
    found = [cpu_seconds(cluster) for cluster in clusters]
    servers = [each.cpu_times() for each in psutil.Process().children() if each.name() == "java"]
    kinds = {kind: sum(each[kind] for each in found) for kind in found[0]}
    return {**kinds, SERVERS: sum(each.user + each.system for each in servers)}


def catch_up(site: Site, folder: Path, options: argparse.Namespace) -> dict[int, CaughtUp]:
    """Returns the results by number of executors; 0 is the one local engine."""
    cores = psutil.cpu_count() or 1
    found: dict[int, CaughtUp] = {}
    for executors in (0, *options.executors):
        project = Divided(site, folder, f"catch{executors}", options.shards)
        run = on_spark(options, executors) if executors else ("--runner", "local")
        found[executors] = made = caught_up([project], run, options)
        line = told_rate("one local engine" if not executors else f"{executors} executor" + "s" * (executors > 1), made)
        if executors and 1 in found:
            line += f"   {made.events_per_s / found[1].events_per_s:.2f} x one executor"
            line += f" (goal {SCALE_GOAL * executors:.2f})" if 1 < executors <= cores else ""
        if executors:
            line += f", {made.cpu_s / found[0].cpu_s:.2f} x the local engine's cpu (goal {CPU_RATIO_GOAL})"
        print(line, flush=True)
    halves = [Divided(site, folder, f"half{number}", options.shards // 2) for number in range(2)]
    both = caught_up(halves, ("--runner", "local"), options)
    print(
        f"{told_rate('two local engines', both)}, each with a project of its own: what two processes have of this machine",
        flush=True,
    )
    return found


def told_rate(what: str, made: CaughtUp) -> str:
    line = f"{what:17}{made.events_per_s / 1e3:8.0f} k events/s   cpu {made.cpu_s:6.2f} s per million events ({shares(made.cpu)})"
    return f"{line}, servers {made.servers_cpu_s:.2f} s"


def shares(cpu: CpuSeconds) -> str:
    return ", ".join(f"{kind} {cpu[kind]:.2f}" for kind in (JVM, PYTHON))


# --- latency and gaps ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def watched(
    project: Divided, applications: int, options: argparse.Namespace, more: Sequence[str] = ()
) -> Iterator[tuple[Cluster, Watch]]:
    """Starts applications that host all shards (0: a local engine), an even load, and a reader of the outputs."""
    run = on_spark(options, options.tasks) if applications else ("--runner", "local")
    with project.cluster(*run, *more) as cluster, contextlib.closing(open_bus(project.site.bus_url)) as bus:
        for name in "abcdefgh"[: max(1, applications)]:
            cluster.start_engine(name)
        wait_hosted(cluster, project)
        watch = Watch(project, bus)
        try:
            with fed_evenly(project, options.rate, FED_S):
                wait_until(lambda: all(watch.first_output_us(n, 0) for n in range(project.shards)), "outputs", TIMEOUT_S)
                yield cluster, watch
        finally:
            watch.close()


def latency(site: Site, folder: Path, options: argparse.Namespace) -> None:
    for applications in options.applications:
        project = Divided(site, folder, f"latency{applications}", options.shards)
        with watched(project, applications, options) as (_, watch):
            latencies = watch.measure(Window.after(options.warm, options.seconds))
            time.sleep(options.warm + options.seconds + 1)
        host = f"{applications} application{'s' * (applications > 1)}" if applications else "one local engine"
        name = f"latency at {options.rate} events/s, {options.shards} shards, {host}"
        print(f"{table([latencies.report(name)])}   {LATENCY_GOAL}", flush=True)


# --- at rest -------------------------------------------------------------------------------------------------------------------


def ports(url: str) -> list[int]:
    """Returns the ports of the servers that a URL names; none if it is a file."""
    return [int(each.rpartition(":")[2]) for each in urlsplit(url).netloc.split(",") if ":" in each]


def rest(site: Site, folder: Path, options: argparse.Namespace) -> None:
    project = Divided(site, folder, "rest", options.rest_shards)
    with project.cluster(*on_spark(options, options.tasks)) as cluster, contextlib.closing(open_bus(site.bus_url)) as bus:
        cluster.start_engine("a")
        wait_hosted(cluster, project)
        time.sleep(options.warm)
        log = TransactionLog.of(site.bus_url)
        appended, before, begin = inbound_end(bus, project), cpu_seconds(cluster), time.monotonic()
        time.sleep(options.rest_seconds)
        lasted, cpu = time.monotonic() - begin, passed(before, cpu_seconds(cluster))
        appended = inbound_end(bus, project) - appended
        ended = "-" if log is None else f"{log.ended() / lasted:.1f}"
        to_bus, to_coordination = (connections(cluster, ports(url)) for url in (site.bus_url, site.coordination_url))
    cpu = {kind: seconds / lasted for kind, seconds in cpu.items()}
    print(f"{project.shards} shards at rest, {options.tasks} executors: {sum(cpu.values()):.2f} of a core ({shares(cpu)})")
    print(f"   connections to brokers {to_bus}, to ZooKeeper {to_coordination}; transactions per s {ended}", end="")
    print(f"; ticks per s {appended / lasted:.1f}", flush=True)


def inbound_end(bus: Bus, project: Divided) -> int:
    return sum(bus.end_offset(place) for place in project.inbound_places)


# --- the command ---------------------------------------------------------------------------------------------------------------


def last_line(found: dict[int, CaughtUp]) -> str:
    scale = f"{found[2].events_per_s / found[1].events_per_s:.2f}" if {1, 2} <= found.keys() else "-"
    ratio = f"{found[2].cpu_s / found[0].cpu_s:.2f}" if {0, 2} <= found.keys() else "-"
    return f"scale_2 {scale} cpu_per_event_ratio {ratio}"


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--small", action="store_true", help="small sizes where nothing else is said")
    parser.add_argument("--site", choices=("kafka", "embedded"), default="kafka")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument(
        "--compilers", choices=[each.value for each in Compilers], default=Compilers.BOTH.value, help="of the brokers' JVM"
    )
    parser.add_argument("--master", choices=("local-cluster", "local"), default="local-cluster")
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2, 4], help="catch-up: how many, one after another")
    parser.add_argument("--tasks", type=int, default=2, help="executors of each application elsewhere")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--warm-events", type=int, default=400_000)
    parser.add_argument("--block", type=int, default=1_000, help="catch-up: events of a message")
    parser.add_argument("--rate", type=int, default=1_000, help="latency and gap: events per second")
    parser.add_argument("--applications", type=int, nargs="+", default=[0, 1, 2], help="latency: how many; 0: a local engine")
    parser.add_argument("--warm", type=float, default=20.0, help="seconds before what is measured")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--kills", type=int, default=20, help="gap: of each kind")
    parser.add_argument("--kinds", nargs="+", choices=list(KILLS), default=list(KILLS), help="gap: what is killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rest-shards", type=int, default=64)
    parser.add_argument("--rest-seconds", type=float, default=30.0)
    if parser.parse_args(arguments).small:
        parser.set_defaults(**SMALL)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    found: dict[int, CaughtUp] = {}
    tuning = BrokerTuning(compilers=Compilers(options.compilers))
    with (
        tempfile.TemporaryDirectory(prefix="hotspare-scale-") as name,
        opened(options.site, Path(name), options.brokers, tuning) as site,
    ):
        load = os.getloadavg()[0]
        print(
            f"{psutil.cpu_count()} cores, load {load:.1f} at the start, {options.site} (compilers: {options.compilers}),"
            f" {master(options.master, options.tasks)}"
        )
        if "catch-up" in options.only:
            found = catch_up(site, Path(name), options)
        for part, measure in (("latency", latency), ("gap", partial(gap, watched=watched)), ("rest", rest)):
            if part in options.only:
                measure(site, Path(name), options)
    print(last_line(found), flush=True)


if __name__ == "__main__":
    main()
