"""What the embedded default costs: each call of bus and coordination in ms, rates and memory of a large topic, waking up, and all
of it beside another process that writes. `python -m benchmarks.bus_sqlite [--messages 5000000]`; about a minute with the defaults.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hotspare.bus.contract import Commit, Outgoing, OutputId, Partition, Progress
from hotspare.bus.sqlite import SqliteBus
from hotspare.coordination.contract import Member
from hotspare.coordination.sqlite import SqliteCoordination
from hotspare.stores.directory import DirectoryStore

IN, OUT = Partition("in"), Partition("out")
ROW = b"i,n,,12345.678901,23456.789012,1700000000000000\n" + b" " * 32
BLOCK_ROWS = 500
SNAPSHOT_BYTES = 512 * 1024 * 1024

_WRITER = """
import sys, time
from pathlib import Path
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.sqlite import SqliteBus
bus = SqliteBus(Path(sys.argv[1]), busy_timeout_ms=10000)
due = time.perf_counter()
while True:
    due += float(sys.argv[2])
    time.sleep(max(0.0, due - time.perf_counter()))
    bus.append(Partition("in"), [Outgoing(b"%d" % time.time_ns())])
"""

_SNAPSHOTS = """
import os, sys
from pathlib import Path
from hotspare.stores.directory import DirectoryStore
store = DirectoryStore(Path(sys.argv[1]))
page_bytes = int(sys.argv[2]) // 8
while True:
    store.put("g", "s", "e", 1, b"", [(str(number), os.urandom(page_bytes)) for number in range(8)])
    store.keep("g", 1)
"""


def spread(samples_ms: list[float]) -> str:
    ordered = sorted(samples_ms)
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.9, 0.99)]
    return f"p50 {at[0]:7.2f}  p90 {at[1]:7.2f}  p99 {at[2]:7.2f}  max {ordered[-1]:7.2f} ms"


def timed(name: str, count: int, call: Callable[[int], object]) -> None:
    samples: list[float] = []
    for number in range(count):
        start = time.perf_counter()
        call(number)
        samples.append((time.perf_counter() - start) * 1000)
    print(f"  {name:<34}{spread(samples)}", flush=True)


def calls(folder: Path, count: int) -> None:
    """Every call that stands between a kill and the next output, and those of each batch."""
    bus, coordination = SqliteBus(folder / "bus.db"), SqliteCoordination(folder / "bus.db-coord")
    me = Member("e", "127.0.0.1:1", os.getpid(), 1, "here", "hash", "versions", "cpu", "standby", {"q/w": 1}, {"lag": "0"})
    producer = bus.producer("g", ["out"])
    first = coordination.leader("g").epoch
    commit = Commit({"out": [Outgoing(ROW * 50)]}, {"q/w": Progress(1, OutputId(0, 0, 1, 0, 0), 2**63, 1)})
    rows = Commit({"out": [Outgoing(ROW)] * 50}, commit.progress)
    timed("append 1 message", count, lambda n: bus.append(IN, [Outgoing(ROW)]))
    timed("read 1 message", count, lambda n: bus.read(IN, bus.end_offset(IN) - 1, messages_max=1, bytes_max=1000))
    timed("leader", count, lambda n: coordination.leader("g"))
    timed("campaign", count, lambda n: coordination.campaign("g", first + n, me, 1000))
    timed("renew", count, lambda n: coordination.renew("g", first + count, "e", 1000))
    timed("join", count, lambda n: coordination.join("g", me))
    timed("fence", count, lambda n: producer.fence(first + 1 + n))
    timed("progress", count, lambda n: producer.progress())
    timed("publish 1 block of 50 rows", count, lambda n: producer.publish(first + count, commit))
    timed("publish 50 messages", count, lambda n: producer.publish(first + count, rows))
    coordination.close()
    bus.close()


def start_writer(folder: Path, seconds_between: float) -> subprocess.Popen[bytes]:
    bus = SqliteBus(folder / "bus.db")
    before = bus.end_offset(IN)
    process = subprocess.Popen([sys.executable, "-c", _WRITER, str(folder / "bus.db"), str(seconds_between)])
    while not bus.read(IN, before, messages_max=1, bytes_max=1, wait_ms=1000):
        pass
    bus.close()
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def waking_up(folder: Path, count: int) -> None:
    """From a message's making in one process to its arrival in another; and what waiting costs when nothing comes."""
    bus = SqliteBus(folder / "bus.db")
    process = start_writer(folder, 0.0073)
    offset = bus.end_offset(IN)
    samples: list[float] = []
    while len(samples) < count:
        for message in bus.read(IN, offset, messages_max=1000, bytes_max=1_000_000, wait_ms=100):
            samples.append((time.time_ns() - int(message.value)) / 1e6)
            offset = message.offset + 1
    stop(process)
    print(f"  {'made -> read in another process':<34}{spread(samples)}")
    offset = bus.end_offset(IN)
    busy, start = time.process_time(), time.perf_counter()
    for _ in range(20):
        bus.read(IN, offset, messages_max=1, bytes_max=1, wait_ms=100)
    share = (time.process_time() - busy) / (time.perf_counter() - start)
    print(f"  {'waiting with nothing to read':<34}{share * 100:.1f} % of a core")
    bus.close()


