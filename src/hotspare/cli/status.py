"""`hotspare status`: what is wrong and who does what, on a narrow screen; everything that is known, as tables or as JSON."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hotspare.cli.shared.places import URL

if TYPE_CHECKING:
    from hotspare.cli.shared.group_report import Document, GroupSources
    from hotspare.coordination.contract import Coordination


def command(
    *,
    bus: Annotated[str, typer.Option(help="Bus, e.g. sqlite:///demo.db; tells where coordination and snapshots are.", **URL)] = "",
    coordination: Annotated[str, typer.Option(help="Coordination, where it is not beside the bus.", **URL)] = "",
    store: Annotated[str, typer.Option(help="Store of snapshots, where it is not beside the bus.", **URL)] = "",
    group: Annotated[str, typer.Option(help="Only this group, PREFIX.PROJECT or PREFIX.PROJECT/SHARD")] = "",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Everything that is known, as tables.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as one JSON document.")] = False,
) -> None:
    """Show what is wrong, and what every engine of every group is doing.

    Exit status 1 if a group has no active engine, or there are no groups.
    """
    import shutil
    import time

    from hotspare.cli.looking.screen import has_active, screen
    from hotspare.cli.shared.group_report import report

    with ExitStack() as stack:
        sources = open_sources(stack, bus, coordination, store)
        document = report(sources, known_groups(sources.coordination, group) if group else None)
    if as_json:
        typer.echo(json.dumps(document, indent=2, sort_keys=True))
    elif not document["groups"]:
        typer.echo("no group was ever started here")
    elif verbose:
        _show(document)
    else:
        for line in (*shard_lines(document), *screen(document, time.time_ns() // 1000, shutil.get_terminal_size().columns)):
            typer.echo(line)
    if not (document["groups"] and all(map(has_active, document["groups"]))):
        raise typer.Exit(1)


def open_sources(stack: ExitStack, bus: str, coordination: str, store: str) -> GroupSources:
    """Bus, coordination and store by URL or beside the bus; closed with `stack`. UsageError where nothing says where they are,
    and where a file that is named does not exist."""
    from hotspare.cli.shared.existing import existing_bus, existing_coordination, existing_snapshots
    from hotspare.cli.shared.group_report import GroupSources
    from hotspare.errors import UsageError

    if not bus and not coordination:
        raise UsageError("neither --bus nor --coordination was given", hint="give --bus URL")
    opened_bus = existing_bus(stack, bus) if bus else None
    service = existing_coordination(stack, coordination, bus)
    return GroupSources(service, opened_bus, existing_snapshots(stack, store, bus, service))


def known_groups(service: Coordination, group: str) -> list[str]:
    """Returns the group of this name, or the groups of all shards if the project is divided. The name may be that of the project if
    only one prefix has it. UsageError if no group has the name, or several have it."""
    from hotspare.bus.naming import own_partition, whole_group
    from hotspare.errors import UsageError

    groups = service.groups()
    names = {*groups, *map(whole_group, groups)}
    found = [group] if group in names else sorted({name for name in names if name.endswith(f".{group}")})
    if not found:
        raise UsageError(f"no group is called {group}", hint="groups: " + (", ".join(groups) or "none"))
    if len(found) > 1:
        raise UsageError(f"{len(found)} groups are of project {group}", hint="name one of them: " + ", ".join(found))
    shards = [each for each in groups if whole_group(each) == found[0] != each]
    return sorted(shards, key=own_partition) or found


def known_group(service: Coordination, group: str) -> str:
    """Returns the one group of this name, as `known_groups` finds it. UsageError also if the project is divided."""
    from hotspare.errors import UsageError

    found = known_groups(service, group)
    if len(found) > 1:
        raise UsageError(f"{group} is in {len(found)} shards", hint="name one of them: " + ", ".join(found[:3]) + " ...")
    return found[0]


def _show(document: Document) -> None:
    from hotspare.cli.looking.screen import NO_SNAPSHOT, switchover_asked
    from hotspare.cli.shared.display import print_table

    for line in shard_lines(document):
        typer.echo(line)
    if hosted := hosted_shards(document):
        print_table("Shards, those that lag most first", HOSTED_COLUMNS, hosted)
    for group in document["groups"]:
        active = group["active"] or "nobody"
        typer.echo(f"group {group['group']}: epoch {group['epoch']}, active {active}{_lease(group)}")
        for line in switchover_asked(group):
            typer.echo(line)
        print_table(
            "Engines",
            ("engine", "role", "since", "epoch", "process", "address", "running", "lag", "held", "held_bytes", "skew_ms", "note"),
            _engines(group),
        )
        for line in memory_lines(group):
            typer.echo(line)
        positions = [
            (e["engine"], *_values(p, "topic partition next_offset end_offset lag skew_ms"))
            for e in group["engines"]
            for p in e["positions"]
        ]
        if connectors := _connectors(group):
            print_table("Connectors", ("engine", "connector", "state", "rows", "next try", "last error"), connectors)
        if bad := _bad_events(group):
            print_table("Bad events since each engine started", ("engine", "window", "reason", "count"), bad)
        if unknown := _unknown_members(group):
            print_table("Unknown members in the events looked at", ("engine", "window", "member", "field meant", "events"), unknown)
        print_table("Positions", ("engine", "topic", "partition", "next_offset", "end_offset", "lag", "skew_ms"), positions)
        print_table("Output streams", ("engine", "stream", "sequence", "committed", "held", "digest"), _streams(group))
        snapshots = [
            (*_values(s, "name engine status bytes_total"), "" if s["written_time_us"] is None else _time(s["written_time_us"]))
            for s in group["snapshots"]
        ]
        for line in (*store_lines(group), *persist_lines(group)):
            typer.echo(line)
        newest = group["newest_snapshot"]
        if newest is not None:
            typer.echo(f"newest snapshot that may be restored: {newest['age_ms'] / 1000:.1f} s old, by {newest['engine']}")
        if snapshots:
            print_table("Snapshots", ("name", "engine", "status", "bytes_total", "written"), snapshots)
        elif not group["store_failure"]:
            typer.echo(NO_SNAPSHOT)


def memory_lines(group: Document) -> list[str]:
    """Of each engine whose state has a budget in memory what there is of it."""
    return [
        f"memory of engine {engine['engine']}: "
        + ", ".join(f"{what.replace('_', ' ')} {size / (1 << 20):.0f} MiB" for what, size in engine["memory"].items())
        for engine in group["engines"]
        if engine["memory"]
    ]


def store_lines(group: Document) -> list[str]:
    """What is wrong with the store, as this command finds it, and as engines did when they wrote last."""
    from hotspare.cli.looking.screen import snapshot_failed, store_failed

    lines = [] if group["store_failure"] is None else [store_failed(group)]
    lines += [snapshot_failed(e) for e in group["engines"] if e["snapshot_failure"] and e["role"] is not None]
    return lines + [f"{engine['engine']}: {why}" for engine in group["engines"] for why in engine["snapshots_refused"]]


def persist_lines(group: Document) -> list[str]:
    """Who persists a snapshot now, and what came of the last time."""
    own, done = "the group's store", group["persisted"]
    found = [(e["engine"], e["persisting"]) for e in group["engines"] if e["persisting"] is not None and e["role"] is not None]
    lines = [f"{engine} persists a snapshot to {asked['to'] or own}, request {asked['number']}" for engine, asked in found]
    if done is not None:
        came = done["failure"] or f"snapshot {done['name']}, {done['bytes']} bytes in {done['took_ms']} ms"
        lines.append(f"persisted last, request {done['number']} to {done['to'] or own} by {done['engine']}: {came}")
    return lines


def shard_lines(document: Document) -> list[str]:
    """Of each project that is divided, who is active for which of its shards."""
    from hotspare.bus.naming import own_partition, whole_group

    active: dict[str, dict[str, list[int]]] = {}
    for group in document["groups"]:
        name = group["group"]
        if whole_group(name) != name:
            active.setdefault(whole_group(name), {}).setdefault(group["active"] or "nobody", []).append(own_partition(name))
    return [
        f"project {whole} in {sum(map(len, by_engine.values()))} shards: "
        + "; ".join(f"{engine} active for {', '.join(map(str, sorted(numbers)))}" for engine, numbers in sorted(by_engine.items()))
        for whole, by_engine in active.items()
    ]


HOSTED_COLUMNS = ("project", "shard", "application", "task", "executor", "role", "position", "lag")


def hosted_shards(document: Document) -> list[tuple[Any, ...]]:
    """Of each engine that a task of Spark hosts its shard, place, role, how many messages it has read, and how many are left; the
    slowest first. Engines that gave no word lately are left out: their tasks were started again under other names."""
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


def _lease(group: Document) -> str:
    left_ms = group["lease_left_ms"]
    if left_ms is None:
        return ""
    return f", {left_ms} ms of its lease left" if left_ms > 0 else ", its lease is over"


def _engines(group: Document) -> list[tuple[Any, ...]]:
    rows = []
    for engine in group["engines"]:
        skews = [p["skew_ms"] for p in engine["positions"] if p["skew_ms"] is not None]
        lags = [p["lag"] for p in engine["positions"] if p["lag"] is not None]
        held = [s["held"] for s in engine["streams"] if s["held"] is not None]
        running = {True: "yes", False: "no", None: "?"}[engine["is_running"]]
        process = f"{engine['host']}:{engine['process_id']}"
        numbers = (sum(lags) if lags else "", sum(held) if held else "")
        rows.append(
            (
                engine["engine"],
                engine["role"] or f"not heard of since {_time(engine['heard_us'])}",
                "" if engine["role_since_us"] is None else _time(engine["role_since_us"]),
                *_values(engine, "epoch"),
                process,
                engine["address"],
                running,
                *numbers,
                *_values(engine, "held_bytes"),
                max(skews, key=abs, default=""),
                engine["ended_because"] or _trouble(engine),
            )
        )
    return rows


def _connectors(group: Document) -> list[tuple[Any, ...]]:
    """Returns the rows of the connectors of engines that give signs of life."""
    return [
        (engine["engine"], *_values(each, "connector state rows"), _in_seconds(each["retry_in_ms"]), each["last_error"] or "")
        for engine in group["engines"]
        for each in engine["connectors"]
        if engine["role"] is not None
    ]


def _in_seconds(time_ms: int | None) -> str:
    return "" if time_ms is None else f"in {time_ms / 1000:.0f} s"


def _bad_events(group: Document) -> list[tuple[Any, ...]]:
    return [
        (engine["engine"], *_values(each, "window reason count"))
        for engine in group["engines"]
        for each in engine["bad_events"]
        if engine["role"] is not None
    ]


def _unknown_members(group: Document) -> list[tuple[Any, ...]]:
    return [
        (engine["engine"], *_values(each, "window member near events"))
        for engine in group["engines"]
        for each in engine["unknown_members"]
        if engine["role"] is not None
    ]


def _trouble(engine: Document) -> str:
    stalled_ms = engine["stalled_ms"]
    was = [] if engine["role"] else [f"was {engine['last_role']}"]
    stall = [f"no input for {stalled_ms / 1000:.1f} s, though some is there"] if stalled_ms else []
    warms = [engine["warming"]] if engine["warming"] else []
    warms += [f"starting: {engine['starting']}"] if engine["starting"] else []
    trouble = [engine["trouble"]] if engine["trouble"] else []
    return "; ".join([*was, *warms, *stall, *trouble, *(f"{stream} waits: {why}" for stream, why in engine["oversized"].items())])


def _streams(group: Document) -> list[tuple[Any, ...]]:
    rows = [("committed", *_values(p, "stream sequence"), p["sequence"], 0, p["digest"]) for p in group["progress"]]
    return rows + [
        (engine["engine"], *_values(stream, "stream sequence committed held digest"))
        for engine in group["engines"]
        for stream in engine["streams"]
    ]


def _values(document: Document, names: str) -> tuple[Any, ...]:
    return tuple("" if document[name] is None else document[name] for name in names.split())


def _time(time_us: int) -> str:
    from hotspare.cli.topics import time_text

    return time_text(time_us)
