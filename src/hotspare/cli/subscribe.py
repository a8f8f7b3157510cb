"""`hotspare subscribe`: an output stream, or the bad events, into a CSV file, each row exactly once (SPEC 5.2, I6, F15)."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hotspare.adapters.file_subscriber import RowFormat, SubscribeOptions


class _Header(StrEnum):
    false = "false"
    true = "true"
    full = "full"


class _Doubles(StrEnum):
    fixed = "fixed"
    exact = "exact"


def command(
    file: Annotated[Path, typer.Argument(help="CSV file to write; its position is kept beside it.")],
    *,
    bus: Annotated[str, typer.Option(help="Bus, e.g. sqlite:///demo.db")],
    window: Annotated[str, typer.Option(metavar="PROJECT/CQ/WINDOW", help="Window whose outputs are wanted.")] = "",
    bad: Annotated[str, typer.Option(metavar="PROJECT", help="Instead of a window: the bad events of this project.")] = "",
    prefix: Annotated[str, typer.Option(help="First part of all topic names.")] = "hotspare",
    project: Annotated[Path | None, typer.Option(help="Project file: checks that the outputs have its schema.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Project property.")] = None,
    header: Annotated[_Header, typer.Option(help="Title line: none, the fields, or opcode and flags too.")] = _Header.false,
    collapse: Annotated[bool, typer.Option("--collapse", help="An update is one row with the new values.")] = False,
    rmretdel: Annotated[bool, typer.Option("--rmretdel", help="Leave out deletes that retention made.")] = False,
    snapshot: Annotated[bool, typer.Option("--snapshot", help="Begin with the window's content as inserts.")] = False,
    doubles: Annotated[_Doubles, typer.Option(help="Six decimals, or the shortest text that reads back.")] = _Doubles.fixed,
    dateformat: Annotated[str, typer.Option(help="How to write dates and stamps (strftime); by default numbers.")] = "",
    to_end: Annotated[bool, typer.Option("--to-end", help="Stop at what is the end of the topic now.")] = False,
) -> None:
    """Write an output stream to a CSV file. Start the same command again after a crash: it goes on where it was."""
    from hotspare.adapters.changelog import RetentionDeletes, RowChoice, UpdateBlocks
    from hotspare.adapters.file_subscriber import Opening, SubscribeOptions, Until
    from hotspare.adapters.output_rows import BadRows, FileStyle, HeaderLine, OutputRows
    from hotspare.bus.naming import bad_topic, checked_name, checked_prefix, outbound_topic
    from hotspare.cli.project_file import stream_schema
    from hotspare.cli.values import window_path
    from hotspare.engine.codec.csv_rows import CsvStyle
    from hotspare.errors import UsageError

    if bool(window) == bool(bad):
        raise UsageError("one of --window and --bad is needed")
    options = SubscribeOptions(
        choice=RowChoice(
            updates=UpdateBlocks.COLLAPSED if collapse else UpdateBlocks.PAIRS,
            retention_deletes=RetentionDeletes.DROPPED if rmretdel else RetentionDeletes.KEPT,
        ),
        opening=Opening.SNAPSHOT if snapshot else Opening.STREAM,
        until=Until.END if to_end else Until.STOPPED,
    )
    if bad:
        _subscribe(bus, bad_topic(checked_prefix(prefix), checked_name(bad)), file, BadRows(), options)
        return
    path = window_path(window)
    style = FileStyle(HeaderLine(header.value), CsvStyle.EXACT if doubles is _Doubles.exact else CsvStyle.FILE, dateformat)
    rows = OutputRows(style, stream_schema(project, set_, window))
    _subscribe(bus, outbound_topic(checked_prefix(prefix), path.project, path.query, path.window), file, rows, options)


def _subscribe(url: str, topic: str, file: Path, rows: RowFormat, options: SubscribeOptions) -> None:
    from hotspare.adapters.changelog import SequenceBreak
    from hotspare.adapters.file_subscriber import SubscribeProgress, SubscribeReport, subscribe_file
    from hotspare.bus.open import open_bus
    from hotspare.cli.display import progress_bar
    from hotspare.cli.interrupt import stop_on_signal
    from hotspare.telemetry.log import Log, LogEvent, configure_logging

    configure_logging()
    log = Log().bind(topic=topic)
    bus = open_bus(url)
    try:
        with stop_on_signal() as stop, progress_bar(f"subscribe to {topic}") as show:

            def progress(now: SubscribeProgress) -> None:
                show(now.offset, now.offset + now.behind, f"{now.rows} rows, sequence {now.sequence}")

            def broken(place: SequenceBreak) -> None:
                log.event(LogEvent.SEQUENCE_BROKEN, str(place), after=place.after, found=place.found)

            def incomplete(first_sequence: int) -> None:
                log.event(LogEvent.OUTPUT_NOT_FROM_BEGINNING, first_sequence=first_sequence)

            done = subscribe_file(bus, topic, file, rows, options, stop, SubscribeReport(progress, broken, incomplete))
    finally:
        bus.close()
    typer.echo(f"wrote {done.rows} rows of {topic} up to sequence {done.sequence}", err=True)
    if done.breaks:
        typer.echo(f"hotspare: the sequence of {topic} is broken in {done.breaks} places", err=True)
        raise typer.Exit(1)
