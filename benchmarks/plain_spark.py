"""Latency at 1,000 events/s of plain Spark with default settings, for comparison.

It reads the same events from the same bus: SQLite through a Python source, or Kafka (one broker, started here) through Spark's own.
It parses them, and foreachBatch writes the rows to a topic. Not exact: a restart repeats a batch. `python -m benchmarks.plain_spark
[--bus kafka]`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from benchmarks._latency import TOPIC, Latencies, Window, bus_url, now_us, opened, seconds_in_all, start_feeder, table
from benchmarks._plain import environment
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from hotspare.bus.contract import Message, Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.testing.kafka_jars import ensure_kafka_source

OUT = "out"
MESSAGES_MAX = 20_000
BYTES_MAX = 16 * 1024 * 1024


class PlainSource(DataSource):
    """A source as a user of Spark would write it: rows as tuples, without waiting."""

    @classmethod
    def name(cls) -> str:
        return "plain"

    def schema(self) -> str:
        return "value string"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return PlainReader(self.options["url"])


class PlainReader(SimpleDataSourceStreamReader):
    def __init__(self, url: str) -> None:
        self._url = url

    def _messages(self, offset: int, count: int) -> Sequence[Message]:
        return opened(self._url).read(Partition(TOPIC), offset, messages_max=count, bytes_max=BYTES_MAX)

    def initialOffset(self) -> dict[str, int]:
        return {"offset": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[str]], dict[str, int]]:
        read = self._messages(start["offset"], MESSAGES_MAX)
        end = read[-1].offset + 1 if read else start["offset"]
        return iter([(m.value.decode(),) for m in read]), {"offset": end}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[str]]:
        read = self._messages(start["offset"], end["offset"] - start["offset"])
        return iter([(m.value.decode(),) for m in read])


def values(spark: SparkSession, url: str, kind: str) -> DataFrame:
    if kind == "sqlite":
        return spark.readStream.format("plain").option("url", url).load()
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", url.removeprefix("kafka://"))
    return source.option("subscribe", TOPIC).load().selectExpr("cast(value as string) as value")


def run(url: str, folder: Path, options: argparse.Namespace) -> str:
    builder = SparkSession.builder.appName("plain").config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    if options.bus == "kafka":
        builder = builder.config("spark.jars", ",".join(map(str, ensure_kafka_source())))
    spark = builder.getOrCreate()
    spark.dataSource.register(PlainSource)
    bus = open_bus(url)
    latencies = Latencies(Window.after(options.warm, options.seconds))

    def on_batch(frame: DataFrame, _batch: int) -> None:
        rows = frame.toArrow()
        if rows.num_rows:
            created = rows.column("created").to_numpy().astype(np.int64)
            bus.append(Partition(OUT), [Outgoing(b"%d" % value) for value in created])
            latencies.add(created, now_us())

    parsed = values(spark, url, options.bus).selectExpr(
        "cast(split(value, ',')[2] as bigint) as id", "cast(split(value, ',')[3] as bigint) as created"
    )
    query = parsed.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(folder / "checkpoint")).start()
    feeder = start_feeder(url, options.rate, seconds_in_all(options.warm, options.seconds))
    query.awaitTermination(int(seconds_in_all(options.warm, options.seconds)) + 2)
    feeder.wait()
    query.stop()
    spark.stop()
    return latencies.report("plain Spark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--warm", type=float, default=30.0, help="seconds before what is measured, the start of Spark among them")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--bus", choices=["sqlite", "kafka"], default="sqlite")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        folder = Path(options.inside)
        with bus_url(options.bus, folder) as url:
            bus = open_bus(url)
            bus.create_topic(TOPIC)
            bus.create_topic(OUT)
            print(table([run(url, folder, options)]), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder_name:
        # In a folder of its own, because Spark writes files to the working folder.
        command = [
            sys.executable,
            "-m",
            "benchmarks.plain_spark",
            "--inside",
            folder_name,
            "--bus",
            options.bus,
            "--rate",
            str(options.rate),
        ]
        command += ["--warm", str(options.warm), "--seconds", str(options.seconds)]
        print(f"{options.rate} events/s, plain Spark, default settings, {options.bus}", flush=True)
        subprocess.run(command, cwd=folder_name, env=environment(), check=True)


if __name__ == "__main__":
    main()
