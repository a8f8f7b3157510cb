"""`hotspare reset`: forget what a group remembers, so that it begins anew; never while one of its engines is alive."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.places import absolute_path
from hotspare.cli.shared.places import PREFIX, BusOption, CoordinationOption, PrefixOption, StoreOption
from hotspare.cli.shared.values import ProjectNameOption, SetOption

if TYPE_CHECKING:
    from hotspare.coordination.contract import Coordination


def command(
    project: Annotated[Path | None, typer.Argument(help="Project file whose group is meant.", parser=absolute_path)] = None,
    *,
    group: Annotated[str, typer.Option(help="Instead of a project's file: the group, PREFIX.PROJECT, with all its shards")] = "",
    bus: BusOption,
    coordination: CoordinationOption = "",
    store: StoreOption = "",
    prefix: PrefixOption = PREFIX,
    set_: SetOption = None,
    project_name: ProjectNameOption = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also where engines of other machines may be alive.")] = False,
) -> None:
    """Forget a group's state: it begins anew with the input that is kept. Its output topics are emptied; the epoch stays."""
    from hotspare.base.errors import UsageError
    from hotspare.bus.naming import checked_prefix, group_name
    from hotspare.cli.shared.existing import existing_store
    from hotspare.cli.shared.living import Others, refuse_if_alive
    from hotspare.cli.shared.project_file import loaded_project
    from hotspare.cli.status import known_groups, open_sources
    from hotspare.ha.effects.upgrading import forget, places
    from hotspare.stores.contract import Access

    if (project is None) == (not group):
        raise UsageError("one of PROJECT and --group is needed")
    if project is not None:
        group = group_name(checked_prefix(prefix), loaded_project(project, set_, name=project_name).project.name)
    with ExitStack() as stack:
        sources = open_sources(stack, bus, coordination, store)
        groups, kept = known_groups(sources.coordination, group), existing_store(stack, store, bus, Access.CHANGE)
        for each in groups:
            refuse_if_alive(sources.coordination, each, Others.GONE if force else Others.UNKNOWN)
        _refuse_if_read(sources.coordination, group)
        count = sum(len(sources.store.list(each)) for each in groups) if sources.store is not None else 0
        if not yes:
            typer.confirm(f"forget group {group} with {count} snapshots, and empty its output topics?", abort=True)
        # in this order, so that a reset that was cut short leaves nothing that stands ahead of what is published
        assert sources.bus is not None
        for each in groups:
            if kept is not None:
                for place in places(sources.coordination, each):
                    kept.forget(place)
            forget(sources.coordination, each)
            sources.bus.forget(each)
    typer.echo(f"group {group} is forgotten, with {count} snapshots")
    typer.echo("its output topics begin anew: files that subscribers wrote, and FILE.position beside each, are to be removed")


def _refuse_if_read(service: Coordination, group: str) -> None:
    """UsageError naming a group that reads an output stream of this one. It would take the beginning of the new stream for what
    follows the old one, and hold the rows of both."""
    from hotspare.base.errors import UsageError
    from hotspare.ha.effects.joining import groups_behind

    behind = groups_behind(service, group)
    if behind:
        what = f"group {behind[0]} reads what group {group} puts out, and would take the new stream for the rest of the old one"
        raise UsageError(what, hint=f"forget it first, with: hotspare reset --group {behind[0]}")
