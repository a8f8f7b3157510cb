"""The whole pipeline from a Kafka topic against Spark's own Kafka source with from_json and a noop sink, on the same topic.

hotspare reads the topic through Spark, decodes, sums over 20 rows, and publishes every output with its progress in one transaction
per batch. The peer only reads and parses. Then hotspare alone reads the same events in blocks of 1,000 in one message. One broker,
both arms on the same cores, warm, one after another. `python -m benchmarks.pipeline_kafka [--events 5000000]`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks._collected import Collected
from benchmarks._plain import environment
from confluent_kafka import Producer

from hotspare.bus.contract import Commit, Message, Outgoing, Progress
from hotspare.bus.open import open_bus
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.formats import arrow_block
from hotspare.projects.load import load_text
from hotspare.rows.batch import MessageFormat, NextInput
from hotspare.runners.contract import EndCause, HeadPlace, RunnerEnd, RunnerInput, SourceTopic
from hotspare.runners.reading import MessageRun, raw_batch
from hotspare.testing.kafka_jars import ensure_kafka_source
from hotspare.testing.kafka_server import KafkaServers

JSON, BLOCKS, OUT = "events-json", "events-blocks", "out"
BLOCK = 1_000
WARM_EVENTS = 200_000
PROJECT = """
project: pipeline
queries:
  q:
    windows:
      events: {type: source, schema: "id*:int64,price:double,amount:double", opcodes: insert-only, index: empty}
      summed:
        type: calculate
        algorithm: Summary
        schema: "id*:int64,price:double,amount:double,total:double"
        parameters: {windowLength: 20}
        inputs: {input: price}
        outputs: {sumOut: total}
        index: empty
        publish: true
    edges: [events -> summed]
"""
STREAM = "q/summed"


def columns(begin: int, count: int) -> tuple[list[int], list[float], list[float]]:
    ids = np.arange(begin, begin + count)
    return ids.tolist(), ((ids * 7919 % 100_003) / 100).tolist(), ((ids * 104_729 % 10_007) / 10).tolist()


def json_messages(begin: int, end: int) -> Iterator[bytes]:
    for at in range(begin, end, 10_000):
        for row in zip(*columns(at, min(10_000, end - at)), strict=True):
            yield b'{"id":%d,"price":%.2f,"amount":%.1f,"opcode":"insert","source":"benchmark"}' % row


def block_messages(begin: int, end: int) -> Iterator[bytes]:
    for at in range(begin, end, BLOCK):
        ids, prices, amounts = columns(at, min(BLOCK, end - at))
        yield arrow_block.encode(pa.RecordBatch.from_pydict({"id": ids, "price": prices, "amount": amounts}))


def fill(bootstrap: str, topic: str, messages: Iterator[bytes]) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 1 << 20, "queue.buffering.max.messages": 1_000_000}
    )
    for message in messages:
        while True:
            try:
                producer.produce(topic, message)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def _warm(plan: Plan) -> None:
    """Loads the core's kernels; the peer is warmed on a topic of its own."""
    raw = raw_batch(MessageRun(0, 0, [Message(0, 1, message) for message in json_messages(0, 1)]), MessageFormat.JSON)
    Pipeline.fresh(plan).feed(pa.Table.from_batches([Head.from_plan(plan).decode(raw)]))


