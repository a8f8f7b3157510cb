"""Inspects topics on Kafka, and creates them with settings that lose nothing (SPEC B6-B12, Z20, Z21).

Existing topics may have other settings. `cluster_deviations` and `topic_deviations` compare, without I/O, the settings that the
cluster reports with those that hotspare needs. They also state the consequence of each deviation. Settings that are safer than
needed are not deviations.
"""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource, NewPartitions, NewTopic, ResourceType  # type: ignore[attr-defined]

from hotspare.base.errors import BusError, BusUnavailable, UsageError
from hotspare.base.retry import Retry
from hotspare.bus import limits
from hotspare.bus.contract import Deviation, Partition
from hotspare.bus.kafka.client import (
    CLIENT_LOG,
    LOOKUP_TIMEOUT_S,
    MISSING_TOPIC_CODES,
    WIRE_BYTES_MAX,
    KafkaSettings,
    bus_error,
    client_settings,
    error_of,
    refused_options,
)

CLUSTER = "(cluster)"
_REPLICAS_WANTED = 3
_IN_SYNC_WANTED = 2
_HOUR_MS = 3_600_000
_BLOCK_BYTES = 8 << 20
_DAY_MS = 24 * 3600 * 1000
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_POLL_S = 0.005
_UNKNOWN_S = 0.3
"""How long, in seconds, a broker may not know a topic that another broker reported."""
_TOPICS_PER_REQUEST = 200
_MESSAGE_BYTES_DEFAULT = "1048588"

K = TypeVar("K")
T = TypeVar("T")


class TopicKind(Enum):
    """The cleanup policy of a topic. EVENTS: messages expire by age. STATE: the newest message of each key is retained forever."""

    EVENTS = "delete"
    STATE = "compact"


def check_kafka_name(topic: str) -> None:
    """Raises UsageError for a topic name that Kafka does not accept, although other buses may."""
    if not _NAME.fullmatch(topic) or topic in (".", ".."):
        hint = "use letters, digits, '.', '_' and '-', and more than '.' or '..'"
        raise UsageError(f"topic name {topic!r} cannot be used on kafka", hint=hint)


