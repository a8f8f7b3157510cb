"""Appends to Kafka: messages, of which all or none are written (`KafkaAppender`), and ticks, for whose answer callers wait only a
short time (`KafkaTicker`)."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from hotspare.base.errors import BusUnavailable, Fenced, HotspareError, UnknownResult
from hotspare.bus import limits
from hotspare.bus.contract import HeaderGuard, Outgoing, Partition
from hotspare.bus.kafka.client import (
    CLIENT_LOG,
    HEADER_OVERHEAD_BYTES,
    MESSAGE_OVERHEAD_BYTES,
    MISSING_TOPIC_CODES,
    KafkaSettings,
    bus_error,
    producer_settings,
    refused_options,
)
from hotspare.bus.kafka.read import KafkaReader
from hotspare.bus.kafka.records import KafkaRecords, OpenTransactions
from hotspare.bus.kafka.topics import KafkaTopics
from hotspare.bus.kafka.writer import TURN_RETRY, Writer, WriterFactory, records_of

_TICK_TIMEOUT_MS = 200
_CONNECT_S = 1.0
_SCAN_MESSAGES = 5_000
_SCAN_BYTES = 16 << 20
_REFUSED = (
    frozenset((KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.INVALID_MSG)) | MISSING_TOPIC_CODES
)
"""Errors with which a broker reports that it wrote nothing."""


class KafkaAppender:
    """Appends messages in one batch, which a broker writes completely or not at all, or in a transaction if the batch would be too
    large. Thread-safe; one append at a time.

    A batch is sent only when it is complete: the client holds the batch back until `flush`.
    """

    def __init__(self, settings: KafkaSettings, topics: KafkaTopics, reader: KafkaReader, records: KafkaRecords) -> None:
        self._settings = settings
        self._topics = topics
        self._reader = reader
        self._records = records
        self._open_transactions = OpenTransactions(settings, reader)
        self._lock = threading.Lock()
        self._client: Any = None
        self._writers = WriterFactory(settings, f"hotspare.append.{uuid.uuid4().hex}")
        self._writer: Writer | None = None
        self._guards: dict[tuple[Partition, str, bytes], _GuardTurn] = {}

    def append(self, partition: Partition, messages: Sequence[Outgoing]) -> int:
        """Implements `Bus.append`. There must be at least one message, and the caller must have checked the limits of the bus."""
        whole = self._fits(partition.topic, messages)
        with self._lock:
            return self._in_one_batch(partition, messages) if whole else self._in_a_transaction(partition, messages)

    def append_guarded(
        self, partition: Partition, messages: Sequence[Outgoing], guard: HeaderGuard, record: bytes | None
    ) -> int | None:
        """Implements `Bus.append_guarded`. Writers that append with a guard of this name and prefix exclude each other by fencing.
        Messages of other writers are compared only if they are on the topic when this writer fences the others."""
        self._fits(partition.topic, messages)
        with self._lock:
            key = (partition, guard.name, guard.prefix)
            guarded = self._guards.pop(key, None) or _GuardTurn(WriterFactory(self._settings, _guard_id(partition, guard)))
            self._guards[key] = guarded  # inserted last: the first is the least recently used
            if len(self._guards) > self._settings.guards_max:
                oldest = self._guards.pop(next(iter(self._guards)))
                oldest.writer = None
                oldest.writers.close()
            return self._append_guarded(guarded, partition, messages, guard, record)

    def remove_record(self, partition: Partition, key: bytes) -> None:
        """Implements `Bus.remove_record` for a record that exists."""
        with self._lock:
            taken_back = self._records.transaction_record(partition, self._records.record_key_prefix(partition), key, None)
            self._writers.open().commit([taken_back])

    def close(self) -> None:
        with self._lock:
            self._client = self._writer = None
            for guarded in self._guards.values():
                guarded.writer = None
                guarded.writers.close()
            self._writers.close()
            self._open_transactions.close()

    def _fits(self, topic: str, messages: Sequence[Outgoing]) -> bool:
        """Whether all messages fit into one batch. Raises MessageTooLarge if a message exceeds the topic's limit."""
        bytes_max = self._topics.message_bytes_max(topic)
        sizes = [_size(message) for message in messages]
        if sizes and max(sizes) > bytes_max:
            raise limits.message_too_large(max(sizes), bytes_max, topic)
        return sum(sizes) <= bytes_max

    def _in_one_batch(self, partition: Partition, messages: Sequence[Outgoing]) -> int:
        client = self._client or _new_client(self._settings, {"linger.ms": self._settings.timeout_ms - 1})
        self._client = None  # until it has proved sound
        delivered: list[int] = []
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Any) -> None:
            if error is None:
                delivered.append(message.offset())
            else:
                failed.append(error)

        try:
            for message in messages:
                headers = list(message.headers)
                client.produce(partition.topic, message.value, message.key, partition.number, on_delivery, headers=headers)
            _flush(client, self._settings.timeout_s + 1)
        except BufferError as error:
            raise BusUnavailable("the queue of messages to kafka is full", detail=str(error)) from error
        except KafkaException as error:
            raise bus_error(error, f"append to topic {partition.topic}") from error
        if failed:
            raise _append_failure(self._topics, partition, failed[0])
        if len(delivered) != len(messages) or min(delivered) < 0:
            raise _append_unknown(partition, "no answer within the time limit")
        self._client = client
        return delivered[0]

    def _in_a_transaction(self, partition: Partition, messages: Sequence[Outgoing]) -> int:
        writer, self._writer = self._writer or self._writers.open(), None
        try:
            first = writer.commit(records_of(partition.topic, partition.number, messages))[partition.topic][0]
        except Fenced as error:  # the id is ours alone: a late request of our own, perhaps this commit sent again
            raise _append_unknown(partition, error.detail) from error
        self._writer = writer
        return first

    def _append_guarded(
        self,
        guarded: _GuardTurn,
        partition: Partition,
        messages: Sequence[Outgoing],
        guard: HeaderGuard,
        record: bytes | None,
    ) -> int | None:
        for _ in replace(TURN_RETRY, lasting_s=self._settings.timeout_s).tries():
            # first without a turn: a late publisher need not take it from the one that was in time
            if guarded.newest >= guard.since_offset or self._has_guarded_message(partition, guard):
                return None
            if guarded.writer is None:
                guarded.writer = self._open_turn(guarded, partition, guard)
                if self._has_guarded_message(partition, guard):
                    return None
            if guarded.record != guard.record:
                return None
            writer, rows = guarded.writer, [*records_of(partition.topic, partition.number, messages)]
            if record is not None:
                rows.append(self._records.transaction_record(partition, guarded.record_key_prefix, guard.prefix, record))
            if not rows:
                return self._reader.offsets(partition)[1]
            guarded.writer = None
            try:
                offsets = writer.commit(rows).get(partition.topic, [])
            except Fenced as error:
                # The commit may have reached the broker before the other publisher took the turn. Then it contradicts the guard of
                # the next try ...
                if record is None and not any(_has(message, guard) for message in messages):
                    raise _append_unknown(partition, error.detail) from error  # ... unless nothing in it can
                continue
            guarded.writer, guarded.record = writer, guard.record if record is None else record
            if any(_has(message, guard) for message in messages):
                guarded.newest = max(offsets)
            return offsets[0] if offsets else self._reader.offsets(partition)[1]
        raise _append_unknown(partition, "other writers keep appending to the topic with the same guard")

    def _open_turn(self, guarded: _GuardTurn, partition: Partition, guard: HeaderGuard) -> Writer:
        """Opens and returns the guard's writer, which fences every earlier writer of this guard. Waits for open transactions, then
        stores the guard's newest record in `guarded`."""
        writer = guarded.writers.open()
        self._open_transactions.wait(partition)
        if (place := self._records.records_partition(partition)) is not None:
            self._open_transactions.wait(place)
        guarded.record_key_prefix = self._records.record_key_prefix(partition)
        guarded.record = self._records.committed_records(partition).get(guard.prefix)
        return writer

    def _has_guarded_message(self, partition: Partition, guard: HeaderGuard) -> bool:
        begin, end = self._reader.offsets(partition)
        offset = max(begin, guard.since_offset)
        while offset < end:
            found = self._reader.read(partition, offset, _SCAN_MESSAGES, _SCAN_BYTES, 0)
            if any(limits.is_guarded_by(guard, message) for message in found):
                return True
            offset = found[-1].offset + 1 if found else end
        return False


