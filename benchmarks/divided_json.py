"""JSON events of a topic of four partitions, exact, on all cores, next to Spark's own Kafka source with from_json and a noop sink.

    ours       `hotspare run --runner partitioned` on two executors of one core: decodes, counts and sums by key, commits one
               output for a hundred events, with progress, in transactions of each shard
    consumers  two processes with a consumer and pyarrow's JSON reader each, which do nothing with what they read
    plain      Spark's source and from_json into noop, `local[2]`, default settings, the whole topic

All read the same topic of one broker, warm, one after another; the broker has the same two cores.

    python -m benchmarks.divided_json [--rounds 2000]

The last line is `json_to_plain X json_to_consumers Y`.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj
from benchmarks._divided import NAME, QUERY, RESULT, SOURCE, Divided, wait_hosted
from benchmarks._divided_load import bootstrap_of, held_back, last_output_us, wait_outputs
from benchmarks._latency import now_us
from benchmarks._plain import environment
from benchmarks._site import opened
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from hotspare.bus.open import open_bus
from hotspare.demo.site import Site
from hotspare.testing.kafka_jars import ensure_kafka_source

SHARDS, CORES = 4, 2
EVERY = 200
"""Each EVERY-th event of a key is emitted, and retracted with the next one. So there is an output for half as many events."""
WARM_ROUNDS = 200
KEYS_OF_SHARD = 500
PROJECT = f"""
project: {NAME}
queries:
  {QUERY}:
    windows:
      {SOURCE}:
        type: source
        schema: "id*:int64,key:int64,price:double,amount:double"
        opcodes: insert-only
        index: empty
        partition_by: key
        connectors: {{in: {{kind: kafka, direction: publish, properties: {{kafkatype: json}}}}}}
      counted:
        type: aggregate
        schema: "key*:int64,events:int64,total:double"
        outputs: {{events: ESP_aCount(), total: ESP_aSum(price)}}
      {RESULT}: {{type: filter, condition: events % {EVERY} = 0, publish: true}}
    edges: [{SOURCE} -> counted, counted -> {RESULT}]
"""
CATCH_UP_LEASE = ("--lease-ms", "30000")


def messages(project: Divided, first: int, rounds: int) -> list[list[bytes]]:
    """Returns per shard an event of each of its keys in each round."""
    made = []
    for number, keys in enumerate(project.keys_by_shard()):
        own, rows = keys[:KEYS_OF_SHARD].tolist(), []
        for turn in range(first, first + rounds):
            for at, key in enumerate(own):
                id_ = (turn * KEYS_OF_SHARD + at) * project.shards + number
                price, amount = id_ * 7919 % 100_003, id_ * 104_729 % 10_007
                rows.append(
                    b'{"id":%d,"key":%d,"price":%.2f,"amount":%.1f,"opcode":"insert"}' % (id_, key, price / 100, amount / 10)
                )
        made.append(rows)
    return made


def outputs_of(rounds: int) -> int:
    """Returns the count of outputs for `rounds` rounds: an insert for each key and period, and a delete for each of these but the
    last, which is the end."""
    return SHARDS * KEYS_OF_SHARD * (rounds // EVERY + (rounds - 1) // EVERY)


def ours(project: Divided, rounds: int) -> float:
    """Returns events per second, from the moment at which all can be read to the append of the last output, which the last events
    cause."""
    run = ("--runner", "partitioned", "--master", f"local-cluster[{CORES},1,1024]", *CATCH_UP_LEASE)
    with project.cluster(*run) as cluster, contextlib.closing(open_bus(project.site.bus_url)) as bus:
        cluster.start_engine("a")
        wait_hosted(cluster, project)
        with held_back(project, messages(project, 0, WARM_ROUNDS), ()):
            pass
        wait_outputs(bus, project, outputs_of(WARM_ROUNDS))
        with held_back(project, messages(project, WARM_ROUNDS, rounds), ()):
            begin_us = now_us()
        wait_outputs(bus, project, outputs_of(WARM_ROUNDS + rounds))
        return SHARDS * KEYS_OF_SHARD * rounds / ((last_output_us(bus, project) - begin_us) / 1e6)


def consumer_arm(bootstrap: str, topic: str, partitions: Sequence[int]) -> None:
    """Runs in a process of its own: reads to the current ends, and prints the rows and the seconds from the first row on."""
    settings = {
        "queued.min.messages": 1_000_000,
        "fetch.queue.backoff.ms": 5,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark", **settings})
    places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
    consumer.assign(places)
    rows, begin, ended = 0, 0.0, set[int]()
    while len(ended) < len(places):
        found = consumer.consume(50_000, 0.2)
        begin = begin or (time.perf_counter() if found else 0.0)
        ended |= {message.partition() for message in found if message.error() is not None}
        values = [value for message in found if message.error() is None and (value := message.value())]
        if values:
            rows += pj.read_json(pa.BufferReader(b"\n".join(values))).num_rows
    print(rows, time.perf_counter() - begin)
    consumer.close()


def plain_arm(bootstrap: str, topic: str, folder: Path) -> None:
    """Measures Spark's own method, default settings; a first run over the same topic warms it."""
    from pyspark.sql import SparkSession

    jars = ",".join(map(str, ensure_kafka_source()))
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.jars", jars).config("spark.driver.memory", "2g")
    spark = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    for name in ("warm", "measured"):
        read = spark.readStream.format("kafka").options(**options).load()
        event = "from_json(cast(value as string), 'id bigint, key bigint, price double, amount double') as event"
        writer = read.selectExpr(event).select("event.*").writeStream.format("noop").trigger(availableNow=True)
        begin = time.perf_counter()
        writer.option("checkpointLocation", str(folder / name)).start().awaitTermination()
        seconds = time.perf_counter() - begin
    print(seconds)
    spark.stop()


