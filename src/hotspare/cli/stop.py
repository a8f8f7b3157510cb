"""`hotspare stop`: ask one engine of a group to end, or all, from whichever machine (SPEC H1)."""

from __future__ import annotations

from typing import Annotated

import typer

from hotspare.cli.shared.places import BusOption, CoordinationOption


def command(
    group: Annotated[str, typer.Argument(help="Group, as `hotspare status` shows it.")],
    engine: Annotated[str, typer.Argument(help="Engine that is to end; by default every engine of the group.")] = "",
    *,
    bus: BusOption = "",
    coordination: CoordinationOption = "",
) -> None:
    """Ask engines to end as Ctrl-C does: an engine commits what it has, and passes its role to a spare.

    Of a whole group the active engine is asked last.
    """
    from hotspare.cli.shared.ordering import ordered
    from hotspare.host.orders import EngineOrder

    for member in ordered(group, engine, EngineOrder.STOP, bus, coordination):
        typer.echo(f"engine {member.engine}, process {member.process_id} on {member.host}, is asked to stop")
