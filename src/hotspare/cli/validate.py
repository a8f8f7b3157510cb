"""`hotspare validate`: every mistake and warning of a project, and what it would read and write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hotspare.model.resolve import Resolved


def command(
    project: Annotated[Path, typer.Argument(help="Project file, YAML or ESP XML.")],
    *,
    prefix: Annotated[str, typer.Option(help="First part of all topic names, for the list of topics.")] = "hotspare",
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Project property.")] = None,
    home: Annotated[Path | None, typer.Option(help="Folder that @ESP_PROJECT_HOME@ stands for.")] = None,
) -> None:
    """Check a project. Exit status 2 if it has mistakes, which are all shown, each with its place."""
    from hotspare.bus.naming import checked_prefix
    from hotspare.cli.project_file import loaded_project
    from hotspare.engine.plan import compile_plan

    checked_prefix(prefix)
    loaded = loaded_project(project, set_, home)
    compile_plan(loaded.resolved)
    for warning in loaded.warnings:
        typer.echo(f"warning: {warning}", err=True)
    _show(loaded.resolved, prefix)
    count = len(loaded.warnings)
    typer.echo(f"project {loaded.project.name} has no mistakes and {count} warning{'' if count == 1 else 's'}")


def _show(resolved: Resolved, prefix: str) -> None:
    from hotspare.bus.naming import bad_topic, group_name, inbound_topic, outbound_topic
    from hotspare.cli.display import print_table
    from hotspare.engine.batch import BAD_STREAM

    name = resolved.project.name
    rows = [
        (
            str(window.id),
            type(window.window).__name__.removesuffix("Window").lower(),
            window.window.index.value,
            ", ".join(str(source) for source, _ in window.inputs),
            str(window.schema),
        )
        for window in resolved.windows
    ]
    print_table(f"Windows of {name}, in order of evaluation", ("window", "type", "index", "inputs", "schema"), rows)
    topics = [("input", str(w), inbound_topic(prefix, name, w.query, w.window)) for w in resolved.sources]
    topics += [("output", str(w), outbound_topic(prefix, name, w.query, w.window)) for w in resolved.streams]
    topics.append(("bad events", BAD_STREAM, bad_topic(prefix, name)))
    print_table(f"Topics of group {group_name(prefix, name)}", ("kind", "window", "topic"), topics)
