"""`hotspare restore`: copies a persisted snapshot into a group's store, from which its engines start (SPEC H2, H6, H9, Z6)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.places import absolute_path, absolute_path_or_url
from hotspare.cli.shared.places import PREFIX, BusOption, CoordinationOption, PrefixOption, StoreOption
from hotspare.cli.shared.values import ProjectNameOption, SetOption, ShardsOption

if TYPE_CHECKING:
    from hotspare.ha.effects.restoring import RestoreCandidate


def command(
    project: Annotated[Path, typer.Argument(help="Read the project from this file, YAML or ESP XML.", parser=absolute_path)],
    source: Annotated[
        str,
        typer.Argument(
            metavar="PATH-OR-URL",
            help="Read the snapshot from this folder, or from the store at this URL.",
            parser=absolute_path_or_url,
        ),
    ],
    snapshot: Annotated[
        str, typer.Argument(help="Choose a snapshot: newest, a name or its beginning, time:2026-01-31T08:00, or position:12345.")
    ] = "newest",
    *,
    bus: BusOption,
    coordination: CoordinationOption = "",
    store: StoreOption = "",
    prefix: PrefixOption = PREFIX,
    check: Annotated[
        bool, typer.Option("--check", help="Only compare the snapshot with the topics; by default restore it, too.")
    ] = False,
    set_: SetOption = None,
    project_name: ProjectNameOption = "",
    shards: ShardsOption = 1,
) -> None:
    """Copy a persisted snapshot into the group's store, after comparing it with the messages that the topics hold.

    The next engine that starts restores it, and catches up. Running engines are not affected.
    """
    from hotspare.cli.shared.project_file import loaded_project
    from hotspare.operate.groups import ServiceUrls
    from hotspare.operate.restore import RestoreRequest, plan_restore, restore

    request = RestoreRequest(loaded_project(project, set_, name=project_name), prefix, shards, source, snapshot)
    with ExitStack() as stack:
        planned = plan_restore(stack, request, ServiceUrls(bus, coordination, store))
        for each in planned:
            _print_snapshot(each.to.group, each.found)
        for each in planned:
            if each.found.refusals or not check:
                typer.echo(f"{each.to.group}: {_outcome(each.found) if restore(each) else _needless(each.found)}")


def _print_snapshot(group: str, found: RestoreCandidate) -> None:
    """Prints the snapshot's description, and the offsets that determine whether it can be restored."""
    from hotspare.stores.snapshot_choice import time_text

    info = found.info
    typer.echo(
        f"{group}: snapshot {info.name} at position {info.order}, written {time_text(info.written_time_us)} by {info.engine}"
    )
    for partition in found.partitions:
        typer.echo(f"  {partition.sentence}")


def _outcome(found: RestoreCandidate) -> str:
    return f"restored; {found.messages_left} messages to catch up with"


def _needless(found: RestoreCandidate) -> str:
    assert found.newer_own is not None
    return f"nothing to do: the group's own snapshot {found.newer_own.name} is as far or further, and gives the same outputs"
