"""Reads the committed messages of an external topic on Kafka, with one consumer for all partitions.

The reader stores the offsets; the consumer stores none in the cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hotspare.base.errors import BusError, BusUnavailable, TopicMissing
from hotspare.bus.contract import Partition
from hotspare.bus.kafka.client import MISSING_TOPIC_CODES, KafkaSettings, bus_error
from hotspare.bus.kafka.offsets import Isolation, KafkaOffsets, new_consumer
from hotspare.bus.kafka.read import stored_messages
from hotspare.bus.kafka.topics import KafkaTopics
from hotspare.bus.topic_reader import ReceivedMessage, check_offset_in_bounds

_QUEUE_KBYTES = 32 << 10
_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class KafkaTopicReader:
    """Implements `TopicReader` on Kafka. Connects at its first use."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._topics = KafkaTopics(settings)
        self._offsets = KafkaOffsets(settings, Isolation.COMMITTED)
        options = {
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 20,
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": _QUEUE_KBYTES,
        }
        self._consumer: Any = new_consumer(settings, Isolation.COMMITTED, **options)
        self._next: dict[int, int] = {}
        self._told: list[KafkaError] = []
        """Errors that the client returned among messages. They are handled at the next read, so that the messages read with them
        are returned first."""
        self.topic = topic

    def topic_id(self) -> str:
        try:
            return self._topics.topic_id(self.topic)
        except (BusUnavailable, TopicMissing):
            raise
        except BusError:  # a cluster that does not describe its topics has no ids for this client
            return ""

    def partitions(self) -> int:
        return self._topics.external_partitions(self.topic)

    def bounds(self, number: int) -> tuple[int, int]:
        return self._offsets.first_and_end(Partition(self.topic, number))

    def seek(self, offsets: Mapping[int, int]) -> None:
        for number, offset in offsets.items():
            check_offset_in_bounds(self.topic, number, offset, self.bounds(number))
        self._assign(offsets)

    def read(self, messages_max: int, wait_ms: int) -> Sequence[ReceivedMessage]:
        while self._told:
            self._handle_event(self._told[0])
            del self._told[0]
        first = self._consumer.poll(wait_ms / 1000)
        if first is None:
            return []
        found = [first]
        if messages_max > 1 and first.error() is None:
            found += self._consumer.consume(messages_max - 1, 0)
        wanted = [each for each in found if each.error() is None and each.offset() >= self._next.get(each.partition(), 0)]
        arrived = [
            ReceivedMessage(each.partition(), message) for each, message in zip(wanted, stored_messages(wanted), strict=True)
        ]
        for each in arrived:
            self._next[each.partition] = each.message.offset + 1
        self._told = [message.error() for message in found if message.error() is not None]
        return arrived

    def close(self) -> None:
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()
        self._offsets.close()

    def _assign(self, offsets: Mapping[int, int]) -> None:
        self._next = dict(offsets)
        self._consumer.assign([TopicPartition(self.topic, number, offset) for number, offset in offsets.items()])

    def _handle_event(self, error: KafkaError) -> None:
        if error.code() in _OUT_OF_RANGE:
            self.seek(self._next)  # raises PositionLost if it still applies
        elif error.code() in MISSING_TOPIC_CODES:
            self.partitions()
        else:
            failure = bus_error(KafkaException(error), f"read topic {self.topic}")
            if not failure.retryable:
                raise failure
