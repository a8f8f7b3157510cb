"""`hotspare publish`: publishes the rows of a CSV file to an inbound topic, each exactly once (SPEC I5, I7)."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.choices import MissingTopic
from hotspare.base.places import absolute_path_or_url, local_file_path
from hotspare.bus.open import open_bus
from hotspare.cli.shared.external_topics import START_DEFAULT, ExternalTopic, publish_external
from hotspare.cli.shared.inbound import MISSING_TOPIC_POLICY, CreateOption, print_notice, print_published
from hotspare.cli.shared.places import PATH, PATH_OR_URL, PREFIX, BusOption, CoordinationOption, PrefixOption
from hotspare.cli.shared.project_file import named_project
from hotspare.cli.shared.turns import (
    GroupOption,
    LeaseOption,
    LineFormat,
    Transport,
    TransportConfigOption,
    TurnOptions,
    file_format,
    print_port,
    print_trouble,
    print_warning,
    resolve_transport,
    run_in_turns,
)
from hotspare.cli.shared.values import (
    DateFormatOption,
    PlainOption,
    SchemaFileOption,
    SetOption,
    ShardsOption,
    StampUnitOption,
    parse_stamp_unit_option,
    refuse_ineffective,
    topic_prefix,
    window_path,
)
from hotspare.operate.inbound import RowDestination, Target, row_destination
from hotspare.operate.window_rows import resolve_source_rows

if TYPE_CHECKING:
    from hotspare.adapters.files.canonical import RowForm
    from hotspare.adapters.files.publisher import PublishOptions
    from hotspare.adapters.sockets.line_socket import Address
    from hotspare.bus.contract import Bus


_PartitionOption = Annotated[
    int | None,
    typer.Option(min=0, help="Publish all rows to this partition of the topic; by default a field of each row determines it."),
]


_FormatOption = Annotated[
    LineFormat,
    typer.Option(
        "--format", help="Read the file, the lines of a socket or the messages of --topic in this format; avro only with --topic."
    ),
]
_FileArgument = Annotated[
    str,
    typer.Argument(
        help="Publish this file of rows opcode,flag,field,... (see --format); or listen for lines at tcp://:PORT.",
        parser=absolute_path_or_url,
    ),
]
_TopicOption = Annotated[str, typer.Option(help="Publish this external topic; FILE is then the URL of its bus.")]
_TopicPartitionOption = Annotated[
    int | None, typer.Option(min=0, help="Read only this partition of --topic; by default all partitions.")
]
_StartOption = Annotated[str, typer.Option(help="Begin here in --topic at the first start: smallest, largest or an offset.")]
_AvroOption = Annotated[
    Path | None,
    typer.Option(
        help="Decode messages of --topic as single Avro datums with the schema in this file; by default as container files.", **PATH
    ),
]
_SchemasOption = Annotated[
    str,
    typer.Option(
        help="Read the schemas of Avro messages of --topic from this registry (http://...) or folder of NUMBER.avsc.", **PATH_OR_URL
    ),
]
_ValueOption = Annotated[
    str,
    typer.Option(
        help="Use each message of --topic as the value of this field, others being null; by default a message holds one "
        "or more events in --format."
    ),
]


_SkipLostOption = Annotated[
    bool,
    typer.Option(
        "--skip-lost",
        help="Skip messages that --topic no longer holds, with bad events that name them; by default that is an error.",
    ),
]


class _Flags(StrEnum):
    normal = "normal"
    partialupdate = "partialupdate"


def command(
    file: _FileArgument,
    *,
    bus: BusOption = "",
    window: Annotated[str, typer.Option(metavar="PROJECT/CQ/WINDOW", help="Publish to this source window.")],
    prefix: PrefixOption = PREFIX,
    project: SchemaFileOption = None,
    set_: SetOption = None,
    plain: PlainOption = False,
    header: Annotated[int, typer.Option(min=0, help="Skip this many rows at the beginning.")] = 0,
    growing: Annotated[bool, typer.Option("--growing", help="Wait for more rows at the end; by default stop there.")] = False,
    rate: Annotated[float, typer.Option(min=0, help="Publish this many events per second; 0: as fast as possible.")] = 0.0,
    maxevents: Annotated[int, typer.Option(min=0, help="Publish at most this many events, over restarts; 0: no limit.")] = 0,
    repeatcount: Annotated[int, typer.Option(min=0, help="Publish the file this many times again after the first time.")] = 0,
    blocksize: Annotated[int, typer.Option(min=0, help="Put this many rows into a message; 0: all that are due, up to 256.")] = 0,
    addcsvopcode: Annotated[bool, typer.Option("--addcsvopcode", help="Read rows without an opcode; all are inserts.")] = False,
    addcsvflags: Annotated[_Flags | None, typer.Option(help="Read rows without flags; all have this flag.")] = None,
    publishwithupsert: Annotated[bool, typer.Option("--publishwithupsert", help="Publish inserts as upserts.")] = False,
    noautogenfield: Annotated[bool, typer.Option("--noautogenfield", help="Read rows without the generated key's column.")] = False,
    delimiter: Annotated[str, typer.Option(help="Separate columns at this character.")] = ",",
    dateformat: DateFormatOption = "",
    stamp_unit: StampUnitOption = "",
    source: Annotated[str, typer.Option(help="Store the position under this name; by default the file's path or topic:NAME.")] = "",
    partition: _PartitionOption = None,
    shards: ShardsOption = 1,
    create: CreateOption = False,
    group: GroupOption = "",
    coordination: CoordinationOption = "",
    lease_ms: LeaseOption = 1000,
    format_: _FormatOption = LineFormat.csv,
    topic: _TopicOption = "",
    topic_partition: _TopicPartitionOption = None,
    initial_offset: _StartOption = START_DEFAULT,
    avro_schema: _AvroOption = None,
    schemas: _SchemasOption = "",
    value: _ValueOption = "",
    skip_lost: _SkipLostOption = False,
    transport_config: TransportConfigOption = None,
) -> None:
    """Publish a file or an external topic. Start the same command again after a crash: it continues with the next row."""
    from hotspare.adapters.files.canonical import FlagColumn, InsertOpcode, KeyPresence, OpcodeColumn, RowForm

    chosen = resolve_transport(transport_config, bus, TurnOptions(group, coordination, lease_ms))
    where = _target(chosen, window, prefix, partition, shards, MISSING_TOPIC_POLICY[create])
    with contextlib.closing(open_bus(where.bus_url)) as opened:
        target, known = resolve_source_rows(opened, where, named_project(project, set_))
        form = RowForm(
            opcode=OpcodeColumn.ABSENT if addcsvopcode else OpcodeColumn.PRESENT,
            flag={None: FlagColumn.PRESENT, "normal": FlagColumn.NORMAL, "partialupdate": FlagColumn.PARTIAL}[addcsvflags],
            insert=InsertOpcode.UPSERT if publishwithupsert else InsertOpcode.INSERT,
            key=KeyPresence.ABSENT if noautogenfield else KeyPresence.PRESENT,
            delimiter=delimiter,
            date_format=dateformat or chosen.date_format,
            stamp_unit=parse_stamp_unit_option(stamp_unit),
            schema=known.schema,
            plain=known.defaults if plain else None,
        )
        others = ExternalTopic(file, topic, topic_partition, initial_offset, avro_schema, format_, schemas, value, skip_lost)
        options = _options(form, "growing" if growing else "fixed", rate, (header, maxevents, repeatcount, blocksize), source)
        (publish_external if topic else publish_files)(opened, target, others, options, chosen.turns)


def _target(chosen: Transport, window: str, prefix: str, partition: int | None, shards: int, missing: MissingTopic) -> Target:
    """Returns the target of the rows from the options; bus and default partition are those of the transport."""
    number = chosen.partition or None if partition is None else partition
    place = (chosen.bus_url, topic_prefix(window, prefix), window_path(window), number, shards)
    return Target(*place, missing=missing, coordination_url=chosen.turns.coordination_url)


def _options(form: RowForm, growth: str, rate: float, counts: tuple[int, int, int, int], source_name: str) -> PublishOptions:
    """Returns the options. `counts`: rows to leave out, events in all, repetitions, and rows per message."""
    from hotspare.adapters.files.publisher import PublishOptions
    from hotspare.adapters.files.row_file import Growth

    header_rows, events_max, repeats, block_rows = counts
    return PublishOptions(form, Growth(growth), header_rows, rate, events_max, repeats, block_rows, source_name)


def publish_files(bus: Bus, target: Target, source: ExternalTopic, options: PublishOptions, turns: TurnOptions) -> None:
    """Publishes `source`, a file or a socket, as `publish_rows` does. Raises UsageError for options that need --topic, and for
    options that the file's format, --plain or a socket makes ineffective."""
    from hotspare.adapters.sockets.line_socket import parse_address

    asked = {
        "--topic-partition": source.partition is not None,
        "--avro-schema": source.avro_schema is not None,
        "--schemas": bool(source.schemas),
        "--value": bool(source.value),
        "--initial-offset": source.start != START_DEFAULT,
        "--skip-lost": source.skips_lost,
    }
    refuse_ineffective(asked, "without --topic", "name the topic with --topic")
    if options.form.plain is not None:
        refuse_ineffective(_column_options(options), "with --plain", "leave it out: titles name the columns")
    if source.format is not LineFormat.csv:
        options = replace(options, form=_event_form(options, source.format))
    if parse_address(source.url) is not None:
        refuse_ineffective(_file_options(options), "with a socket", "leave it out: clients determine what they send, and when")
    publish_rows(bus, target, source.url, options, turns)


