"""A keyed sum next to Kafka Streams, Java: how fast both catch up, and how long a partition is silent after kill -9 of one of two.

Both count and sum the same events by key, on the same broker, with an output for every event and exactly once. Each has every
partition twice: hotspare in two applications of one executor (or, with --runner local, in two engines without Spark), Streams in
two instances with one standby replica, state in RocksDB. An event is a JSON message of its own with its key as Kafka's key, because
Streams takes one event per message. `blocks` is hotspare again, with the same events in Arrow blocks of 1,000. `alone` is hotspare
without a spare: the standby of Streams computes nothing, it follows a changelog.

    catch-up   in turns, from the moment at which all events can be read to the append of the last output; afterwards the outputs
               of Streams are read and counted, and the sequences of hotspare are compared
    gap        at an even rate, after kill -9 of the executor (engine, instance) that has most partitions: per partition until its
               successor's first output was appended, and until a reader of committed messages had it

Streams is tuned for each of the two; its settings are printed.

    python -m benchmarks.kafka_streams [--only gap] [--kills 8] [--runner local]

The last line is `throughput_ratio X gap_ratio Y`: hotspare's events/s divided by Streams', medians (goal 1.5 at least); hotspare's
gap until a reader has the output divided by Streams', p50 (goal 0.1 at most). `-` means not measured.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import psutil
from benchmarks._divided import (
    NAME,
    QUERY,
    RESULT,
    SOURCE,
    TIMEOUT_S,
    Divided,
    Struck,
    cpu_seconds,
    kill_driver,
    kill_executor,
    wait_hosted,
)
from benchmarks._divided_gap import TIMEOUT_S as GAP_TIMEOUT_S
from benchmarks._divided_gap import Gap, gaps_of, told
from benchmarks._divided_load import (
    BLOCKS,
    FORMS,
    JSON,
    Header,
    Watch,
    blocks,
    bootstrap_of,
    fed_evenly,
    held_back,
    last_output_us,
    outputs_of,
    wait_outputs,
)
from benchmarks._latency import now_us
from benchmarks.kafka_streams.peer import BROKER_SETTINGS, CATCH_UP, JVM_OPTIONS, VERSION, Epochs, instance_of, quick, streams
from benchmarks.scale_out import CATCH_UP_LEASE, FED_S
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from hotspare.bus.open import open_bus
from hotspare.coordination.contract import Leader
from hotspare.demo.faults import quantile
from hotspare.demo.servers import kafka_and_zookeeper
from hotspare.demo.site import Site
from hotspare.testing.cluster import Cluster, settings_options, wait_until
from hotspare.testing.kafka_server import BrokerTuning, Compilers

PARTS = ("catch-up", "gap")
OURS, PEER, IN_BLOCKS, ALONE = "hotspare", "Streams", "blocks", "alone"
ONCE = (IN_BLOCKS, ALONE)
APPLICATIONS = ("a", "b")
BLOCK_EVENTS = 1_000
ON_EXECUTORS = ("--runner", "partitioned", "--master", "local-cluster[1,1,1024]")
THROUGHPUT_GOAL, GAP_GOAL = 1.5, 0.1
PROJECT = f"""
project: {NAME}
queries:
  {QUERY}:
    windows:
      {SOURCE}:
        type: source
        schema: "id*:int64,key:int64,value:double,created:int64"
        opcodes: insert-only
        index: empty
        partition_by: key
        connectors: {{in: {{kind: kafka, direction: publish, properties: {{kafkatype: json}}}}}}
      {RESULT}:
        type: aggregate
        schema: "key*:int64,events:int64,total:double,created:int64"
        outputs: {{events: ESP_aCount(), total: ESP_aSum(value), created: ESP_aMax(created)}}
        publish: true
    edges: [{SOURCE} -> {RESULT}]
