"""`hotspare dev`: real servers in the background, for development on one machine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.cli.shared.places import PATH

if TYPE_CHECKING:
    from hotspare.testing.dev_servers import DevKind, DevRecord


class Server(StrEnum):
    """The kinds of server that `hotspare dev` starts, with the values of `DevKind`, which is slow to import."""

    KAFKA = "kafka"
    ZOOKEEPER = "zookeeper"


class Action(StrEnum):
    UP = "up"
    DOWN = "down"
    STATUS = "status"


BROKERS = (1, 3)


def command(
    server: Annotated[Server, typer.Argument(help="Start, end or show servers of this kind.")],
    action: Annotated[Action, typer.Argument(help="Start the servers, end them, or show which run.")],
    *,
    brokers: Annotated[int | None, typer.Option(help="Start this many Kafka brokers with `up`: 1 (the default) or 3.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Store records and data in this folder; by default in $XDG_STATE_HOME/hotspare/dev.", **PATH)
    ] = None,
) -> None:
    """Run a real Kafka or ZooKeeper on this machine, for development.

    `up` starts servers that run on in the background, on free ports of the loopback interface, and prints the URL to use. `down`
    ends exactly these and removes their data. `status` ends with exit status 1 if no server runs.
    """
    from hotspare.base.errors import UsageError
    from hotspare.testing.dev_servers import DevKind, bring_up, default_folder, running_record, take_down

    if brokers is not None and (brokers not in BROKERS or server is not Server.KAFKA):
        raise UsageError(f"--brokers {brokers} cannot be used with {server.value}", hint="kafka takes 1 or 3, zookeeper none")
    place, kind = (folder or default_folder()).absolute(), DevKind(server.value)
    if action is Action.UP:
        if running_record(place, kind) is None:
            typer.echo(f"starting {kind.value} in {place}", err=True)
        typer.echo(bring_up(place, kind, brokers).url)
    elif action is Action.DOWN:
        ended = take_down(place, kind)
        typer.echo(f"{kind.value} was not up" if ended is None else f"{kind.value} at {ended.url} is down, and its data is gone")
    else:
        _show(kind, running_record(place, kind))


def _show(kind: DevKind, record: DevRecord | None) -> None:
    if record is None:
        typer.echo(f"{kind.value} is not up")
        raise typer.Exit(1)
    typer.echo(f"{kind.value} is up: {record.url}")
    for process in record.servers:
        typer.echo(f"  {process.name}: " + ("has ended" if process.has_exited else f"process {process.process_id}"))
