"""`hotspare stop`: requests one engine of a group, or all, to end, from any machine (SPEC H1)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from hotspare.cli.shared.places import BusOption, CoordinationOption


def command(
    group: Annotated[str, typer.Argument(help="Name the group as `hotspare status` shows it.")],
    engine: Annotated[str, typer.Argument(help="Stop this engine; by default every engine of the group.")] = "",
    *,
    bus: BusOption = "",
    coordination: CoordinationOption = "",
) -> None:
    """Request engines to end as Ctrl-C does: an engine commits its outputs, and a spare takes over its role.

    If the whole group is stopped, the active engine is last.
    """
    from hotspare.host.orders import EngineOrder
    from hotspare.operate.groups import group_coordination
    from hotspare.operate.orders import order_engines

    with ExitStack() as stack:
        told = order_engines(group_coordination(stack, bus, coordination), group, engine, EngineOrder.STOP)
    for member in told:
        typer.echo(f"engine {member.engine}, process {member.process_id} on {member.host}, is requested to stop")
