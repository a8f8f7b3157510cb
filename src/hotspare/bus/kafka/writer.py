"""A transactional writer. Of all writers with one transactional id, only the writer opened last can commit (Kafka's producer
fencing).

Opening a writer is the fence. If the writer before left a transaction open, the broker aborts that transaction and answers "later"
meanwhile. By itself a client repeats the request only after half a second; if it is called again, it repeats the request at once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from hotspare.base.errors import BusUnavailable, Fenced, HotspareError, UnknownResult
from hotspare.base.retry import Pauses, Retry
from hotspare.bus import limits
from hotspare.bus.contract import Outgoing, Partition, RowMessages
from hotspare.bus.kafka.client import (
    CLIENT_LOG,
    FENCED_CODES,
    KafkaSettings,
    bus_error,
    error_of,
    producer_settings,
    refused_options,
)

WAIT_TIMEOUT_S, _PATIENCE_S_MAX = 0.06, 0.3
_PATIENCES = (1.0, 1.0, 2.5, 5.0)
"""How long to wait for each of the first clients before another is tried, in multiples of the first wait. The last client gets the
timeout of a call."""
_PATIENCE_READS = 4
"""The wait for the first client, in multiples of the duration of one read of the committed progress: the client finds the
coordinator, connects and sends a request."""
_INIT_POLL_S = 0.004
_WARM_CLIENTS_MAX = 3
_WARM_FOR_S = 60.0
_BATCH_BYTES = 512 * 1024
"""The limit in bytes of a batch of several messages; a larger message is a separate batch. External topics accept batches of 1 MiB
by default."""
_RETRY_MS = 5
"""The wait before a retry. When a transaction begins, the markers of the commit before may still be in flight; then the broker
requests a retry."""
_TRANSACTION_TIMEOUT_MS = 10_000
_ANY_TOPIC = "hotspare.owners"
"""The topic that a client looks up in order to connect. It need not exist."""
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""The errors of messages that the client dropped because another message failed."""
_REPORT_BYTES = 16 * 1024
"""Bytes of messages between two reports under Deliveries.SAMPLED. One report is enough for a batch, because a broker refuses a
batch as a whole."""
_NOW = 0
"""The timestamp value for which the client sets the current time."""
_LINGER_MS = 5
"""How long the client collects messages for a batch. A commit sends the batch at once."""
_COMMIT_LEAST_S, _COMMIT_LOOK_S = 0.1, 0.5
"""The shortest and the longest wait for a commit in one call of the client; the next call continues the same commit."""
TURN_RETRY = Retry(tries_max=20, pause_s=0.01, pause_max_s=0.5, pauses=Pauses.RANDOM)
"""Retries after another writer has fenced this one. The pauses are random, because two writers that keep fencing each other would
both write nothing."""


class Deliveries(Enum):
    """The records of a transaction for which the client reports the offset or the failure."""

    EACH = "each"
    SAMPLED = "sampled"
    """About one record in 16 KiB. A report needs the interpreter's lock, which costs more than writing a small record."""


