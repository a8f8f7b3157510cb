"""`hotspare state`: inspects the snapshots of a group, in any store (SPEC G12, H13)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hotspare.base.places import absolute_path
from hotspare.cli.shared.inbound import MISSING_TOPIC_POLICY, CreateOption
from hotspare.cli.shared.places import PATH, PREFIX, URL, BusOption, CoordinationOption, PrefixOption, StoreOption
from hotspare.cli.shared.values import ProjectNameOption, SchemaFileOption, SetOption, ShardsOption, window_path

if TYPE_CHECKING:
    import pyarrow as pa

    from hotspare.coordination.contract import Coordination
    from hotspare.flow.plan import Plan
    from hotspare.operate.snapshots import HeaderChanges, LoadedSnapshot, SnapshotPlace
    from hotspare.stores.contract import SnapshotInfo

HELP = "Inspect the snapshots of a group: their content, rows of windows, and the differences of two."

GroupArgument = Annotated[str, typer.Argument(help="Name the group as `hotspare status` shows it.")]
SnapshotArgument = Annotated[
    str,
    typer.Argument(
        help="Choose a snapshot: newest, a name or its beginning, time:2026-01-31T08:00, or position:12345.", show_default=True
    ),
]
ProjectOption = Annotated[
    Path | None, typer.Option(help="Read the project from this file; by default from the group's own copy.", **PATH)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
PartOption = Annotated[
    str, typer.Option(help="Read this part of the window's state, as `show` lists them; by default its outputs.")
]
KeyOption = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="VALUE", help="Select rows with this key, one value per key field; by default all rows."),
]
WhereOption = Annotated[
    str, typer.Option(metavar="CONDITION", help="Select rows for which this Spark SQL expression is true; by default all.")
]


def ls(
    group: Annotated[str, typer.Argument(help="Name the group as `hotspare status` shows it; with --bus, by default all.")] = "",
    *,
    bus: BusOption = "",
    coordination: CoordinationOption = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """List the snapshots of a group: name, position, time, size, and whether they may be restored."""
    from hotspare.cli.shared.display import print_table
    from hotspare.operate.groups import ServiceUrls
    from hotspare.operate.snapshots import list_snapshots, open_snapshots

    with ExitStack() as stack:
        listed = list_snapshots(open_snapshots(stack, ServiceUrls(bus, coordination, store)), group)
    if as_json:
        typer.echo(json.dumps({"groups": {name: [_described(i) for i in infos] for name, infos in listed.items()}}, indent=2))
        return
    for name, infos in listed.items():
        rows = [tuple(_described(info).values()) for info in infos]
        print_table(f"Snapshots of {name}", ("name", "position", "written", "engine", "status", "bytes"), rows)


def show(
    group: GroupArgument,
    snapshot: SnapshotArgument = "newest",
    *,
    window: Annotated[str, typer.Option(help="Show rows of this window, QUERY/WINDOW; by default show the snapshot's parts.")] = "",
    part: PartOption = "rows",
    key: KeyOption = None,
    where: WhereOption = "",
    limit: Annotated[int, typer.Option(min=0, help="Show at most this many rows.")] = 20,
    bus: BusOption = "",
    coordination: CoordinationOption = "",
    store: StoreOption = "",
    project: ProjectOption = None,
    set_: SetOption = None,
    project_name: ProjectNameOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show what is in a snapshot and what running engines have of it in memory, or, with --window, rows of a window."""
    from hotspare.base.errors import UsageError
    from hotspare.operate.groups import ServiceUrls
    from hotspare.operate.snapshots import RowSelection, load_snapshot, open_snapshots, select_rows

    if not window and (key or where or part != "rows"):
        raise UsageError("--key, --where and --part select rows of a window", hint="give --window QUERY/WINDOW, too")
    with ExitStack() as stack:
        place = open_snapshots(stack, ServiceUrls(bus, coordination, store))
        looked = load_snapshot(place.store, group, snapshot)
        plan = _plan(place, looked, project, set_, project_name) if window else None
        document = {} if window else _document(looked, place.coordination)
    if plan is None:
        typer.echo(json.dumps(document, indent=2)) if as_json else _show_parts(document)
        return
    _, table = select_rows(plan, looked, RowSelection(window, part, where, tuple(key or ())))
    if as_json:
        found = [dict(zip(table.column_names, row, strict=True)) for row in _texts(table.slice(0, limit))]
        typer.echo(json.dumps({"rows_total": table.num_rows, "rows": found}, indent=2))
    else:
        _show_rows(table, limit)


