"""`hotspare stop`: asks one engine of a group to end, or all, from any machine (SPEC H1)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from hotspare.cli.shared.places import BusOption, CoordinationOption


def command(
    group: Annotated[str, typer.Argument(help="Group, as `hotspare status` shows it.")],
    engine: Annotated[str, typer.Argument(help="Engine to stop; by default every engine of the group.")] = "",
    *,
    bus: BusOption = "",
    coordination: CoordinationOption = "",
) -> None:
    """Ask engines to end as Ctrl-C does: an engine commits what it has, and passes its role to a spare.

    If the whole group is stopped, the active engine is last.
    """
    from hotspare.host.orders import EngineOrder
    from hotspare.operate.groups import group_coordination
    from hotspare.operate.orders import order_engines

    with ExitStack() as stack:
        told = order_engines(group_coordination(stack, bus, coordination), group, engine, EngineOrder.STOP)
    for member in told:
        typer.echo(f"engine {member.engine}, process {member.process_id} on {member.host}, is requested to stop")
