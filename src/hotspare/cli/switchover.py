"""`hotspare switchover`: move the active role to a spare, with nothing lost or doubled (SPEC C3, Z15)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.retry import Retry

if TYPE_CHECKING:
    from hotspare.coordination.contract import Coordination, Leader

_POLL_S = 0.02


def command(
    group: Annotated[str, typer.Argument(help="Group, as `hotspare status` shows it: PREFIX.PROJECT")],
    bus: Annotated[str, typer.Option(help="Bus of the group; tells where coordination is.")] = "",
    coordination: Annotated[str, typer.Option(help="Coordination, where it is not beside the bus.")] = "",
    to: Annotated[str, typer.Option(help="Engine that is to become active; by default the best spare.")] = "",
    timeout_s: Annotated[float, typer.Option(help="How long to wait for the new active engine.")] = 15.0,
) -> None:
    """Ask the active engine to hand its role over, and wait until another one is active."""
    from hotspare.cli.shared.existing import existing_bus, existing_coordination
    from hotspare.cli.status import known_group
    from hotspare.errors import UsageError

    if not (bus or coordination):
        raise UsageError("neither --bus nor --coordination was given", hint="give --bus URL")
    with ExitStack() as stack:
        if not coordination:
            existing_bus(stack, bus)
        service = existing_coordination(stack, coordination, bus)
        known_group(service, group)
        before = service.leader(group)
        names = [m.engine for m in service.members(group)]
        if not before.holder:
            raise UsageError(f"group {group} has no active engine", hint="`hotspare status` shows the groups")
        if to and to not in names:
            raise UsageError(f"group {group} has no engine {to}", hint="engines: " + ", ".join(names))
        if to == before.holder:
            typer.echo(f"{to} is active already")
            return
        after = _switched(service, group, before, to, timeout_s)
    typer.echo(f"{after.holder} is active under epoch {after.epoch}, after {before.holder}")


def _switched(service: Coordination, group: str, before: Leader, to: str, timeout_s: float) -> Leader:
    """The new leader. UsageError where another engine than `to`, or nobody, became it; then nothing is asked any more."""
    from hotspare.errors import UsageError

    hint = "`hotspare status` shows why"
    service.ask_switchover(group, to)
    try:
        leader = _next_leader(service, group, before.epoch, timeout_s)
    except BaseException:
        service.withdraw_switchover(group)
        raise
    if leader is None:
        # else the role would be given up later, when nobody expects it
        service.withdraw_switchover(group)
        leader = _next_leader(service, group, before.epoch, 0)
    if leader is None:
        raise UsageError(f"no other engine became active within {timeout_s:g} s", detail="the request is withdrawn", hint=hint)
    if to and leader.holder != to:
        raise UsageError(f"{leader.holder} became active under epoch {leader.epoch}, not {to}", hint=hint)
    return leader


def _next_leader(service: Coordination, group: str, epoch: int, timeout_s: float) -> Leader | None:
    """Who holds a newer epoch than `epoch`; None if nobody does until `timeout_s` has passed."""
    for _ in Retry(lasting_s=timeout_s, pause_s=_POLL_S).tries():
        leader = service.leader(group)
        if leader.epoch > epoch and leader.holder:
            return leader
    return None
