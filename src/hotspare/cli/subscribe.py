"""`hotspare subscribe`: writes an output stream, or the bad events, to a CSV file, each row exactly once (SPEC 5.2, I6, F15)."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.choices import CsvForm, Doubles
from hotspare.base.places import absolute_path_or_url, local_file_path
from hotspare.cli.shared.places import PREFIX, BusOption, CoordinationOption, PrefixOption
from hotspare.cli.shared.sending import TargetTopic, check_target, send_external
from hotspare.cli.shared.stream import Stream
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
    resolve_transport,
    run_in_turns,
)
from hotspare.cli.shared.values import (
    DateFormatOption,
    DoublesOption,
    PlainOption,
    SchemaFileOption,
    SetOption,
    csv_style,
    refuse_ineffective,
    topic_prefix,
    window_path,
)

if TYPE_CHECKING:
    from hotspare.adapters.files.canonical import FileFormat
    from hotspare.adapters.files.output_rows import FileStyle, OutputRows
    from hotspare.adapters.files.subscriber import RowFormat, SubscribeOptions
    from hotspare.adapters.sockets.line_socket import Address
    from hotspare.bus.contract import Bus


_FileArgument = Annotated[
    str,
    typer.Argument(
        help="Write this file (see --format), with its position next to it; or serve clients at tcp://:PORT.",
        parser=absolute_path_or_url,
    ),
]
_FormatOption = Annotated[
    LineFormat,
    typer.Option("--format", help="Write the file, the lines for clients of a socket, or the messages of --topic in this format."),
]
_PartitionOption = Annotated[int | None, typer.Option(min=0, help="Read only this partition, one shard's outputs; by default all.")]
_TopicOption = Annotated[str, typer.Option(help="Send the outputs to this external topic; FILE is then the URL of its bus.")]
_TopicPartitionOption = Annotated[
    int | None,
    typer.Option(min=0, help="Write only to this partition of --topic; by default the row's key determines the partition."),
]
_SourceOption = Annotated[
    str, typer.Option(help="Store the position in --topic under this name; by default the name of the window's output topic.")
]


_ValueOption = Annotated[
    str, typer.Option(metavar="FIELD", help="Send only this field's value as a message of --topic; by default all fields.")
]
_SchemaLineOption = Annotated[bool, typer.Option("--schema-line", help="Begin CSV messages of --topic with the schema.")]


class _Header(StrEnum):
    false = "false"
    true = "true"
    full = "full"


def command(
    file: _FileArgument,
    *,
    bus: BusOption = "",
    window: Annotated[str, typer.Option(metavar="PROJECT/CQ/WINDOW", help="Write the outputs of this window.")] = "",
    bad: Annotated[str, typer.Option(metavar="PROJECT", help="Write the bad events of this project instead of a window.")] = "",
    prefix: PrefixOption = PREFIX,
    project: SchemaFileOption = None,
    set_: SetOption = None,
    plain: PlainOption = False,
    header: Annotated[_Header, typer.Option(help="Write no title line, the fields, or also opcode and flags.")] = _Header.false,
    collapse: Annotated[bool, typer.Option("--collapse", help="Write an update as one row with the new values.")] = False,
    rmretdel: Annotated[bool, typer.Option("--rmretdel", help="Leave out deletes by retention.")] = False,
    snapshot: Annotated[bool, typer.Option("--snapshot", help="Begin with the window's content as inserts.")] = False,
    doubles: DoublesOption = Doubles.FIXED,
    dateformat: DateFormatOption = "",
    to_end: Annotated[bool, typer.Option("--to-end", help="Stop at the present end of the topic.")] = False,
    maxfilesize: Annotated[int, typer.Option(min=0, help="Begin a new file after this many bytes; 0: never.")] = 0,
    periodicity: Annotated[int, typer.Option(min=0, help="Begin a new file after this many seconds; 0: never.")] = 0,
    group: GroupOption = "",
    coordination: CoordinationOption = "",
    lease_ms: LeaseOption = 1000,
    format_: _FormatOption = LineFormat.csv,
    partition: _PartitionOption = None,
    topic: _TopicOption = "",
    topic_partition: _TopicPartitionOption = None,
    source: _SourceOption = "",
    value: _ValueOption = "",
    schema_line: _SchemaLineOption = False,
    transport_config: TransportConfigOption = None,
) -> None:
    """Write an output stream to a file or an external topic. Start it again after a crash: it continues where it stopped."""
    from hotspare.adapters.changelog_reading import RetentionDeletes, RowChoice, UpdateBlocks
    from hotspare.adapters.files.output_file import Rotation
    from hotspare.adapters.files.output_rows import FileStyle, HeaderLine
    from hotspare.adapters.files.subscriber import Opening, SubscribeOptions, Until
    from hotspare.base.errors import UsageError

    if bool(window) == bool(bad):
        raise UsageError("one of --window and --bad is needed")
    deletes = RetentionDeletes.DROPPED if rmretdel else RetentionDeletes.KEPT
    choice = RowChoice(UpdateBlocks.COLLAPSED if collapse or plain else UpdateBlocks.PAIRS, deletes)
    opening, until = Opening.SNAPSHOT if snapshot else Opening.STREAM, Until.END if to_end else Until.STOPPED
    options = SubscribeOptions(choice, opening, until, Rotation(maxfilesize, periodicity))
    chosen = resolve_transport(transport_config, bus, TurnOptions(group, coordination, lease_ms))
    form = CsvForm.PLAIN if plain else CsvForm.EVENTS
    written = _file_format("" if topic or bad else file, format_, header)
    style = FileStyle(HeaderLine(header.value), csv_style(doubles), dateformat or chosen.date_format, written)
    if form is CsvForm.PLAIN:
        style = _plain_style(style, file, topic, bad)
    stream = Stream(topic_prefix(window, prefix), window, bad, project, tuple(set_ or ()), format_, partition)
    target = TargetTopic(file, topic, topic_partition, source, value, "pereventblock" if schema_line else "never")
    check_target(target, stream, style, options)
    if topic:
        send_external(chosen, stream, target, style, options)
    else:
        subscribe_rows(chosen, stream, file, style, options, form)


def _plain_style(style: FileStyle, file: str, topic: str, bad: str) -> FileStyle:
    """Returns the style of a plain file. Raises UsageError for --header, and for destinations that --plain does not support."""
    from hotspare.adapters.files.output_rows import FileStyle, HeaderLine
    from hotspare.adapters.sockets.line_socket import parse_address
    from hotspare.formats.csv.rows import RowPrefix

    refuse_ineffective(
        {"--header": style.header is not HeaderLine.NONE}, "with --plain", "leave it out: the title line names all columns"
    )
    for what, is_given in {"--topic": topic, "--bad": bad, "a socket": parse_address(file) is not None}.items():
        refuse_ineffective({"--plain": is_given}, f"with {what}", "leave it out: it sets the titles of a file")
    return FileStyle.for_plain_files(RowPrefix.EVENT, style.date_format, style.format)


def _file_format(file: str, lines: LineFormat, header: _Header) -> FileFormat:
    """Returns the format of the file; CSV for sockets and if `file` is "". Raises UsageError for --header with a format without
    columns."""
    from hotspare.adapters.sockets.line_socket import parse_address

    if not file or lines is LineFormat.csv or parse_address(file) is not None:
        return file_format(LineFormat.csv)
    refuse_ineffective({"--header": header is not _Header.false}, f"of a file in {lines.value}", "leave it out")
    return file_format(lines)


def subscribe_rows(
    chosen: Transport, stream: Stream, file: str, style: FileStyle, options: SubscribeOptions, form: CsvForm
) -> None:
    """Writes the outputs to `file`, or, if it is a socket address, serves clients there; alone or in turns. A plain file has the
    columns that the stream's rows need, whatever `style` has. Exits with status 1 if the sequence of outputs is broken."""
    from hotspare.adapters.files.output_rows import BadRowFormat, OutputRows
    from hotspare.adapters.sockets.line_socket import parse_address
    from hotspare.bus.naming import bad_topic, checked_name, checked_prefix, outbound_topic
    from hotspare.cli.shared.project_file import named_project
    from hotspare.operate.groups import existing_bus
    from hotspare.operate.window_rows import Side, row_prefix, window_schema

    prefix = checked_prefix(stream.prefix)
    with contextlib.ExitStack() as stack:
        bus = existing_bus(stack, chosen.bus_url)
        if stream.bad:
            topic = bad_topic(prefix, checked_name(stream.bad))
            _subscribe(bus, chosen, topic, stream.partition, local_file_path(file), BadRowFormat(), options)
            return
        path, project = window_path(stream.window), named_project(stream.project, stream.properties)
        topic = outbound_topic(prefix, path.project, path.query, path.window)
        if form is CsvForm.PLAIN:
            style = replace(style, prefix=row_prefix(bus, prefix, project, path))
        rows = OutputRows(style, window_schema(bus, prefix, project, path, Side.STREAM))
        address = parse_address(file)
        if address is None:
            _subscribe(bus, chosen, topic, stream.partition, local_file_path(file), rows, options)
        else:
            _refuse_options_of_files(options)
            _serve(bus, chosen, topic, address, rows, stream)