def export(
    group: GroupArgument,
    file: Annotated[
        Path,
        typer.Argument(help="Write FILE.parquet, or FILE.csv with events that `hotspare publish` reads.", parser=absolute_path),
    ],
    snapshot: SnapshotArgument = "newest",
    *,
    window: Annotated[str, typer.Option(help="Write rows of this window, QUERY/WINDOW.")],
    part: PartOption = "rows",
    key: KeyOption = None,
    where: WhereOption = "",
    bus: BusOption = "",
    coordination: CoordinationOption = "",
    store: StoreOption = "",
    project: ProjectOption = None,
    set_: SetOption = None,
    project_name: ProjectNameOption = "",
) -> None:
    """Write rows of a window to a file."""
    from hotspare.operate.groups import ServiceUrls
    from hotspare.operate.row_files import write_rows
    from hotspare.operate.snapshots import RowSelection, load_snapshot, open_snapshots, select_rows

    with ExitStack() as stack:
        place = open_snapshots(stack, ServiceUrls(bus, coordination, store))
        looked = load_snapshot(place.store, group, snapshot)
        plan = _plan(place, looked, project, set_, project_name)
    wanted = RowSelection(window, part, where, tuple(key or ()))
    schema, table = select_rows(plan, looked, wanted)
    write_rows(file, table, schema, looked, wanted)
    typer.echo(f"{table.num_rows} rows of {window} in snapshot {looked.info.name} are in {file}")


