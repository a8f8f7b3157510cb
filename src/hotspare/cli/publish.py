"""`hotspare publish`: the rows of a CSV file into an inbound topic, each exactly once (SPEC I5, I7)."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.cli.shared.turns import (
    CoordinationOption,
    GroupOption,
    LeaseOption,
    Lines,
    Transport,
    TurnOptions,
    in_turns,
    say_port,
    say_trouble,
    transport,
)
from hotspare.cli.shared.values import ShardsOption, prefix_of, window_path

if TYPE_CHECKING:
    from hotspare.adapters.files.publisher import PublishOptions
    from hotspare.adapters.files.row_routing import RowRouting
    from hotspare.adapters.sockets.line_socket import Address
    from hotspare.bus.contract import Bus, Partition


_BeginOption = Annotated[
    int | None, typer.Option(min=0, help="Byte (of a socket: line) behind which to begin where nothing is known of the source.")
]


_PartitionOption = Annotated[
    int | None,
    typer.Option(min=0, help="Partition of the topic for all rows; by default, of several, that in which each row belongs."),
]


class _Flags(StrEnum):
    normal = "normal"
    partialupdate = "partialupdate"


def command(
    file: Annotated[str, typer.Argument(help="CSV file with rows opcode,flag,field,...; or tcp://:PORT to listen for lines.")],
    *,
    bus: Annotated[str, typer.Option(help="Bus, e.g. sqlite:///demo.db")] = "",
    window: Annotated[str, typer.Option(metavar="PROJECT/CQ/WINDOW", help="Source window that the rows are for.")],
    prefix: Annotated[str, typer.Option(help="First part of all topic names.")] = "hotspare",
    project: Annotated[Path | None, typer.Option(help="Project file, for the schema; by default the bus tells it.")] = None,
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
    noautogenfield: Annotated[bool, typer.Option("--noautogenfield", help="The rows lack the generated key's column.")] = False,
    delimiter: Annotated[str, typer.Option(help="What separates the columns.")] = ",",
    dateformat: Annotated[str, typer.Option(help="How dates and stamps are written (strptime); needs the schema.")] = "",
    source: Annotated[str, typer.Option(help="Name under which the position is kept; by default the file's path.")] = "",
    begin: _BeginOption = None,
    partition: _PartitionOption = None,
    shards: ShardsOption = 1,
    group: GroupOption = "",
    coordination: CoordinationOption = "",
    lease_ms: LeaseOption = 1000,
    format_: Annotated[Lines, typer.Option("--format", help="What the lines that a socket gets are.")] = Lines.csv,
    transport_config: Annotated[Path | None, typer.Option(help="File with sections kafka and sas; options win over it.")] = None,
) -> None:
    """Publish a CSV file. Start the same command again after a crash: it goes on with the next row."""
    from hotspare.adapters.files.canonical import FlagColumn, InsertOpcode, KeyPresence, OpcodeColumn, RowForm
    from hotspare.adapters.files.publisher import PublishOptions
    from hotspare.adapters.files.row_file import Growth
    from hotspare.bus.open import open_bus
    from hotspare.cli.shared.project_file import Side, partition_field, window_schema

    chosen = transport(transport_config, bus, TurnOptions(group, coordination, lease_ms))
    target = Target(chosen.bus_url, prefix_of(window, prefix), window, partition, format_, shards)
    with contextlib.closing(open_bus(target.bus_url)) as opened:
        form = RowForm(
            opcode=OpcodeColumn.ABSENT if addcsvopcode else OpcodeColumn.PRESENT,
            flag={None: FlagColumn.PRESENT, "normal": FlagColumn.NORMAL, "partialupdate": FlagColumn.PARTIAL}[addcsvflags],
            insert=InsertOpcode.UPSERT if publishwithupsert else InsertOpcode.INSERT,
            key=KeyPresence.ABSENT if noautogenfield else KeyPresence.PRESENT,
            delimiter=delimiter,
            date_format=dateformat or chosen.date_format,
            schema=window_schema(opened, target.prefix, project, set_, window, Side.SOURCE),
        )
        target = _placed(target, chosen, partition_field(opened, target.prefix, project, set_, window))
        growth = Growth.GROWING if growing else Growth.FIXED
        options = PublishOptions(form=form, growth=growth, header_rows=header, rate=rate, events_max=maxevents, begin=begin)
        options = replace(options, repeats=repeatcount, block_rows=blocksize, source_name=source)
        publish_rows(opened, target, file, options, chosen.turns)


@dataclass(frozen=True, slots=True)
class Target:
    """`window` is `PROJECT/CQ/WINDOW` or an adapter URL; `format` that of a socket's lines.

    `partition`: to which all rows go; None: each to where it belongs by the field `partition_by`. `shards`: how many partitions a
    topic gets that does not exist yet.
    """

    bus_url: str
    prefix: str
    window: str
    partition: int | None = None
    format: Lines = Lines.csv
    shards: int = 1
    partition_by: str = ""


def _placed(target: Target, chosen: Transport, field: str) -> Target:
    """With the partition of the transport's configuration, where none was said, and the field by which rows find theirs."""
    partition = chosen.partition or None if target.partition is None else target.partition
    return replace(target, partition=partition, partition_by=field)


