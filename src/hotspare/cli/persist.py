"""`hotspare persist`: a snapshot now, also to a place from which other hosts restore it (SPEC H3, H13, Z4, Z5)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.retry import Retry
from hotspare.cli.shared.places import PATH_OR_URL, BusOption, CoordinationOption, StoreOption

if TYPE_CHECKING:
    from hotspare.cli.shared.group_report import GroupSources
    from hotspare.coordination.contract import Coordination, Member
    from hotspare.ha.effects.persisting import AskedSnapshot
    from hotspare.ha.rules.facts import PersistRequest

_POLL_S = 0.05


def command(
    group: Annotated[str, typer.Argument(help="Group, as `hotspare status` shows it; PREFIX.PROJECT: of a project in shards all.")],
    *,
    to: Annotated[
        str,
        typer.Option(help="Folder that other hosts reach, or a store's URL; by default the group's store.", **PATH_OR_URL),
    ] = "",
    keep: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --to: so many of the group's snapshots stay there; by default all.")
    ] = None,
    by: Annotated[str, typer.Option(metavar="ENGINE", help="Engine that writes it; by default a spare, where there is one.")] = "",
    bus: BusOption = "",
    coordination: CoordinationOption = "",
    store: StoreOption = "",
    timeout_s: Annotated[float, typer.Option(help="How long to wait until it is written and may be restored.")] = 300.0,
) -> None:
    """Write a snapshot while the group runs: a spare does it, and the active goes on.

    Where no engine runs, the newest snapshot that may be restored is copied.
    """
    from hotspare.base.errors import UsageError
    from hotspare.cli.status import known_groups, open_sources
    from hotspare.ha.rules.facts import PersistRequest
    from hotspare.host.restoring import store_url

    if keep and not to:
        raise UsageError("--keep is for a place that --to names", hint="of its own store a group keeps three by itself")
    request = PersistRequest(store_url(to) if to else "", by, keep or 0)
    with ExitStack() as stack:
        sources = open_sources(stack, bus, coordination, store)
        groups = known_groups(sources.coordination, group)
        running = {name: _running(sources.coordination, name) for name in groups}
        asked = {name: _ask(sources.coordination, name, running[name], request) for name in groups if running[name]}
        for name in groups:
            told = (
                _awaited(sources.coordination, name, asked[name], timeout_s) if running[name] else _copied(sources, name, request)
            )
            typer.echo(f"{name}: {told}")


def _running(service: Coordination, group: str) -> list[Member]:
    """Engines that gave word lately and have not ended."""
    from hotspare.cli.shared.group_report import SILENT_MS_MAX, is_heard
    from hotspare.ha.rules.roles import AT_WORK

    members, leader = service.members(group), service.leader(group)
    newest_ms = max((member.seen_ms for member in members), default=0)
    heard = [m for m in members if newest_ms - m.seen_ms < SILENT_MS_MAX and is_heard(m, leader, newest_ms)]
    return [m for m in heard if m.role in AT_WORK]


def _ask(service: Coordination, group: str, engines: list[Member], request: PersistRequest) -> int:
    from hotspare.base.errors import UsageError
    from hotspare.ha.effects.persisting import ask

    meant = [member for member in engines if request.by in ("", member.engine)]
    if not meant:
        names = ", ".join(member.engine for member in engines)
        raise UsageError(f"group {group} has no engine {request.by} that runs", hint=f"engines: {names}")
    return ask(service, group, request)


def _awaited(service: Coordination, group: str, number: int, timeout_s: float) -> str:
    """What came of the request. StoreError where it could not be written, UsageError where that takes too long."""
    from hotspare.base.errors import StoreError, UsageError
    from hotspare.cli.shared.display import progress_bar
    from hotspare.ha.effects.persisting import asked
    from hotspare.ha.rules.requests import KEPT
    from hotspare.telemetry.secrets import masked

    known: AskedSnapshot | None = None
    with progress_bar("persist") as update:
        for _ in Retry(lasting_s=timeout_s, pause_s=_POLL_S).tries():
            known = asked(service, group, number)
            if known is None or known.outcome is not None:
                break
            update(0, 0, f"engine {known.claims[-1]} writes it" if known.claims else "waits for an engine")
    if known is None:
        what = f"what came of request {number} of group {group} is no longer told, as {KEPT} others are done since"
        raise UsageError(what, hint="`hotspare state ls` shows the snapshots of a store")
    if known.outcome is None:
        who = f"engine {known.claims[-1]} has undertaken it" if known.claims else "no engine has undertaken it"
        detail = f"{who}; it is restored only when what it stands on is committed"
        raise UsageError(f"request {number} is not done after {timeout_s:g} s", detail=detail, hint="`hotspare status` shows it")
    outcome = known.outcome
    if outcome.failure:
        raise StoreError(f"engine {outcome.engine} could not persist a snapshot of group {group}", detail=masked(outcome.failure))
    where = masked(known.request.to) or "the group's store"
    size = f"{outcome.bytes} bytes, in {outcome.took_ms} ms"
    return f"snapshot {outcome.name} at position {outcome.order} is in {where}, written by {outcome.engine}: {size}"


def _copied(sources: GroupSources, group: str, request: PersistRequest) -> str:
    """The newest snapshot of a group whose engines are all gone. UsageError where there is none, or nowhere to copy it to."""
    from hotspare.base.errors import UsageError
    from hotspare.ha.effects.persisting import copy
    from hotspare.stores.open import open_store
    from hotspare.telemetry.secrets import masked

    if not request.to:
        raise UsageError(f"no engine of group {group} runs", hint="say --to PATH, to copy its newest snapshot there")
    if sources.store is None:
        raise UsageError(f"group {group} has no snapshot", hint="give --store URL, where they are kept elsewhere")
    target = open_store(request.to)
    try:
        info = copy(sources.store, target, sources.coordination, group, request.keep)
    finally:
        target.close()
    return f"no engine runs: its newest snapshot, {info.name} at position {info.order}, is copied to {masked(request.to)}"