def _refuse_options_of_files(options: SubscribeOptions) -> None:
    """Raises UsageError for options that have no effect on a socket, where each client selects its own position."""
    from hotspare.adapters.files.subscriber import SubscribeOptions, Until
    from hotspare.base.errors import UsageError

    plain = SubscribeOptions()
    asked = {
        "--collapse": options.choice.updates is not plain.choice.updates,
        "--rmretdel": options.choice.retention_deletes is not plain.choice.retention_deletes,
        "--snapshot": options.opening is not plain.opening,
        "--to-end": options.until is Until.END,
        "--maxfilesize, --periodicity": options.rotation.is_wanted,
    }
    if names := [name for name, is_asked in asked.items() if is_asked]:
        raise UsageError(f"a socket has no {', '.join(names)}", hint="name a file, or leave it out: clients get every output")


def _serve(bus: Bus, chosen: Transport, topic: str, address: Address, rows: OutputRows, stream: Stream) -> None:
    from hotspare.adapters.sockets.subscriber import subscribe_lines
    from hotspare.cli.shared.interrupt import stop_on_signal
    from hotspare.rows.batch import MessageFormat

    lines = MessageFormat[stream.format.value.upper()]

    def work(turn: threading.Event) -> None:
        subscribe_lines(bus, topic, address, rows, lines, turn, print_port, stream.partition)

    with stop_on_signal() as stop:
        run_in_turns(chosen.turns, bus, chosen.bus_url, work, stop)


