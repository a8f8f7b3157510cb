"""The snapshots of a group: the choice of one, its project, a window's rows in it, and the differences of two (SPEC G12).

Also which part of each window running engines have in memory (SPEC G1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.base.errors import ProjectError, UsageError
from hotspare.coordination.contract import Coordination
from hotspare.expressions.compiled import EVENT_FIELDS, STATE_FIELD, compile_condition
from hotspare.flow.plan import Plan, compile_plan
from hotspare.flow.snapshot_content import ROWS, HeaderFacts, ReadablePart, header_facts, readable_parts, stored_part_rows
from hotspare.formats.csv.rows import CsvStyle, field_texts, value_texts
from hotspare.ha.effects.joining import agreed_document
from hotspare.ha.effects.persisting import DOCUMENT
from hotspare.ha.member_record import memory_by_window
from hotspare.model.project import Dialect, Expression
from hotspare.model.types import Schema
from hotspare.operate.groups import participating_members
from hotspare.projects.fingerprint import from_document
from hotspare.projects.resolve import resolve
from hotspare.stores.contract import SnapshotInfo, Store, StoredSnapshot
from hotspare.stores.snapshot_choice import SnapshotScope, choose_snapshot, parse_choice

_LETTERS = dict(zip(EVENT_FIELDS, ("I", "N"), strict=True))


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """A snapshot read from a store: its description, the facts of its header, and its content."""

    group: str
    info: SnapshotInfo
    facts: HeaderFacts
    stored: StoredSnapshot


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


def other_differences(before: LoadedSnapshot, after: LoadedSnapshot) -> list[str]:
    """Returns the differences between the snapshots' headers (project, input positions, streams), as sentences."""
    old, new, found = before.facts, after.facts, []
    if old.project_hash != new.project_hash:
        found.append(f"they are of other projects: {old.project_hash[:12]} and {new.project_hash[:12]}")
    for topic, number in sorted({*old.positions, *new.positions}):
        pair = [facts.positions.get((topic, number)) for facts in (old, new)]
        if pair[0] != pair[1]:
            found.append(
                f"input {topic}, partition {number}: read up to offset {_offset_text(pair[0])} and {_offset_text(pair[1])}"
            )
    for stream in sorted({*old.streams, *new.streams}):
        streams = [facts.streams.get(stream) for facts in (old, new)]
        if streams[0] != streams[1]:
            texts = ["not there" if each is None else f"{each.sequence} with digest {each.digest}" for each in streams]
            found.append(f"stream {stream}: {texts[0]} and {texts[1]}")
    return found


def _offset_text(offset: int | None) -> str:
    return "none" if offset is None else str(offset)


def memory_rows(coordination: Coordination | None, group: str) -> list[dict[str, Any]]:
    """Returns bytes of state by running engine and window. `stays`: never evicted; `hot`: in memory, but may be evicted; `fetched`:
    the part of `hot` that was read back after eviction; `cold`: evicted.

    Engines without a budget, which keep all state in memory, are omitted, and so are windows whose rows are never evicted. Texts
    are counted for all windows together.
    """
    members = [] if coordination is None else coordination.members(group)
    return [
        {
            "engine": member.engine,
            "window": window,
            "stays": of.get("stays", 0),
            "hot": of.get("may_leave", 0) + of.get("fetched", 0),
            "fetched": of.get("fetched", 0),
            "cold": of.get("away", 0) - of.get("fetched", 0),
        }
        for member in participating_members(members)
        for window, of in sorted(memory_by_window(member).items())
    ]
