"""`hotspare topics`: lists the topics of a bus and their unsafe settings, creates or empties one, and lists and deletes the
positions of sources and readers (SPEC B9, B16, B17, Z20, Z21)."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hotspare.bus.limits import PARTITIONS_MAX
from hotspare.cli.shared.places import BusOption, CoordinationOption
from hotspare.cli.shared.values import refuse_ineffective

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from hotspare.operate.topics import EmptiedPartition, ReaderPosition, TopicPartition, TopicReport, TopicSource


_PrefixOption = Annotated[str, typer.Option(help="List only topics whose name begins with this; by default all.")]
_SourcesOption = Annotated[bool, typer.Option("--sources", help="List how far each source is published, instead of topics.")]
_ForgetSourceOption = Annotated[str, typer.Option(metavar="SOURCE", help="Delete the record of how far this source was published.")]
_ReadersOption = Annotated[
    bool, typer.Option("--readers", help="List the readers for which an embedded bus keeps messages, instead of topics.")
]
_ForgetReaderOption = Annotated[str, typer.Option(metavar="READER", help="Stop keeping messages for this reader.")]
_CreateOption = Annotated[
    str, typer.Option(metavar="TOPIC", help="Create this topic with --partitions, replicated if the bus has several brokers.")
]
_PartitionsOption = Annotated[
    int, typer.Option(min=1, max=PARTITIONS_MAX, help="With --create-topic: create this many partitions.")
]
_EmptyOption = Annotated[
    str, typer.Option(metavar="TOPIC", help="Delete all messages of this topic; all engines that use it must have ended.")
]
_YesOption = Annotated[bool, typer.Option("--yes", help="With --empty-topic: do not ask for confirmation.")]
_ForceOption = Annotated[
    bool,
    typer.Option(
        "--force", help="With --empty-topic: also if engines on other machines may be alive; by default that is an error."
    ),
]


def command(
    *,
    bus: BusOption,
    prefix: _PrefixOption = "",
    sources: _SourcesOption = False,
    forget_source: _ForgetSourceOption = "",
    readers: _ReadersOption = False,
    forget_reader: _ForgetReaderOption = "",
    create_topic: _CreateOption = "",
    partitions: _PartitionsOption = 1,
    empty_topic: _EmptyOption = "",
    coordination: CoordinationOption = "",
    yes: _YesOption = False,
    force: _ForceOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """List the topics of a bus: owners, offsets, the time of the newest message, and settings that hotspare advises against."""
    from contextlib import ExitStack

    from hotspare.operate import topics
    from hotspare.operate.groups import UnseenEngines, existing_bus, existing_coordination

    if not create_topic:
        refuse_ineffective({"--partitions": partitions != 1}, "without --create-topic", "name the topic with it")
    if not empty_topic:
        asked = {"--coordination": coordination, "--yes": yes, "--force": force}
        refuse_ineffective(asked, "without --empty-topic", "name the topic with it")
    with ExitStack() as stack:
        opened = existing_bus(stack, bus)
        if empty_topic:
            service = existing_coordination(stack, coordination, bus)
            if not yes:
                typer.confirm(f"delete all messages of topic {empty_topic}?", abort=True)
            others = UnseenEngines.GONE if force else UnseenEngines.UNKNOWN
            _print_lines(map(_emptied, topics.empty_topic(opened, service, empty_topic, others)))
        elif create_topic:
            topics.create_topic(opened, create_topic, partitions)
            _print_lines([f"topic {create_topic} exists; its number of partitions is {partitions}"])
        elif forget_source:
            _print_lines(map(_forgotten_source, topics.delete_source(opened, forget_source, prefix)))
        elif forget_reader:
            _print_lines(map(_forgotten_reader, topics.delete_reader(opened, forget_reader)))
        else:
            tell = _print_as_json if as_json else _print_as_table
            if sources:
                tell("sources", topics.TopicSource, topics.source_positions(opened, prefix))
            elif readers:
                tell("readers", topics.ReaderPosition, topics.reader_positions(opened, prefix))
            else:
                (_print_document if as_json else _print)(topics.topic_report(opened, bus, prefix))


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)


def _emptied(each: EmptiedPartition) -> str:
    where = f"{each.topic}[{each.partition}]"
    return f"{where} is empty; it began at offset {each.begin_offset}, and continues at {each.end_offset}"


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


def _print_document(found: TopicReport) -> None:
    document = {**dataclasses.asdict(found), "topics": [_row(each) for each in found.partitions]}
    del document["partitions"]
    typer.echo(json.dumps(document, indent=2, sort_keys=True))


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
