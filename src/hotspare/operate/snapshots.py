"""The snapshots of a group: the choice of one, its project, a window's rows in it, and the differences of two (SPEC G12).

Also which part of each window running engines have in memory (SPEC G1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.base.errors import ProjectError, UsageError
from hotspare.bus.naming import whole_group
from hotspare.coordination.contract import Coordination
from hotspare.expressions.compiled import EVENT_FIELDS, STATE_FIELD, compile_condition
from hotspare.flow.plan import Plan, compile_plan
from hotspare.flow.snapshot_content import (
    ROWS,
    HeaderFacts,
    PartSize,
    ReadablePart,
    StreamAt,
    header_facts,
    part_sizes,
    readable_parts,
    stored_part_rows,
)
from hotspare.formats.csv.rows import CsvStyle, field_texts, value_texts
from hotspare.ha.effects.joining import agreed_document
from hotspare.ha.effects.persisting import DOCUMENT
from hotspare.ha.member_record import memory_by_window
from hotspare.model.project import Dialect, Expression
from hotspare.model.types import Schema
from hotspare.operate.groups import (
    ServiceUrls,
    existing_bus,
    existing_coordination,
    existing_snapshots,
    existing_store,
    participating_members,
)
from hotspare.projects.fingerprint import from_document
from hotspare.projects.resolve import resolve
from hotspare.stores.contract import SnapshotInfo, Store, StoredSnapshot
from hotspare.stores.snapshot_choice import SnapshotScope, choose_snapshot, parse_choice

_LETTERS = dict(zip(EVENT_FIELDS, ("I", "N"), strict=True))


@dataclass(frozen=True, slots=True)
class SnapshotPlace:
    """A store of snapshots, and the coordination of their groups; None if no bus and no coordination is named."""

    store: Store
    coordination: Coordination | None


def open_snapshots(stack: ExitStack, urls: ServiceUrls) -> SnapshotPlace:
    """Returns the store by its URL, else the one next to the bus, in which each group has the snapshots of the project that leads
    now; closed with `stack`. Raises UsageError if neither bus nor store is named, or one does not exist."""
    bus, coordination, store = urls
    if not (bus or store):
        raise UsageError("no snapshot store given", hint="give --store URL, or --bus URL if the store is next to the bus")
    if bus:
        existing_bus(stack, bus)
    service = existing_coordination(stack, coordination, bus) if bus or coordination else None
    opened = existing_store(stack, store, bus) if service is None else existing_snapshots(stack, store, bus, service)
    if opened is None:
        raise UsageError("no snapshot was ever written here", hint="give --store URL, if they are kept elsewhere")
    return SnapshotPlace(opened, service)


def list_snapshots(place: SnapshotPlace, group: str = "") -> dict[str, Sequence[SnapshotInfo]]:
    """Returns the snapshots of a group, of all its shards, or with "" of all groups that coordination knows. Raises UsageError for
    an unknown group, or if `group` is "" and `place` has no coordination."""
    if not group and place.coordination is None:
        raise UsageError("no group given", hint="name one, or give --bus URL to see those of all")
    known = sorted(place.coordination.groups()) if place.coordination is not None else []
    names = [each for each in known if whole_group(each) == group] or [group] if group else known
    found = {name: place.store.list(name) for name in names}
    if known and names == [group] and group not in known and not found[group]:
        raise UsageError(f"no group is called {group}", hint="groups: " + ", ".join(known))
    return found


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """A snapshot read from a store: its description, the facts of its header, and its content."""

    group: str
    info: SnapshotInfo
    facts: HeaderFacts
    stored: StoredSnapshot

    @property
    def parts(self) -> list[PartSize]:
        """The size of each part of the windows' state."""
        return part_sizes(self.stored.pages)


