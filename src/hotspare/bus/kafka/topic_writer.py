"""Writes an external topic on Kafka under a transactional id of the source: messages of all partitions, and the source's position,
in one transaction.

The position is a record in a compacted topic next to the written topic (`kafka/records.py`), in the external cluster. Opening the
id again ends every earlier transaction and fences every earlier writer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from hotspare.base.errors import Fenced, UnknownResult
from hotspare.bus import limits
from hotspare.bus.contract import Partition
from hotspare.bus.kafka.client import KafkaSettings
from hotspare.bus.kafka.read import FetchWait, KafkaReader
from hotspare.bus.kafka.records import KafkaRecords, OpenTransactions
from hotspare.bus.kafka.topics import KafkaTopics
from hotspare.bus.kafka.writer import Record, Writer, WriterFactory
from hotspare.bus.topic_writer import RoutedMessage


class KafkaTopicWriter:
    """Implements `TopicWriter` on Kafka. Connects at its first use."""

    def __init__(self, settings: KafkaSettings, topic: str, source: bytes) -> None:
        limits.check_record(source, b"")
        self._topics = KafkaTopics(settings)
        self._reader = KafkaReader(settings, FetchWait.LOOK)
        self._records = KafkaRecords(self._topics, self._reader)
        self._open_transactions = OpenTransactions(settings, self._reader)
        self._writers = WriterFactory(settings, f"hotspare.topic.{topic}.{hashlib.sha256(source).hexdigest()[:24]}")
        self._writer: Writer | None = None
        self._source = source
        self._scope = b""
        self.topic = topic

    def partitions(self) -> int:
        return self._topics.external_partitions(self.topic)

    def open(self) -> bytes | None:
        self._writer = None
        writer, place = self._writers.open(), Partition(self.topic)
        if (records := self._records.records_partition(place)) is not None:
            self._open_transactions.wait(records)
        self._scope = self._records.record_key_prefix(place)
        record = self._records.committed_records(place).get(self._source)
        self._writer = writer
        return record

    def write(self, messages: Sequence[RoutedMessage], position: bytes) -> None:
        limits.check_record(self._source, position)
        if self._writer is None:
            raise Fenced(f"topic {self.topic} is not open")
        rows = [Record(self.topic, each.value, each.key, each.headers, number) for number, each in messages]
        record = self._records.transaction_record(Partition(self.topic), self._scope, self._source, position)
        try:
            self._writer.commit([*rows, record])
        except (Fenced, UnknownResult):
            self._writer = None
            raise

    def close(self) -> None:
        self._writer = None
        self._writers.close()
        self._open_transactions.close()
        self._reader.close()