class KafkaTopics:
    """Inspects and creates topics, adds partitions, and deletes messages. Thread-safe."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._refused = _AdmissionErrors()
        config: dict[str, Any] = {**client_settings(settings), "error_cb": self._refused.on_client_error}
        try:
            self._admin = AdminClient(config, logger=CLIENT_LOG)
        except KafkaException as error:
            raise refused_options(settings) from error
        self._lock = threading.Lock()
        self._known: dict[str, int] = {}
        self._message_bytes_max: dict[str, int] = {}

    def list_partition_counts(self) -> dict[str, int]:
        """Returns the number of partitions of every topic, except Kafka's internal topics."""
        found = self._metadata(None)
        return {name: count for name, count in sorted(found.items()) if not name.startswith("__")}

    def check(self, partition: Partition) -> None:
        """Raises TopicMissing unless the partition exists. Existing partitions are cached."""
        count = self._known.get(partition.topic)
        if count is None or not 0 <= partition.number < count:
            count = self._await_topic(partition.topic, _UNKNOWN_S)
            if count is None:
                raise limits.topic_missing(partition.topic)
            if not 0 <= partition.number < count:
                raise limits.partition_missing(partition, count)

    def partitions(self, topic: str) -> int | None:
        """Returns the topic's number of partitions, looked up in the cluster; None if the topic does not exist."""
        count = self._metadata(topic).get(topic)
        with self._lock:
            if count is None:
                self._known.pop(topic, None)
            else:
                self._known[topic] = count
        return count

    def external_partitions(self, topic: str) -> int:
        """Returns the number of partitions of an external topic. Raises TopicMissing, with the command that creates the topic."""
        count = self.partitions(topic)
        if count is None:
            command = f"kafka-topics.sh --bootstrap-server {self._settings.bootstrap} --create --topic {shlex.quote(topic)}"
            raise limits.external_topic_missing(topic, command)
        return count

    def cached_partitions(self, topic: str) -> int | None:
        """Returns the topic's number of partitions, from the cache if it is known there; None if the topic does not exist."""
        known = self._known.get(topic)
        return self.partitions(topic) if known is None else known

    def drop_cached(self, topic: str) -> None:
        """Removes a topic from the cache of partition counts, after a broker reported that it does not exist."""
        with self._lock:
            self._known.pop(topic, None)

    def topic_id(self, topic: str) -> str:
        """Returns the id of a topic. A topic that was deleted and re-created under the same name has another id. Raises
        TopicMissing."""
        asked = TopicCollection([topic])
        try:
            return str(
                self._request_admin(lambda wait_s: self._admin.describe_topics(asked, request_timeout=wait_s))[topic]
                .result()
                .topic_id
            )
        except KafkaException as error:
            if error_of(error).code() in MISSING_TOPIC_CODES:
                self.drop_cached(topic)
                raise limits.topic_missing(topic) from error
            raise bus_error(error, f"describe topic {topic}") from error

    def brokers(self) -> int:
        return len(self._listing(None, "be reached").brokers)

    def configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Returns the settings of the topics that exist, by name."""
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        return {resource.name: settings for resource, settings in self._describe_configs(asked)}

    def broker_config(self) -> dict[str, str]:
        """Returns the settings of one broker of the cluster."""
        number = min(self._listing(None, "be reached").brokers)
        found = self._describe_configs([ConfigResource(ResourceType.BROKER, str(number))])
        return found[0][1] if found else {}

    def message_bytes_max(self, topic: str) -> int:
        """Returns the limit in bytes of one batch on a topic, which is also the limit of one message. Cached."""
        known = self._message_bytes_max.get(topic)
        if known is None:
            known = self.message_bytes_max_of([topic])[topic]
        return known

    def message_bytes_max_of(self, topics: Sequence[str]) -> dict[str, int]:
        """Returns the limit in bytes of one batch for each topic, looked up in the cluster; at most the client's own limit.
        Assumes Kafka's default if the cluster does not report the topic's limit."""
        try:
            found = self.configs(topics)
        except BusUnavailable:
            raise
        except BusError:
            found = {}
        for topic in topics:
            text = found.get(topic, {}).get("max.message.bytes", _MESSAGE_BYTES_DEFAULT)
            self._message_bytes_max[topic] = min(int(text), self._client_bytes_max())
        return {topic: self._message_bytes_max[topic] for topic in topics}

    def _client_bytes_max(self) -> int:
        """Returns the client's limit on the bytes of a message."""
        text = self._settings.options.get("message.max.bytes", "")
        return int(text) if text.isdecimal() else WIRE_BYTES_MAX

    def replicas(self, topics: Sequence[str]) -> dict[str, int]:
        """Returns, for each existing topic, the smallest number of replicas of any of its partitions."""
        try:
            found = self._admin.list_topics(timeout=self._settings.timeout_s).topics
        except KafkaException as error:
            raise bus_error(error, "list topics") from error
        return {
            name: min((len(p.replicas) for p in found[name].partitions.values()), default=0) for name in topics if name in found
        }

    def create(self, topic: str, partitions: int, kind: TopicKind = TopicKind.EVENTS) -> None:
        """Creates a topic; does nothing if it exists with the same number of partitions. Returns when the queried broker knows the
        topic. Raises UsageError if it exists with another number, BusUnavailable if the brokers do not know it in time."""
        limits.check_topic(topic, partitions)
        check_kafka_name(topic)
        existing = self.partitions(topic)
        if existing is None:
            self._create(topic, partitions, kind)
            existing = self._await_topic(topic, self._settings.timeout_s)
        if existing is None:
            raise BusUnavailable(f"kafka created topic {topic}, but its brokers do not know it yet")
        limits.check_same_partitions(topic, existing, partitions)

    def _create(self, topic: str, partitions: int, kind: TopicKind) -> None:
        replicas = min(_REPLICAS_WANTED, self.brokers())
        config = new_topic_config(kind, replicas)
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=config)
        settled_s = self._settings.timeout_s

        def request(wait_s: float) -> dict[str, Future[None]]:
            return self._admin.create_topics([new], operation_timeout=settled_s, request_timeout=wait_s)

        try:
            self._request_admin(request)[topic].result()
        except KafkaException as error:
            code = error_of(error).code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if code == KafkaError.TOPIC_EXCEPTION:
                hint = "kafka does not distinguish '.' and '_' in topic names: use another prefix"
                raise UsageError(f"topic {topic} cannot be created", detail=error_of(error).str(), hint=hint) from error
            raise bus_error(error, f"create topic {topic}") from error

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Adds partitions until the topic has `partitions`; no error if another client added them. Returns when the queried broker
        knows the new partitions."""
        new = [NewPartitions(topic, partitions)]
        try:
            self._request_admin(lambda wait_s: self._admin.create_partitions(new, request_timeout=wait_s))[topic].result()
        except KafkaException as error:
            if error_of(error).code() != KafkaError.INVALID_PARTITIONS:
                raise bus_error(error, f"add partitions to topic {topic}") from error
        for _ in Retry(lasting_s=self._settings.timeout_s, pause_s=_POLL_S).tries():
            if (self.partitions(topic) or 0) >= partitions:
                return
        raise BusUnavailable(f"kafka added partitions to topic {topic}, but its brokers do not know them yet")

    def _await_topic(self, topic: str, timeout_s: float) -> int | None:
        """Waits until the queried broker knows the topic; returns its number of partitions, or None after `timeout_s`."""
        for _ in Retry(lasting_s=timeout_s, pause_s=_POLL_S).tries():
            if (count := self.partitions(topic)) is not None:
                return count
        return None

    def delete_records(self, offsets: Mapping[Partition, int]) -> None:
        """Deletes the messages before the given offset of each partition. Raises TopicMissing."""
        asked = [TopicPartition(p.topic, p.number, offset) for p, offset in offsets.items()]
        if not asked:
            return
        for place, future in self._request_admin(lambda wait_s: self._admin.delete_records(asked, request_timeout=wait_s)).items():
            try:
                future.result()
            except KafkaException as error:
                if error_of(error).code() in MISSING_TOPIC_CODES:
                    self.drop_cached(place.topic)
                    raise limits.topic_missing(place.topic) from error
                raise bus_error(error, f"trim topic {place.topic}") from error

    def _metadata(self, topic: str | None) -> dict[str, int]:
        """Returns the partition counts of one topic, or of all if `topic` is None. Topics that do not exist are missing."""
        answer = self._listing(topic, "list topics")
        found = {}
        for name, each in answer.topics.items():
            if each.error is not None and each.error.code() not in MISSING_TOPIC_CODES:
                raise bus_error(KafkaException(each.error), f"describe topic {name}")
            if each.error is None and each.partitions:
                found[name] = len(each.partitions)
        return found

    def _listing(self, topic: str | None, what: str) -> ClusterMetadata:
        """Returns the cluster's metadata about one topic, or about all topics if `topic` is None. `what` completes the error text
        "kafka cannot ..."."""
        try:
            return self._admin.list_topics(topic, timeout=self._settings.timeout_s)
        except KafkaException as error:
            raise bus_error(self._admission_error(error), what) from error

    def _admission_error(self, failure: KafkaException) -> KafkaException:
        """Returns the error that no broker admitted this client, if the client reported one, else `failure` itself."""
        self._refused.error = None
        self._admin.poll(0)
        return failure if self._refused.error is None else KafkaException(self._refused.error)

    def _describe_configs(self, asked: Sequence[ConfigResource]) -> list[tuple[ConfigResource, dict[str, str]]]:
        found = []
        for first in range(0, len(asked), _TOPICS_PER_REQUEST):
            some = list(asked[first : first + _TOPICS_PER_REQUEST])
            for resource, future in self._request_configs(some).items():
                try:
                    entries = future.result()
                except KafkaException as error:
                    if error_of(error).code() in MISSING_TOPIC_CODES:
                        continue
                    raise bus_error(error, f"describe {resource.name}") from error
                found.append((resource, {entry.name: entry.value or "" for entry in entries.values()}))
        return found

    def _request_configs(self, asked: list[ConfigResource]) -> dict[ConfigResource, Future[Any]]:
        return self._request_admin(lambda wait_s: self._admin.describe_configs(asked, request_timeout=wait_s))

    def _request_admin(self, request: Callable[[float], dict[K, Future[T]]]) -> dict[K, Future[T]]:
        """Sends an administrative request and returns its futures when all are done. `request`: sends the request with a timeout in
        seconds. Raises BusUnavailable if the client does not answer. The client addresses the controller that it knows. If that
        broker died, the client waits, and does not look up the successor. So this method repeats the request after looking up the
        cluster again, with a timeout that is short at first.
        """
        deadline = time.monotonic() + self._settings.timeout_s
        patience_s = LOOKUP_TIMEOUT_S
        while True:
            wait_s = max(_POLL_S, min(patience_s, deadline - time.monotonic()))
            answers = request(wait_s)
            try:
                failures = [answer.exception(wait_s + 1) for answer in answers.values()]
            except TimeoutError as error:
                raise BusUnavailable("kafka did not answer in time") from error
            timed_out = any(isinstance(f, KafkaException) and error_of(f).code() == KafkaError._TIMED_OUT for f in failures)
            if not timed_out or time.monotonic() >= deadline:
                return answers
            patience_s *= 2
            self._listing(None, "be reached")


class _AdmissionErrors:
    """Holds the error with which brokers refused a client. Separate from the client's owner, because a callback that refers to the
    owner would keep the client and its threads alive."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def on_client_error(self, error: KafkaError) -> None:
        """Callback of the client: records an authentication or TLS error, which calls of the client do not report."""
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self.error = error