class Record(NamedTuple):
    """A record that a transaction writes to one partition. In a compacted topic, a value of None deletes the key."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int = 0


class RowRecords(NamedTuple):
    """Messages that a transaction writes to one partition, without an object for each message."""

    topic: str
    partition: int
    messages: RowMessages


def records_of(topic: str, number: int, messages: Sequence[Outgoing]) -> Iterator[Record | RowRecords]:
    """Returns the records that write these messages to partition `number` of the topic."""
    if isinstance(messages, RowMessages):
        return iter((RowRecords(topic, number, messages),))
    return (Record(topic, value, key, headers, number) for value, headers, key in messages)


def keyed_record(place: Partition, key: bytes, value: bytes) -> Record:
    """Returns a record for a compacted topic: it replaces the record of `key` in the partition `place`."""
    return Record(place.topic, value, key, partition=place.number)


class WriterFactory:
    """Opens the writers of one transactional id, with clients that are connected in advance. Thread-safe."""

    def __init__(self, settings: KafkaSettings, transactional_id: str) -> None:
        self._settings = settings
        self._id = transactional_id
        self._lock = threading.Lock()
        self._topics: tuple[str, ...] = ()
        self._batch_bytes = _BATCH_BYTES
        self._warm: list[Any] = []
        self._warming: threading.Thread | None = None
        self._warmed_s = 0.0
        self._closed = False

    def warm_up(self, topics: Mapping[str, int] | None = None) -> None:
        """Connects clients in the background, so that a fence need not wait for the connection. Connects waiting clients again,
        too, because the broker may have closed idle connections. Does nothing if that was done recently. `topics`: the topics of
        the first commit, each with its largest batch in bytes; clients connect to their leaders from now on."""
        with self._lock:
            if topics:
                self._topics, self._batch_bytes = tuple(topics), min(_BATCH_BYTES, *topics.values())
            is_due = len(self._warm) < _WARM_CLIENTS_MAX or time.monotonic() > self._warmed_s + _WARM_FOR_S
            if self._warming is None and not self._closed and is_due:
                self._warming = threading.Thread(target=self._connect_all, name="kafka-warm", daemon=True)
                self._warming.start()

    def open(self, first_s: float = WAIT_TIMEOUT_S) -> Writer:
        """Fences every earlier writer of this id and returns a new one. After the return, no commit of earlier writers can succeed,
        and their earlier commits are readable. Raises BusUnavailable in time-outs; the fence may have taken effect. `first_s`: the
        wait for the first client before another is tried."""
        deadline = time.monotonic() + self._settings.timeout_s
        for wait_s in (*(first_s * times for times in _PATIENCES), self._settings.timeout_s):
            if (left_s := deadline - time.monotonic()) <= 0:
                break
            client = self._warm_client(left_s)
            if _is_granted(client, wait_s, deadline):
                return Writer(self._settings, client)
        raise BusUnavailable("kafka did not grant the right to publish in time", detail=f"transactional id {self._id}")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._warm.clear()
            warming = self._warming
        if warming is not None:
            warming.join()

    def _warm_client(self, timeout_s: float) -> Any:
        with self._lock:
            if self._warm:
                return self._warm.pop()
        client = self._new()
        with contextlib.suppress(KafkaException):
            client.list_topics(_ANY_TOPIC, timeout=timeout_s)
        return client

    def _connect_all(self) -> None:
        with contextlib.suppress(HotspareError, KafkaException):
            for client in list(self._warm):
                self._connect_client(client)
            while True:
                client = self._new()
                self._connect_client(client)
                with self._lock:
                    if self._closed or len(self._warm) >= _WARM_CLIENTS_MAX:
                        break
                    self._warm.append(client)
        with self._lock:
            self._warming, self._warmed_s = None, time.monotonic()

    def _connect_client(self, client: Any) -> None:
        """Connects a client, by looking up the topics of the first commit."""
        for topic in self._topics or (_ANY_TOPIC,):
            client.list_topics(topic, timeout=self._settings.timeout_s)

    def _new(self) -> Any:
        config = {
            **producer_settings(self._settings),
            "enable.sparse.connections": not self._topics,  # else it connects to a leader only when it sends
            "transactional.id": self._id,
            "retry.backoff.ms": _RETRY_MS,
            "batch.size": self._batch_bytes,
            "linger.ms": _LINGER_MS,
            "transaction.timeout.ms": max(_TRANSACTION_TIMEOUT_MS, self._settings.timeout_ms),
        }
        try:
            return Producer(config, logger=CLIENT_LOG)
        except KafkaException as error:
            raise refused_options(self._settings) from error


def patience_s(look_s: float) -> float:
    """Returns the wait, in seconds, for the first client of a fence. `look_s`: the duration of the last read of progress. A too
    short wait would start another client on brokers that are busy already."""
    return min(_PATIENCE_S_MAX, max(WAIT_TIMEOUT_S, _PATIENCE_READS * look_s))


def _is_granted(client: Any, patience_s: float, deadline: float) -> bool:
    """Requests the right to publish; returns whether the broker granted it. Gives up `patience_s` after the last answer "later", or
    after `deadline`. Raises BusError if the broker refuses."""
    until = time.monotonic() + patience_s
    while True:
        try:
            client.init_transactions(_INIT_POLL_S)
        except KafkaException as raised:
            error, now = error_of(raised), time.monotonic()
            failure = bus_error(raised, "grant the right to publish")
            if not failure.retryable:
                raise failure from raised
            if error.code() == KafkaError.CONCURRENT_TRANSACTIONS:
                until = now + patience_s
            if not error.retriable() or now >= min(until, deadline):
                return False
        else:
            return True


class _DeliveryReports:
    """The delivery reports of a transaction, without a reference to the client. A fenced client holds its undelivered messages, and
    so their callbacks, as long as it exists. A callback that refers to the client's writer would keep the client and its threads
    alive forever."""

    def __init__(self) -> None:
        self.first_failure: KafkaError | None = None
        self.offsets: dict[str, list[int]] = {}

    def on_delivery_report(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.offsets.setdefault(message.topic(), []).append(message.offset())
        elif self.first_failure is None and error.code() not in _PURGED:
            self.first_failure = error


class Writer:
    """Commits transactions. Used by one thread at a time. Must not be used after `commit` raised Fenced or UnknownResult."""

    def __init__(self, settings: KafkaSettings, client: Any) -> None:
        self._settings = settings
        self._client = client
        self._delivered = _DeliveryReports()

    def commit(self, records: Iterable[Record | RowRecords], deliveries: Deliveries = Deliveries.EACH) -> dict[str, list[int]]:
        """Writes all records in one transaction; returns the offsets of the reported records by topic. Raises BusUnavailable or
        BusError if nothing was written, UnknownResult if the answer was lost. Raises Fenced if another writer of this id was
        opened; the commit may have taken effect before, if its answer was lost."""
        self._delivered = _DeliveryReports()
        deadline = time.monotonic() + self._settings.timeout_s
        try:
            self._client.begin_transaction()
            self._produce(records, _REPORT_BYTES if deliveries is Deliveries.SAMPLED else 0)
        except KafkaException as raised:
            raise self._abandoned(raised) from raised
        try:
            self._finish(deadline)
        except KafkaException as raised:
            error = error_of(raised)
            if error.txn_requires_abort() or error.code() in FENCED_CODES:
                raise self._abandoned(raised) from raised
            raise _unknown(error) from raised
        return self._delivered.offsets

    def _finish(self, deadline: float) -> None:
        """Commits the transaction, or raises the client's error. After a failed record, the client never sends later records of the
        partition, but waits for them until `deadline`. So this method then drops the client's queue."""
        while True:
            # no flush or poll here: once the client is fenced, those raise an object that Python cannot catch by its class
            left_s = max(_COMMIT_LEAST_S, deadline - time.monotonic())
            try:
                self._client.commit_transaction(min(_COMMIT_LOOK_S, left_s))
            except KafkaException as raised:
                error = error_of(raised)
                if error.code() != KafkaError._TIMED_OUT or not error.retriable() or left_s <= _COMMIT_LOOK_S:
                    raise
            else:
                return
            if self._delivered.first_failure is not None:
                self._client.purge(in_flight=False)

    def _produce(self, records: Iterable[Record | RowRecords], report_bytes: int) -> None:
        """Passes the records to the client. Requests a delivery report for the first record, and after every `report_bytes` bytes
        for another record; 0 requests one for each."""
        produce, take, unreported = self._client.produce, self._delivered.on_delivery_report, report_bytes
        try:
            for record in records:
                if isinstance(record, RowRecords):
                    self._produce_rows(record, report_bytes)
                    continue
                topic, value, key, headers, partition = record
                unreported += len(value or b"")
                if unreported >= report_bytes:
                    produce(topic, value, key, partition, take, headers=list(headers))
                    unreported = 0
                else:
                    produce(topic, value, key, partition, headers=list(headers))
        except BufferError:
            raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from None

    def _produce_rows(self, rows: RowRecords, report_bytes: int) -> None:
        """Passes the messages of `rows` to the client, with reports as in `_produce`, without building an object per message."""
        produce, take, unreported = self._client.produce, self._delivered.on_delivery_report, report_bytes
        topic, partition, messages = rows
        common, name = messages.common, messages.header
        for value, text, key in zip(messages.values, messages.texts, messages.keys, strict=True):
            unreported += len(value)
            report = None
            if unreported >= report_bytes:
                report, unreported = take, 0
            # positional: a keyword makes the client parse a dictionary, which costs a quarter of the call
            produce(topic, value, key, partition, report, None, _NOW, [*common, (name, text)])

    def _abandoned(self, raised: KafkaException) -> HotspareError:
        """Aborts a transaction whose commit was not requested, or was refused, and returns the error to raise. Unless that is
        Fenced or UnknownResult, nothing was written."""
        error = error_of(raised)
        if error.code() in FENCED_CODES:
            return _fenced(error)
        try:
            self._client.abort_transaction(self._settings.timeout_s)
        except KafkaException as failed:
            error = error_of(failed)
            return _fenced(error) if error.code() in FENCED_CODES else _unknown(error)
        cause = self._delivered.first_failure
        return bus_error(raised if cause is None else KafkaException(cause), "commit")


def _fenced(error: KafkaError) -> Fenced:
    return Fenced("the right to publish was taken by another engine", detail=error.str())


def _unknown(error: KafkaError) -> UnknownResult:
    return limits.commit_unknown("kafka did not answer a commit", f"{error.name()}: {error.str()}")
