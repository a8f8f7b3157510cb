"""Which group may publish to which partition of a topic, in one compacted topic for all groups of a cluster.

The key of a claim is the topic's name, behind it `/` and the number for other partitions than the first: no topic's name has a `/`.

Claims are made in transactions of one id: who claims takes the turn from everybody else, reads what is claimed, and writes. Of two
that claim at once, the later reads what the earlier wrote. Where the answer to a transaction is lost, taking the turn again ends
it, and what is claimed then tells whether it took place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hotspare.base.errors import BusUnavailable, Fenced, UnknownResult
from hotspare.bus import limits
from hotspare.bus.contract import Partition
from hotspare.bus.kafka.client import KafkaSettings
from hotspare.bus.kafka.progress import TopicFollower, foreign_record
from hotspare.bus.kafka.read import KafkaReader
from hotspare.bus.kafka.topics import KafkaTopics, TopicKind
from hotspare.bus.kafka.writer import TURNS, Record, Writers

OWNERS_TOPIC = "hotspare.owners"


class _Owners(dict[Partition, str]):
    """Who owns what, by the records that were read. Apart from who has the clients, which end when nobody has them any more."""

    def take(self, offset: int, key: bytes, value: bytes) -> None:
        try:
            partition, group = _partition(key), value.decode()
        except ValueError as error:
            raise foreign_record(OWNERS_TOPIC, offset, key) from error
        if group:
            self[partition] = group
        else:
            self.pop(partition, None)


class KafkaOwners:
    """Thread-safe."""

    def __init__(self, settings: KafkaSettings, topics: KafkaTopics, reader: KafkaReader) -> None:
        self._topics = topics
        self._owners = _Owners()
        self._follower = TopicFollower(reader, Partition(OWNERS_TOPIC), self._owners.take, self._owners.clear)
        self._writers = Writers(settings, OWNERS_TOPIC)

    def all(self) -> Mapping[Partition, str]:
        """Partition to group, as committed by now, in order of topic and number."""
        if self._topics.partitions(OWNERS_TOPIC) is None:
            return {}
        with self._follower.lock:
            self._follower.follow()
            return dict(sorted(self._owners.items(), key=lambda item: (item[0].topic, item[0].number)))

    def claim(self, group: str, partitions: Sequence[Partition]) -> None:
        """All or none. TopicOwned where another group has one."""
        self._topics.create(OWNERS_TOPIC, 1, TopicKind.STATE)
        self._write(lambda: [Record(OWNERS_TOPIC, group.encode(), _key(each)) for each in self._unclaimed(group, partitions)])

    def release(self, group: str) -> None:
        """Give all of the group's partitions up."""
        self._write(lambda: [Record(OWNERS_TOPIC, None, _key(each)) for each, owner in self.all().items() if owner == group])

    def _write(self, missing: Callable[[], list[Record]]) -> None:
        """Write the records that are missing, which is found anew with every turn: as whoever had the turn before left it."""
        for _ in TURNS.tries():
            if not missing():
                return
            writer = self._writers.open()
            try:
                writer.commit(missing())
            except (Fenced, UnknownResult):
                continue
            return
        if missing():
            raise BusUnavailable("many groups claim topics at the same time")

    def close(self) -> None:
        self._writers.close()

    def _unclaimed(self, group: str, partitions: Sequence[Partition]) -> list[Partition]:
        owners = self.all()
        for partition in partitions:
            owner = owners.get(partition, group)
            if owner != group:
                raise limits.topic_owned(partition, owner, group)
        return [partition for partition in dict.fromkeys(partitions) if partition not in owners]


def _key(partition: Partition) -> bytes:
    return (f"{partition.topic}/{partition.number}" if partition.number else partition.topic).encode()


def _partition(key: bytes) -> Partition:
    """ValueError for what `_key` did not make."""
    topic, _, number = key.decode().partition("/")
    return Partition(topic, int(number or 0))
