"""The bus on Kafka: its topics are Kafka's, outputs and progress are one transaction, and the broker decides which engine may
publish.

Any Kafka client can read the topics; a client that must not see uncommitted messages reads with isolation.level=read_committed.
Offsets have holes at the ends of transactions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from hotspare.base.errors import BusError, BusUnavailable, Fenced, UnknownResult
from hotspare.base.retry import Retry
from hotspare.bus import limits
from hotspare.bus.contract import Commit, Deviation, HeaderGuard, Message, Outgoing, Partition, Progress, Readers
from hotspare.bus.kafka.append import KafkaAppender, KafkaTicker, are_ticks
from hotspare.bus.kafka.client import HEADER_OVERHEAD_BYTES, MESSAGE_OVERHEAD_BYTES, KafkaSettings, parse_kafka_url
from hotspare.bus.kafka.progress import (
    EPOCH_KEY,
    GroupRecord,
    ProgressReader,
    TopicFollower,
    encode_epoch,
    encode_progress,
    foreign_record,
    progress_partition,
    progress_topic,
    stream_key,
)
from hotspare.bus.kafka.read import FetchWait, KafkaReader
from hotspare.bus.kafka.records import KafkaRecords
from hotspare.bus.kafka.topics import KafkaTopics, TopicFacts, TopicKind, cluster_deviations, topic_deviations
from hotspare.bus.kafka.writer import TURN_RETRY, Deliveries, Record, Writer, WriterFactory, keyed_record, patience_s, records_of
from hotspare.bus.naming import own_partition, records_topic, whole_group

_OWNERS_TOPIC = "hotspare.owners"
_SCAN_FIRST = 256
_SCAN_MAX = 16_384
_SCAN_BYTES = 16 << 20
_RESET_RETRY = Retry(tries_max=4)
"""Retries of `reset_group`. If every try is fenced, engines of the group are still publishing."""
_HEADERS = 8
"""The number of headers assumed per message: more than any message of hotspare has."""


class KafkaBus:
    """Implements `contract.Bus` on Kafka. Connects at its first use."""

    def __init__(self, settings: KafkaSettings, readers: Readers = Readers.ONE) -> None:
        self._settings = settings
        self._topics = KafkaTopics(settings)
        self._reader = KafkaReader(settings, FetchWait.FOLLOW, readers)
        self._looker = KafkaReader(settings, FetchWait.LOOK)
        self._publisher_records = KafkaRecords(self._topics, self._looker)
        self._appender = KafkaAppender(settings, self._topics, self._looker, self._publisher_records)
        self._ticker = KafkaTicker(settings, self._topics)
        self._owners = _Owners(settings, self._topics, self._looker)
        self._lock = threading.Lock()
        self._writers: dict[str, WriterFactory] = {}
        self._records: dict[str, ProgressReader] = {}

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        self._topics.create(topic, partitions)

    def grow_unused(self, topic: str, partitions: int) -> None:
        limits.check_topic(topic, partitions)
        existing = self._topics.partitions(topic)
        if existing is None:
            raise limits.topic_missing(topic)
        if existing < partitions and not any(self.end_offset(Partition(topic, number)) for number in range(existing)):
            self._topics.add_partitions(topic, partitions)

    def topics(self) -> Mapping[str, int]:
        """Returns all topics, except Kafka's internal topics, with their partition counts."""
        return self._topics.list_partition_counts()

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
        return self._publisher_records.committed_records(partition)

    def remove_record(self, partition: Partition, key: bytes) -> None:
        if key in self.records(partition):
            self._appender.remove_record(partition, key)

    def read(self, partition: Partition, offset: int, *, messages_max: int, bytes_max: int, wait_ms: int = 0) -> Sequence[Message]:
        limits.check_read(partition, offset, messages_max, bytes_max)
        self._topics.check(partition)
        return self._reader.read(partition, offset, messages_max, bytes_max, wait_ms)

    def begin_offset(self, partition: Partition) -> int:
        self._topics.check(partition)
        return self._looker.offsets(partition)[0]

    def end_offset(self, partition: Partition) -> int:
        """Returns the last stable offset: before the first open transaction, even if committed messages follow; without one, after
        the last message and marker, even if its transaction was aborted."""
        self._topics.check(partition)
        return self._looker.offsets(partition)[1]

    def newest_with_header(self, partition: Partition, name: str, prefix: bytes, since_offset: int = 0) -> Message | None:
        """Implements `Bus.newest_with_header`: scans backwards in growing steps, because messages written by a publisher are near
        the end."""
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
                if message.offset < high and limits.is_guarded_by(guard, message):
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

    def record_reader(self, reader: str, offsets: Mapping[Partition, int]) -> None:
        """Does nothing, because Kafka has its own retention."""

    def readers(self) -> Mapping[str, Mapping[Partition, int]]:
        return {}

    def remove_reader(self, reader: str) -> None:
        """Does nothing, because `record_reader` records nothing."""

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
        """Returns the number of partitions that the progress topic needs: one for each shard of the project, 1 for an undivided
        project."""
        if whole_group(group) == group or not output_topics:
            return own_partition(group) + 1
        return self._topics.cached_partitions(output_topics[0]) or 1

    def progress(self, group: str) -> Mapping[str, Progress]:
        place = progress_partition(group)
        if (self._topics.cached_partitions(place.topic) or 0) <= place.number:
            return {}
        if group in self._writers:
            self._writers_of(group).warm_up()  # a spare reads often, and may have to fence after hours
        return self._record_of(group).read().progress

    def reset_group(self, group: str) -> None:
        """Implements `Bus.reset_group`, not atomically: empties the topics, then resets the progress, then releases the partitions.
        After a failure, a repeated call completes the reset."""
        if (self._topics.partitions(progress_topic(group)) or 0) > own_partition(group):
            self._reset_outputs(group)
        self._owners.release(group)

    def _reset_outputs(self, group: str) -> None:
        for _ in _RESET_RETRY.tries():
            writer = self._writers_of(group).open()  # earlier commits are readable from here on
            for partition in (partition for partition, owner in self._owners.committed_owners().items() if owner == group):
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
        raise BusUnavailable(f"an engine of group {group} is still publishing", hint="stop all engines of the group first")

    def owners(self) -> Mapping[Partition, str]:
        return self._owners.committed_owners()

    def message_bytes_max(self, topics: Sequence[str]) -> Mapping[str, int]:
        """Returns for each topic the smaller of the topic's limit, less Kafka's overhead, and the client's limit. Both apply before
        compression."""
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
                is_state = topic == _OWNERS_TOPIC or topic.endswith((progress_topic(""), records_topic("")))
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

    def _writers_of(self, group: str) -> WriterFactory:
        with self._lock:
            return self._writers.setdefault(group, WriterFactory(self._settings, f"hotspare.{group}"))

    def _record_of(self, group: str) -> ProgressReader:
        with self._lock:
            return self._records.setdefault(group, ProgressReader(self._looker, group))


