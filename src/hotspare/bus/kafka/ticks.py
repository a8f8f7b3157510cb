"""Ticks on Kafka: written like any other message, but nobody waits long for the answer.

An engine ticks from the loop that keeps its lease, and one tick more or less changes nothing. So where a broker is slow or away the
call returns soon, and the tick comes when it comes; until its fate is known there is no other one for its partition.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from hotspare.base.errors import HotspareError
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.kafka.append import append_failure, append_unknown
from hotspare.bus.kafka.client import QUIET, KafkaSettings, bus_error, producer_settings, refused_options
from hotspare.bus.kafka.topics import KafkaTopics

TICK_TIMEOUT_MS = 200
_CONNECT_S = 1.0


def are_ticks(messages: Sequence[Outgoing]) -> bool:
    """Whether these are messages, and ticks alone."""
    return bool(messages) and all(message.is_tick for message in messages)


@dataclass
class _Answer:
    """What the broker said of the messages of one call; `left` of them wait for a word, which `client` brings."""

    client: Any
    left: int
    first_offset: int = -1
    failure: KafkaError | None = None

    def take(self, error: KafkaError | None, message: Any) -> None:
        self.left -= 1
        if error is not None:
            self.failure = error
        elif self.first_offset < 0:
            self.first_offset = message.offset()


class KafkaTicker:
    """Thread-safe. Calls for several partitions wait for their answers at the same time: one of them listens for all."""

    def __init__(self, settings: KafkaSettings, topics: KafkaTopics) -> None:
        self._settings = settings
        self._topics = topics
        self._timeout_s = min(settings.timeout_ms, TICK_TIMEOUT_MS) / 1000
        self._heard = threading.Condition()
        self._is_listening = False
        self._client: Any = None
        self._answers: dict[Partition, _Answer] = {}

    def append(self, partition: Partition, ticks: Sequence[Outgoing]) -> int:
        """As `Bus.append`. UnknownResult as soon as no answer has come for a moment, also to an earlier call."""
        deadline = time.monotonic() + self._timeout_s
        with self._heard:
            if partition in self._answers:
                with contextlib.suppress(HotspareError):  # what became of the earlier one is nobody's question any more
                    self._answered(partition, deadline)
                if partition in self._answers:
                    raise append_unknown(partition, "no answer came to an earlier tick")
            self._answers[partition] = self._send(partition, ticks)
            return self._answered(partition, deadline)

    def warm_up(self) -> None:
        """Get the client ready in the background: the broker takes half a second to admit a new one."""
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
            client = self._new_client()
            client.list_topics(timeout=_CONNECT_S)
            with self._heard:
                self._client = self._client or client

    def _send(self, partition: Partition, ticks: Sequence[Outgoing]) -> _Answer:
        if self._client is None:
            self._client = self._new_client()
        answer = _Answer(self._client, len(ticks))
        try:
            for tick in ticks:
                headers = list(tick.headers)
                self._client.produce(partition.topic, tick.value, None, partition.number, answer.take, headers=headers)
        except (KafkaException, BufferError) as error:
            self._drop()
            raised = error if isinstance(error, KafkaException) else KafkaException(KafkaError(KafkaError._QUEUE_FULL))
            raise bus_error(raised, f"append to topic {partition.topic}") from error
        return answer

    def _answered(self, partition: Partition, deadline: float) -> int:
        """Wait for the answer; the first offset."""
        answer = self._answers[partition]
        while answer.left and (left_s := deadline - time.monotonic()) > 0:
            if self._is_listening:
                self._heard.wait(left_s)
            else:
                self._listen(answer.client, left_s)
        if answer.left:
            raise append_unknown(partition, "no answer came to a tick in time")
        self._answers.pop(partition, None)
        if answer.failure is not None:
            self._drop()
            raise append_failure(self._topics, partition, answer.failure)
        return answer.first_offset

    def _listen(self, client: Any, timeout_s: float) -> None:
        """Until an answer comes, whosever it is. Others may send, and wait, meanwhile; then one of them listens on."""
        self._is_listening = True
        self._heard.release()
        try:
            client.poll(timeout_s)
        finally:
            self._heard.acquire()
            self._is_listening = False
            self._heard.notify_all()

    def _new_client(self) -> Any:
        try:
            return Producer(producer_settings(self._settings), logger=QUIET)
        except KafkaException as error:
            raise refused_options(self._settings) from error