def load_snapshot(store: Store, group: str, text: str) -> LoadedSnapshot:
    """Returns the snapshot that `text` chooses (`stores.snapshot_choice`), confirmed or not. Raises UsageError without one, and
    what `Store.get` raises."""
    info = choose_snapshot(group, store.list(group), parse_choice(text), SnapshotScope.ALL)
    stored = store.get(group, info.name)
    return LoadedSnapshot(group, info, header_facts(stored.header), stored)


def plan_of(looked: LoadedSnapshot, coordination: Coordination | None) -> Plan:
    """Returns the plan of a snapshot's project, from the snapshot or from its group's facts. Raises UsageError if neither has
    it."""
    document = looked.facts.extra.get(DOCUMENT)
    if not isinstance(document, str) and coordination is not None:
        document = agreed_document(coordination, looked.group)
    if not isinstance(document, str):
        what = f"the project of group {looked.group} is not known here"
        raise UsageError(what, hint="give --project FILE, or --bus URL, next to which the group keeps it")
    return compile_plan(resolve(from_document(document)))


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Selects rows of one part of a window's state: rows whose key fields have the texts `key`, as in CSV, and for which `where`,
    an expression in Spark SQL, is true. () and "" do not restrict the rows.
    """

    window: str
    part: str = ROWS
    where: str = ""
    key: tuple[str, ...] = ()


def select_rows(plan: Plan, looked: LoadedSnapshot, wanted: RowSelection) -> tuple[Schema, pa.Table]:
    """Returns the schema of the part and its selected rows, in order of arrival. Raises UsageError if the part's rows cannot be
    read, or if the filter is invalid or fails."""
    schema, table = stored_part_rows(plan, looked.stored.header, looked.stored.pages, wanted.window, wanted.part)
    if wanted.key:
        table = _filter_by_key(table, schema, wanted)
    if wanted.where:
        table = _filter_by_expression(table, schema, wanted)
    return schema, table


def _filter_by_key(table: pa.Table, schema: Schema, wanted: RowSelection) -> pa.Table:
    names = [schema.fields[i].name for i in schema.key_indexes]
    if len(names) != len(wanted.key):
        raise UsageError(f"the key of {wanted.window} has {len(names)} fields", hint=f"give one --key for each: {', '.join(names)}")
    for name, text in zip(names, wanted.key, strict=True):
        texts = value_texts(_single_chunk(table, name), CsvStyle.EXACT)
        table = table.filter(pc.fill_null(pc.equal(texts, text), False))  # noqa: FBT003
    return table


def _filter_by_expression(table: pa.Table, schema: Schema, wanted: RowSelection) -> pa.Table:
    try:
        condition = compile_condition(Expression(wanted.where, Dialect.SPARK_SQL), schema, wanted.window)
    except ProjectError as error:
        mistake = error.mistakes[0]
        raise UsageError(f"the filter is invalid: {mistake.message}", hint=mistake.hint) from None
    if STATE_FIELD in condition.fields:
        raise UsageError("a filter keeps no variables", hint="write a condition on the fields of one row")
    given: Mapping[str, pa.Array] = {name: _column_or_default(table, name) for name in condition.fields}
    truth, failures = condition.evaluate(given, table.num_rows)
    if len(failures):
        first = next(iter(failures))
        raise UsageError(f"the filter cannot be computed for {len(failures)} rows", detail=f"row {first.row}: {first.message}")
    return table.filter(pc.fill_null(truth, False))  # noqa: FBT003


def _column_or_default(table: pa.Table, name: str) -> pa.Array:
    if name in table.column_names:
        return _single_chunk(table, name)
    return pa.array([_LETTERS[name]] * table.num_rows, pa.string())


def _single_chunk(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


@dataclass(frozen=True, slots=True)
class PartChanges:
    """The changes of one part between two snapshots. Each row is a CSV text; a changed row is a pair (earlier, later)."""

    kept: ReadablePart
    added: tuple[str, ...]
    removed_rows: tuple[str, ...]
    changed: tuple[tuple[str, str], ...]
    unchanged_rows: int

    @property
    def has_changes(self) -> bool:
        return bool(self.added or self.removed_rows or self.changed)


def part_changes(plan: Plan, before: LoadedSnapshot, after: LoadedSnapshot, window: str = "") -> Iterator[PartChanges]:
    """Yields the changes of every part whose rows can be read; only parts of `window` if it is not ""."""
    for kept in readable_parts(plan):
        if window in ("", kept.window):
            wanted = RowSelection(kept.window, kept.part)
            yield _compared(kept, select_rows(plan, before, wanted)[1], select_rows(plan, after, wanted)[1])


def _compared(kept: ReadablePart, before: pa.Table, after: pa.Table) -> PartChanges:
    old, new = _by_key(before, kept.schema), _by_key(after, kept.schema)
    return PartChanges(
        kept,
        added=tuple(row for key, row in new.items() if key not in old),
        removed_rows=tuple(row for key, row in old.items() if key not in new),
        changed=tuple((old[key], row) for key, row in new.items() if key in old and old[key] != row),
        unchanged_rows=sum(old.get(key) == row for key, row in new.items()),
    )


def _by_key(table: pa.Table, schema: Schema) -> dict[str, str]:
    keys = [schema.fields[i].name for i in schema.key_indexes]
    return dict(zip(field_texts(table.select(keys), CsvStyle.EXACT), field_texts(table, CsvStyle.EXACT), strict=True))


@dataclass(frozen=True, slots=True)
class HeaderChanges:
    """The differences between the headers of two snapshots, as pairs (earlier, later). `projects`: None if both are of one project.
    `positions`: the last offsets processed, by topic index and partition. `streams`: by output stream. None in a pair: the snapshot
    has none."""

    projects: tuple[str, str] | None
    positions: Mapping[tuple[int, int], tuple[int | None, int | None]]
    streams: Mapping[str, tuple[StreamAt | None, StreamAt | None]]

    @property
    def has_changes(self) -> bool:
        return bool(self.projects or self.positions or self.streams)


def header_changes(before: LoadedSnapshot, after: LoadedSnapshot) -> HeaderChanges:
    """Returns the differences between the snapshots' headers: project, input positions and output streams, sorted."""
    old, new = before.facts, after.facts
    return HeaderChanges(
        projects=None if old.project_hash == new.project_hash else (old.project_hash, new.project_hash),
        positions={
            place: (old.positions.get(place), new.positions.get(place))
            for place in sorted({*old.positions, *new.positions})
            if old.positions.get(place) != new.positions.get(place)
        },
        streams={
            name: (old.streams.get(name), new.streams.get(name))
            for name in sorted({*old.streams, *new.streams})
            if old.streams.get(name) != new.streams.get(name)
        },
    )


@dataclass(frozen=True, slots=True)
class StateBytes:
    """The bytes of a window's state in an engine. `stays`: never evicted; `hot`: in memory, but may be evicted; `fetched`: the part
    of `hot` that was read back after eviction; `cold`: evicted."""

    engine: str
    window: str
    stays: int
    hot: int
    fetched: int
    cold: int


def window_memory(coordination: Coordination | None, group: str) -> tuple[StateBytes, ...]:
    """Returns the memory of state by running engine and window.

    Engines without a budget, which keep all state in memory, are omitted, and so are windows whose rows are never evicted. Texts
    are counted for all windows together.
    """
    members = [] if coordination is None else coordination.members(group)
    return tuple(
        StateBytes(
            engine=member.engine,
            window=window,
            stays=of.get("stays", 0),
            hot=of.get("may_leave", 0) + of.get("fetched", 0),
            fetched=of.get("fetched", 0),
            cold=of.get("away", 0) - of.get("fetched", 0),
        )
        for member in participating_members(members)
        for window, of in sorted(memory_by_window(member).items())
    )
