"""Counts the transactions that brokers ended in a while, from the topic in which they keep them."""

from __future__ import annotations

from typing import Any

from benchmarks._divided_load import bootstrap_of
from confluent_kafka import Consumer, KafkaError, TopicPartition

TOPIC = "__transaction_state"
_STATUS_AT = 16
"""Offset in a record's value: after its version, the producer's id and epoch, and the time limit."""
_COMPLETE_COMMIT, _COMPLETE_ABORT = 4, 5
_TIMEOUT_S = 30.0


class TransactionLog:
    """The log of transactions since this was created."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "benchmark", "enable.auto.commit": False}
        self._consumer: Any = Consumer({**settings, "isolation.level": "read_uncommitted", "enable.partition.eof": True})
        known = self._consumer.list_topics(TOPIC, timeout=_TIMEOUT_S).topics[TOPIC].partitions
        self._begins = [TopicPartition(TOPIC, number, self._end(number)) for number in sorted(known)]

    @classmethod
    def of(cls, bus_url: str) -> TransactionLog | None:
        """Returns the log of a bus; None if the bus is a file."""
        bootstrap = bootstrap_of(bus_url)
        return None if bootstrap is None else cls(bootstrap)

    def ended(self) -> int:
        """Returns the count committed or aborted since then. Callable once: it closes the connection."""
        left = {place.partition for place in self._begins if self._end(place.partition) > place.offset}
        self._consumer.assign(self._begins)
        count = 0
        while left:
            message = self._consumer.poll(_TIMEOUT_S)
            if message is None:
                raise SystemExit("the brokers do not show their transactions")
            if message.error() is None:
                count += _status(message.value()) in (_COMPLETE_COMMIT, _COMPLETE_ABORT)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                raise SystemExit(f"the brokers' transactions cannot be read: {message.error()}")
        self._consumer.close()
        return count

    def _end(self, number: int) -> int:
        return int(self._consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=_TIMEOUT_S)[1])


def _status(value: bytes | None) -> int:
    """Returns the status; 0 also for a transactional id that was deleted."""
    return value[_STATUS_AT] if value is not None and len(value) > _STATUS_AT else 0
