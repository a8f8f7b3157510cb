"""`hotspare reset`: deletes a group's state, so that it starts again from its input; never while one of its engines is alive."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from hotspare.base.places import absolute_path
from hotspare.cli.shared.places import PREFIX, BusOption, CoordinationOption, PrefixOption, StoreOption
from hotspare.cli.shared.values import ProjectNameOption, SetOption


def command(
    project: Annotated[Path | None, typer.Argument(help="Reset the group of this project file.", parser=absolute_path)] = None,
    *,
    group: Annotated[
        str, typer.Option(help="Reset this group, PREFIX.PROJECT, with all its shards, instead of naming a project file.")
    ] = "",
    bus: BusOption,
    coordination: CoordinationOption = "",
    store: StoreOption = "",
    prefix: PrefixOption = PREFIX,
    set_: SetOption = None,
    project_name: ProjectNameOption = "",
    yes: Annotated[bool, typer.Option("--yes", help="Reset without asking for confirmation.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Reset even if engines on other machines may be alive; by default that is an error.")
    ] = False,
) -> None:
    """Delete a group's state: it starts again with the input that its topics hold. Empties its output topics; keeps the epoch."""
    from hotspare.base.errors import UsageError
    from hotspare.bus.naming import checked_prefix, group_name
    from hotspare.cli.shared.project_file import loaded_project
    from hotspare.operate.groups import UnseenEngines, existing_store, groups_named, open_sources
    from hotspare.operate.reset import Reset
    from hotspare.stores.contract import Access

    if (project is None) == (not group):
        raise UsageError("one of PROJECT and --group is needed")
    if project is not None:
        group = group_name(checked_prefix(prefix), loaded_project(project, set_, name=project_name).project.name)
    with ExitStack() as stack:
        sources = open_sources(stack, bus, coordination, store)
        kept = existing_store(stack, store, bus, Access.CHANGE)
        assert sources.bus is not None
        reset = Reset(sources.bus, sources.coordination, kept, groups_named(sources.coordination, group))
        reset.check_unused(group, UnseenEngines.GONE if force else UnseenEngines.UNKNOWN)
        count = sum(len(sources.store.list(each)) for each in reset.groups) if sources.store is not None else 0
        if not yes:
            typer.confirm(f"forget group {group} with {count} snapshots, and empty its output topics?", abort=True)
        reset.run()
    typer.echo(f"group {group} is forgotten, with {count} snapshots")
    typer.echo("its output topics start again: remove the files that subscribers wrote, and FILE.position next to each")
