"""`hotspare status`: shows troubles and roles on a narrow screen, or all known facts as text or JSON."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hotspare.cli.shared.places import BusOption, CoordinationOption, StoreOption

if TYPE_CHECKING:
    from hotspare.operate.report import Document


def command(
    *,
    bus: BusOption = "",
    coordination: CoordinationOption = "",
    store: StoreOption = "",
    group: Annotated[str, typer.Option(help="Show only this group, PREFIX.PROJECT or PREFIX.PROJECT/SHARD; by default all.")] = "",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show all details, a block for each engine; by default a line.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all facts as one JSON document instead of text.")] = False,
) -> None:
    """Show troubles of groups, and the role and lag of every engine.

    Exit status 1 if a group has no active engine, or there are no groups.
    """
    import shutil
    import time

    from hotspare.cli.looking.details import group_details
    from hotspare.cli.looking.screen import has_active, screen_lines
    from hotspare.cli.shared.display import print_table
    from hotspare.operate.groups import groups_named, open_sources
    from hotspare.operate.report import report

    with ExitStack() as stack:
        sources = open_sources(stack, bus, coordination, store)
        document = report(sources, groups_named(sources.coordination, group) if group else None)
    if as_json:
        typer.echo(json.dumps(document, indent=2, sort_keys=True))
    elif not document["groups"]:
        typer.echo("no group was ever started here")
    else:
        columns = shutil.get_terminal_size().columns
        for line in shard_lines(document, columns):
            typer.echo(line)
        lines = screen_lines(document, time.time_ns() // 1000, columns)
        if verbose:
            if hosted := hosted_shards(document):
                print_table("Shards, those that lag most first", HOSTED_COLUMNS, hosted)
            lines = (line for each in document["groups"] for line in group_details(each, columns))
        for line in lines:
            typer.echo(line)
    if not (document["groups"] and all(map(has_active, document["groups"]))):
        raise typer.Exit(1)


def shard_lines(document: Document, columns: int) -> list[str]:
    """Returns, for each divided project, lines with the shards of each active engine, wrapped at `columns`."""
    from hotspare.bus.naming import own_partition, whole_group
    from hotspare.cli.looking.screen import wrap_lines

    active: dict[str, dict[str, list[int]]] = {}
    for group in document["groups"]:
        name = group["group"]
        if whole_group(name) != name:
            active.setdefault(whole_group(name), {}).setdefault(group["active"] or "nobody", []).append(own_partition(name))
    lines = (
        f"project {whole} in {sum(map(len, by_engine.values()))} shards: "
        + "; ".join(f"{engine} active for {', '.join(map(str, sorted(numbers)))}" for engine, numbers in sorted(by_engine.items()))
        for whole, by_engine in active.items()
    )
    return [part for line in lines for part in wrap_lines(line, columns)]


HOSTED_COLUMNS = ("project", "shard", "application", "task", "executor", "role", "position", "lag")


def hosted_shards(document: Document) -> list[tuple[Any, ...]]:
    """Returns a row with HOSTED_COLUMNS for each engine in a Spark task, the greatest lag first. `position` is the number of
    messages read, `lag` the number still to read.
    Engines without a recent heartbeat are left out, because Spark has started their tasks again under other names.
    """
    from hotspare.bus.naming import own_partition, whole_group

    rows = []
    for group in document["groups"]:
        for engine in group["engines"]:
            if engine["application"] is None or engine["role"] is None:
                continue
            position = sum(p["next_offset"] or 0 for p in engine["positions"])
            lags = [p["lag"] for p in engine["positions"] if p["lag"] is not None]
            place = (engine["application"], engine["task"], engine["executor"] or "")
            name = group["group"]
            rows.append((whole_group(name), own_partition(name), *place, engine["role"], position, sum(lags) if lags else ""))
    return sorted(rows, key=lambda row: (-(row[-1] or 0), row[0], row[1], row[2]))
