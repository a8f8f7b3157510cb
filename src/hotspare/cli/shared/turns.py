"""Lets `publish` and `subscribe` work alone, or in turns with other instances of the same adapter (SPEC C14, E8, E9)."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from hotspare.base.errors import HotspareError, UsageError
from hotspare.base.places import absolute_url
from hotspare.cli.shared.places import PATH
from hotspare.telemetry.secrets import masked

if TYPE_CHECKING:
    from hotspare.adapters.failover.adapter_group import AdapterRole
    from hotspare.adapters.files.canonical import FileFormat
    from hotspare.bus.contract import Bus
    from hotspare.coordination.contract import Member

_T = TypeVar("_T")

GroupOption = Annotated[
    str,
    typer.Option(help="Join the instances of this name: one works, another continues if it ends or hangs; by default work alone."),
]
TransportConfigOption = Annotated[
    Path | None,
    typer.Option(help="Read bus and group from this file with sections kafka and sas; other options override it.", **PATH),
]
LeaseOption = Annotated[int, typer.Option(min=1, help="Let another instance take over after this many ms without a sign of life.")]


class LineFormat(StrEnum):
    """The format of a file, of the lines of a socket, or of the messages of an external topic."""

    csv = "csv"
    json = "json"
    avro = "avro"
    arrow = "arrow"


def file_format(lines: LineFormat) -> FileFormat:
    """Returns the file format for `lines`. Raises UsageError for a format that files cannot have."""
    from hotspare.adapters.files.canonical import FileFormat

    found = {LineFormat.csv: FileFormat.CSV, LineFormat.json: FileFormat.JSON, LineFormat.arrow: FileFormat.BINARY}
    if lines not in found:
        raise UsageError(f"files in {lines.value} are neither read nor written", hint=f"use one of: {', '.join(found)}")
    return found[lines]


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """The options of an adapter that works in turns. `group`: the name that its instances share; "" for an adapter that works
    alone. `meta_topic`: the topic to which role changes are written, "" for none (SPEC B5)."""

    group: str = ""
    coordination_url: str = ""
    lease_ms: int = 1000
    meta_topic: str = ""


@dataclass(frozen=True, slots=True)
class Transport:
    """The bus, the turns, the partition and the date format of an adapter, from options, else from a transport configuration
    file."""

    bus_url: str
    turns: TurnOptions
    partition: int = 0
    date_format: str = ""


def resolve_transport(file: Path | None, bus_url: str, turns: TurnOptions) -> Transport:
    """Returns the transport; options override the file. Prints settings of the file without effect on standard error. Raises
    UsageError if neither names a bus."""
    if file is None:
        if not bus_url:
            raise UsageError("no bus given", hint="give --bus URL or --transport-config FILE")
        return Transport(bus_url, turns)
    from hotspare.adapters.esp.transport_config import load_transport_config

    config = load_transport_config(file)
    for note in config.notes:
        typer.echo(f"hotspare: {file}: {note}", err=True)
    chosen = bus_url or absolute_url(config.bus_url)
    if not chosen:
        raise UsageError(f"file {file} names no bus", hint="give --bus URL, or hostport in its section kafka")
    group = turns.group or config.group
    coordination_url = turns.coordination_url or (config.coordination_url if group else "")
    options = TurnOptions(group, coordination_url, turns.lease_ms, config.meta_topic)
    return Transport(chosen, options, config.partition, config.date_format)


def run_in_turns(
    options: TurnOptions, bus: Bus, bus_url: str, work: Callable[[threading.Event], _T], stop: threading.Event
) -> _T | None:
    """Runs `work` alone, or whenever this instance has the turn; its argument is an event that ends it. Returns the result of
    `work` after it has ended by itself or by `stop`; None if this instance never had a turn."""
    if not options.group:
        if options.coordination_url:
            raise UsageError("--coordination without --group has no effect", hint="name the group of this adapter with --group")
        return work(stop)
    from hotspare.adapters.failover.adapter_group import AdapterGroup, AdapterSettings
    from hotspare.coordination.open import default_coordination_url, open_coordination

    member = _member()
    coordination = open_coordination(options.coordination_url or default_coordination_url(bus_url))
    try:
        settings = AdapterSettings(options.group, options.lease_ms)
        with _role_reporter(options, member.engine, bus) as changed:
            return AdapterGroup(coordination, settings, member, changed).run(work, stop)
    finally:
        coordination.close()


def _member() -> Member:
    import os
    import platform
    import socket

    import hotspare
    from hotspare.base.processes import process_space, process_start
    from hotspare.coordination.contract import Member
    from hotspare.host.options import default_engine_name

    return Member(
        engine=default_engine_name(),
        address="",
        process_id=os.getpid(),
        process_start=process_start(os.getpid()),
        host=socket.gethostname(),
        project_hash="",
        versions=f"hotspare {hotspare.__version__}",
        cpu=platform.machine(),
        role="adapter",
        sequences={},
        detail={},
        process_space=process_space(),
    )


@contextlib.contextmanager
def _role_reporter(options: TurnOptions, instance: str, bus: Bus) -> Iterator[Callable[[AdapterRole, int], None]]:
    """Context manager: yields a listener that logs each new role of this instance, and writes it to the meta topic if there is
    one."""
    from hotspare.bus.contract import Outgoing, Partition
    from hotspare.telemetry.log import Log, LogEvent, configure_logging

    configure_logging()
    log = Log().bind(group=options.group, instance=instance)
    if options.meta_topic and options.meta_topic not in bus.topics():
        bus.create_topic(options.meta_topic)

    def changed(role: AdapterRole, epoch: int) -> None:
        log.event(LogEvent.ROLE_CHANGED, f"this adapter is {role.value}", role=role.value, epoch=epoch)
        if options.meta_topic:
            state = {"group": options.group, "instance": instance, "role": role.value, "epoch": epoch}
            with contextlib.suppress(HotspareError):  # for users only; a failure must not stop the work
                bus.append(Partition(options.meta_topic), [Outgoing(json.dumps(state, sort_keys=True).encode())])

    yield changed


def print_trouble(error: HotspareError) -> None:
    """Prints the reason why an adapter waits."""
    typer.echo(f"waiting: {masked(str(error))}", err=True)


def print_warning(sentence: str) -> None:
    """Prints a warning."""
    typer.echo(f"warning: {sentence}", err=True)


def print_port(port: int) -> None:
    """Prints the port on which an adapter listens."""
    typer.echo(f"listening on port {port}", err=True)
