"""`hotspare switchover`: move the active role to a spare, with nothing lost or doubled (SPEC C3, Z15)."""

from __future__ import annotations

import time
from typing import Annotated

import typer


def command(
    group: Annotated[str, typer.Argument(help="Group, as `hotspare status` shows it: PREFIX.PROJECT")],
    bus: Annotated[str, typer.Option(help="Bus of the group; tells where coordination is.")] = "",
    coordination: Annotated[str, typer.Option(help="Coordination, where it is not beside the bus.")] = "",
    to: Annotated[str, typer.Option(help="Engine that is to become active; by default the best spare.")] = "",
    timeout_s: Annotated[float, typer.Option(help="How long to wait for the new active engine.")] = 15.0,
) -> None:
    """Ask the active engine to hand its role over, and wait until another one is active."""
    from hotspare.coordination.open import default_coordination_url, open_coordination
    from hotspare.errors import UsageError

    if not (bus or coordination):
        raise UsageError("neither --bus nor --coordination was given")
    service = open_coordination(coordination or default_coordination_url(bus))
    try:
        before = service.leader(group)
        names = [m.engine for m in service.members(group)]
        if not before.holder:
            raise UsageError(f"group {group} has no active engine", hint="`hotspare status` shows the groups")
        if to and to not in names:
            raise UsageError(f"group {group} has no engine {to}", hint="engines: " + ", ".join(names))
        if to == before.holder:
            typer.echo(f"{to} is active already")
            return
        service.ask_switchover(group, to)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            leader = service.leader(group)
            if leader.epoch > before.epoch and leader.holder:
                typer.echo(f"{leader.holder} is active under epoch {leader.epoch}, after {before.holder}")
                return
            time.sleep(0.02)
    finally:
        service.close()
    raise UsageError(f"no other engine became active within {timeout_s:g} s", hint="`hotspare status` shows why")