def publish_rows(bus: Bus, target: Target, file: str, options: PublishOptions, turns: TurnOptions) -> None:
    """Publish `file`, or the lines of the socket that it is the address of, alone or in turns, until the end or Ctrl-C."""
    from hotspare.adapters.files.publisher import PublishProgress, publish_file
    from hotspare.adapters.files.row_file import check_readable
    from hotspare.adapters.sockets.line_socket import parse_address
    from hotspare.bus.contract import Partition
    from hotspare.bus.naming import checked_prefix, inbound_topic
    from hotspare.cli.shared.display import progress_bar
    from hotspare.cli.shared.interrupt import stop_on_signal

    path = window_path(target.window)
    topic = inbound_topic(checked_prefix(target.prefix), path.project, path.query, path.window)
    address = parse_address(file)
    if address is None:
        check_readable(Path(file))
    count = _make_topic(bus, topic, target)
    where, routing = Partition(topic, target.partition or 0), _routing(target, options, topic, count)
    if address is not None:
        _listen(bus, target, where, address, options, turns, routing)
        return
    with stop_on_signal() as stop, progress_bar(f"publish to {topic}") as show:

        def report(now: PublishProgress) -> None:
            show(now.bytes_published, now.bytes_total, f"{now.events} events")

        def work(turn: threading.Event) -> PublishProgress:
            return publish_file(bus, where, Path(file), options, turn, report, say_trouble, routing)

        done = in_turns(turns, bus, target.bus_url, work, stop)
    typer.echo(f"published {0 if done is None else done.events} events to {topic}", err=True)


def _make_topic(bus: Bus, topic: str, target: Target) -> int:
    """As an engine would, where it does not exist: more partitions than a group reads could not be taken away again. How many it
    has. UsageError where it exists and the command says how many shards there are, and they are not as many."""
    from hotspare.errors import TopicMissing, UsageError

    existing = bus.topics().get(topic)
    if existing is not None and target.shards not in (1, existing):
        what = f"topic {topic} has {existing} partitions, --shards says {target.shards}"
        raise UsageError(
            what, hint="leave --shards out for a topic that is there; for other shards, publish under another --prefix"
        )
    if existing is not None:
        return existing
    if (target.partition or 0) >= target.shards:
        hint = "publish to partition 0" if target.shards == 1 else ""
        raise TopicMissing(f"topic {topic} does not exist, so it has no partition {target.partition}", hint=hint)
    bus.create_topic(topic, target.shards)
    typer.echo(f"topic {topic} is new: no engine reads it yet", err=True)
    return target.shards


def _routing(target: Target, options: PublishOptions, topic: str, count: int) -> RowRouting | None:
    """Where rows go; None where all go to one partition. UsageError where nobody says by which field."""
    from hotspare.adapters.files.row_routing import RowRouting
    from hotspare.engine.routing import routing_by
    from hotspare.errors import UsageError

    if count == 1 or target.partition is not None:
        return None
    schema = options.form.schema
    found = None if schema is None else routing_by(schema, target.partition_by, count)
    if schema is None or found is None:
        what = f"topic {topic} has {count} partitions, and nothing says in which a row belongs"
        raise UsageError(what, hint="give the project's file with --project, or a --partition for all rows")
    return RowRouting(schema, found)


def _listen(
    bus: Bus,
    target: Target,
    where: Partition,
    address: Address,
    options: PublishOptions,
    turns: TurnOptions,
    routing: RowRouting | None,
) -> None:
    from hotspare.adapters.sockets.publisher import LineOptions, publish_lines
    from hotspare.cli.shared.interrupt import stop_on_signal
    from hotspare.engine.rows.batch import MessageFormat

    lines = LineOptions(options.form, MessageFormat[target.format.value.upper()], options.begin)
    by_line = None if routing is None else replace(routing, format=lines.format)
    with stop_on_signal() as stop:
        in_turns(turns, bus, target.bus_url, lambda turn: publish_lines(bus, where, address, lines, turn, say_port, by_line), stop)
