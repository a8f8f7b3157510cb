"""Gap in the output when plain Spark is killed and restarted at once from its checkpoint: the peer of `benchmarks.kill_loop`.

Kafka in, parse, Kafka out by Spark's own source and sink, default settings, a checkpoint on disk, one broker. The process group
gets SIGKILL at a random instant. The gap is from there to the append time of the first output after it, without what the dead
process had in flight (half a second). Repeated outputs are counted. `python -m benchmarks.plain_restart [--kills 10]`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from benchmarks._latency import TOPIC, now_us, start_feeder
from benchmarks._plain import environment
from pyspark.sql import SparkSession

from hotspare.bus.contract import Bus, Partition
from hotspare.bus.open import open_bus
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_jars import ensure_kafka_source
from hotspare.testing.kafka_server import KafkaServers

OUT = "out"
TIMEOUT_S = 300.0
UNDER_WAY_US = 500_000


def engine(url: str) -> None:
    """Runs a query as a user of Spark would write it, until it is killed."""
    jars = ",".join(map(str, ensure_kafka_source()))
    servers = url.removeprefix("kafka://")
    spark = SparkSession.builder.appName("plain").config("spark.jars", jars).getOrCreate()
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    rows = source.option("subscribe", TOPIC).option("startingOffsets", "earliest").load()
    parsed = rows.selectExpr("cast(split(cast(value as string), ',')[2] as string) as value")
    sink = parsed.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", OUT)
    sink.option("checkpointLocation", "checkpoint").start().awaitTermination()


class Outputs:
    """The content of the output topic so far."""

    def __init__(self, bus: Bus) -> None:
        self._bus, self._offset = bus, 0
        self.numbers: list[int] = []
        self.times_us: list[int] = []

    def first_output_us(self, time_us: int) -> int | None:
        """Returns the append time of the first output after a time."""
        while read := self._bus.read(Partition(OUT), self._offset, messages_max=10_000, bytes_max=16 << 20):
            self.numbers += [int(m.value) for m in read]
            self.times_us += [m.append_time_us for m in read]
            self._offset = read[-1].offset + 1
        return next((t for t in self.times_us if t > time_us), None)


def start(folder: Path, url: str) -> subprocess.Popen[bytes]:
    with (folder / "spark.log").open("ab") as log:
        arguments = [sys.executable, "-m", "benchmarks.plain_restart", "--engine", url]
        return subprocess.Popen(arguments, cwd=folder, env=environment(), stdout=log, stderr=log, start_new_session=True)


def measure(folder: Path, url: str, options: argparse.Namespace) -> None:
    bus = open_bus(url)
    bus.create_topic(TOPIC)
    bus.create_topic(OUT)
    instants = random.Random(options.seed)
    outputs, gaps_ms = Outputs(bus), []
    process, killed_us = start(folder, url), now_us()
    feeder = start_feeder(url, options.rate, 1e9)
    try:
        for kill in range(options.kills + 1):
            since = killed_us + UNDER_WAY_US
            wait_until(lambda since=since: outputs.first_output_us(since) is not None, "output", TIMEOUT_S)  # type: ignore[misc]
            first_us = outputs.first_output_us(since)
            assert first_us is not None
            if kill:
                gaps_ms.append((first_us - killed_us) / 1e3)
                print(f"gap {gaps_ms[-1]:.0f} ms", flush=True)
            if kill == options.kills:
                break
            time.sleep(instants.uniform(5, 8))
            os.killpg(process.pid, signal.SIGKILL)
            killed_us = now_us()
            process.wait()
            process = start(folder, url)
    finally:
        feeder.kill()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        feeder.wait()
    doubled = len(outputs.numbers) - len(set(outputs.numbers))
    p50, p99 = np.percentile(gaps_ms, [50, 99])
    print(
        f"plain Spark restarted {len(gaps_ms)} times: gap_ms p50 {p50:.0f} p99 {p99:.0f} max {max(gaps_ms):.0f}; doubled {doubled}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rate", type=int, default=500, help="events per second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        engine(options.engine)
        return
    with tempfile.TemporaryDirectory() as name, KafkaServers.start(Path(name)) as servers:
        measure(Path(name), servers.url, options)


if __name__ == "__main__":
    main()