def told(arm: str, project: Divided, folder: Path, partitions: Sequence[int] = ()) -> subprocess.Popen[str]:
    """Starts an arm in a process of its own, which prints its answer."""
    bootstrap = bootstrap_of(project.site.bus_url)
    command = [sys.executable, "-m", "benchmarks.divided_json", "--inside", arm, str(bootstrap), project.inbound, str(folder)]
    return subprocess.Popen([*command, *map(str, partitions)], cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> list[float]:
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"an arm ended with status {process.returncode}")
    return [float(word) for word in out.splitlines()[-1].split()]


def measured(site: Site, folder: Path, rounds: int) -> None:
    project = Divided(site, folder, "json", SHARDS, PROJECT)
    events = SHARDS * KEYS_OF_SHARD * (rounds + WARM_ROUNDS)
    rate = ours(project, rounds)
    print(f"ours      {rate / 1e3:8.0f} k events/s", flush=True)
    processes = [told("consumers", project, folder, range(core, SHARDS, CORES)) for core in range(CORES)]
    counts = [answer(process) for process in processes]
    if sum(rows for rows, _ in counts) != events:
        raise SystemExit(f"the consumers read {counts}, not {events} events")
    alone = sum(rows for rows, _ in counts) / max(seconds for _, seconds in counts)
    print(f"consumers {alone / 1e3:8.0f} k events/s", flush=True)
    [seconds] = answer(told("plain", project, folder))
    print(f"plain     {events / seconds / 1e3:8.0f} k events/s", flush=True)
    print(f"json_to_plain {rate * seconds / events:.2f} json_to_consumers {rate / alone:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2_000, help=f"of {SHARDS * KEYS_OF_SHARD} events; a multiple of {EVERY}")
    parser.add_argument("--inside", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        arm, bootstrap, topic, folder, *partitions = asked.inside
        if arm == "plain":
            plain_arm(bootstrap, topic, Path(folder))
        else:
            consumer_arm(bootstrap, topic, list(map(int, partitions)))
        return
    if asked.rounds % EVERY or asked.rounds <= 0:
        raise SystemExit(f"--rounds takes a multiple of {EVERY}: the last events have to come out")
    with tempfile.TemporaryDirectory() as name, opened("kafka", Path(name), 1) as site:
        measured(site, Path(name), asked.rounds)


if __name__ == "__main__":
    main()
