"""`hotspare start`: lets an engine that was loaded with `--start asked` join its group (SPEC H2)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from hotspare.cli.shared.places import BusOption, CoordinationOption


def command(
    group: Annotated[str, typer.Argument(help="Name the group as `hotspare status` shows it.")],
    engine: Annotated[str, typer.Argument(help="Start this engine, which waits because of `hotspare run --start asked`.")],
    *,
    bus: BusOption = "",
    coordination: CoordinationOption = "",
) -> None:
    """Start an engine that was loaded with `hotspare run --start asked`. It restores, joins its group and catches up."""
    from hotspare.host.orders import EngineOrder
    from hotspare.operate.groups import group_coordination
    from hotspare.operate.orders import order_engines

    with ExitStack() as stack:
        (member,) = order_engines(group_coordination(stack, bus, coordination), group, engine, EngineOrder.START)
    typer.echo(f"engine {engine}, process {member.process_id} on {member.host}, is requested to start")
