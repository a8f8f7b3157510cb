"""JSON messages of one row each through hotspare and through Kafka Streams, topic to topic, and hotspare's write path alone.

Each side gets the same rows, one JSON document per message with its key, in one partition of the same brokers. Streams is one
instance of `builder.stream(in).to(out)` with the serdes of Kafka's own JSON classes (`../kafka_streams/JsonCopy.java`). hotspare is
one engine with a source and a copy window that has `kafkatype: json`; it also writes opcode, flags, sequence and three headers of
each row. All producers wait for all replicas (`acks=all`). The arms take turns, each with processes of its own, warm.

    hotspare     exactly once; the whole path: topic, engine, topic
    write path   its last part alone: from outputs in memory to the end of their transaction, in this process
    Streams      exactly once (`exactly_once_v2`) and at least once, each as Streams sets it, and tuned: batches and compression of
                 hotspare's producer, larger fetches, and a commit as often as hotspare commits while input is at hand

A rate counts from the moment when all rows can be read to the append of the last one in the output topic. The topic is read
afterwards: it must hold each row once.

    python -m benchmarks.json_rows.streams [--rows 1000000] [--repeat 5] [--runner ordered]
    python -m benchmarks.json_rows.streams --rows 40000 --warm-rows 20000 --repeat 1      shows that it works, no more

The last line is `whole_path_ratio X write_path_ratio Y`: against the fastest exactly-once arm of Streams, medians.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from benchmarks._divided import NAME, QUERY, RESULT, SOURCE, TIMEOUT_S, Divided, cpu_seconds
from benchmarks._divided_load import held_back, last_output_us
from benchmarks._latency import now_us
from benchmarks.json_rows.write_path import KEY, SETTINGS, Arm, cpu_s, written_by_engine
from benchmarks.kafka_streams.__main__ import Rate, committed_outputs, create_topics, rate_of, start
from benchmarks.kafka_streams.peer import JSON_COPY, JVM_OPTIONS, VERSION, Epochs, streams
from benchmarks.scale_out import CATCH_UP_LEASE

from hotspare.bus.contract import Bus
from hotspare.bus.open import open_bus
from hotspare.demo.servers import kafka_and_zookeeper
from hotspare.demo.site import Site
from hotspare.ha.rules.settings import GroupSettings, OutputStream
from hotspare.rows.batch import MessageFormat
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import BrokerTuning, Compilers

ENGINE, WRITE_PATH = "hotspare", "write path"
ONCE, AT_LEAST_ONCE = "exactly_once_v2", "at_least_once"
STREAMS: dict[str, str | int] = {
    "num.stream.threads": 1,
    "num.standby.replicas": 0,
    "producer.acks": "all",
    # The rows of a turn are one transaction; at least once, Streams would read them before the clock starts.
    "consumer.isolation.level": "read_committed",
}
TUNED: dict[str, str | int] = {
    "commit.interval.ms": GroupSettings().commit_wait_ms,
    "main.consumer.max.poll.records": 10_000,
    "consumer.max.partition.fetch.bytes": 4 << 20,
    "producer.linger.ms": SETTINGS["linger.ms"],
    "producer.batch.size": SETTINGS["batch.size"],
    "producer.compression.type": SETTINGS["compression.type"],
    "producer.buffer.memory": 256 << 20,
}
PEERS: dict[str, Mapping[str, str | int]] = {
    "Streams, exactly once": {"processing.guarantee": ONCE},
    "Streams, exactly once, tuned": {"processing.guarantee": ONCE, **TUNED},
    "Streams, at least once": {"processing.guarantee": AT_LEAST_ONCE},
    "Streams, at least once, tuned": {"processing.guarantee": AT_LEAST_ONCE, **TUNED},
}
TRANSACTION_ROWS = 100_000
"""The maximum rows of a transaction of the write path."""
GOAL = 0.8
_LOOK_S = 0.2
PROJECT = f"""
project: {NAME}
queries:
  {QUERY}:
    windows:
      {SOURCE}:
        type: source
        schema: "id*:int64,card:string,amount:double"
        opcodes: insert-only
        index: empty
        connectors: {{in: {{kind: kafka, direction: publish, properties: {{kafkatype: json}}}}}}
      {RESULT}:
        type: copy
        index: empty
        publish: true
        connectors: {{out: {{kind: kafka, direction: subscribe, properties: {{kafkatype: json}}}}}}
    edges: [{SOURCE} -> {RESULT}]
"""


@dataclass(frozen=True, slots=True)
class Load:
    """Messages that warm an arm up, and those that are measured."""

    warm: Sequence[bytes]
    measured: Sequence[bytes]

    @property
    def rows(self) -> int:
        return len(self.warm) + len(self.measured)


def messages(first: int, rows: int) -> list[bytes]:
    return [
        b'{"opcode":"insert","id":%d,"card":"card-%d","amount":%.2f}' % (row, row % 1000, row * 0.25)
        for row in range(first, first + rows)
    ]


def key(message: bytes) -> bytes:
    """Returns the text of the row's id."""
    begin = message.index(b'"id":') + len(b'"id":')
    return message[begin : message.index(b",", begin)]