def _file_options(options: PublishOptions) -> dict[str, object]:
    """Returns the options that only files have by name; a value is true if the user set the option."""
    from hotspare.adapters.files.row_file import Growth

    return {
        "--header": options.header_rows,
        "--growing": options.growth is Growth.GROWING,
        "--rate": options.rate,
        "--maxevents": options.events_max,
        "--repeatcount": options.repeats,
        "--blocksize": options.block_rows,
        "--source": options.source_name,
    }


def _event_form(options: PublishOptions, lines: LineFormat) -> RowForm:
    """Returns the form of rows in another format than CSV, whose events name their fields. Raises UsageError for options about
    columns."""
    form = options.form
    asked = {"--plain": form.plain is not None, **_column_options(options), "--delimiter": form.delimiter != ","}
    refuse_ineffective(asked, f"of a file in {lines.value}", "its events name their fields: leave it out")
    return replace(form, format=file_format(lines))


def _column_options(options: PublishOptions) -> dict[str, object]:
    """Returns the options about CSV columns by name; a value is true if the user set the option."""
    from hotspare.adapters.files.canonical import FlagColumn, KeyPresence, OpcodeColumn

    form = options.form
    return {
        "--header": options.header_rows,
        "--addcsvopcode": form.opcode is OpcodeColumn.ABSENT,
        "--addcsvflags": form.flag is not FlagColumn.PRESENT,
        "--noautogenfield": form.key is KeyPresence.ABSENT,
    }