def open_kafka_bus(url: str, readers: Readers = Readers.ONE) -> KafkaBus:
    """Returns the bus of a URL `kafka://host:9092[,host:9092 ...][?option=value]`. Raises UsageError for any other text."""
    return KafkaBus(parse_kafka_url(url), readers)


class KafkaProducer:
    """Implements `contract.Producer`: Kafka's own producer fencing, ordered by epochs that are recorded in the group's topic.

    The broker lets only the writer that was opened last commit, even if an engine with an old epoch opened it, for example after a
    sleep. So the first commit after a fence records its epoch, and an engine that finds a newer recorded epoch raises Fenced. The
    newer engine, whose writer was fenced by that, fences again (contract: the same epoch may). A separate commit for the epoch
    would show this earlier, but would prolong a failover by a tenth of a second. Instead, an engine requests the newest epoch from
    coordination before it publishes. A newer epoch that was published during the fence, or since the spare's last read, is searched
    for once: in the first `progress`, or before the first commit.
    """

    def __init__(
        self, group: str, topics: tuple[str, ...], writers: WriterFactory, record: ProgressReader, settings: KafkaSettings
    ) -> None:
        self._group, self._settings = group, settings
        self._place = progress_partition(group)
        self._topics = topics
        self._writers = writers
        self._record = record
        self._writer: Writer | None = None
        self._epoch = 0
        self._fenced_before = 0
        """The newest epoch with which this producer has fenced, or tried to."""
        self._is_checked = False
        """Whether the group's topic was read after the fence, and had no newer epoch."""
        self._unsaid: list[Record] = []
        """The record of this engine's epoch, until a commit has written it; then empty."""

    def fence(self, epoch: int) -> None:
        limits.check_epoch(epoch)
        self._give_up()
        self._refuse_if_outdated(epoch)
        self._writer, self._epoch, self._is_checked = self._writers.open(patience_s(self._record.took_s)), epoch, False
        self._unsaid = [keyed_record(self._place, EPOCH_KEY, encode_epoch(epoch))]

    def progress(self) -> Mapping[str, Progress]:
        if self._writer is not None and not self._is_checked:
            return self._check().progress
        return self._record.read().progress

    def publish(self, epoch: int, commit: Commit) -> None:
        limits.check_epoch(epoch)
        limits.check_commit(self._group, self._topics, commit, self._settings.message_bytes_max)
        writer = self._writer
        if writer is None or epoch != self._epoch:
            raise limits.fenced(self._group, epoch, self._epoch)
        if not self._is_checked:
            self._check()
        number = self._place.number
        if not any(commit.messages.values()) and not commit.progress:
            return
        outputs = (records_of(topic, number, messages) for topic, messages in commit.messages.items())
        progress = (
            keyed_record(self._place, stream_key(stream), encode_progress(each)) for stream, each in commit.progress.items()
        )
        try:
            writer.commit(chain(*outputs, progress, self._unsaid), Deliveries.SAMPLED)
        except Fenced as error:
            self._give_up()
            raise self._fenced(epoch, error) from error
        except UnknownResult:
            self._give_up()
            raise
        if self._unsaid:
            self._unsaid = []
            self._writers.warm_up()

    def close(self) -> None:
        self._give_up()

    def _give_up(self) -> None:
        self._writer, self._epoch = None, 0

    def _refuse_if_outdated(self, epoch: int) -> None:
        """Raises Fenced if a newer epoch is recorded, so that this engine does not fence the newer one. For an epoch just won, the
        spare's last read is recent enough. A repeated fence reads again."""
        record = self._record.recent(self._settings.recent_s) if epoch > self._fenced_before else self._record.read()
        self._fenced_before = max(epoch, self._fenced_before)
        _refuse_older(self._group, epoch, record)

    def _check(self) -> GroupRecord:
        """Reads and returns the group's committed record. Raises Fenced if a newer epoch published during the fence."""
        try:
            record = self._record.read()
            _refuse_older(self._group, self._epoch, record)
        except Fenced:
            self._give_up()
            raise
        self._is_checked = True
        return record

    def _fenced(self, epoch: int, error: Fenced) -> Fenced:
        """Returns a Fenced error with the newer epoch if it is recorded already, else `error`."""
        try:
            newest = self._record.read().epoch
        except BusError:
            return error
        return limits.fenced(self._group, epoch, newest) if newest > epoch else error