def new_topic_config(kind: TopicKind, replicas: int) -> dict[str, str]:
    """Returns the settings with which hotspare creates a topic. `replicas`: the topic's number of replicas."""
    config: dict[str, Any] = {
        "cleanup.policy": kind.value,
        "message.timestamp.type": "LogAppendTime",
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": min(_IN_SYNC_WANTED, max(1, replicas - 1)),
        "max.message.bytes": WIRE_BYTES_MAX - (1 << 20),
    }
    config["segment.ms"] = _DAY_MS  # less than Kafka's default retention of a week, which deletes whole segments
    if kind is TopicKind.STATE:
        config |= {"segment.bytes": 16 << 20, "min.cleanable.dirty.ratio": "0.1"}
    return {name: str(value) for name, value in config.items()}


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The facts that the cluster reports about a topic. `replicas_min`: the smallest number of replicas of any partition.
    `is_state`: whether the topic should retain the newest message of each key."""

    name: str
    is_state: bool
    replicas_min: int
    config: Mapping[str, str]


def cluster_deviations(brokers: int, config: Mapping[str, str]) -> Iterator[Deviation]:
    """Yields the deviations of the settings for Kafka's topic of transactions. `brokers`: their number; `config`: the settings of
    one broker."""
    if brokers < _REPLICAS_WANTED:
        return
    lost = "after the loss of one broker, commits can be lost and two engines can publish"
    for setting, wanted in (
        ("transaction.state.log.min.isr", _IN_SYNC_WANTED),
        ("transaction.state.log.replication.factor", _REPLICAS_WANTED),
    ):
        value = config.get(setting)
        if value is not None and _number(value) < wanted:
            yield Deviation(CLUSTER, setting, value, f"at least {wanted}", lost)


def topic_deviations(facts: TopicFacts, brokers: int) -> Iterator[Deviation]:
    """Yields the deviations of one topic, the worst first. `brokers`: the number of brokers of the cluster."""
    yield from _replication_deviations(facts, brokers)
    yield from _retention_deviations(facts)
    config = facts.config
    if not facts.is_state and config.get("message.timestamp.type", "") != "LogAppendTime":
        consequence = "system time follows the publishers' clocks; it may stop or go backward"
        deviation = _deviation(facts, "message.timestamp.type", "LogAppendTime", consequence)
        yield replace(deviation, blocks_start=True)
    if _number(config.get("max.message.bytes", "")) < _BLOCK_BYTES and not facts.is_state:
        consequence = "kafka refuses a larger block of events, and an engine that has to publish one stops"
        yield _deviation(facts, "max.message.bytes", f"at least {_BLOCK_BYTES}", consequence)


def _replication_deviations(facts: TopicFacts, brokers: int) -> Iterator[Deviation]:
    wanted_copies = min(_REPLICAS_WANTED, brokers)
    if facts.replicas_min < wanted_copies:
        consequence = "if its broker stops, events stop; if the broker is lost, the events are lost"
        yield Deviation(facts.name, "replication.factor", str(facts.replicas_min), f"at least {wanted_copies}", consequence)
    in_sync = _number(facts.config.get("min.insync.replicas", ""))
    if brokers >= _REPLICAS_WANTED and in_sync < _IN_SYNC_WANTED:
        consequence = "the loss of one broker can lose acknowledged events"
        yield _deviation(facts, "min.insync.replicas", f"at least {_IN_SYNC_WANTED}", consequence)
    elif facts.replicas_min > 1 and in_sync >= facts.replicas_min:
        yield _deviation(facts, "min.insync.replicas", f"less than {facts.replicas_min}", "if any one broker stops, events stop")
    if facts.config.get("unclean.leader.election.enable", "false") != "false":
        consequence = "a broker that lacks events can become leader: committed events are lost"
        yield _deviation(facts, "unclean.leader.election.enable", "false", consequence)


def _retention_deviations(facts: TopicFacts) -> Iterator[Deviation]:
    policy = facts.config.get("cleanup.policy", "")
    if facts.is_state:
        if policy != "compact":
            yield _deviation(facts, "cleanup.policy", "compact", "kafka deletes old records of commits and topic owners")
        return
    if "compact" in policy:
        consequence = "kafka deletes single events: an engine that catches up reads other events than the active engine did"
        yield _deviation(facts, "cleanup.policy", "delete", consequence)
    retention_ms = _number(facts.config.get("retention.ms", ""))
    if 0 <= retention_ms < _HOUR_MS:
        yield _deviation(facts, "retention.ms", f"at least {_HOUR_MS}", "an engine that was stopped for longer cannot catch up")
    if 0 <= retention_ms <= _number(facts.config.get("segment.ms", "")):
        consequence = "kafka keeps messages up to twice as long as retention.ms, and the disk fills up"
        yield _deviation(facts, "segment.ms", "less than retention.ms", consequence)


def _deviation(facts: TopicFacts, setting: str, wanted: str, consequence: str) -> Deviation:
    return Deviation(facts.name, setting, facts.config.get(setting, "unknown"), wanted, consequence)


def _number(text: str) -> int:
    """Returns the integer value of a setting; -1, which Kafka uses for "no limit", for a text that is not a number."""
    return int(text) if text.lstrip("-").isdecimal() else -1
