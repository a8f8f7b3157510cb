"""The cost of an engine while little or nothing happens: processor time and memory of its Python, its JVM and Spark's workers.

A group of engines on three Kafka brokers and a ZooKeeper, or on the embedded bus: the time until each is ready, and its cost; then
without input, then with an even rate of events. Shares of one core per engine; the servers and the load are not counted. Memory is
what would be free without them: pages that processes share count in part (PSS).

    python -m benchmarks.idle_cost [--bus kafka] [--engines 2] [--rates 0 500] [--engine-options="--head workers"]
    python -m benchmarks.idle_cost --engine-options="--runner local"
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
from benchmarks._site import fed, opened
from benchmarks.quality_cost import IN, OUT, PREFIX, PROJECT, project

from hotspare.bus.contract import Partition
from hotspare.bus.naming import group_name
from hotspare.bus.open import open_bus
from hotspare.demo.site import Site
from hotspare.testing.cluster import Cluster, SpawnedEngine, wait_until

KINDS = ("python", "jvm", "workers")
TIMEOUT_S = 300.0


def seconds_of(engine: SpawnedEngine) -> dict[str, float]:
    """Returns the processor seconds so far of the engine's own process, its JVM, and all other processes below it."""
    return _of_processes(engine, _seconds)


def mebibytes_of(engine: SpawnedEngine) -> dict[str, float]:
    """Returns the memory of the same processes now, in MiB."""
    return _of_processes(engine, lambda process: process.memory_full_info().pss / (1 << 20))


def _of_processes(engine: SpawnedEngine, read: Callable[[psutil.Process], float]) -> dict[str, float]:
    own = psutil.Process(engine.process.pid)
    found = dict.fromkeys(KINDS, 0.0)
    found["python"] = read(own)
    for child in own.children(recursive=True):
        found["jvm" if child.name() == "java" else "workers"] += read(child)
    return found


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measured(cluster: Cluster, seconds: float) -> dict[str, dict[str, float]]:
    """Returns per engine and kind the share of a core within the next `seconds`."""
    begun, before = time.monotonic(), {name: seconds_of(engine) for name, engine in cluster.engines.items()}
    time.sleep(seconds)
    passed = time.monotonic() - begun
    after = {name: seconds_of(engine) for name, engine in cluster.engines.items()}
    return {name: {kind: (after[name][kind] - before[name][kind]) / passed for kind in KINDS} for name in before}


def start(cluster: Cluster, name: str) -> None:
    """Starts an engine, waits until it is ready, and prints the cost."""
    begun = time.monotonic()
    engine = cluster.start_engine(name)
    cluster.wait_ready()
    took_s, seconds = time.monotonic() - begun, seconds_of(engine)
    parts = "  ".join(f"{kind} {seconds[kind]:.1f}" for kind in KINDS)
    print(f"{name} ready after {took_s:.1f} s, {sum(seconds.values()):.1f} s of processor time  ({parts})", flush=True)


def show(rate: int, cluster: Cluster, shares: dict[str, dict[str, float]]) -> None:
    leader = cluster.leader().holder
    for name, share in shares.items():
        role = "active" if name == leader else "spare "
        parts = "  ".join(f"{kind} {share[kind]:.3f}" for kind in KINDS)
        memory = mebibytes_of(cluster.engines[name])
        has = "  ".join(f"{kind} {memory[kind]:.0f}" for kind in KINDS)
        cost = f"{sum(share.values()):.3f} of a core  ({parts})  {sum(memory.values()):.0f} MiB  ({has})"
        print(f"{rate:5} events/s  {role}  {cost}", flush=True)


def measure(site: Site, folder: Path, options: argparse.Namespace) -> None:
    file = folder / "cost.yaml"
    file.write_text(project("precise"))
    bus = open_bus(site.bus_url)
    for topic in (IN, OUT):
        bus.create_topic(topic)
    run_options = ("--store", site.store_url, *shlex.split(options.engine_options))
    cluster = Cluster(file, site.bus_url, group_name(PREFIX, PROJECT), PREFIX, folder, run_options, site.coordination_url)
    try:
        for number in range(1, options.engines + 1):
            start(cluster, f"engine-{number}")
        for rate in options.rates:
            end = bus.end_offset(Partition(OUT))
            with fed(site.bus_url, rate, 2 * TIMEOUT_S, IN):
                if rate:
                    wait_until(lambda end=end: bus.end_offset(Partition(OUT)) > end, "outputs", TIMEOUT_S)  # type: ignore[misc]
                time.sleep(options.warm)
                show(rate, cluster, measured(cluster, options.seconds))
    finally:
        cluster.stop()
        bus.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bus", choices=("sqlite", "kafka"), default="kafka")
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--rates", type=int, nargs="+", default=[0, 500])
    parser.add_argument("--warm", type=float, default=15.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--engine-options", default="", help="further options of `hotspare run`")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name, opened(options.bus, Path(name)) as site:
        measure(site, Path(name), options)


if __name__ == "__main__":
    main()