class KafkaTicker:
    """Appends ticks as ordinary messages. Thread-safe. Calls for several partitions wait for their answers concurrently: one call
    polls the client for all.

    An engine ticks from the loop that renews its lease, and a single tick does not matter. So if a broker is slow or down, the call
    soon raises UnknownResult, and the tick may arrive late. Until its result is known, no other tick is sent to the partition.
    """

    def __init__(self, settings: KafkaSettings, topics: KafkaTopics) -> None:
        self._settings = settings
        self._topics = topics
        self._timeout_s = min(settings.timeout_ms, _TICK_TIMEOUT_MS) / 1000
        self._heard = threading.Condition()
        self._is_listening = False
        self._client: Any = None
        self._answers: dict[Partition, _PendingAppend] = {}

    def append(self, partition: Partition, ticks: Sequence[Outgoing]) -> int:
        """Implements `Bus.append` for ticks. Raises UnknownResult if no answer to this or an earlier call arrives within at most
        `_TICK_TIMEOUT_MS`."""
        deadline = time.monotonic() + self._timeout_s
        with self._heard:
            if partition in self._answers:
                with contextlib.suppress(HotspareError):  # the result of the earlier tick does not matter any more
                    self._await_answer(partition, deadline)
                if partition in self._answers:
                    raise _append_unknown(partition, "no answer to an earlier tick yet")
            self._answers[partition] = self._send(partition, ticks)
            return self._await_answer(partition, deadline)

    def warm_up(self) -> None:
        """Connects the client in the background, because a broker takes half a second to admit a new client."""
        if self._client is None:
            threading.Thread(target=self._connect, name="kafka-warm", daemon=True).start()

    def close(self) -> None:
        with self._heard:
            self._drop()

    def _drop(self) -> None:
        self._client = None
        self._answers.clear()

    def _connect(self) -> None:
        with contextlib.suppress(HotspareError, KafkaException):
            client = _new_client(self._settings)
            client.list_topics(timeout=_CONNECT_S)
            with self._heard:
                self._client = self._client or client

    def _send(self, partition: Partition, ticks: Sequence[Outgoing]) -> _PendingAppend:
        if self._client is None:
            self._client = _new_client(self._settings)
        answer = _PendingAppend(self._client, len(ticks))
        try:
            for tick in ticks:
                headers = list(tick.headers)
                self._client.produce(
                    partition.topic, tick.value, None, partition.number, answer.on_delivery_report, headers=headers
                )
        except (KafkaException, BufferError) as error:
            self._drop()
            raised = error if isinstance(error, KafkaException) else KafkaException(KafkaError(KafkaError._QUEUE_FULL))
            raise bus_error(raised, f"append to topic {partition.topic}") from error
        return answer

    def _await_answer(self, partition: Partition, deadline: float) -> int:
        """Waits for the answer of the partition's pending append until `deadline`; returns the first offset. Raises UnknownResult
        if no answer arrives, or the error that the broker reported."""
        answer = self._answers[partition]
        while answer.unreported_count and (left_s := deadline - time.monotonic()) > 0:
            if self._is_listening:
                self._heard.wait(left_s)
            else:
                self._listen(answer.client, left_s)
        if answer.unreported_count:
            raise _append_unknown(partition, "no answer to a tick within the time limit")
        self._answers.pop(partition, None)
        if answer.failure is not None:
            self._drop()
            raise _append_failure(self._topics, partition, answer.failure)
        return answer.first_offset

    def _listen(self, client: Any, timeout_s: float) -> None:
        """Polls the client once, at most `timeout_s`, without holding the lock. Other calls may send and wait meanwhile; one of
        them polls next."""
        self._is_listening = True
        self._heard.release()
        try:
            client.poll(timeout_s)
        finally:
            self._heard.acquire()
            self._is_listening = False
            self._heard.notify_all()