def large_topic(folder: Path, messages: int) -> None:
    bus = SqliteBus(folder / "large.db")
    bus.create_topic("in")
    block = [Outgoing(ROW)] * BLOCK_ROWS
    start = time.perf_counter()
    for _ in range(messages // BLOCK_ROWS):
        bus.append(IN, block)
    took = time.perf_counter() - start
    size = (folder / "large.db").stat().st_size / messages
    print(f"  {'append, blocks of 500':<34}{messages / took:,.0f} messages/s, file {size:.0f} bytes each")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    offset, start = 0, time.perf_counter()
    while batch := bus.read(IN, offset, messages_max=50_000, bytes_max=16_000_000):
        offset = batch[-1].offset + 1
    took = time.perf_counter() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"  {'read, batches of 50,000':<34}{offset / took:,.0f} messages/s, {offset:,} in all, memory grew by {grown:.0f} MiB")
    start = time.perf_counter()
    bus.newest_with_header(IN, "hotspare-source", b"x")
    print(f"  {'look in vain for a header':<34}{offset / (time.perf_counter() - start):,.0f} messages/s")
    start = time.perf_counter()
    bus.trim(IN, offset)
    print(f"  {'trim':<34}{offset / (time.perf_counter() - start):,.0f} messages/s")
    bus.close()


def beside_a_snapshot(folder: Path, count: int) -> None:
    """A snapshot's fsync shares the disk with every commit."""
    process = subprocess.Popen([sys.executable, "-c", _SNAPSHOTS, str(folder / "snapshots"), str(SNAPSHOT_BYTES)])
    store = DirectoryStore(folder / "snapshots")
    while not store.list("g"):
        time.sleep(0.01)
    calls(folder, count)
    stop(process)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="size of the large topic")
    parser.add_argument("--count", type=int, default=500, help="repetitions of each call")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        bus = SqliteBus(folder / "bus.db")
        bus.create_topic("in")
        bus.create_topic("out")
        bus.close()
        print("each call, alone")
        calls(folder, options.count)
        print("each call, while another process appends 1,000 messages/s one by one")
        process = start_writer(folder, 0.001)
        calls(folder, options.count)
        stop(process)
        print("each call, while another process writes snapshots of 512 MiB without a pause")
        beside_a_snapshot(folder, options.count // 2)
        print("waking up")
        waking_up(folder, options.count)
        print(f"a topic of {options.messages:,} messages of {len(ROW)} bytes")
        large_topic(folder, options.messages)


if __name__ == "__main__":
    main()