def diff(
    group: GroupArgument,
    before: Annotated[str, typer.Argument(help="Compare this snapshot: newest, a name, time:... or position:....")],
    after: Annotated[str, typer.Argument(help="Compare with this snapshot, chosen in the same way.")] = "newest",
    *,
    window: Annotated[str, typer.Option(help="Compare only this window, QUERY/WINDOW; by default all.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="Show at most this many rows of each kind.")] = 10,
    other_group: Annotated[str, typer.Option(help="Read the second snapshot from this group; by default from the same.")] = "",
    other_store: Annotated[
        str, typer.Option(help="Read the second snapshot from this store; by default from the same.", **URL)
    ] = "",
    bus: BusOption = "",
    coordination: CoordinationOption = "",
    store: StoreOption = "",
    project: ProjectOption = None,
    set_: SetOption = None,
    project_name: ProjectNameOption = "",
) -> None:
    """Compare two snapshots: rows that were added, removed and changed. Exit status 1 if anything differs."""
    from hotspare.operate.groups import ServiceUrls, existing_store
    from hotspare.operate.snapshots import header_changes, load_snapshot, open_snapshots, part_changes

    with ExitStack() as stack:
        place = open_snapshots(stack, ServiceUrls(bus, coordination, store))
        other = existing_store(stack, other_store, "") if other_store else None
        first = load_snapshot(place.store, group, before)
        second = load_snapshot(other or place.store, other_group or group, after)
        plan = _plan(place, first, project, set_, project_name)
    changes = header_changes(first, second)
    for sentence in _header_sentences(changes):
        typer.echo(sentence)
    differs = changes.has_changes
    for each in part_changes(plan, first, second, window):
        what = each.kept.window if each.kept.part == "rows" else f"{each.kept.window} {each.kept.part}"
        counts = (
            f"{len(each.added)} added, {len(each.removed_rows)} gone, {len(each.changed)} changed, {each.unchanged_rows} the same"
        )
        typer.echo(f"{what}: {counts}")
        differs = differs or each.has_changes
        for sign, rows in (("+", each.added), ("-", each.removed_rows)):
            _show_some([f"  {sign} {row}" for row in rows[:limit]], len(rows))
        _show_some([f"  - {old}\n  + {new}" for old, new in each.changed[:limit]], len(each.changed))
    if differs:
        raise typer.Exit(1)
    typer.echo("the two are the same")


def import_(
    file: Annotated[
        Path,
        typer.Argument(help="Read this Parquet file, with a column for each field, as `export` writes it.", parser=absolute_path),
    ],
    *,
    window: Annotated[str, typer.Option(metavar="PROJECT/CQ/WINDOW", help="Publish to this source window.")],
    bus: BusOption,
    prefix: PrefixOption = PREFIX,
    project: SchemaFileOption = None,
    set_: SetOption = None,
    shards: ShardsOption = 1,
    create: CreateOption = False,
    coordination: CoordinationOption = "",
) -> None:
    """Publish rows to a source window, as events that update or insert: all engines process them as input.

    The state of other windows cannot be imported: their rows are computed from input, and engines would differ.
    """
    from hotspare.base.errors import UsageError
    from hotspare.bus.open import open_bus
    from hotspare.cli.shared.inbound import print_imported, print_notice
    from hotspare.cli.shared.interrupt import stop_on_signal
    from hotspare.cli.shared.project_file import named_project
    from hotspare.cli.shared.turns import print_trouble
    from hotspare.operate.inbound import Target, row_destination
    from hotspare.operate.row_files import publish_file_rows, rows_in
    from hotspare.operate.window_rows import resolve_target, source_rows

    where = Target(
        bus, prefix, window_path(window), None, shards, missing=MISSING_TOPIC_POLICY[create], coordination_url=coordination
    )
    with closing(open_bus(bus)) as opened:
        try:
            known = source_rows(opened, prefix, named_project(project, set_), where.window)
        except UsageError as error:
            detail = "the state of another window is computed from input; after a change by hand, its engines would differ"
            raise UsageError(
                f"rows can be imported only into source windows: {error.message}", detail=detail, hint=error.hint
            ) from None
        target = resolve_target(opened, where, known)
        if known.schema is None:
            raise UsageError(f"the schema of {window} is not known here", hint="give --project FILE")
        rows = rows_in(file, known.schema)  # before the topic is created, if it is
        place = row_destination(opened, target, known.schema, print_notice)
        with stop_on_signal() as stop:
            done = publish_file_rows(opened, place, rows, stop, print_trouble)
    print_imported(done, file, window)


commands = {"ls": ls, "show": show, "export": export, "import": import_, "diff": diff}


def _plan(place: SnapshotPlace, looked: LoadedSnapshot, file: Path | None, texts: Sequence[str] | None, name: str) -> Plan:
    from hotspare.cli.shared.project_file import loaded_project
    from hotspare.flow.plan import compile_plan
    from hotspare.operate.snapshots import plan_of

    if file is not None:
        return compile_plan(loaded_project(file, texts, name=name).resolved)
    return plan_of(looked, place.coordination)


def _described(info: SnapshotInfo) -> dict[str, Any]:
    from hotspare.stores.snapshot_choice import time_text

    written = "" if info.is_damaged else time_text(info.written_time_us)
    status = "damaged" if info.is_damaged else info.status.value
    return {
        "name": info.name,
        "position": info.order,
        "written": written,
        "engine": info.engine,
        "status": status,
        "bytes": info.bytes_total,
    }


def _document(looked: LoadedSnapshot, coordination: Coordination | None) -> dict[str, Any]:
    from hotspare.operate.snapshots import window_memory
    from hotspare.stores.snapshot_choice import time_text

    facts = looked.facts
    return {
        "group": looked.group,
        **_described(looked.info),
        "format": facts.format,
        "semantics": facts.semantics,
        "project": facts.project_hash,
        "system_time": time_text(facts.time_us) if facts.time_us > 0 else None,
        "positions": [{"input": t, "partition": p, "offset": offset} for (t, p), offset in sorted(facts.positions.items())],
        "streams": [{"stream": n, "sequence": s.sequence, "digest": s.digest} for n, s in sorted(facts.streams.items())],
        "parts": [asdict(part) for part in looked.parts],
        "memory": [asdict(each) for each in window_memory(coordination, looked.group)],
    }


def _header_sentences(changes: HeaderChanges) -> Iterator[str]:
    if changes.projects is not None:
        yield f"they are of other projects: {changes.projects[0][:12]} and {changes.projects[1][:12]}"
    for (topic, number), offsets in changes.positions.items():
        read = " and ".join("none" if offset is None else str(offset) for offset in offsets)
        yield f"input {topic}, partition {number}: read up to offset {read}"
    for name, marks in changes.streams.items():
        texts = ("not there" if each is None else f"{each.sequence} with digest {each.digest}" for each in marks)
        yield f"stream {name}: {' and '.join(texts)}"


def _show_parts(document: Mapping[str, Any]) -> None:
    from hotspare.cli.shared.display import print_table

    said = "group name position written engine status format semantics project system_time"
    for name in said.split():
        typer.echo(f"{name.replace('_', ' ')}: {'none' if document[name] is None else document[name]}")
    titles = {
        "positions": "Input read",
        "streams": "Output streams",
        "parts": "What windows remember",
        "memory": "Bytes in memory (hot) and out of it (cold), of engines that run",
    }
    for name, title in titles.items():
        found = document[name]
        if found:
            print_table(title, tuple(found[0]), [tuple("" if v is None else v for v in each.values()) for each in found])


def _texts(table: pa.Table) -> list[tuple[str | None, ...]]:
    """Returns the table's values as texts, row by row; None for null."""
    from hotspare.formats.csv.rows import CsvStyle, value_texts

    columns = [value_texts(column.combine_chunks(), CsvStyle.EXACT).to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True))


def _show_rows(table: pa.Table, limit: int) -> None:
    from hotspare.cli.shared.display import print_table

    rows = [tuple("" if value is None else value for value in row) for row in _texts(table.slice(0, limit))]
    print_table(f"{table.num_rows} rows", table.column_names, rows)
    if table.num_rows > limit:
        typer.echo(f"{table.num_rows - limit} more; --limit shows more of them, `hotspare state export` writes all")


def _show_some(lines: Sequence[str], count: int) -> None:
    for line in lines:
        typer.echo(line)
    if count > len(lines):
        typer.echo(f"  {count - len(lines)} more")
