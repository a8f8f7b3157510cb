"""The bus on Kafka: topics are Kafka's, outputs and progress go in one transaction, and the broker decides who may publish.

Any Kafka client can read the topics; one that must not see what is not committed reads with isolation.level=read_committed.
Where transactions end, offsets have holes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from hotspare.base.errors import BusUnavailable, Fenced
from hotspare.base.retry import Retry
from hotspare.bus import limits
from hotspare.bus.contract import Deviation, HeaderGuard, Message, Outgoing, Partition, Progress, Readers
from hotspare.bus.kafka.append import KafkaAppender
from hotspare.bus.kafka.checks import TopicFacts, cluster_deviations, topic_deviations
from hotspare.bus.kafka.client import HEADER_OVERHEAD_BYTES, MESSAGE_OVERHEAD_BYTES, KafkaSettings, parse_kafka_url
from hotspare.bus.kafka.owners import OWNERS_TOPIC, KafkaOwners
from hotspare.bus.kafka.producer import KafkaProducer
from hotspare.bus.kafka.progress import ProgressReader, encode_progress, progress_partition, progress_topic, stream_key
from hotspare.bus.kafka.read import FetchWait, KafkaReader
from hotspare.bus.kafka.records import KafkaRecords
from hotspare.bus.kafka.ticks import KafkaTicker, are_ticks
from hotspare.bus.kafka.topics import KafkaTopics, TopicKind
from hotspare.bus.kafka.writer import Writers, keyed_record
from hotspare.bus.naming import own_partition, records_topic, whole_group

_SCAN_FIRST = 256
_SCAN_MAX = 16_384
_SCAN_BYTES = 16 << 20
_FORGETTING = Retry(tries_max=4)
"""Who is fenced out of it each time has engines beside it that publish."""
_HEADERS = 8
"""A message of ours has fewer."""


class KafkaBus:
    """A `Bus` (contract). Connects when it is first used."""

    def __init__(self, settings: KafkaSettings, readers: Readers = Readers.ONE) -> None:
        self._settings = settings
        self._topics = KafkaTopics(settings)
        self._reader = KafkaReader(settings, FetchWait.FOLLOW, readers)
        self._looker = KafkaReader(settings, FetchWait.LOOK)
        self._publisher_records = KafkaRecords(self._topics, self._looker)
        self._appender = KafkaAppender(settings, self._topics, self._looker, self._publisher_records)
        self._ticker = KafkaTicker(settings, self._topics)
        self._owners = KafkaOwners(settings, self._topics, self._looker)
        self._lock = threading.Lock()
        self._writers: dict[str, Writers] = {}
        self._records: dict[str, ProgressReader] = {}

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        self._topics.create(topic, partitions)

    def grow_unused(self, topic: str, partitions: int) -> None:
        limits.check_topic(topic, partitions)
        existing = self._topics.partitions(topic)
        if existing is None:
            raise limits.topic_missing(topic)
        if existing < partitions and not any(self.end_offset(Partition(topic, number)) for number in range(existing)):
            self._topics.grow(topic, partitions)

    def topics(self) -> Mapping[str, int]:
        """Without Kafka's own."""
        return self._topics.listed()

    def append(self, partition: Partition, messages: Sequence[Outgoing]) -> int:
        limits.check_messages(messages, self._settings.message_bytes_max)
        self._topics.check(partition)
        if not messages:
            return self._looker.offsets(partition)[1]
        return (self._ticker if are_ticks(messages) else self._appender).append(partition, messages)

    def append_guarded(
        self, partition: Partition, messages: Sequence[Outgoing], guard: HeaderGuard, record: bytes | None = None
    ) -> int | None:
        limits.check_messages(messages, self._settings.message_bytes_max)
        limits.check_record(guard.prefix, record)
        self._topics.check(partition)
        return self._appender.append_guarded(partition, messages, guard, record)

    def record(self, partition: Partition, key: bytes) -> bytes | None:
        return self.records(partition).get(key)

    def records(self, partition: Partition) -> Mapping[bytes, bytes]:
        self._topics.check(partition)
        return self._publisher_records.all(partition)

    def forget_record(self, partition: Partition, key: bytes) -> None:
        if key in self.records(partition):
            self._appender.forget_record(partition, key)

    def read(self, partition: Partition, offset: int, *, messages_max: int, bytes_max: int, wait_ms: int = 0) -> Sequence[Message]:
        limits.check_read(partition, offset, messages_max, bytes_max)
        self._topics.check(partition)
        return self._reader.read(partition, offset, messages_max, bytes_max, wait_ms)

    def begin_offset(self, partition: Partition) -> int:
        self._topics.check(partition)
        return self._looker.offsets(partition)[0]

    def end_offset(self, partition: Partition) -> int:
        """Behind the last message that is committed, and the marker that ends its transaction."""
        self._topics.check(partition)
        return self._looker.offsets(partition)[1]

    def newest_with_header(self, partition: Partition, name: str, prefix: bytes, since_offset: int = 0) -> Message | None:
        """Scans backwards in growing steps: messages written by a publisher are found near the end."""
        self._topics.check(partition)
        guard = HeaderGuard(name, prefix, 0)
        begin, high = self._looker.offsets(partition)
        begin, step = max(begin, since_offset), _SCAN_FIRST
        while high > begin:
            low = max(begin, high - step)
            found = self._newest(partition, guard, low, high)
            if found is not None:
                return found
            high, step = low, min(2 * step, _SCAN_MAX)
        return None

    def _newest(self, partition: Partition, guard: HeaderGuard, low: int, high: int) -> Message | None:
        newest: Message | None = None
        while low < high:
            messages = self._looker.read(partition, low, high - low, _SCAN_BYTES, 0)
            for message in messages:
                if message.offset < high and limits.stands_against(guard, message):
                    newest = message
            low = messages[-1].offset + 1 if messages else high
        return newest

    def retention_ms(self, topic: str) -> int | None:
        self._topics.check(Partition(topic))
        config = self._topics.configs([topic]).get(topic, {})
        if "delete" not in config.get("cleanup.policy", "delete"):
            return None
        retention_ms = int(config.get("retention.ms", "-1"))
        return None if retention_ms < 0 else retention_ms

    def trim(self, partition: Partition, before_offset: int) -> None:
        self._topics.check(partition)
        begin, end = self._looker.offsets(partition)
        if before_offset > begin:
            self._topics.delete_records({partition: min(before_offset, end)})

    def note_reader(self, reader: str, offsets: Mapping[Partition, int]) -> None:
        """Nothing: retention is Kafka's own."""

    def readers(self) -> Mapping[str, Mapping[Partition, int]]:
        return {}

    def forget_reader(self, reader: str) -> None:
        """Nothing, as `note_reader`."""

    def expire(self, partition: Partition, keep_ms: int, messages_max: int) -> int:
        self._topics.check(partition)
        return 0

    def producer(self, group: str, output_topics: Sequence[str]) -> KafkaProducer:
        claims = [Partition(topic, own_partition(group)) for topic in output_topics]
        for partition in claims:
            self._topics.check(partition)
        self._owners.claim(group, claims)
        self._topics.create(progress_topic(group), self._shards(group, output_topics), TopicKind.STATE)
        writers = self._writers_of(group)
        writers.warm_up(self._topics.message_bytes_max_of((*output_topics, progress_topic(group))))
        self._ticker.warm_up()
        return KafkaProducer(group, tuple(output_topics), writers, self._record_of(group), self._settings)

    def _shards(self, group: str, output_topics: Sequence[str]) -> int:
        """How many groups share the topic of progress: as many as an output topic of theirs has partitions."""
        if whole_group(group) == group or not output_topics:
            return own_partition(group) + 1
        return self._topics.partitions_known(output_topics[0]) or 1

    def progress(self, group: str) -> Mapping[str, Progress]:
        place = progress_partition(group)
        if (self._topics.partitions_known(place.topic) or 0) <= place.number:
            return {}
        if group in self._writers:
            self._writers_of(group).warm_up()  # a spare looks often, and may have to fence after hours
        return self._record_of(group).read().progress

    def forget(self, group: str) -> None:
        """Topics first, progress next, owners last: whatever is left of it after a failure is done by doing it again."""
        if (self._topics.partitions(progress_topic(group)) or 0) > own_partition(group):
            self._forget_outputs(group)
        self._owners.release(group)

    def _forget_outputs(self, group: str) -> None:
        for _ in _FORGETTING.tries():
            writer = self._writers_of(group).open()  # what was committed before can be read now
            for partition in (partition for partition, owner in self._owners.all().items() if owner == group):
                if self._topics.partitions(partition.topic) is not None:
                    self.trim(partition, self._looker.offsets(partition)[1])
            known = self._record_of(group).read().progress
            nothing = {stream: Progress(0, None, 0, each.epoch) for stream, each in known.items()}
            place = progress_partition(group)
            try:
                writer.commit([keyed_record(place, stream_key(stream), encode_progress(each)) for stream, each in nothing.items()])
            except Fenced:
                continue
            return
        raise BusUnavailable(f"an engine of group {group} publishes", hint="stop all engines of the group first")

    def owners(self) -> Mapping[Partition, str]:
        return self._owners.all()

    def message_bytes_max(self, topics: Sequence[str]) -> Mapping[str, int]:
        """By what the topic takes and this client sends, before anything is compressed."""
        for topic in topics:
            self._topics.check(Partition(topic))
        around = MESSAGE_OVERHEAD_BYTES + _HEADERS * HEADER_OVERHEAD_BYTES
        found = self._topics.message_bytes_max_of(topics)
        return {topic: max(1, min(found[topic] - around, self._settings.message_bytes_max)) for topic in topics}

    def deviations(self, topics: Sequence[str]) -> Sequence[Deviation]:
        brokers = self._topics.brokers()
        found = list(cluster_deviations(brokers, self._topics.broker_config()))
        configs, copies = self._topics.configs(topics), self._topics.replicas(topics)
        for topic in topics:
            if topic in configs and topic in copies:
                is_state = topic == OWNERS_TOPIC or topic.endswith((progress_topic(""), records_topic("")))
                found += topic_deviations(TopicFacts(topic, is_state, copies[topic], configs[topic]), brokers)
        return found

    def close(self) -> None:
        self._appender.close()
        self._ticker.close()
        self._owners.close()
        with self._lock:
            writers, self._writers = list(self._writers.values()), {}
        for each in writers:
            each.close()
        self._reader.close()
        self._looker.close()

    def _writers_of(self, group: str) -> Writers:
        with self._lock:
            return self._writers.setdefault(group, Writers(self._settings, f"hotspare.{group}"))

    def _record_of(self, group: str) -> ProgressReader:
        with self._lock:
            return self._records.setdefault(group, ProgressReader(self._looker, group))


def open_kafka_bus(url: str, readers: Readers = Readers.ONE) -> KafkaBus:
    """Of `kafka://host:9092[,host:9092 ...][?option=value]`. UsageError for what is none."""
    return KafkaBus(parse_kafka_url(url), readers)
