"""Outputs in JSON, one row per message, from a batch of outputs to the end of their transaction, against the same rows in blocks.

Next to it are plain transactional producers of the same rows, one per message, which do nothing else: the Java client with the
generator of Jackson (`JsonRows.java`), and confluent-kafka with `json.dumps`. Their messages have no headers; `headers` is
confluent-kafka with the three that an engine writes. All share one broker, the settings of batches and compression and the rows per
transaction, and take turns. `benchmarks.json_rows.streams` has the whole path, next to Kafka Streams.

    python -m benchmarks.json_rows [--rows 100000] [--transactions 4] [--repeat 5]
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
from collections.abc import Iterator
from pathlib import Path

import psutil
from benchmarks._java import answer, program
from benchmarks.json_rows.write_path import KEY, SETTINGS, Arm, cpu_s, written_by_engine
from confluent_kafka import Producer

from hotspare.bus.contract import EPOCH_HEADER, FORMAT_HEADER, OUTPUTS_HEADER
from hotspare.bus.open import open_bus
from hotspare.ha.rules.settings import OutputStream
from hotspare.rows.batch import MessageFormat
from hotspare.testing.kafka_jars import class_path
from hotspare.testing.kafka_server import BrokerTuning, Compilers, KafkaServers

ROWS, BLOCKS, ARROW, JAVA, PYTHON, HEADERS = "rows", "blocks", "arrow blocks", "java client", "confluent-kafka", "headers"
GOAL = 0.8


def plain(bootstrap: str, rows: int, topic: str, headers: list[tuple[str, bytes]]) -> Arm:
    """Returns an arm for given dictionaries of the rows, which it encodes. All messages have the same headers."""
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
                producer.produce(topic, json.dumps(row, separators=(",", ":")).encode(), key, 0, headers=headers)
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
    """Returns per arm and turn: rows per second, and seconds of its process's processors per million rows."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for turn in range(repeat + 1):
        for name, (write, process) in arms.items():
            before, begin = cpu_s(process), time.perf_counter()
            write(transactions)
            passed, used_s = time.perf_counter() - begin, cpu_s(process) - before
            if turn:  # the first one warms up
                found[name].append((rows * transactions / passed, used_s * 1e6 / (rows * transactions)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="of a transaction")
    parser.add_argument("--transactions", type=int, default=4, help="of a turn")
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args()
    own = psutil.Process()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        servers = stack.enter_context(KafkaServers.start(Path(name) / "kafka", tuning=BrokerTuning(compilers=Compilers.BOTH)))
        with contextlib.closing(open_bus(servers.url)) as bus:
            for topic in ("rows", "blocks", "arrow", "java", "python", "headers"):
                bus.create_topic(topic)
        forms = {
            ROWS: OutputStream("q/rows", "rows", format=MessageFormat.JSON, message_key=(KEY,)),
            BLOCKS: OutputStream("q/blocks", "blocks", format=MessageFormat.JSON),
            ARROW: OutputStream("q/arrow", "arrow"),
        }
        patient = f"{servers.url}?timeout_ms=60000"
        arms = {each: (written_by_engine(patient, asked.rows, output), own) for each, output in forms.items()}
        arms[JAVA] = stack.enter_context(java(servers.bootstrap, asked.rows, "java", Path(name)))
        arms[PYTHON] = plain(servers.bootstrap, asked.rows, "python", []), own
        written = [(FORMAT_HEADER, b"json"), (EPOCH_HEADER, b"1"), (OUTPUTS_HEADER, b"99999 99999 791821081 0 0 99999 0 0")]
        arms[HEADERS] = plain(servers.bootstrap, asked.rows, "headers", written), own
        found = measured(arms, asked.rows, asked.transactions, asked.repeat)
    middle = {each: tuple(map(statistics.median, zip(*turns, strict=True))) for each, turns in found.items()}
    print(f"{'':16}{'thousand rows/s':>16}{'processor s/million':>22}{'rows against it':>18}")
    for each, (rate, used_s) in middle.items():
        print(f"{each:16}{rate / 1000:16.0f}{used_s:22.2f}{middle[ROWS][0] / rate:18.2f}")
    print(f"rows against {PYTHON}: {middle[ROWS][0] / middle[PYTHON][0]:.2f}, goal {GOAL}")


if __name__ == "__main__":
    main()
