"""Opens a bus by its URL: `sqlite:///relative.db`, `sqlite:////absolute.db`, `kafka://host:9092`, or `memory://name`, which exists
in one process."""

from __future__ import annotations

from hotspare.base.addresses import HostPort, parse_host_port
from hotspare.base.errors import UsageError
from hotspare.base.sqlite_file import parse_sqlite_url
from hotspare.bus.contract import Bus, Readers
from hotspare.bus.memory import MemoryBus
from hotspare.bus.sqlite import BUSY_TIMEOUT_MS, SqliteBus
from hotspare.bus.topic_reader import BusTopicReader, TopicReader
from hotspare.bus.topic_writer import BusTopicWriter, TopicWriter

KAFKA_READ_INTERVAL_MS = 30
_SHARED: dict[str, MemoryBus] = {}


def open_bus(url: str, readers: Readers = Readers.ONE) -> Bus:
    """Opens the bus of a URL; the caller closes it. Raises UsageError for an unknown URL or a file that is not a bus.
    `?busy_timeout_ms=n` in the URL: how long SQLite waits for a lock."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite":
        path, busy_timeout_ms = parse_sqlite_url(url, BUSY_TIMEOUT_MS)
        return SqliteBus(path, busy_timeout_ms)
    if separator and scheme == "memory" and rest:
        return _SHARED.setdefault(rest, MemoryBus()).client(rest)
    if separator and scheme == "kafka":
        from hotspare.bus.kafka.bus import open_kafka_bus  # the client library is loaded only if it is needed

        return open_kafka_bus(url, readers)
    what = "memory:// needs a name" if scheme == "memory" and separator else f"{scheme[:20]!r} is not a kind of bus"
    raise UsageError(
        what,
        hint="write sqlite:///relative.db, sqlite:////absolute.db, kafka://host:9092 or memory://name",
    )


def bus_servers(url: str) -> tuple[HostPort, ...]:
    """Returns the servers that a URL of `open_bus` names; empty if the bus is on this machine."""
    if not url.startswith("kafka://"):
        return ()
    from hotspare.bus.kafka.client import parse_kafka_url  # the client library is loaded only if it is needed

    named = (parse_host_port(text) for text in parse_kafka_url(url).bootstrap.split(","))
    return tuple(server for server in named if server is not None)


def call_timeout_ms(url: str) -> int:
    """Returns the milliseconds that one call waits for an answer, according to a URL of `open_bus`; 0 for a bus in memory."""
    if url.startswith("sqlite://"):
        return parse_sqlite_url(url, BUSY_TIMEOUT_MS)[1]
    if url.startswith("kafka://"):
        from hotspare.bus.kafka.client import parse_kafka_url

        return parse_kafka_url(url).timeout_ms
    return 0


def read_interval_ms(url: str) -> int:
    """Returns the minimum time in ms between two reads of the bus of a URL of `open_bus` that is worth while. Each read becomes a
    transaction: on Kafka this takes 10 to 20 ms and the processor time of many messages, on other buses little."""
    return KAFKA_READ_INTERVAL_MS if url.startswith("kafka://") else 0


def open_topic_reader(url: str, topic: str) -> TopicReader:
    """Returns a reader of an external topic on the bus of `url`. The caller closes the reader."""
    if url.startswith("kafka://"):
        from hotspare.bus.kafka.client import parse_kafka_url  # the client library is loaded only if it is needed
        from hotspare.bus.kafka.topic_reader import KafkaTopicReader

        return KafkaTopicReader(parse_kafka_url(url), topic)
    return BusTopicReader(open_bus(url), topic)


def open_topic_writer(url: str, topic: str, source: bytes) -> TopicWriter:
    """Returns a writer to an external topic on the bus of `url`; the caller closes it. `source`: the identity of the writing
    source, under which the position is recorded."""
    if url.startswith("kafka://"):
        from hotspare.bus.kafka.client import parse_kafka_url  # the client library is loaded only if it is needed
        from hotspare.bus.kafka.topic_writer import KafkaTopicWriter

        return KafkaTopicWriter(parse_kafka_url(url), topic, source)
    return BusTopicWriter(open_bus(url), topic, source)