class Ours:
    """Reads a topic to its end, exactly; `seconds` is from the start of the warm runner to the last commit."""

    def __init__(self, url: str, topic: str, format_: MessageFormat, events: int) -> None:
        self._bus = open_bus(url)
        plan = compile_plan(load_text(PROJECT).resolved)
        _warm(plan)
        self._pipeline = Pipeline.fresh(plan)
        self._collected = Collected()
        self._producer = self._bus.producer(f"bench-{topic}", [f"{OUT}-{topic}"])
        self._out = f"{OUT}-{topic}"
        self._producer.fence(1)
        self._left = events
        self._ended = threading.Event()
        topics = (SourceTopic(topic, 1, format_),)
        # decoding a block is cheap, and its rows are larger than the block: better not sent through Spark
        place = HeadPlace.DRIVER if format_ is MessageFormat.ARROW else HeadPlace.WORKERS
        self._source = RunnerInput(url, topics, Head.from_plan(plan), place)
        self.batches = 0

    def seconds(self) -> float:
        from hotspare.runners.spark.ordered import OrderedRunner

        runner = OrderedRunner(self._source, self._take, self._end)
        runner.start({})
        begin = time.perf_counter()
        self._ended.wait()
        passed = time.perf_counter() - begin
        runner.stop()
        return passed

    def _take(self, decoded: pa.Table, next_input: NextInput) -> None:
        made = self._collected.due(self._pipeline.feed(decoded).get(STREAM), next_input)
        if made is None:
            return
        progress = Progress(self._pipeline.sequences[STREAM], self._pipeline.last_ids[STREAM], self._pipeline.digests[STREAM], 1)
        blocks = [Outgoing(arrow_block.encode(block)) for block in made.to_batches(max_chunksize=8_000)]
        self._producer.publish(1, Commit({self._out: blocks}, {STREAM: progress}))
        self.batches += 1
        self._left -= len(made)
        if self._left <= 0:
            self._ended.set()

    def _end(self, end: RunnerEnd) -> None:
        if end.cause is not EndCause.STOPPED:
            print(f"ended: {end.error}", file=sys.stderr, flush=True)
        self._ended.set()


def plain_seconds(bootstrap: str, folder: Path) -> float:
    """Measures Spark's own method, default settings: from_json into noop, the whole topic; warmed on a topic of its own."""
    from pyspark.sql import SparkSession

    jars = ",".join(str(path) for path in ensure_kafka_source())
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.driver.memory", "2g")
    spark = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def run(topic: str) -> float:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        read = spark.readStream.format("kafka").options(**options).load()
        rows = read.selectExpr("from_json(cast(value as string), 'id bigint, price double, amount double') as event").select(
            "event.*"
        )
        writer = rows.writeStream.format("noop").trigger(availableNow=True)
        begin = time.perf_counter()
        writer.option("checkpointLocation", str(folder / f"checkpoint-{topic}")).start().awaitTermination()
        return time.perf_counter() - begin

    run(f"{JSON}-warm")
    seconds = run(JSON)
    spark.stop()
    return seconds


def inside(arm: str, bootstrap: str, events: int, folder: Path) -> None:
    if arm == "plain":
        print(plain_seconds(bootstrap, folder))
        return
    topic, format_ = (JSON, MessageFormat.JSON) if arm == "json" else (BLOCKS, MessageFormat.ARROW)
    print(Ours(f"kafka://{bootstrap}", topic, format_, events).seconds())


def measured(arm: str, bootstrap: str, folder: Path, options: argparse.Namespace) -> float:
    """Returns the events per second of one arm, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.pipeline_kafka", "--inside", arm, "--bootstrap", bootstrap]
    command += ["--events", str(options.events), "--folder", str(folder)]
    done = subprocess.run(command, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True, check=True)
    return float(options.events) / float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--repeat", type=int, default=1)
    for hidden in ("--inside", "--bootstrap", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(options.inside, options.bootstrap, options.events, Path(options.folder))
        return
    with tempfile.TemporaryDirectory() as name, KafkaServers.start(Path(name)) as kafka:
        bus = open_bus(kafka.url)
        for topic in (JSON, f"{JSON}-warm", BLOCKS, f"{OUT}-{JSON}", f"{OUT}-{BLOCKS}"):
            bus.create_topic(topic)
        bus.close()
        fill(kafka.bootstrap, f"{JSON}-warm", json_messages(0, WARM_EVENTS))
        fill(kafka.bootstrap, JSON, json_messages(0, options.events))
        fill(kafka.bootstrap, BLOCKS, block_messages(0, options.events))
        print(f"{options.events} events, one partition, one broker", flush=True)
        for _ in range(options.repeat):
            rates = {}
            for arm in ("plain", "json", "blocks"):
                folder = Path(tempfile.mkdtemp(dir=name))
                rates[arm] = measured(arm, kafka.bootstrap, folder, options)
                print(f"{arm:8} {rates[arm] / 1e3:8.0f} k events/s", flush=True)
            print(f"json against plain {rates['json'] / rates['plain']:.2f}", end=", ")
            print(f"blocks against json {rates['blocks'] / rates['json']:.2f}", flush=True)


if __name__ == "__main__":
    main()