"""
BLOCKS_PROJECT = PROJECT.replace("        connectors: {in: {kind: kafka, direction: publish, properties: {kafkatype: json}}}\n", "")


@dataclass(frozen=True, slots=True)
class Load:
    """Messages per shard, and their count of events; `key` returns Kafka's key of one."""

    events: int
    values: list[list[bytes]]
    headers: tuple[Header, ...] = ()
    key: Callable[[bytes], bytes | None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate of one run; `cpu_s`: processor time of all processes of both applications or instances, per million events."""

    events_per_s: float
    cpu_s: float


# --- catching up ---------------------------------------------------------------------------------------------------------------


def json_key(message: bytes) -> bytes:
    begin = message.index(b'"key":') + len(b'"key":')
    return message[begin : message.index(b",", begin)]


def json_load(project: Divided, first: int, events: int) -> Load:
    """Returns the events of `_divided_load.blocks`, each as a message of its own."""
    made = []
    for number, keys in enumerate(project.keys_by_shard()):
        count = events // project.shards + int(number < events % project.shards)
        turns = first // project.shards + np.arange(count)
        ids, own = turns * project.shards + number, keys[turns % len(keys)]
        rows = zip(ids.tolist(), own.tolist(), (ids % 997 / 10).tolist(), strict=True)
        made.append([FORMS[JSON] % (id_, key, value, 0) for id_, key, value in rows])
    return Load(events, made, key=json_key)


def block_load(project: Divided, first: int, events: int) -> Load:
    return Load(events, blocks(project, first, events, BLOCK_EVENTS), BLOCKS)


@contextlib.contextmanager
def written(project: Divided, load: Load) -> Iterator[None]:
    with held_back(project, load.values, load.headers, load.key):
        yield


def ours(project: Divided, loads: tuple[Load, Load], run: Sequence[str], names: Sequence[str] = APPLICATIONS) -> Rate:
    warm, measured = loads
    with project.cluster(*run, *CATCH_UP_LEASE) as cluster, contextlib.closing(open_bus(project.site.bus_url)) as bus:
        start(cluster, project, names)
        with written(project, warm):
            pass
        wait_outputs(bus, project, outputs_of(project, warm.events))
        with written(project, measured):
            before, begin_us = sum(cpu_seconds(cluster).values()), now_us()
        wait_outputs(bus, project, outputs_of(project, warm.events + measured.events))
        cpu_s = sum(cpu_seconds(cluster).values()) - before
        return rate_of(measured.events, last_output_us(bus, project) - begin_us, cpu_s)


def peer(project: Divided, loads: tuple[Load, Load], _: Sequence[str]) -> Rate:
    warm, measured = loads
    with contextlib.closing(open_bus(project.site.bus_url)) as bus:
        create_topics(project)
        with streams(project, CATCH_UP, Epochs.LEFT_OUT) as application:
            with written(project, warm):
                pass
            ends = [len(values) for values in warm.values]
            application.wait_done(ends)
            with written(project, measured):
                before, begin_us = application.cpu_s(), now_us()
            # The end of each transaction takes an offset, too.
            application.wait_done([end + 1 + len(values) for end, values in zip(ends, measured.values, strict=True)])
            cpu_s = application.cpu_s() - before
        outputs = warm.events + measured.events
        wait_until(lambda: committed_outputs(project) >= outputs, f"{outputs} records of Streams", TIMEOUT_S)
        if (found := committed_outputs(project)) != outputs:
            raise SystemExit(f"Streams put {found} records out, for {outputs} events")
        return rate_of(measured.events, last_output_us(bus, project) - begin_us, cpu_s)


def rate_of(events: int, lasted_us: int, cpu_s: float) -> Rate:
    return Rate(events * 1e6 / lasted_us, cpu_s * 1e6 / events)


def create_topics(project: Divided) -> None:
    """Creates the topics as hotspare does."""
    with contextlib.closing(open_bus(project.site.bus_url)) as bus:
        for topic in (project.inbound, project.outbound):
            bus.create_topic(topic, project.shards)


def committed_outputs(project: Divided) -> int:
    """Returns the count of records that a reader of committed messages finds in the output topic."""
    settings = {
        "group.id": "counting",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer({"bootstrap.servers": bootstrap_of(project.site.bus_url), **settings})
    places = [TopicPartition(project.outbound, number, OFFSET_BEGINNING) for number in range(project.shards)]
    consumer.assign(places)
    found, ended = 0, set[int]()
    while len(ended) < len(places):
        messages = consumer.consume(50_000, 0.2)
        ended |= {message.partition() or 0 for message in messages if message.error() is not None}
        found += sum(message.error() is None for message in messages)
    consumer.close()
    return found


def start(cluster: Cluster, project: Divided, names: Sequence[str] = APPLICATIONS) -> None:
    for name in names:
        cluster.start_engine(name)
    wait_hosted(cluster, project)


def catch_up(site: Site, folder: Path, options: argparse.Namespace) -> float:
    """Returns the ratio of events/s."""
    plain = Divided(site, folder, "load", options.shards, PROJECT)
    singly, in_blocks = (
        (make(plain, 0, options.warm_events), make(plain, options.warm_events, options.events)) for make in (json_load, block_load)
    )
    arms: dict[str, tuple[Callable[[Divided, tuple[Load, Load], Sequence[str]], Rate], str, tuple[Load, Load]]] = {
        OURS: (ours, PROJECT, singly),
        PEER: (peer, PROJECT, singly),
        IN_BLOCKS: (ours, BLOCKS_PROJECT, in_blocks),
        ALONE: (partial(ours, names=APPLICATIONS[:1]), PROJECT, singly),
    }
    found: dict[str, list[Rate]] = {arm: [] for arm in arms}
    for turn in range(options.runs):
        for arm, (measure, text, loads) in arms.items():
            if arm not in ONCE or not turn:
                project = Divided(site, folder, f"{arm.lower()}{turn}", options.shards, text)
                found[arm].append(made := measure(project, loads, runner(options, project.folder)))
                print(f"{arm:9}{made.events_per_s / 1e3:8.0f} k events/s   cpu {made.cpu_s:6.2f} s per million events", flush=True)
    medians = {arm: statistics.median(each.events_per_s for each in rates) for arm, rates in found.items()}
    ratio = medians[OURS] / medians[PEER]
    print(
        f"catching up: {ratio:.2f} x Streams (goal {THROUGHPUT_GOAL}), in blocks {medians[IN_BLOCKS] / medians[PEER]:.2f} x,"
        f" without a spare {medians[ALONE] / medians[PEER]:.2f} x",
        flush=True,
    )
    return ratio


# --- gaps ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gaps:
    """Per struck partition, ms until the successor's first output was appended, and until a reader had it."""

    appended: list[float]
    read: list[float]

    @classmethod
    def of(cls, found: Sequence[Gap]) -> Gaps:
        return cls([each.appended_ms for each in found], [each.read_ms for each in found])


@contextlib.contextmanager
def watched(project: Divided, options: argparse.Namespace) -> Iterator[Watch]:
    """Runs an even load, and a reader of its outputs."""
    with contextlib.closing(open_bus(project.site.bus_url)) as bus:
        watch = Watch(project, bus)
        try:
            with fed_evenly(project, options.rate, FED_S, JSON):
                wait_until(lambda: all(watch.first_output_us(n, 0) for n in range(project.shards)), "outputs", GAP_TIMEOUT_S)
                time.sleep(options.warm)
                yield watch
        finally:
            watch.close()


def our_gaps(project: Divided, options: argparse.Namespace, rng: random.Random) -> Gaps:
    found: list[Gap] = []
    with project.cluster(*runner(options, project.folder)) as cluster:
        start(cluster, project)
        with watched(project, options) as watch:
            for _ in range(options.kills):
                wait_hosted(cluster, project)
                time.sleep(rng.uniform(1, 3))
                struck = (kill_driver if options.runner == "local" else kill_executor)(cluster, project)
                found += gaps_of(struck, project, watch)
                if struck.application not in cluster.engines:
                    cluster.start_engine(struck.application)
    return Gaps.of(found)


def peer_gaps(project: Divided, options: argparse.Namespace, rng: random.Random) -> Gaps:
    found: list[Gap] = []
    create_topics(project)
    with streams(project, quick(options.session_ms), Epochs.SAID) as application, watched(project, options) as watch:
        for _ in range(options.kills):
            application.wait_both_hosted()
            time.sleep(rng.uniform(1, 3))
            active = {name: application.status(name).active for name in application.processes}
            name = max(active, key=lambda each: len(active[each]))
            wait_until(lambda held=active[name], name=name: holds(watch, held, name), "its outputs", TIMEOUT_S)  # type: ignore[misc]
            leaders = {number: Leader(watch.firsts[number][-1].epoch, name, "", 0) for number in active[name]}
            at_us, process_id = now_us(), application.processes[name].pid
            application.kill(name)
            processes = dict.fromkeys(leaders, process_id)
            found += gaps_of(Struck(name, "instance", at_us, leaders, processes), project, watch)
            application.start_instance(name)
    return Gaps.of(found)


def holds(watch: Watch, numbers: Sequence[int], name: str) -> bool:
    """Whether the newest outputs of these partitions are that instance's."""
    watch.check()
    return all(instance_of(watch.firsts[number][-1].epoch) == name for number in numbers)


def gap(site: Site, folder: Path, options: argparse.Namespace) -> float:
    """Returns the ratio of the gaps, p50 of what a reader sees."""
    found: dict[str, Gaps] = {}
    for arm, measure in ((OURS, our_gaps), (PEER, peer_gaps)):
        project = Divided(site, folder, f"gap{arm.lower()}", options.shards, PROJECT)
        found[arm] = made = measure(project, options, random.Random(options.seed))
        print(f"{arm:9}kill -9, {options.kills} times, {told('gap_ms', made.appended)} until output")
        print(f"         {told('gap_ms', made.read)} until a reader has it", flush=True)
    ratio = quantile(found[OURS].read, 0.5) / quantile(found[PEER].read, 0.5)
    print(f"gap: {ratio:.3f} x Streams' (goal {GAP_GOAL})", flush=True)
    return ratio


# --- the command ---------------------------------------------------------------------------------------------------------------


def runner(options: argparse.Namespace, folder: Path) -> tuple[str, ...]:
    if options.runner == "local":
        return "--runner", "local"
    return *ON_EXECUTORS, *settings_options(folder, {"rebalance-after-ms": 1_000})


def last_line(throughput: float | None, gap_ratio: float | None) -> str:
    told_throughput = "-" if throughput is None else f"{throughput:.2f}"
    told_gap = "-" if gap_ratio is None else f"{gap_ratio:.3f}"
    return f"throughput_ratio {told_throughput} gap_ratio {told_gap}"


def tell_settings(options: argparse.Namespace) -> None:
    said = {"catch-up": CATCH_UP, "gap": quick(options.session_ms)}
    for part in options.only:
        print(f"Kafka Streams {VERSION}, {part}: {', '.join(f'{key}={value}' for key, value in said[part].items())}")
    print(
        f"   java {' '.join(JVM_OPTIONS)}; broker {', '.join(f'{key}={value}' for key, value in BROKER_SETTINGS.items())}",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--runner", choices=("partitioned", "local"), default="partitioned", help="hotspare's")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--warm-events", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=2, help="catch-up: of each")
    parser.add_argument("--rate", type=int, default=1_000, help="gap: events per second")
    parser.add_argument("--warm", type=float, default=5.0, help="gap: seconds of events before the first kill")
    parser.add_argument("--kills", type=int, default=5, help="gap: of each")
    parser.add_argument("--session-ms", type=int, default=500, help="gap: of Streams' sessions and transactions")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    ratios: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="hotspare-streams-") as name,
        kafka_and_zookeeper(Path(name), options.brokers, BrokerTuning(BROKER_SETTINGS, Compilers.BOTH)) as site,
    ):
        print(
            f"{psutil.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start, {options.shards} partitions, {options.runner}"
        )
        tell_settings(options)
        for part, measure in (("catch-up", catch_up), ("gap", gap)):
            if part in options.only:
                ratios[part] = measure(site, Path(name), options)
    print(last_line(ratios.get("catch-up"), ratios.get("gap")), flush=True)


if __name__ == "__main__":
    main()
