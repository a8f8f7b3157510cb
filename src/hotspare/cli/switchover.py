"""`hotspare switchover`: moves the active role to a spare, with nothing lost or duplicated (SPEC C3, Z15)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.cli.shared.places import BusOption, CoordinationOption

if TYPE_CHECKING:
    from hotspare.operate.switchover import Switchover


def command(
    group: Annotated[
        str, typer.Argument(help="Name the group as `hotspare status` shows it; PREFIX.PROJECT names all shards of a project.")
    ],
    *,
    bus: BusOption = "",
    coordination: CoordinationOption = "",
    to: Annotated[str, typer.Option(help="Make this engine active; by default the best spare.")] = "",
    shard: Annotated[list[int] | None, typer.Option(min=0, help="Move only this shard of the project; may be repeated.")] = None,
    application: Annotated[
        str,
        typer.Option(help="Make the engines of this application of --runner partitioned active."),
    ] = "",
    spread: Annotated[
        bool, typer.Option("--spread", help="Move only as many shards as are needed for every engine to have its share.")
    ] = False,
    timeout_s: Annotated[float, typer.Option(help="Wait at most this many seconds for the new active engine.")] = 15.0,
) -> None:
    """Request the active engine to release its role, and wait until another engine is active."""
    from hotspare.base.errors import UsageError
    from hotspare.operate.groups import group_coordination, groups_named
    from hotspare.operate.switchover import groups_of_shards, moves_to_application, moves_to_equal_shares, switch_over

    said = [name for name, is_said in {"--spread": spread, "--to": to, "--application": application}.items() if is_said]
    if len(said) > 1:
        raise UsageError(f"{said[0]} and {said[1]} contradict each other", hint="leave one out")
    with ExitStack() as stack:
        service = group_coordination(stack, bus, coordination)
        groups = groups_of_shards(groups_named(service, group), shard or ())
        if application:
            moves = moves_to_application(service, groups, application)
        else:
            moves = moves_to_equal_shares(service, groups) if spread else dict.fromkeys(groups, to)
        if not moves:
            typer.echo(f"{application} is active already" if application else "every engine has its share already")
        for name, engine in moves.items():
            text = switchover_sentence(switch_over(service, name, engine, timeout_s))
            typer.echo(f"{name}: {text}" if len(groups) > 1 else text)


def switchover_sentence(done: Switchover) -> str:
    """Returns a sentence on the active engine after a switch-over."""
    if not done.has_moved:
        return f"{done.engine} is active already"
    return f"{done.engine} is active under epoch {done.epoch}, after {done.previous or 'no engine'}"
