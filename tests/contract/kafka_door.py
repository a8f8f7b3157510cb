"""The Kafka bus in the shared suite: one broker for all tests, emptied around each, and a client that waits until commits are
readable.

By the contract a commit may become readable a moment later; tests that read at once wait for that, by asking the broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from hotspare.bus.contract import Commit, HeaderGuard, Outgoing, Partition
from hotspare.bus.kafka.bus import KafkaBus, KafkaProducer
from hotspare.bus.kafka.client import parse_kafka_url
from hotspare.bus.kafka.progress import progress_partition
from hotspare.bus.naming import own_partition, records_topic
from hotspare.testing.cluster import wait_until

TIMEOUT_S = 90


class KafkaDoor(KafkaBus):
    def __init__(self, url: str, **settings: Any) -> None:
        """`settings`: fields of `KafkaSettings`."""
        super().__init__(replace(parse_kafka_url(f"{url}?timeout_ms=20000"), **settings))
        config = {"bootstrap.servers": url.removeprefix("kafka://"), "group.id": "settle", "isolation.level": "read_uncommitted"}
        self._all = Consumer(config)

    def settle(self, partitions: Sequence[Partition]) -> None:
        """Waits until no transaction on the partitions is open."""
        wait_until(lambda: all(self._is_settled(partition) for partition in partitions), "transactions end", TIMEOUT_S)

    def _is_settled(self, partition: Partition) -> bool:
        place = TopicPartition(partition.topic, partition.number)
        return self.end_offset(partition) == self._all.get_watermark_offsets(place, timeout=TIMEOUT_S)[1]

    def append_guarded(
        self, partition: Partition, messages: Sequence[Outgoing], guard: HeaderGuard, record: bytes | None = None
    ) -> int | None:
        offset = super().append_guarded(partition, messages, guard, record)
        self.settle([partition] if record is None else [partition, Partition(records_topic(partition.topic))])
        return offset

    def remove_record(self, partition: Partition, key: bytes) -> None:
        super().remove_record(partition, key)
        if (records := records_topic(partition.topic)) in self.topics():
            self.settle([Partition(records)])

    def producer(self, group: str, output_topics: Sequence[str]) -> KafkaProducer:
        made = super().producer(group, output_topics)
        inner = made.publish

        def publish(epoch: int, commit: Commit) -> None:
            inner(epoch, commit)
            number = own_partition(group)
            self.settle([*(Partition(topic, number) for topic in output_topics), progress_partition(group)])

        made.publish = publish  # type: ignore[method-assign]
        return made

    def close(self) -> None:
        self._all.close()
        super().close()


def empty(bootstrap: str) -> None:
    """Deletes every topic except Kafka's own, and waits until they are gone."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def ours() -> list[str]:
        return [name for name in admin.list_topics(timeout=TIMEOUT_S).topics if not name.startswith("__")]

    if topics := ours():
        for deleted in admin.delete_topics(topics).values():
            deleted.result(TIMEOUT_S)
    wait_until(lambda: not ours(), "topics are deleted", TIMEOUT_S)
