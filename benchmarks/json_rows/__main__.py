"""Outputs in JSON, one row per message, from a batch of outputs to the end of their transaction, against the same rows in blocks.

Beside it stand plain transactional producers of the same rows, one per message, which is what the JSON sinks of Flink and Kafka
Streams do at best: the Java client with the generator of Jackson (`JsonRows.java`), and confluent-kafka with `json.dumps`. Theirs
have no headers. All share one broker, the settings of batches and compression and the rows per transaction, and take turns.
`python -m benchmarks.json_rows [--rows 100000] [--transactions 4] [--repeat 5]`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from benchmarks._java import answer, program
from confluent_kafka import Producer

from hotspare.bus.contract import Commit, Progress
from hotspare.bus.open import open_bus
from hotspare.engine.codec import arrow_block
from hotspare.engine.rows.batch import MessageFormat, output_schema
from hotspare.ha.outputs.blocks import MessageSizes
from hotspare.ha.rules.settings import GroupSettings, OutputStream
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.testing.kafka_jars import class_path
from hotspare.testing.kafka_server import BrokerTuning, Compilers, KafkaServers

KEY = Field("id", FieldType.INT64, KeyRole.KEY)
SCHEMA = Schema((KEY, Field("card", FieldType.STRING), Field("amount", FieldType.DOUBLE)))
ROWS, BLOCKS, ARROW, JAVA, PYTHON = "rows", "blocks", "arrow blocks", "java client", "confluent-kafka"
SETTINGS: dict[str, str | int] = {
    "enable.idempotence": "true",
    "acks": "all",
    "linger.ms": 5,
    "batch.size": 512 * 1024,
    "compression.type": "lz4",
}
"""Of the plain producers, by names that both clients know."""
GOAL = 0.8

Arm = Callable[[int], None]
"""Writes that many transactions."""


def outputs(rows: int) -> pa.RecordBatch:
    """The rows that `JsonRows.java` writes, as an engine holds them."""
    number = np.arange(rows)
    columns = [
        number,
        np.zeros(rows),
        np.zeros(rows),
        number,
        np.zeros(rows),
        np.zeros(rows),
        number * 7919,
        np.ones(rows),
        np.ones(rows),
    ]
    columns += [number, pa.array([f"card-{each % 1000}" for each in range(rows)]), number * 0.25]
    schema = output_schema(SCHEMA)
    return pa.RecordBatch.from_arrays([pa.array(c).cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def ours(url: str, rows: int, output: OutputStream) -> Arm:
    """An engine's path from held outputs to their messages, and its producer's with these."""
    bus, batch, sizes = open_bus(url), outputs(rows), MessageSizes(GroupSettings().message_rows_max)
    producer = bus.producer(f"bench.{output.topic}", [output.topic])
    producer.fence(1)
    last = Progress(rows, None, 1, 1)

    def write(transactions: int) -> None:
        for _ in range(transactions):
            blocks = sizes.cut([batch], output, 1, arrow_block)
            messages = blocks[0].messages if len(blocks) == 1 else [block.messages[0] for block in blocks]
            producer.publish(1, Commit({output.topic: messages}, {output.stream: last}))

    return write


def plain(bootstrap: str, rows: int, topic: str) -> Arm:
    """Dictionaries of the rows are there; their texts are not."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": topic, "queue.buffering.max.messages": 1_000_000, **SETTINGS}
    )
    producer.init_transactions(30)
    given = [
        {"opcode": "I", "flags": "N", "id": row, "card": f"card-{row % 1000}", "amount": row * 0.25, "hs:sequence": row}
        for row in range(rows)
    ]
    keys = [b"%d" % row for row in range(rows)]

    def write(transactions: int) -> None:
        for _ in range(transactions):
            producer.begin_transaction()
            for key, row in zip(keys, given, strict=True):
                producer.produce(topic, json.dumps(row, separators=(",", ":")).encode(), key, 0)
            producer.commit_transaction(60)

    return write


@contextlib.contextmanager
def java(bootstrap: str, rows: int, topic: str, folder: Path) -> Iterator[tuple[Arm, psutil.Process]]:
    lines = {"bootstrap.servers": bootstrap, "transactional.id": topic, "buffer.memory": 256 << 20, **SETTINGS}
    properties = folder / "producer.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    command = program(Path(__file__).with_name("JsonRows.java"), class_path().split(os.pathsep), ("-Xms1g", "-Xmx1g"))
    process = subprocess.Popen(
        [*command, str(properties), topic], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        if not answer(process, "").startswith("ready"):
            raise SystemExit("the java client did not start")
        yield lambda transactions: _written(process, rows, transactions), psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


def _written(process: subprocess.Popen[str], rows: int, transactions: int) -> None:
    if not answer(process, f"{rows} {transactions}\n").strip().isdigit():
        raise SystemExit("the java client ended")


def measured(
    arms: dict[str, tuple[Arm, psutil.Process]], rows: int, transactions: int, repeat: int
) -> dict[str, list[tuple[float, float]]]:
    """Per arm and turn: rows per second, and seconds of its process's processors per million rows."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for turn in range(repeat + 1):
        for name, (write, process) in arms.items():
            before, begin = _cpu_s(process), time.perf_counter()
            write(transactions)
            passed, cpu_s = time.perf_counter() - begin, _cpu_s(process) - before
            if turn:  # the first one warms up
                found[name].append((rows * transactions / passed, cpu_s * 1e6 / (rows * transactions)))
    return found


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="of a transaction")
    parser.add_argument("--transactions", type=int, default=4, help="of a turn")
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args()
    own = psutil.Process()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        servers = stack.enter_context(KafkaServers.start(Path(name) / "kafka", tuning=BrokerTuning(compilers=Compilers.BOTH)))
        with contextlib.closing(open_bus(servers.url)) as bus:
            for topic in ("rows", "blocks", "arrow", "java", "python"):
                bus.create_topic(topic)
        forms = {
            ROWS: OutputStream("q/rows", "rows", format=MessageFormat.JSON, message_key=(KEY,)),
            BLOCKS: OutputStream("q/blocks", "blocks", format=MessageFormat.JSON),
            ARROW: OutputStream("q/arrow", "arrow"),
        }
        patient = f"{servers.url}?timeout_ms=60000"
        arms = {each: (ours(patient, asked.rows, output), own) for each, output in forms.items()}
        arms[JAVA] = stack.enter_context(java(servers.bootstrap, asked.rows, "java", Path(name)))
        arms[PYTHON] = plain(servers.bootstrap, asked.rows, "python"), own
        found = measured(arms, asked.rows, asked.transactions, asked.repeat)
    middle = {each: tuple(map(statistics.median, zip(*turns, strict=True))) for each, turns in found.items()}
    print(f"{'':16}{'thousand rows/s':>16}{'processor s/million':>22}{'rows against it':>18}")
    for each, (rate, cpu_s) in middle.items():
        print(f"{each:16}{rate / 1000:16.0f}{cpu_s:22.2f}{middle[ROWS][0] / rate:18.2f}")
    print(f"rows against {PYTHON}: {middle[ROWS][0] / middle[PYTHON][0]:.2f}, goal {GOAL}")


if __name__ == "__main__":
    main()
