"""Which group may publish to which topic, in one compacted topic for all groups of a cluster.

Claims are made in transactions of one id: who claims takes the turn from everybody else, reads what is claimed, and writes. Of two
that claim at once, the later reads what the earlier wrote. Where the answer to a transaction is lost, taking the turn again ends
it, and what is claimed then tells whether it took place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hotspare.bus import limits
from hotspare.bus.kafka.client import KafkaSettings
from hotspare.bus.kafka.progress import TopicFollower, foreign_record
from hotspare.bus.kafka.read import KafkaReader
from hotspare.bus.kafka.topics import KafkaTopics, TopicKind
from hotspare.bus.kafka.writer import Record, Writers, give_way
from hotspare.errors import BusUnavailable, Fenced, UnknownResult

OWNERS_TOPIC = "hotspare.owners"
_ATTEMPTS = 20


class KafkaOwners:
    """Thread-safe."""

    def __init__(self, settings: KafkaSettings, topics: KafkaTopics, reader: KafkaReader) -> None:
        self._topics = topics
        self._owners: dict[str, str] = {}
        self._follower = TopicFollower(reader, OWNERS_TOPIC, self._take, self._owners.clear)
        self._writers = Writers(settings, OWNERS_TOPIC)

    def all(self) -> Mapping[str, str]:
        """Topic to group, as committed by now."""
        if self._topics.partitions(OWNERS_TOPIC) is None:
            return {}
        with self._follower.lock:
            self._follower.follow()
            return dict(self._owners)

    def claim(self, group: str, topics: Sequence[str]) -> None:
        """All or none. TopicOwned where another group has one."""
        self._topics.create(OWNERS_TOPIC, 1, TopicKind.STATE)
        if not self._unclaimed(group, topics):
            return
        for attempt in range(_ATTEMPTS):
            writer = self._writers.open()
            missing = self._unclaimed(group, topics)
            try:
                writer.commit([Record(OWNERS_TOPIC, group.encode(), topic.encode()) for topic in missing])
            except (Fenced, UnknownResult):
                give_way(attempt)
                continue
            return
        raise BusUnavailable("many groups claim topics at the same time")

    def release(self, group: str) -> None:
        """Give all of the group's topics up."""
        for attempt in range(_ATTEMPTS):
            owned = [topic for topic, owner in self.all().items() if owner == group]
            if not owned:
                return
            writer = self._writers.open()
            owned = [topic for topic, owner in self.all().items() if owner == group]
            try:
                writer.commit([Record(OWNERS_TOPIC, None, topic.encode()) for topic in owned])
            except (Fenced, UnknownResult):
                give_way(attempt)
                continue
        if any(owner == group for owner in self.all().values()):
            raise BusUnavailable("many groups claim topics at the same time")

    def close(self) -> None:
        self._writers.close()

    def _unclaimed(self, group: str, topics: Sequence[str]) -> list[str]:
        owners = self.all()
        for topic in topics:
            owner = owners.get(topic, group)
            if owner != group:
                raise limits.topic_owned(topic, owner, group)
        return [topic for topic in dict.fromkeys(topics) if topic not in owners]

    def _take(self, offset: int, key: bytes, value: bytes) -> None:
        try:
            topic, group = key.decode(), value.decode()
        except UnicodeDecodeError as error:
            raise foreign_record(OWNERS_TOPIC, offset, key) from error
        if group:
            self._owners[topic] = group
        else:
            self._owners.pop(topic, None)
