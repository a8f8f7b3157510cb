"""The load of a project in shards: events, all at once or at an even rate, and their outputs as any reader gets them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from benchmarks._divided import KEYS, STREAM, TIMEOUT_S, Divided
from benchmarks._latency import Latencies, Window, now_us
from confluent_kafka import Producer

from hotspare.bus.contract import EPOCH_HEADER, FORMAT_HEADER, Bus, Message, Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.bus.tail import newest_message
from hotspare.demo.site import Site
from hotspare.formats import arrow_block
from hotspare.model.events import Opcode
from hotspare.testing.cluster import wait_until

_STEP_S = 0.005
_PROGRESS_LOOK_S = 0.2
_SUM_S = 3600.0
_KAFKA = "kafka://"
Header = tuple[str, bytes]
CSV, JSON = "csv", "json"
FORMS = {CSV: b"i,n,%d,%d,%d,%d", JSON: b'{"opcode":"insert","id":%d,"key":%d,"value":%.1f,"created":%d}'}
"""Forms of a message with one event: its id, key, value and time of creation."""
BLOCKS: tuple[Header, ...] = ((FORMAT_HEADER, b"arrow"),)


def bootstrap_of(url: str) -> str | None:
    """Returns the address of the brokers; None if the bus is a file."""
    return url.removeprefix(_KAFKA).partition("?")[0] if url.startswith(_KAFKA) else None


# --- all at once ---------------------------------------------------------------------------------------------------------------


def blocks(project: Divided, first: int, events: int, rows: int) -> list[list[bytes]]:
    """Returns per shard Arrow blocks of `rows` events; together `events`, with ids from `first` on, divided as evenly as possible.
    The keys of a shard take turns."""
    made = []
    for number, keys in enumerate(project.keys_by_shard()):
        count = events // project.shards + int(number < events % project.shards)
        turns = first // project.shards + np.arange(count)
        parts = (turns[at : at + rows] for at in range(0, count, rows))
        made.append([_block(turns * project.shards + number, keys[turns % len(keys)]) for turns in parts])
    return made


def _block(ids: npt.NDArray[np.int64], keys: npt.NDArray[np.int64]) -> bytes:
    columns = {"id": ids, "key": keys, "value": (ids % 997) / 10, "created": np.zeros(len(ids), np.int64)}
    return arrow_block.encode(pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()}))


def outputs_of(project: Divided, events: int) -> int:
    """Returns the count of outputs for `events` events of `blocks`: one row for the first event of a key, two for each other one.

    Raises ValueError if there are so few events that a key has none.
    """
    keys = [len(each) for each in project.keys_by_shard()]
    if events // project.shards < max(keys):
        raise ValueError(f"{events} events are too few for {KEYS} keys in {project.shards} shards")
    return 2 * events - sum(keys)


@contextlib.contextmanager
def held_back(
    project: Divided,
    made: Sequence[Sequence[bytes]],
    headers: tuple[Header, ...] = BLOCKS,
    key: Callable[[bytes], bytes | None] = lambda _: None,
) -> Iterator[None]:
    """Writes messages to the shards' partitions; `key` returns Kafka's key of one. On Kafka they are one transaction: no reader
    gets them before this ends, and then all at once. To a file they are written when it ends."""
    bootstrap = bootstrap_of(project.site.bus_url)
    if bootstrap is None:
        yield
        with contextlib.closing(open_bus(project.site.bus_url)) as bus:
            for number, values in enumerate(made):
                bus.append(Partition(project.inbound, number), [Outgoing(value, headers) for value in values])
        return
    settings = {"linger.ms": 5, "batch.size": 1 << 20, "queue.buffering.max.kbytes": 1 << 20, "transaction.timeout.ms": 300_000}
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"load-{project.prefix}", **settings})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number, values in enumerate(made):
        for value in values:
            _produce(producer, project.inbound, value, number, headers, key(value))
    if producer.flush(TIMEOUT_S):
        raise SystemExit("the brokers did not take the events in time")
    yield
    producer.commit_transaction(60)


def _produce(producer: Producer, topic: str, value: bytes, number: int, headers: tuple[Header, ...], key: bytes | None) -> None:
    while True:
        try:
            producer.produce(topic, value, key, partition=number, headers=list(headers))
            return
        except BufferError:
            producer.poll(0.1)


def sequences(bus: Bus, project: Divided) -> int:
    """Returns the count of outputs that all shards have committed."""
    committed = (bus.progress(group).get(STREAM) for group in project.groups)
    return sum(each.sequence for each in committed if each is not None)


def wait_outputs(bus: Bus, project: Divided, count: int) -> None:
    """Waits until `count` outputs are committed; fails if there are more, which would be repeated ones."""
    wait_until(lambda: sequences(bus, project) >= count, f"{count} outputs", _SUM_S, _PROGRESS_LOOK_S)
    if (found := sequences(bus, project)) != count:
        raise SystemExit(f"{found} outputs, not {count}")


def last_output_us(bus: Bus, project: Divided) -> int:
    """Returns when the bus appended the newest output of all shards."""
    newest = (newest_message(bus, project.outputs(number)) for number in range(project.shards))
    return max(each.append_time_us for each in newest if each is not None)


# --- at an even rate -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def fed_evenly(project: Divided, rate: int, seconds: float, form: str = CSV) -> Iterator[None]:
    """Runs another process that publishes `rate` events a second, over all shards in turn, for at most `seconds`."""
    words = [project.site.bus_url, project.prefix, str(project.shards), str(rate), str(seconds), form]
    feeder = subprocess.Popen([sys.executable, "-m", "benchmarks._divided_load", *words])
    try:
        yield
        if feeder.poll() is not None:
            raise SystemExit(f"the events ended before what was measured, with status {feeder.returncode}")
    finally:
        feeder.kill()
        feeder.wait()


class _Publisher:
    """Publishes one message for each event, as devices do, without batching."""

    def __init__(self, url: str, topic: str) -> None:
        bootstrap = bootstrap_of(url)
        self._topic = topic
        self._bus = None if bootstrap is not None else open_bus(url)
        self._producer = None if bootstrap is None else Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})

    def publish(self, events: Sequence[tuple[int, int, bytes]]) -> None:
        """Publishes events given as (shard, key, row)."""
        if self._producer is not None:
            for number, key, row in events:
                self._producer.produce(self._topic, row, b"%d" % key, partition=number)
            self._producer.poll(0)
        if self._bus is not None:
            for number in sorted({number for number, _, _ in events}):
                self._bus.append(Partition(self._topic, number), [Outgoing(row) for place, _, row in events if place == number])


def single_events(keys: Sequence[npt.NDArray[np.int64]], first: int, end: int, form: str) -> list[tuple[int, int, bytes]]:
    """Returns (shard, key, row) of the events from `first` to before `end`, created now; event i is of shard i mod S. `keys`: by
    shard."""
    made, created = [], now_us()
    for i in range(first, end):
        number, own = i % len(keys), keys[i % len(keys)]
        key = int(own[i // len(keys) % len(own)])
        made.append((number, key, FORMS[form] % (KEYS + i, key, i % 97, created)))
    return made


def feed(project: Divided, rate: int, seconds: float, form: str = CSV) -> None:
    """Publishes single events at an even rate. Runs in a process of its own."""
    publisher, keys = _Publisher(project.site.bus_url, project.inbound), project.keys_by_shard()
    begin, sent = time.monotonic(), 0
    while (since := time.monotonic() - begin) < seconds:
        due = int(since * rate)
        rows = single_events(keys, sent, due, form)
        publisher.publish(rows)
        sent = due
        time.sleep(_STEP_S)


# --- outputs -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FirstOutput:
    """The first output of an epoch: when the bus appended it, and when a reader of committed messages had it. `before_us`: when the
    bus appended the previous one."""

    epoch: int
    appended_us: int
    read_us: int
    before_us: int = 0


@dataclass
class Watch:
    """Reads every shard's outputs from now on, a thread for each. `measure` collects latencies of events created in its window."""

    project: Divided
    bus: Bus
    firsts: dict[int, list[FirstOutput]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._newest_us: dict[int, int] = {}
        """When the bus appended the newest output of each shard."""
        self._latencies: Latencies | None = None
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._follow, args=(n,), daemon=True) for n in range(self.project.shards)]
        for number, thread in enumerate(self._threads):
            self.firsts[number] = []
            thread.start()

    def measure(self, window: Window) -> Latencies:
        made = Latencies(window)
        with self._lock:
            self._latencies = made
        return made

    def first_output_us(self, number: int, epoch: int) -> FirstOutput | None:
        """Returns the shard's first output under a newer epoch."""
        self.check()
        return next((each for each in tuple(self.firsts[number]) if each.epoch > epoch), None)

    def check(self) -> None:
        if self._failures:
            raise self._failures[0]

    def close(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        self.check()

    def _follow(self, number: int) -> None:
        try:
            place = self.project.outputs(number)
            offset = self.bus.end_offset(place)
            while not self._is_over.is_set():
                for message in self.bus.read(place, offset, messages_max=1_000, bytes_max=1 << 24, wait_ms=100):
                    offset = message.offset + 1
                    self._take(number, message, now_us())
        except BaseException as failure:
            self._failures.append(failure)

    def _take(self, number: int, message: Message, read_us: int) -> None:
        if message.is_tick:
            return
        epoch, firsts = int(message.header(EPOCH_HEADER) or b"0"), self.firsts[number]
        if not firsts or firsts[-1].epoch < epoch:
            firsts.append(FirstOutput(epoch, message.append_time_us, read_us, self._newest_us.get(number, 0)))
        self._newest_us[number] = message.append_time_us
        with self._lock:
            if self._latencies is not None:
                rows = arrow_block.decode(message.value)
                is_new = rows.column("hs:opcode").to_numpy() != Opcode.DELETE
                self._latencies.add(rows.column("created").to_numpy()[is_new].astype(np.int64), read_us)


def main(words: Sequence[str]) -> None:
    url, prefix, shards, rate, seconds, form = words
    feed(Divided(Site(url, "", ""), Path(), prefix, int(shards)), int(rate), float(seconds), form)


if __name__ == "__main__":
    main(sys.argv[1:])
