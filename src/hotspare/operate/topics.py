"""The topics of a bus: lists, creates and empties them; lists and deletes positions of sources and readers (SPEC B9, B16, B17)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass

from hotspare.adapters.failover.source_position import published_sources, source_prefix
from hotspare.base.errors import UsageError
from hotspare.bus.contract import Bus, Deviation, Partition
from hotspare.bus.tail import newest_message
from hotspare.coordination.contract import Coordination
from hotspare.operate.groups import UnseenEngines, refuse_if_alive
from hotspare.operate.report import inbound_topics

_OWNERS = "hotspare.owners"
_INPUT, _OUTPUT, _BAD, _OTHER = "input", "output", "bad events", "other"
_KINDS = {
    "I": _INPUT,
    "O": _OUTPUT,
    "B": _BAD,
    "M": "project metadata",
    "R": "records of publishers",
    "progress": "progress",
}
"""The kinds of topics by the last part of their names."""


@dataclass(frozen=True, slots=True)
class TopicPartition:
    """A partition of a topic. `owner`: the group that publishes there, "" if none does; `newest_time_us`: the time of the newest
    message, None without one."""

    topic: str
    kind: str
    owner: str
    partition: int
    begin_offset: int
    end_offset: int
    newest_time_us: int | None


@dataclass(frozen=True, slots=True)
class TopicReport:
    """The partitions of topics, and the settings that hotspare advises against. `read_with`: a command line of Kafka's own tools
    that reads the committed messages of a topic; "" for another bus."""

    partitions: tuple[TopicPartition, ...]
    deviations: tuple[Deviation, ...]
    read_with: str


@dataclass(frozen=True, slots=True)
class TopicSource:
    """The position of a source: it is published up to `published`, in bytes or in units of the source."""

    topic: str
    partition: int
    source: str
    published: int


@dataclass(frozen=True, slots=True)
class ReaderPosition:
    """The offset from which on an embedded bus keeps the messages of a partition for a reader."""

    topic: str
    partition: int
    reader: str
    offset: int


@dataclass(frozen=True, slots=True)
class EmptiedPartition:
    """A partition after its messages from `begin_offset` to before `end_offset` were deleted."""

    topic: str
    partition: int
    begin_offset: int
    end_offset: int


def topic_report(bus: Bus, bus_url: str, prefix: str = "") -> TopicReport:
    """Returns the topics whose names begin with `prefix`. `bus_url`: the URL of `bus`."""
    topics, owners = _topics(bus, prefix), bus.owners()
    deviations = bus.deviations(list(topics))
    found = [_described(bus, place, owners.get(place, "")) for place in _partitions(topics)]
    return TopicReport(tuple(found), tuple(deviations), _read_command(bus_url))


def _described(bus: Bus, place: Partition, owner: str) -> TopicPartition:
    newest = newest_message(bus, place)
    return TopicPartition(
        topic=place.topic,
        kind=topic_kind(place.topic),
        owner=owner,
        partition=place.number,
        begin_offset=bus.begin_offset(place),
        end_offset=bus.end_offset(place),
        newest_time_us=None if newest is None else newest.append_time_us,
    )


def _topics(bus: Bus, prefix: str) -> dict[str, int]:
    return {topic: partitions for topic, partitions in bus.topics().items() if topic.startswith(prefix)}


def _partitions(topics: Mapping[str, int]) -> Iterator[Partition]:
    return (Partition(topic, number) for topic, count in topics.items() for number in range(count))


def _read_command(url: str) -> str:
    if not url.startswith("kafka://"):
        return ""
    from hotspare.bus.kafka.client import parse_kafka_url

    bootstrap = parse_kafka_url(url).bootstrap
    return (
        f"kafka-console-consumer.sh --bootstrap-server {bootstrap} --isolation-level read_committed --from-beginning --topic TOPIC"
    )


def topic_kind(topic: str) -> str:
    """Returns the kind of a topic by its name: `input`, `output`, `bad events`, `project metadata`, `records of publishers`,
    `progress`, `owners` or `other`."""
    return "owners" if topic == _OWNERS else _KINDS.get(topic.rpartition(".")[2], _OTHER)


def source_positions(bus: Bus, prefix: str = "") -> tuple[TopicSource, ...]:
    """Returns the position of each source on the inbound topics whose names begin with `prefix`. Other topics may have records,
    too, but these are not positions."""
    return tuple(
        TopicSource(place.topic, place.number, name, position.published_bytes)
        for place in _partitions(_topics(bus, prefix))
        if topic_kind(place.topic) == _INPUT
        for name, position in published_sources(bus, place).items()
    )


def delete_source(bus: Bus, source: str, prefix: str = "") -> tuple[TopicSource, ...]:
    """Deletes the positions of a source on the topics whose names begin with `prefix`, and returns them. Raises UsageError if
    no topic has one."""
    found = tuple(each for each in source_positions(bus, prefix) if each.source == source)
    if not found:
        raise UsageError(f"no topic has a record of source {source!r}", hint="`hotspare topics --sources` lists them")
    for each in found:
        bus.remove_record(Partition(each.topic, each.partition), source_prefix(source))
    return found


def reader_positions(bus: Bus, prefix: str = "") -> tuple[ReaderPosition, ...]:
    """Returns the position of each reader in the topics whose names begin with `prefix`, by topic, partition and reader."""
    known = _topics(bus, prefix)
    found = [each for reader, offsets in bus.readers().items() for each in _positions(reader, offsets) if each.topic in known]
    return tuple(sorted(found, key=astuple))


def delete_reader(bus: Bus, reader: str) -> tuple[ReaderPosition, ...]:
    """Deletes the positions of a reader, so that the bus keeps no messages for it, and returns them. Raises UsageError for an
    unknown reader."""
    known = bus.readers().get(reader)
    if known is None:
        raise UsageError(f"the bus keeps nothing for reader {reader!r}", hint="`hotspare topics --readers` lists them")
    bus.remove_reader(reader)
    return tuple(_positions(reader, known))


def _positions(reader: str, offsets: Mapping[Partition, int]) -> Iterator[ReaderPosition]:
    return (ReaderPosition(place.topic, place.number, reader, offset) for place, offset in offsets.items())


def create_topic(bus: Bus, topic: str, partitions: int) -> None:
    """Creates a topic, replicated if the bus has several brokers; does nothing if it exists with `partitions`. Raises UsageError if
    it exists with another number, or has the name of a topic in which the bus keeps records."""
    _refuse_records(topic, "created")
    bus.create_topic(topic, partitions)


def empty_topic(bus: Bus, coordination: Coordination, topic: str, others: UnseenEngines) -> tuple[EmptiedPartition, ...]:
    """Deletes all messages of a topic and returns its partitions. The topic, its next offsets and the positions of sources remain.

    Raises UsageError, without a change, if the topic does not exist or the bus keeps records in it, if an engine that reads or
    writes it is alive, or may be (`others`), or if a recorded reader needs a message of it.
    """
    _refuse_records(topic, "emptied")
    count = bus.topics().get(topic)
    if count is None:
        raise UsageError(f"topic {topic} does not exist", hint="`hotspare topics` lists them")
    writers = {group for place, group in bus.owners().items() if place.topic == topic}
    for group in coordination.groups():
        if group in writers or topic in inbound_topics(coordination, group):
            refuse_if_alive(coordination, group, others)
    places = [Partition(topic, number) for number in range(count)]
    found = [EmptiedPartition(topic, place.number, bus.begin_offset(place), bus.end_offset(place)) for place in places]
    for reader in reader_positions(bus, topic):
        if reader.topic == topic and reader.offset < found[reader.partition].end_offset:
            what = f"reader {reader.reader!r} needs topic {topic}, partition {reader.partition}, from offset {reader.offset} on"
            raise UsageError(what, hint="reset its group, or delete its position: hotspare topics --forget-reader")
    for place, before in zip(places, found, strict=True):
        bus.trim(place, before.end_offset)
    return tuple(found)


def _refuse_records(topic: str, what: str) -> None:
    kind = topic_kind(topic)
    if kind not in (_INPUT, _OUTPUT, _BAD, _OTHER):
        raise UsageError(f"topic {topic} cannot be {what}: the bus keeps its records there", detail=f"a topic of kind: {kind}")