def are_ticks(messages: Sequence[Outgoing]) -> bool:
    """Whether there is at least one message and all messages are ticks."""
    return bool(messages) and all(message.is_tick for message in messages)


@dataclass
class _GuardTurn:
    """The state of appends with one guard. `writer`: the writer that fenced all others; None if it may have been fenced. `newest`:
    the last offset with the guard's header that this process wrote; readers see it a little later. `record`: the guard's current
    record, whose key begins with `record_key_prefix`."""

    writers: WriterFactory
    writer: Writer | None = None
    newest: int = -1
    record: bytes | None = None
    record_key_prefix: bytes = b""


@dataclass
class _PendingAppend:
    """The broker's answer to the messages of one call. `client`: the client to poll. `unreported_count`: the messages without a
    delivery report. `first_offset`: -1 if unknown. `failure`: the last reported error."""

    client: Any
    unreported_count: int
    first_offset: int = -1
    failure: KafkaError | None = None

    def on_delivery_report(self, error: KafkaError | None, message: Any) -> None:
        self.unreported_count -= 1
        if error is not None:
            self.failure = error
        elif self.first_offset < 0:
            self.first_offset = message.offset()


def _new_client(settings: KafkaSettings, options: Mapping[str, Any] | None = None) -> Any:
    """Returns a new client that produces without transactions; `options` override the settings of the bus. Raises UsageError for
    options that the client refuses."""
    try:
        return Producer({**producer_settings(settings), **(options or {})}, logger=CLIENT_LOG)
    except KafkaException as error:
        raise refused_options(settings) from error


