"""The Kafka access of the store: creates and checks compacted topics, appends with the offset, reads to the end or at one
offset."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from hotspare.base.errors import StoreError
from hotspare.base.passwords import take_password
from hotspare.base.retry import Retry
from hotspare.stores.contract import Access
from hotspare.stores.limits import invalid_url, request_failed
from hotspare.stores.settings import DEFAULT

DEFAULT_NAME = "hotspare-snapshots"
CACHE = "cache"
_CHUNK_BYTES_MAX = 900_000
_RECORD_BYTES = 2_048
"""Limit on the bytes that a key and Kafka's own data add to a record."""
_IN_FLIGHT = 64
_EXISTS = KafkaError.TOPIC_ALREADY_EXISTS
_MISSING_TOPIC_CODES = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)
_CREATION_RETRY = Retry(lasting_s=10, pause_s=0.02, pause_max_s=0.5)
"""The retries after the creation of a topic, which other brokers may not know yet."""
_SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "message.timestamp.type": "LogAppendTime"}
_CLIENT_LOG = logging.getLogger("hotspare.stores.changelog")
_CLIENT_LOG.addHandler(logging.NullHandler())
_CLIENT_LOG.propagate = False


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record of a topic. `value` is None in a tombstone. `time_us`: when the broker appended it."""

    offset: int
    key: str
    value: bytes | None
    time_us: int


def parse_url(url: str) -> tuple[dict[str, Any], str, str]:
    """Parses `kafka://host:9092,.../name?option=value`: returns the client's options, the topics' name, the folder of the cache."""
    parts = urlsplit(url)
    name = parts.path.strip("/") or DEFAULT_NAME
    options = dict(parse_qsl(parts.query))
    if not parts.netloc or "@" in parts.netloc or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise invalid_url("the changelog", "kafka://host:9092,host:9092/name")
    secret, cache = take_password(options), options.pop(CACHE, "")
    client: dict[str, Any] = {"client.id": "hotspare", **options, "bootstrap.servers": parts.netloc}
    return client | ({} if secret is None else {"sasl.password": secret}), name, cache


class Topic:
    """A compacted topic of one partition. Raises StoreError if Kafka cannot be reached or refuses. Safe to use by several threads.
    `call_s`: as `StoreSettings.kafka_call_s`."""

    def __init__(
        self, client: Mapping[str, Any], name: str, access: Access = Access.CHANGE, call_s: float = DEFAULT.kafka_call_s
    ) -> None:
        self._client, self.name, self._access, self._call_s = dict(client), name, access, call_s
        self._lock = threading.Lock()
        self._producer: Any = None
        self._consumer: Any = None
        self.chunk_bytes = 0

    def open(self) -> None:
        """Creates or checks the topic, once. With Access.LOOK a missing topic is not created, and counts as empty. Raises
        StoreError for a topic with unsuitable settings."""
        with self._lock, _as_store_error():
            if self.chunk_bytes:
                return
            settings: dict[str, Any] = {**self._client, "error_cb": lambda _: None}
            admin = AdminClient(settings, logger=_CLIENT_LOG)
            if not self._topic_exists(admin):
                if self._access is Access.LOOK:
                    return
                self._create_topic(admin)
            count, found = _CREATION_RETRY.call(lambda: self._described(admin), _is_missing)
            if found["cleanup.policy"] != "compact":
                hint = "set cleanup.policy=compact: with another policy kafka deletes old snapshots"
                raise StoreError(f"topic {self.name} has cleanup.policy {found['cleanup.policy']}", hint=hint)
            if count != 1:
                raise StoreError(
                    f"topic {self.name} has {count} partitions", hint="use a topic with one partition: a changelog needs one order"
                )
            accepted = int(found["max.message.bytes"])
            room = min(_CHUNK_BYTES_MAX, accepted - _RECORD_BYTES)
            if room < _RECORD_BYTES:
                what = f"max.message.bytes is {accepted}, a changelog needs at least {2 * _RECORD_BYTES}"
                raise StoreError(f"topic {self.name}: {what}", hint="raise it")
            self._producer = Producer(
                {
                    **self._client,
                    "enable.idempotence": True,
                    "acks": "all",
                    "linger.ms": 0,
                    "batch.size": room,
                    "compression.type": "lz4",
                }
                | {"delivery.timeout.ms": int(self._call_s * 1000), "error_cb": lambda _: None},
                logger=_CLIENT_LOG,
            )
            self.chunk_bytes = room

    def _topic_exists(self, admin: Any) -> bool:
        return self.name in admin.list_topics(timeout=self._call_s).topics

    def _create_topic(self, admin: Any) -> None:
        topic = NewTopic(self.name, num_partitions=1, replication_factor=-1, config=_SETTINGS)
        (future,) = admin.create_topics([topic], operation_timeout=self._call_s).values()
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != _EXISTS:
                raise

    def _described(self, admin: Any) -> tuple[int, dict[str, str]]:
        """Returns the number of the topic's partitions, and its settings."""
        topic = admin.list_topics(self.name, timeout=self._call_s).topics[self.name]
        if topic.error is not None:
            raise KafkaException(topic.error)
        wanted = ConfigResource(ResourceType.TOPIC, self.name)
        (future,) = admin.describe_configs([wanted], request_timeout=self._call_s).values()
        return len(topic.partitions), {name: entry.value for name, entry in future.result().items()}

    def append(self, records: Iterable[tuple[str, bytes | None]]) -> list[int]:
        """Appends the records; returns their offsets when all in-sync replicas have them. After an error, some of the records may
        be stored, even later."""
        self.open()
        offsets: dict[int, int] = {}
        failed: list[KafkaError] = []

        def delivered(number: int, error: KafkaError | None, message: Any) -> None:
            if error is None:
                offsets[number] = message.offset()
            else:
                failed.append(error)

        count = 0
        with _as_store_error():
            for key, value in records:
                while count - len(offsets) - len(failed) >= _IN_FLIGHT and not failed:
                    self._producer.poll(0.01)
                self._producer.produce(self.name, value=value, key=key, partition=0, on_delivery=partial(delivered, count))
                count += 1
            while len(offsets) + len(failed) < count:
                self._producer.poll(0.01)
            if failed:
                raise KafkaException(failed[0])
        return [offsets[number] for number in range(count)]

    def read(self, begin: int) -> Iterator[TopicRecord]:
        """Yields all records from `begin` up to the current end."""
        with self._reading() as consumer:
            if not self.chunk_bytes:
                return
            first, end = consumer.get_watermark_offsets(TopicPartition(self.name, 0), timeout=self._call_s)
            position = max(begin, first)
            if position >= end:
                return
            consumer.assign([TopicPartition(self.name, 0, position)])
            while position < end:
                message = consumer.poll(self._call_s)
                if message is None:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                if message.error() is not None:
                    if message.error().code() == KafkaError._PARTITION_EOF:
                        return  # the last ones were compacted away
                    raise KafkaException(message.error())
                position = message.offset() + 1
                yield TopicRecord(message.offset(), message.key().decode(), message.value(), message.timestamp()[1] * 1000)

    def read_at(self, wanted: Iterable[tuple[str, int]], found: Callable[[str, bytes], object]) -> None:
        """Calls `found(key, value)` for each wanted (key, offset) at which the record still exists and is not a tombstone, in order
        of offset. Raises KafkaException if Kafka does not answer."""
        with self._reading() as consumer:
            at = -1
            for key, offset in sorted(wanted, key=lambda each: each[1]):
                if offset != at:
                    consumer.assign([TopicPartition(self.name, 0, offset)])
                message = consumer.poll(self._call_s)
                if message is None:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                at = -1
                if message.error() is None:
                    at = message.offset() + 1
                    if (message.offset(), message.key()) == (offset, key.encode()) and message.value() is not None:
                        found(key, message.value())

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        self.open()
        settings = {**self._client, "group.id": "hotspare-none", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        settings |= {"enable.partition.eof": True, "isolation.level": "read_committed", "fetch.wait.max.ms": 10}
        with _as_store_error():
            consumer = Consumer({**settings, "error_cb": lambda _: None}, logger=_CLIENT_LOG)
            try:
                yield consumer
            finally:
                consumer.close()


def _is_missing(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _MISSING_TOPIC_CODES


@contextmanager
def _as_store_error() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        said = error.args[0]
        raise request_failed("the changelog on Kafka", f"{said.name()}: {said.str()}") from None