def publish_rows(bus: Bus, target: Target, file: str, options: PublishOptions, turns: TurnOptions) -> None:
    """Publishes `file`, or, if it is a socket address, the lines that clients send there; alone or in turns (`turns`), until the
    end or Ctrl-C. Raises UsageError if the file cannot be read."""
    from hotspare.adapters.files.publisher import PublishProgress, publish_file
    from hotspare.adapters.files.row_file import check_readable
    from hotspare.adapters.sockets.line_socket import parse_address
    from hotspare.cli.shared.display import progress_bar
    from hotspare.cli.shared.interrupt import stop_on_signal

    address = parse_address(file)
    if address is None:
        check_readable(local_file_path(file))
    else:
        refuse_ineffective({"--plain": options.form.plain is not None}, "with a socket", "leave it out: lines have no titles")
    place = row_destination(bus, target, options.form.schema, print_notice)
    topic = place.partition.topic
    if address is not None:
        _listen(bus, target, place, address, options, turns)
        return
    with stop_on_signal() as stop, progress_bar(f"publish to {topic}") as show:

        def report(now: PublishProgress) -> None:
            show(now.bytes_published, now.bytes_total, f"{now.events} events")

        def work(turn: threading.Event) -> PublishProgress:
            where, routing, count = place
            return publish_file(
                bus, where, local_file_path(file), options, turn, report, print_trouble, routing, print_warning, count
            )

        done = run_in_turns(turns, bus, target.bus_url, work, stop)
    print_published(done, file, topic, options.growth)


def _listen(bus: Bus, target: Target, place: RowDestination, address: Address, options: PublishOptions, turns: TurnOptions) -> None:
    """Publishes the lines that clients of the socket send."""
    from hotspare.adapters.sockets.publisher import LineOptions, publish_lines
    from hotspare.cli.shared.interrupt import stop_on_signal

    (where, routing, count), lines = place, LineOptions(options.form)
    with stop_on_signal() as stop:

        def work(turn: threading.Event) -> None:
            publish_lines(bus, where, address, lines, turn, print_port, routing, warn=print_warning, count=count)

        run_in_turns(turns, bus, target.bus_url, work, stop)
