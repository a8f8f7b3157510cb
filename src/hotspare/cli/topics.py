"""`hotspare topics`: lists the topics of a bus and their unsafe settings; lists and deletes the positions of sources and readers
(SPEC B9, B16, B17, Z20, Z21)."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hotspare.cli.shared.places import BusOption

if TYPE_CHECKING:
    from hotspare.bus.contract import Bus, Deviation, Partition

_INPUT = "input"


def command(
    *,
    bus: BusOption,
    prefix: Annotated[str, typer.Option(help="List only topics whose name begins with this; by default all.")] = "",
    sources: Annotated[bool, typer.Option("--sources", help="List how far each source is published, instead of topics.")] = False,
    forget_source: Annotated[
        str, typer.Option(metavar="SOURCE", help="Delete the record of how far this source was published.")
    ] = "",
    readers: Annotated[
        bool, typer.Option("--readers", help="List the readers for which an embedded bus keeps messages, instead of topics.")
    ] = False,
    forget_reader: Annotated[str, typer.Option(metavar="READER", help="Stop keeping messages for this reader.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """List the topics of a bus: owners, offsets, the time of the newest message, and settings that hotspare advises against."""
    from contextlib import ExitStack

    from hotspare.operate.groups import existing_bus

    tell = _print_as_json if as_json else _print_as_table
    with ExitStack() as stack:
        opened = existing_bus(stack, bus)
        topics = {topic: partitions for topic, partitions in opened.topics().items() if topic.startswith(prefix)}
        if forget_source:
            return _delete_source(opened, topics, forget_source)
        if forget_reader:
            return _delete_reader(opened, forget_reader)
        if sources:
            found = [(place.topic, place.number, name, published) for place, name, published in _sources(opened, topics)]
            return tell("sources", ("topic", "partition", "source", "published"), found)
        if readers:
            return tell("readers", ("topic", "partition", "reader", "offset"), _readers(opened, topics))
        owners, deviations = opened.owners(), opened.deviations(list(topics))
        rows = [row for topic, partitions in topics.items() for row in _rows(opened, topic, partitions, owners)]
    reading = _reading(bus)
    if as_json:
        document = {"topics": rows, "deviations": [dataclasses.asdict(each) for each in deviations], "read_with": reading}
        typer.echo(json.dumps(document, indent=2, sort_keys=True))
    else:
        _print(rows, deviations, reading)
    return None


def _print_as_json(what: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    typer.echo(json.dumps({what: [dict(zip(columns, row, strict=True)) for row in rows]}, indent=2))


def _print_as_table(what: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    from hotspare.cli.shared.display import print_table

    print_table(what.capitalize(), columns, rows)


def _readers(bus: Bus, topics: Mapping[str, int]) -> list[tuple[str, int, str, int]]:
    """Returns (topic, partition, reader, offset) for each reader that needs messages of these topics from that offset on,
    sorted."""
    found = [(place.topic, place.number, name, offset) for name, each in bus.readers().items() for place, offset in each.items()]
    return sorted(row for row in found if row[0] in topics)


def _delete_reader(bus: Bus, reader: str) -> None:
    """Deletes the record of a reader, so that the bus keeps no messages for it. Raises UsageError for an unknown reader."""
    from hotspare.base.errors import UsageError

    known = bus.readers().get(reader)
    if known is None:
        raise UsageError(f"the bus keeps nothing for reader {reader!r}", hint="`hotspare topics --readers` lists them")
    bus.remove_reader(reader)
    for place, offset in known.items():
        typer.echo(f"reader {reader} is forgotten; it needed {place.topic}[{place.number}] from offset {offset} on")


def _sources(bus: Bus, topics: Mapping[str, int]) -> list[tuple[Partition, str, int]]:
    """Returns (partition, source, published bytes) for each source of the inbound topics among `topics`. Other topics may have
    records, too, but these are not positions."""
    from hotspare.adapters.failover.source_position import published_sources
    from hotspare.bus.contract import Partition

    places = [Partition(topic, number) for topic, count in topics.items() if _kind(topic) == _INPUT for number in range(count)]
    return [(place, name, position.published_bytes) for place in places for name, position in published_sources(bus, place).items()]


def _delete_source(bus: Bus, topics: Mapping[str, int], source: str) -> None:
    """Deletes the records of a source on all `topics`. Raises UsageError if none of them has one."""
    from hotspare.adapters.failover.source_position import source_prefix
    from hotspare.base.errors import UsageError

    found = [(place, published) for place, name, published in _sources(bus, topics) if name == source]
    if not found:
        raise UsageError(f"no topic has a record of source {source!r}", hint="`hotspare topics --sources` lists them")
    for place, published in found:
        bus.remove_record(place, source_prefix(source))
        typer.echo(f"source {source} is forgotten on {place.topic}[{place.number}], where {published} of it were published")


def _print(rows: Sequence[dict[str, Any]], deviations: Sequence[Deviation], reading: str) -> None:
    from hotspare.cli.shared.display import print_table

    columns = ("topic", "kind", "owner", "partition", "begin_offset", "end_offset", "newest_time")
    print_table("Topics", columns, [tuple("" if row[name] is None else row[name] for name in columns) for row in rows])
    for deviation in deviations:
        typer.echo(f"warning: {deviation}")
    if reading:
        typer.echo(f"read a topic with: {reading}")


def _reading(url: str) -> str:
    """Returns a command line of Kafka's own tools that reads the committed messages of a topic; "" for other buses."""
    if not url.startswith("kafka://"):
        return ""
    from hotspare.bus.kafka.client import parse_kafka_url

    bootstrap = parse_kafka_url(url).bootstrap
    return (
        f"kafka-console-consumer.sh --bootstrap-server {bootstrap} --isolation-level read_committed --from-beginning --topic TOPIC"
    )


def _rows(bus: Bus, topic: str, partitions: int, owners: Mapping[Partition, str]) -> list[dict[str, Any]]:
    from hotspare.bus.contract import Partition
    from hotspare.bus.tail import newest_message

    found = []
    for number in range(partitions):
        partition = Partition(topic, number)
        newest = newest_message(bus, partition)
        newest_us = newest.append_time_us if newest else None
        found.append(
            {
                "topic": topic,
                "kind": _kind(topic),
                "owner": owners.get(partition, ""),
                "partition": number,
                "begin_offset": bus.begin_offset(partition),
                "end_offset": bus.end_offset(partition),
                "newest_time_us": newest_us,
                "newest_time": None if newest_us is None else time_text(newest_us),
            }
        )
    return found


def _kind(topic: str) -> str:
    if topic == "hotspare.owners":
        return "owners"
    return {
        "I": _INPUT,
        "O": "output",
        "B": "bad events",
        "M": "project metadata",
        "R": "records of publishers",
        "progress": "progress",
    }.get(topic.rpartition(".")[2], "other")


def time_text(time_us: int) -> str:
    """Formats microseconds since 1970 as ISO 8601 in UTC."""
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=time_us)
    return moment.isoformat(timespec="milliseconds")