def wait_copied(project: Divided, bus: Bus, rows: int) -> None:
    """Waits until a reader of committed messages finds `rows` rows in the output topic; fails if it finds more."""
    # Fewer offsets than rows need no count: transactions take some, too.
    wait_until(
        lambda: bus.end_offset(project.outputs(0)) >= rows and committed_outputs(project) >= rows,
        f"{rows} rows in {project.outbound}",
        TIMEOUT_S,
        _LOOK_S,
    )
    if (found := committed_outputs(project)) != rows:
        raise SystemExit(f"{found} rows in {project.outbound}, for {rows} rows")


def fed(project: Divided, load: Load, used_s: Callable[[], float]) -> Rate:
    """Returns the rate of an application that runs and has read nothing yet; `used_s` gives its processor time so far."""
    with contextlib.closing(open_bus(patient(project.site))) as bus:
        with held_back(project, [load.warm], (), key):
            pass
        wait_copied(project, bus, len(load.warm))
        with held_back(project, [load.measured], (), key):
            before_s, begin_us = used_s(), now_us()
        wait_copied(project, bus, load.rows)
        cpu = used_s() - before_s
        return rate_of(len(load.measured), last_output_us(bus, project) - begin_us, cpu)


def patient(site: Site) -> str:
    """Returns the URL of the bus with a time limit that a busy machine keeps."""
    return f"{site.bus_url}?timeout_ms=60000"


def by_engine(project: Divided, load: Load, runner: str) -> Rate:
    with project.cluster("--runner", runner, *CATCH_UP_LEASE) as cluster:
        start(cluster, project, ("a",))
        return fed(project, load, lambda: sum(cpu_seconds(cluster).values()))


def by_streams(project: Divided, load: Load, settings: Mapping[str, str | int]) -> Rate:
    create_topics(project)
    with streams(project, {**STREAMS, **settings}, Epochs.LEFT_OUT, JSON_COPY, ("1",)) as application:
        return fed(project, load, application.cpu_s)


def by_write_path(write: Arm, rows_each: int, rows: int) -> Rate:
    own = psutil.Process()
    write(1)
    transactions = max(1, rows // rows_each)
    before_s, begin = cpu_s(own), time.perf_counter()
    write(transactions)
    lasted_us = int((time.perf_counter() - begin) * 1e6)
    return rate_of(rows_each * transactions, lasted_us, cpu_s(own) - before_s)


def measured(site: Site, folder: Path, options: argparse.Namespace) -> dict[str, list[Rate]]:
    """Returns the rates of each arm, by turn."""
    load = Load(messages(0, options.warm_rows), messages(options.warm_rows, options.rows))
    rows_each = min(TRANSACTION_ROWS, options.rows)
    with contextlib.closing(open_bus(patient(site))) as bus:
        bus.create_topic("rows")
    stream = OutputStream("q/rows", "rows", format=MessageFormat.JSON, message_key=(KEY,))
    write = written_by_engine(patient(site), rows_each, stream)
    arms: dict[str, Callable[[Divided], Rate]] = {
        ENGINE: partial(by_engine, load=load, runner=options.runner),
        WRITE_PATH: lambda _: by_write_path(write, rows_each, options.rows),
        **{name: partial(by_streams, load=load, settings=settings) for name, settings in PEERS.items()},
    }
    found: dict[str, list[Rate]] = {name: [] for name in arms}
    for turn in range(options.repeat):
        for number, (name, measure) in enumerate(arms.items()):
            found[name].append(made := measure(Divided(site, folder, f"arm{number}x{turn}", 1, PROJECT)))
            print(f"{name:32}{made.events_per_s / 1e3:8.0f} thousand rows/s   cpu {made.cpu_s:6.2f} s per million rows", flush=True)
    return found


def report(found: Mapping[str, Sequence[Rate]]) -> str:
    """Returns the table of medians, and the line of ratios."""
    rates = {name: statistics.median(each.events_per_s for each in turns) for name, turns in found.items()}
    used = {name: statistics.median(each.cpu_s for each in turns) for name, turns in found.items()}
    lines = [f"{'':32}{'thousand rows/s':>16}{'cpu s/million':>15}{'hotspare/it':>13}{'write path/it':>15}"]
    lines += [
        f"{name:32}{rate / 1e3:16.0f}{used[name]:15.2f}{rates[ENGINE] / rate:13.2f}{rates[WRITE_PATH] / rate:15.2f}"
        for name, rate in rates.items()
    ]
    best = max(rates[name] for name, settings in PEERS.items() if settings["processing.guarantee"] == ONCE)
    return "\n".join([*lines, f"whole_path_ratio {rates[ENGINE] / best:.2f} write_path_ratio {rates[WRITE_PATH] / best:.2f}"])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of a turn")
    parser.add_argument("--warm-rows", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=5, help="turns; the table has the medians")
    parser.add_argument("--runner", choices=("local", "ordered"), default="local", help="hotspare's")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="hotspare-json-rows-") as name,
        kafka_and_zookeeper(Path(name), options.brokers, BrokerTuning(compilers=Compilers.BOTH)) as site,
    ):
        print(f"{psutil.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start, {options.runner}, goal {GOAL}")
        print(f"Kafka Streams {VERSION}, java {' '.join(JVM_OPTIONS)}: {told(STREAMS)}; tuned: {told(TUNED)}", flush=True)
        found = measured(site, Path(name), options)
    print(report(found), flush=True)


def told(settings: Mapping[str, str | int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


if __name__ == "__main__":
    main()
