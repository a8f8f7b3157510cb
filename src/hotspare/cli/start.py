"""`hotspare start`: let an engine join that was loaded to wait for that (SPEC H2)."""

from __future__ import annotations

from typing import Annotated

import typer

from hotspare.cli.shared.places import BusOption, CoordinationOption


def command(
    group: Annotated[str, typer.Argument(help="Group, as `hotspare status` shows it.")],
    engine: Annotated[str, typer.Argument(help="Engine that waits: one of `hotspare run --start asked`.")],
    *,
    bus: BusOption = "",
    coordination: CoordinationOption = "",
) -> None:
    """Start an engine that was loaded with `hotspare run --start asked`. It restores, joins its group and catches up."""
    from hotspare.cli.shared.ordering import ordered
    from hotspare.host.orders import EngineOrder

    (member,) = ordered(group, engine, EngineOrder.START, bus, coordination)
    typer.echo(f"engine {engine}, process {member.process_id} on {member.host}, is told to start")