def _subscribe(
    bus: Bus,
    chosen: Transport,
    topic: str,
    partition: int | None,
    file: Path,
    rows: RowFormat,
    options: SubscribeOptions,
) -> None:
    from hotspare.adapters.changelog_reading import SequenceBreak
    from hotspare.adapters.files.subscriber import SubscribeProgress, SubscribeReport, Until, subscribe_file
    from hotspare.base.errors import BusError
    from hotspare.cli.shared.display import progress_bar
    from hotspare.cli.shared.interrupt import stop_on_signal
    from hotspare.telemetry.log import Log, LogEvent, configure_logging

    configure_logging()
    log = Log().bind(topic=topic)
    with contextlib.suppress(BusError):  # an unreachable bus is waited for later
        if options.until is Until.STOPPED and topic not in bus.topics():
            typer.echo(f"topic {topic} does not exist yet: waiting for an engine to create it", err=True)
    with stop_on_signal() as stop, progress_bar(f"subscribe to {topic}") as show:

        def progress(now: SubscribeProgress) -> None:
            show(now.offset, now.offset + now.lag_messages, f"{now.rows} rows, sequence {now.sequence}")

        def broken(place: SequenceBreak) -> None:
            log.event(LogEvent.SEQUENCE_BROKEN, str(place), partition=place.partition, after=place.after, found=place.found)

        def incomplete(first_sequence: int) -> None:
            log.event(LogEvent.OUTPUT_NOT_FROM_BEGINNING, first_sequence=first_sequence)

        report = SubscribeReport(progress, broken, incomplete, print_trouble)
        done = run_in_turns(
            chosen.turns,
            bus,
            chosen.bus_url,
            lambda turn: subscribe_file(bus, topic, file, rows, options, turn, report, partition),
            stop,
        )
    done = done or SubscribeProgress()
    reached = ", ".join(map(str, done.sequences)) or "0"
    word = "sequences" if len(done.sequences) > 1 else "sequence"
    typer.echo(f"wrote {done.rows} rows of {topic} up to {word} {reached}", err=True)
    if done.breaks:
        typer.echo(f"hotspare: the sequence of {topic} is broken in {done.breaks} places", err=True)
        raise typer.Exit(1)