def _refuse_older(group: str, epoch: int, record: GroupRecord) -> None:
    if record.epoch > epoch:
        raise limits.fenced(group, epoch, record.epoch)


class _Owners:
    """The owner group of each claimed partition, in one compacted topic for all groups of a cluster. Thread-safe.

    The key of a claim is the topic's name, for partitions other than 0 followed by `/` and the number. No topic name contains `/`.

    All claims are transactions of one transactional id. A claiming group opens the id's writer, which fences all others, reads the
    claims, and writes. So of two concurrent claims, the later reads the earlier. If the answer to a transaction is lost, opening
    the writer again ends that transaction, and the claims then show whether it was committed.
    """

    def __init__(self, settings: KafkaSettings, topics: KafkaTopics, reader: KafkaReader) -> None:
        self._topics = topics
        self._owners = _OwnersView()
        self._follower = TopicFollower(reader, Partition(_OWNERS_TOPIC), self._owners.apply_owner_record, self._owners.clear)
        self._writers = WriterFactory(settings, _OWNERS_TOPIC)

    def committed_owners(self) -> Mapping[Partition, str]:
        """Returns the group of each claimed partition, as committed by now, in order of topic and number."""
        if self._topics.partitions(_OWNERS_TOPIC) is None:
            return {}
        with self._follower.lock:
            self._follower.follow()
            return dict(sorted(self._owners.items(), key=lambda item: (item[0].topic, item[0].number)))

    def claim(self, group: str, partitions: Sequence[Partition]) -> None:
        """Claims all partitions for the group, or none. Raises TopicOwned if another group owns one of them."""
        self._topics.create(_OWNERS_TOPIC, 1, TopicKind.STATE)
        self._write(
            lambda: [Record(_OWNERS_TOPIC, group.encode(), _claim_key(each)) for each in self._unclaimed(group, partitions)]
        )

    def release(self, group: str) -> None:
        """Releases all partitions that the group owns."""
        self._write(
            lambda: [
                Record(_OWNERS_TOPIC, None, _claim_key(each)) for each, owner in self.committed_owners().items() if owner == group
            ]
        )

    def _write(self, missing: Callable[[], list[Record]]) -> None:
        """Writes the records that `missing` returns, in one transaction. Each try opens the writer, which fences others, and then
        calls `missing` again, so that it sees all earlier writes. Raises BusUnavailable after too many tries."""
        for _ in TURN_RETRY.tries():
            if not missing():
                return
            writer = self._writers.open()
            try:
                writer.commit(missing())
            except (Fenced, UnknownResult):
                continue
            return
        if missing():
            raise BusUnavailable("too many groups claim topics at the same time")

    def close(self) -> None:
        self._writers.close()

    def _unclaimed(self, group: str, partitions: Sequence[Partition]) -> list[Partition]:
        owners = self.committed_owners()
        for partition in partitions:
            owner = owners.get(partition, group)
            if owner != group:
                raise limits.topic_owned(partition, owner, group)
        return [partition for partition in dict.fromkeys(partitions) if partition not in owners]


class _OwnersView(dict[Partition, str]):
    """The owners according to the records read. Separate from `_Owners`, because callbacks that refer to `_Owners` would keep its
    clients alive."""

    def apply_owner_record(self, offset: int, key: bytes, value: bytes) -> None:
        try:
            partition, group = _claimed_partition(key), value.decode()
        except ValueError as error:
            raise foreign_record(_OWNERS_TOPIC, offset, key) from error
        if group:
            self[partition] = group
        else:
            self.pop(partition, None)


def _claim_key(partition: Partition) -> bytes:
    return (f"{partition.topic}/{partition.number}" if partition.number else partition.topic).encode()


def _claimed_partition(key: bytes) -> Partition:
    """Returns the partition of a key that `_claim_key` made. Raises ValueError for any other key."""
    topic, _, number = key.decode().partition("/")
    return Partition(topic, int(number or 0))