def _flush(client: Any, timeout_s: float) -> None:
    """Flushes the client. A client that failed fatally raises an object that is not an exception; it is caught by a bare `except`
    and ignored."""
    try:
        client.flush(timeout_s)
    except:  # noqa: E722
        kind = sys.exc_info()[0]
        if isinstance(kind, type) and issubclass(kind, BaseException) and kind is not SystemError:
            raise


def _has(message: Outgoing, guard: HeaderGuard) -> bool:
    return any(name == guard.name and value.startswith(guard.prefix) for name, value in message.headers)


def _guard_id(partition: Partition, guard: HeaderGuard) -> str:
    name = hashlib.sha256(guard.name.encode() + b"\0" + guard.prefix).hexdigest()[:24]
    return f"hotspare.guard.{partition.topic}.{partition.number}.{name}"


def _size(message: Outgoing) -> int:
    return message.size_bytes + len(message.headers) * HEADER_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES


def _append_failure(topics: KafkaTopics, partition: Partition, error: KafkaError) -> HotspareError:
    """Returns the error for a message that the broker did not acknowledge."""
    if error.code() in MISSING_TOPIC_CODES:
        topics.drop_cached(partition.topic)
        return limits.topic_missing(partition.topic)
    if error.code() in _REFUSED:
        return bus_error(KafkaException(error), f"append to topic {partition.topic}")
    return _append_unknown(partition, f"{error.name()}: {error.str()}")


def _append_unknown(partition: Partition, detail: str) -> UnknownResult:
    """Returns the error for messages that may or may not be on the topic."""
    return UnknownResult(
        f"the result of an append to topic {partition.topic} is unknown",
        detail=detail,
        hint="read the topic before you repeat the append",
    )
