"""`hotspare quarantine`: shows the windows whose code gets no events any more, or lets it get events again."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from hotspare.cli.shared.places import BusOption, CoordinationOption


def command(
    group: Annotated[
        str, typer.Argument(help="Name the group as `hotspare status` shows it; PREFIX.PROJECT names all shards of a project.")
    ],
    *,
    lift: Annotated[
        str, typer.Option(metavar="QUERY/WINDOW", help="Lift the quarantine of this window; by default only show which there are.")
    ] = "",
    bus: BusOption = "",
    coordination: CoordinationOption = "",
    timeout_s: Annotated[float, typer.Option(help="With --lift: wait at most this many seconds for the group.")] = 30.0,
) -> None:
    """Show the windows that refuse every event because calls of their code did not end, or lift such a quarantine.

    The code then gets the events that follow: those that were refused remain bad events. Three more calls that do not end bring the
    quarantine back. `hotspare upgrade` with changed code lifts it, too.
    """
    from hotspare.operate.groups import group_coordination, groups_named
    from hotspare.operate.quarantine import await_lifted, read_quarantines, request_lift

    with ExitStack() as stack:
        service = group_coordination(stack, bus, coordination)
        groups = groups_named(service, group)
        if not lift:
            for name in groups:
                for each in read_quarantines(service, name):
                    typer.echo(f"{name}: {each.window}, since decision {each.number}")
            return
        requested = request_lift(service, groups, lift)
        left = await_lifted(service, requested, timeout_s)
        for name in requested:
            done = f"not lifted within {timeout_s:g} s; the group will, with its next input" if name in left else "lifted"
            typer.echo(f"{name}: the quarantine of {lift} is {done}")
        if left:
            raise typer.Exit(code=1)
