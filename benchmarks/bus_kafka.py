"""The cost of Kafka: each call of the bus in ms, a fence over an open transaction, and the delay until a commit is readable (SPEC
B14).

`python -m benchmarks.bus_kafka [--brokers 3] [--bus kafka://host:9092]`; starts brokers of its own if none are named.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from hotspare.bus.contract import Commit, HeaderGuard, Outgoing, OutputId, Partition, Progress
from hotspare.bus.kafka.bus import KafkaBus, open_kafka_bus
from hotspare.bus.kafka.writer import Record
from hotspare.testing.kafka_server import KafkaServers

ROW = b"i,n,,12345.678901,23456.789012,1700000000000000\n" + b" " * 32
PAUSE_S = 0.04
WARM_S = 0.6


def timed(name: str, count: int, call: Callable[[int], object], pause_s: float = PAUSE_S) -> None:
    samples: list[float] = []
    for number in range(count):
        time.sleep(pause_s)
        start = time.perf_counter()
        call(number)
        samples.append((time.perf_counter() - start) * 1000)
    show(name, samples)


def show(name: str, samples_ms: list[float]) -> None:
    ordered = sorted(samples_ms)
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.9, 0.99)]
    print(f"  {name:<44}p50 {at[0]:7.2f}  p90 {at[1]:7.2f}  p99 {at[2]:7.2f}  max {ordered[-1]:7.2f} ms", flush=True)


def calls(bus: KafkaBus, prefix: str, count: int) -> None:
    inbound, out = Partition(f"{prefix}.in"), Partition(f"{prefix}.out")
    for partition in (inbound, out):
        bus.create_topic(partition.topic)
    producer = bus.producer(prefix, [out.topic])
    producer.fence(1)
    time.sleep(WARM_S)
    progress = {"q/w": Progress(1, OutputId(0, 0, 1, 0, 0), 2**63, 1)}
    small, rows = Commit({out.topic: [Outgoing(ROW * 50)]}, progress), Commit({out.topic: [Outgoing(ROW)] * 120}, progress)
    timed("append 1 message", count, lambda n: bus.append(inbound, [Outgoing(ROW)]))
    timed("read 1 message", count, lambda n: bus.read(inbound, bus.end_offset(inbound) - 1, messages_max=1, bytes_max=1000))
    timed("end_offset", count, lambda n: bus.end_offset(inbound))
    timed("publish 1 block of 50 rows", count, lambda n: producer.publish(1, small))
    timed("publish 120 messages", count, lambda n: producer.publish(1, rows))
    timed("publish 1 block, without a pause", count, lambda n: producer.publish(1, small), 0.0)
    timed("progress of the group", count, lambda n: bus.progress(prefix))
    message = Outgoing(ROW, (("hotspare-source", b"file@1"),))
    first = bus.end_offset(inbound)
    timed("guarded append", count, lambda n: guarded(bus, inbound, message, first))
    visible(bus, out, small, producer, count)


def guarded(bus: KafkaBus, partition: Partition, message: Outgoing, _: int) -> None:
    newest = bus.newest_with_header(partition, "hotspare-source", b"file@")
    since = 0 if newest is None else newest.offset + 1
    bus.append_guarded(partition, [message], HeaderGuard("hotspare-source", b"file@", since))


def visible(bus: KafkaBus, out: Partition, commit: Commit, producer: object, count: int) -> None:
    """Measures from the call of publish until another consumer has the message."""
    samples: list[float] = []
    for _ in range(count):
        time.sleep(PAUSE_S)
        offset = bus.end_offset(out)
        start = time.perf_counter()
        producer.publish(1, commit)  # type: ignore[attr-defined]
        while not bus.read(out, offset, messages_max=1, bytes_max=1 << 20, wait_ms=1000):
            continue
        samples.append((time.perf_counter() - start) * 1000)
    show("publish, until it is read", samples)


def fences(url: str, prefix: str, count: int) -> None:
    """Measures engines that each fence the previous one, which may have left a transaction open, and publish once."""
    for leaves_open in (False, True):
        name = "fence, read, first commit" + (", a transaction open" if leaves_open else "")
        samples: list[float] = []
        buses = [open_kafka_bus(url) for _ in range(2)]
        topic = f"{prefix}.fenced"
        buses[0].create_topic(topic)
        producers = [bus.producer(prefix, [topic]) for bus in buses]
        for epoch in range(1, count + 1):
            mine, other = producers[epoch % 2], producers[1 - epoch % 2]
            time.sleep(WARM_S)
            if leaves_open and other._writer is not None:
                client = other._writer._client
                client.begin_transaction()
                other._writer._produce(Record(topic, ROW))
                time.sleep(0.05)
            start = time.perf_counter()
            mine.fence(1000 * (1 + leaves_open) + epoch)
            mine.progress()
            mine.publish(1000 * (1 + leaves_open) + epoch, Commit({topic: [Outgoing(ROW)]}, {}))
            samples.append((time.perf_counter() - start) * 1000)
        show(name, samples)
        for bus in buses:
            bus.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--bus", default="")
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        url = options.bus
        if not url:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            url = stack.enter_context(KafkaServers.start(folder, options.brokers)).url
        print(f"kafka, {options.brokers} broker(s)")
        bus = open_kafka_bus(url)
        stack.callback(bus.close)
        prefix = f"bench-{uuid.uuid4().hex[:8]}"
        calls(bus, prefix, options.count)
        fences(url, prefix, max(3, options.count // 5))


if __name__ == "__main__":
    main()
