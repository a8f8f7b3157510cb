"""`hotspare persist`: a snapshot now, also to a place from which other hosts restore it (SPEC H3, H13, Z4, Z5)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.cli.shared.places import PATH_OR_URL, BusOption, CoordinationOption, StoreOption
from hotspare.telemetry.secrets import masked

if TYPE_CHECKING:
    from hotspare.ha.effects.persisting import PersistRequestState


def command(
    group: Annotated[
        str, typer.Argument(help="Name the group as `hotspare status` shows it; PREFIX.PROJECT names all shards of a project.")
    ],
    *,
    to: Annotated[
        str,
        typer.Option(
            help="Write to this folder, which other hosts reach, or to this store; by default to the group's store.", **PATH_OR_URL
        ),
    ] = "",
    keep: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="With --to: keep only this many of the group's snapshots there; by default all."),
    ] = None,
    by: Annotated[
        str, typer.Option(metavar="ENGINE", help="Let this engine write the snapshot; by default a spare, if there is one.")
    ] = "",
    bus: BusOption = "",
    coordination: CoordinationOption = "",
    store: StoreOption = "",
    timeout_s: Annotated[
        float, typer.Option(help="Wait at most this many seconds until the snapshot is written and confirmed.")
    ] = 300.0,
) -> None:
    """Write a snapshot while the group runs: a spare writes it, and the active engine continues to publish.

    If no engine runs, the newest snapshot that may be restored is copied.
    """
    from hotspare.base.errors import UsageError
    from hotspare.cli.shared.display import progress_bar
    from hotspare.ha.rules.facts import PersistRequest
    from hotspare.host.restoring import store_url
    from hotspare.operate.groups import groups_named, open_sources
    from hotspare.operate.persist import await_persist_outcome, copy_without_engines, live_engines, request_snapshot

    if keep and not to:
        raise UsageError("--keep has an effect only with --to", hint="a group always keeps three in its own store")
    request = PersistRequest(store_url(to) if to else "", by, keep or 0)
    with ExitStack() as stack:
        sources = open_sources(stack, bus, coordination, store)
        groups = groups_named(sources.coordination, group)
        running = {name: live_engines(sources.coordination, name) for name in groups}
        asked = {name: request_snapshot(sources.coordination, name, running[name], request) for name in groups if running[name]}
        for name in groups:
            if running[name]:
                with progress_bar("persist") as show:
                    done = await_persist_outcome(
                        sources.coordination, name, asked[name], timeout_s, lambda state: show(0, 0, _progress(state))
                    )
                text = _persisted(done)
            else:
                info = copy_without_engines(sources, name, request)
                place = f"{info.name} at position {info.order}, is copied to {masked(request.to)}"
                text = f"no engine runs: its newest snapshot, {place}"
            typer.echo(f"{name}: {text}")


def _progress(state: PersistRequestState) -> str:
    return f"engine {state.claims[-1]} writes it" if state.claims else "waits for an engine"


def _persisted(done: PersistRequestState) -> str:
    assert done.outcome is not None
    outcome, where = done.outcome, masked(done.request.to) or "the group's store"
    size = f"{outcome.bytes} bytes, in {outcome.took_ms} ms"
    return f"snapshot {outcome.name} at position {outcome.order} is in {where}, written by {outcome.engine}: {size}"
