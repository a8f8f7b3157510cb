"""Requests the first and last offsets of a Kafka partition from its current leader.

The client addresses the leader that it knows, and waits even if that broker died. So after a second this module looks up the
cluster again.
"""

from __future__ import annotations

import time
from contextlib import suppress
from enum import Enum
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from hotspare.base.errors import is_retryable
from hotspare.base.retry import Retry
from hotspare.bus import limits
from hotspare.bus.contract import Partition
from hotspare.bus.kafka.client import (
    CLIENT_LOG,
    LOOKUP_TIMEOUT_S,
    MISSING_TOPIC_CODES,
    KafkaSettings,
    bus_error,
    client_settings,
    error_of,
    refused_options,
)

_UNKNOWN_S = 1.0
"""How long, in seconds, the leader may not know a new topic that another broker already reported."""
_RETRY_PAUSE_S = 0.02


class Isolation(Enum):
    """The end that a consumer sees. COMMITTED: before the first open transaction; without one, as UNCOMMITTED (the last stable
    offset). UNCOMMITTED: after the last message or marker."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


class KafkaOffsets:
    """Looks up the offsets of partitions. Thread-safe."""

    def __init__(self, settings: KafkaSettings, isolation: Isolation) -> None:
        self._settings = settings
        self._client = new_consumer(settings, isolation)

    def first_and_end(self, partition: Partition) -> tuple[int, int]:
        """Returns the oldest offset kept, and the offset after the last message. Raises TopicMissing, BusUnavailable."""
        start_s = time.monotonic()
        look = Retry(lasting_s=self._settings.timeout_s, pause_s=_RETRY_PAUSE_S)
        return look.call(lambda: self._query_first_and_end(partition, start_s), is_retryable)

    def _query_first_and_end(self, partition: Partition, start_s: float) -> tuple[int, int]:
        left_s = self._settings.timeout_s - (time.monotonic() - start_s)
        place = TopicPartition(partition.topic, partition.number)
        try:
            begin, end = self._client.get_watermark_offsets(place, timeout=max(0.1, min(LOOKUP_TIMEOUT_S, left_s)))
        except KafkaException as raised:
            waited_s = time.monotonic() - start_s
            knows = self._has_topic(partition.topic)  # the leader may have changed: the client looks it up only on request
            if error_of(raised).code() in MISSING_TOPIC_CODES and waited_s > _UNKNOWN_S and not knows:
                raise limits.topic_missing(partition.topic) from raised
            raise bus_error(raised, f"read the offsets of topic {partition.topic}") from raised
        return int(begin), int(end)

    def _has_topic(self, topic: str) -> bool:
        """Whether the brokers know the topic; True if they do not answer. A topic whose leader died may be reported as unknown at
        first."""
        try:
            found = self._client.list_topics(topic, timeout=LOOKUP_TIMEOUT_S).topics.get(topic)
        except KafkaException:
            return True
        return found is not None and (found.error is None or found.error.code() not in MISSING_TOPIC_CODES)

    def close(self) -> None:
        with suppress(KafkaException, RuntimeError):
            self._client.close()


def new_consumer(settings: KafkaSettings, isolation: Isolation, **options: Any) -> Any:
    """Returns a consumer that stores no offsets in the cluster. Raises UsageError for options of the URL that the client
    refuses."""
    config = {
        "group.id": "hotspare-readers",
        **client_settings(settings),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": isolation.value,
        **options,
    }
    try:
        return Consumer(config, logger=CLIENT_LOG)
    except KafkaException as error:
        raise refused_options(settings) from error
