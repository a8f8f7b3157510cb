"""`hotspare publish`: the rows of a CSV file into an inbound topic, each exactly once (SPEC I5, I7)."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hotspare.adapters.file_publisher import PublishOptions


class _Flags(StrEnum):
    normal = "normal"
    partialupdate = "partialupdate"


def command(
    file: Annotated[Path, typer.Argument(help="CSV file with rows opcode,flag,field,...")],
    *,
    bus: Annotated[str, typer.Option(help="Bus, e.g. sqlite:///demo.db")],
    window: Annotated[str, typer.Option(metavar="PROJECT/CQ/WINDOW", help="Source window that the rows are for.")],
    prefix: Annotated[str, typer.Option(help="First part of all topic names.")] = "hotspare",
    project: Annotated[Path | None, typer.Option(help="Project file: checks that the file matches the schema.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Project property.")] = None,
    header: Annotated[int, typer.Option(min=0, help="Rows to leave out at the beginning.")] = 0,
    growing: Annotated[bool, typer.Option("--growing", help="Wait for more rows at the end of the file, until Ctrl-C.")] = False,
    rate: Annotated[float, typer.Option(min=0, help="Events per second; 0 is as fast as possible.")] = 0.0,
    maxevents: Annotated[int, typer.Option(min=0, help="Events to publish in all, over restarts; 0 is no limit.")] = 0,
    repeatcount: Annotated[int, typer.Option(min=0, help="How often to begin again at the end of the file.")] = 0,
    blocksize: Annotated[int, typer.Option(min=0, help="Rows per message; 0 chooses: as many as are due, up to 256.")] = 0,
    addcsvopcode: Annotated[bool, typer.Option("--addcsvopcode", help="The rows have no opcode: all are inserts.")] = False,
    addcsvflags: Annotated[_Flags | None, typer.Option(help="The rows have no flags: all have this one.")] = None,
    publishwithupsert: Annotated[bool, typer.Option("--publishwithupsert", help="Publish inserts as upserts.")] = False,
    noautogenfield: Annotated[
        bool, typer.Option("--noautogenfield", help="The rows have no column for the generated key.")
    ] = False,
    delimiter: Annotated[str, typer.Option(help="What separates the columns.")] = ",",
    dateformat: Annotated[str, typer.Option(help="How dates and stamps are written (strptime); needs --project.")] = "",
    source: Annotated[str, typer.Option(help="Name under which the position is kept; by default the file's path.")] = "",
    partition: Annotated[int, typer.Option(min=0, help="Partition of the topic.")] = 0,
) -> None:
    """Publish a CSV file. Start the same command again after a crash: it goes on with the next row."""
    from hotspare.adapters.canonical import FlagColumn, InsertOpcode, KeyColumn, OpcodeColumn, RowForm
    from hotspare.adapters.csv_file import Growth
    from hotspare.adapters.file_publisher import PublishOptions
    from hotspare.cli.project_file import source_schema

    flags = {None: FlagColumn.PRESENT, _Flags.normal: FlagColumn.NORMAL, _Flags.partialupdate: FlagColumn.PARTIAL}
    form = RowForm(
        opcode=OpcodeColumn.ABSENT if addcsvopcode else OpcodeColumn.PRESENT,
        flag=flags[addcsvflags],
        insert=InsertOpcode.UPSERT if publishwithupsert else InsertOpcode.INSERT,
        key=KeyColumn.ABSENT if noautogenfield else KeyColumn.PRESENT,
        delimiter=delimiter,
        date_format=dateformat,
        schema=source_schema(project, set_, window),
    )
    options = PublishOptions(
        form=form,
        growth=Growth.GROWING if growing else Growth.FIXED,
        header_rows=header,
        rate=rate,
        events_max=maxevents,
        repeats=repeatcount,
        block_rows=blocksize,
        source_name=source,
    )
    _publish(bus, prefix, window, partition, file, options)


def _publish(url: str, prefix: str, window: str, partition: int, file: Path, options: PublishOptions) -> None:
    from hotspare.adapters.file_publisher import PublishProgress, publish_file
    from hotspare.bus.contract import Partition
    from hotspare.bus.naming import checked_prefix, inbound_topic
    from hotspare.bus.open import open_bus
    from hotspare.cli.display import progress_bar
    from hotspare.cli.interrupt import stop_on_signal
    from hotspare.cli.values import window_path

    path = window_path(window)
    topic = inbound_topic(checked_prefix(prefix), path.project, path.query, path.window)
    bus = open_bus(url)
    try:
        if topic not in bus.topics():
            bus.create_topic(topic, partition + 1)
        with stop_on_signal() as stop, progress_bar(f"publish to {topic}") as show:

            def report(now: PublishProgress) -> None:
                show(now.bytes_published, now.bytes_total, f"{now.events} events")

            done = publish_file(bus, Partition(topic, partition), file, options, stop, report)
    finally:
        bus.close()
    typer.echo(f"published {done.events} events to {topic}", err=True)
