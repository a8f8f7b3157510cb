"""The records of publishers on Kafka: the newest record of each key in a compacted topic next to the topic to which they publish.

A record is written in the transaction of its messages. Its key starts with the published topic's id and the partition number, so a
topic that was deleted and re-created does not inherit old records.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from hotspare.base.errors import BusUnavailable
from hotspare.base.retry import Retry
from hotspare.bus.contract import Partition
from hotspare.bus.kafka.client import KafkaSettings
from hotspare.bus.kafka.offsets import Isolation, KafkaOffsets
from hotspare.bus.kafka.progress import TopicFollower
from hotspare.bus.kafka.read import KafkaReader
from hotspare.bus.kafka.topics import KafkaTopics, TopicKind
from hotspare.bus.kafka.writer import Record
from hotspare.bus.naming import records_topic

_POLL_S = 0.01


class KafkaRecords:
    """Reads and encodes records. Thread-safe. All records read remain in memory."""

    def __init__(self, topics: KafkaTopics, reader: KafkaReader) -> None:
        self._topics = topics
        self._reader = reader
        self._lock = threading.Lock()
        self._kept: dict[str, _TopicRecords] = {}

    def committed_records(self, partition: Partition) -> Mapping[bytes, bytes]:
        """Returns the committed records of a partition by key, in order of the keys."""
        place = self.records_partition(partition)
        if place is None:
            return {}
        scope = self.record_key_prefix(partition)
        with self._lock:
            kept = self._kept.get(place.topic)
            if kept is None:
                kept = self._kept[place.topic] = _TopicRecords()
                kept.follower = TopicFollower(self._reader, place, kept.apply_record, kept.records.clear)
        with kept.follower.lock:
            kept.follower.follow()
            found = sorted((key, record) for key, record in kept.records.items() if key.startswith(scope))
        return {key.removeprefix(scope): record for key, record in found}

    def records_partition(self, partition: Partition) -> Partition | None:
        """Returns the partition that stores the records of `partition`; None if its topic does not exist, so that there are no
        records."""
        topic = records_topic(partition.topic)
        return None if self._topics.cached_partitions(topic) is None else Partition(topic)

    def record_key_prefix(self, partition: Partition) -> bytes:
        """Returns the prefix that the keys of a partition's records have on Kafka. Raises TopicMissing."""
        return f"{self._topics.topic_id(partition.topic)}/{partition.number}/".encode()

    def transaction_record(self, partition: Partition, scope: bytes, key: bytes, record: bytes | None) -> Record:
        """Returns the record for a transaction that stores `record` under `key`, or deletes the key if `record` is None. `scope`:
        the result of `record_key_prefix`. Creates the topic of records if it is missing."""
        place = records_topic(partition.topic)
        if self._topics.cached_partitions(place) is None:
            self._topics.create(place, 1, TopicKind.STATE)
        return Record(place, record, scope + key)


@dataclass
class _TopicRecords:
    """The records read from one topic of records, by their key on Kafka, and the follower that reads them."""

    records: dict[bytes, bytes] = field(default_factory=dict)
    follower: TopicFollower = field(init=False)

    def apply_record(self, offset: int, key: bytes, value: bytes) -> None:
        if value:
            self.records[key] = value
        else:
            self.records.pop(key, None)


class OpenTransactions:
    """Waits for the end of open transactions. A transaction that a writer left open hides all later commits until the broker ends
    it. Thread-safe."""

    def __init__(self, settings: KafkaSettings, reader: KafkaReader) -> None:
        self._settings = settings
        self._reader = reader
        self._lock = threading.Lock()
        self._offsets: KafkaOffsets | None = None

    def wait(self, partition: Partition) -> None:
        """Waits until all messages that are now on the partition are committed or aborted. Raises BusUnavailable if that takes
        longer than the timeout of a call."""
        high = self._end_offset_of(partition)
        for _ in Retry(lasting_s=self._settings.timeout_s, pause_s=_POLL_S).tries():
            if self._reader.offsets(partition)[1] >= high:
                return
        raise BusUnavailable(
            f"a transaction on topic {partition.topic} is still open", hint="try again: the broker aborts it after its time-out"
        )

    def close(self) -> None:
        with self._lock:
            if self._offsets is not None:
                self._offsets.close()
            self._offsets = None

    def _end_offset_of(self, partition: Partition) -> int:
        with self._lock:
            if self._offsets is None:
                self._offsets = KafkaOffsets(self._settings, Isolation.UNCOMMITTED)
            return self._offsets.first_and_end(partition)[1]
