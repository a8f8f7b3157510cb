"""`hotspare topics`: lists the topics of a bus and their unsafe settings; lists and deletes the positions of sources and readers
(SPEC B9, B16, B17, Z20, Z21)."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hotspare.cli.shared.places import BusOption

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from hotspare.operate.topics import ReaderPosition, TopicPartition, TopicReport, TopicSource


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

    from hotspare.operate import topics
    from hotspare.operate.groups import existing_bus

    tell = _print_as_json if as_json else _print_as_table
    with ExitStack() as stack:
        opened = existing_bus(stack, bus)
        if forget_source:
            for each in topics.delete_source(opened, forget_source, prefix):
                typer.echo(_forgotten_source(each))
            return None
        if forget_reader:
            for reader in topics.delete_reader(opened, forget_reader):
                typer.echo(_forgotten_reader(reader))
            return None
        if sources:
            return tell("sources", topics.TopicSource, topics.source_positions(opened, prefix))
        if readers:
            return tell("readers", topics.ReaderPosition, topics.reader_positions(opened, prefix))
        found = topics.topic_report(opened, bus, prefix)
    if as_json:
        document = {**dataclasses.asdict(found), "topics": [_row(each) for each in found.partitions]}
        del document["partitions"]
        typer.echo(json.dumps(document, indent=2, sort_keys=True))
    else:
        _print(found)
    return None


def _print_as_json(what: str, _: type[DataclassInstance], rows: Sequence[DataclassInstance]) -> None:
    typer.echo(json.dumps({what: [dataclasses.asdict(row) for row in rows]}, indent=2))


def _print_as_table(what: str, columns: type[DataclassInstance], rows: Sequence[DataclassInstance]) -> None:
    from hotspare.cli.shared.display import print_table

    print_table(what.capitalize(), [each.name for each in dataclasses.fields(columns)], [dataclasses.astuple(row) for row in rows])


def _forgotten_source(each: TopicSource) -> str:
    where = f"{each.topic}[{each.partition}]"
    return f"source {each.source} is forgotten on {where}, where {each.published} of it were published"


def _forgotten_reader(each: ReaderPosition) -> str:
    return f"reader {each.reader} is forgotten; it needed {each.topic}[{each.partition}] from offset {each.offset} on"


def _row(place: TopicPartition) -> dict[str, Any]:
    newest_us = place.newest_time_us
    return {**dataclasses.asdict(place), "newest_time": None if newest_us is None else time_text(newest_us)}


def _print(found: TopicReport) -> None:
    from hotspare.cli.shared.display import print_table

    columns = ("topic", "kind", "owner", "partition", "begin_offset", "end_offset", "newest_time")
    rows = [_row(each) for each in found.partitions]
    print_table("Topics", columns, [tuple("" if row[name] is None else row[name] for name in columns) for row in rows])
    for deviation in found.deviations:
        typer.echo(f"warning: {deviation}")
    if found.read_with:
        typer.echo(f"read a topic with: {found.read_with}")


def time_text(time_us: int) -> str:
    """Formats microseconds since 1970 as ISO 8601 in UTC."""
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=time_us)
    return moment.isoformat(timespec="milliseconds")
