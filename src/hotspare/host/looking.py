"""Looking into the snapshots of a group: which one is meant, of which project it is, and the rows that a window has in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.base.errors import ProjectError, UsageError
from hotspare.coordination.contract import Coordination
from hotspare.expressions.compiled import EVENT_FIELDS, STATE_FIELD, compile_condition
from hotspare.flow.inside import ROWS, HeaderFacts, header_facts, rows_of
from hotspare.flow.plan import Plan, compile_plan
from hotspare.formats.csv.rows import CsvStyle, value_texts
from hotspare.ha.effects.joining import agreed_document
from hotspare.ha.effects.persisting import DOCUMENT
from hotspare.model.project import Dialect, Expression
from hotspare.model.types import Schema
from hotspare.projects.fingerprint import from_document
from hotspare.projects.resolve import resolve
from hotspare.stores.choosing import Among, chosen, parse_choice
from hotspare.stores.contract import SnapshotInfo, Store, StoredSnapshot

_LETTERS = dict(zip(EVENT_FIELDS, ("I", "N"), strict=True))


@dataclass(frozen=True, slots=True)
class Looked:
    """One snapshot, read."""

    group: str
    info: SnapshotInfo
    facts: HeaderFacts
    stored: StoredSnapshot


def look(store: Store, group: str, text: str) -> Looked:
    """The snapshot that `text` means (`stores.choosing`), confirmed or not. UsageError where there is none; what `get` raises."""
    info = chosen(group, store.list(group), parse_choice(text), Among.ALL)
    stored = store.get(group, info.name)
    return Looked(group, info, header_facts(stored.header), stored)


def plan_of(looked: Looked, coordination: Coordination | None) -> Plan:
    """The project of a snapshot: it brings it along, or its group agreed on it. UsageError where neither says it."""
    document = looked.facts.extra.get(DOCUMENT)
    if not isinstance(document, str) and coordination is not None:
        document = agreed_document(coordination, looked.group)
    if not isinstance(document, str):
        what = f"which project group {looked.group} runs is not known here"
        raise UsageError(what, hint="give --project FILE, or --bus URL, beside which the group keeps it")
    return compile_plan(resolve(from_document(document)))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows of one part of a window: those for which `where`, an expression in Spark SQL, is true, and whose key fields are `key`,
    as CSV has them; "" and () are all."""

    window: str
    part: str = ROWS
    where: str = ""
    key: tuple[str, ...] = ()


def rows(plan: Plan, looked: Looked, wanted: Wanted) -> tuple[Schema, pa.Table]:
    """In order of arrival. UsageError where there are none to ask for, or the filter cannot be read or computed."""
    schema, table = rows_of(plan, looked.stored.header, looked.stored.pages, wanted.window, wanted.part)
    if wanted.key:
        table = _of_key(table, schema, wanted)
    if wanted.where:
        table = _where(table, schema, wanted)
    return schema, table


def _of_key(table: pa.Table, schema: Schema, wanted: Wanted) -> pa.Table:
    names = [schema.fields[i].name for i in schema.key_indexes]
    if len(names) != len(wanted.key):
        raise UsageError(f"the key of {wanted.window} has {len(names)} fields", hint=f"give one --key for each: {', '.join(names)}")
    for name, text in zip(names, wanted.key, strict=True):
        texts = value_texts(_whole(table, name), CsvStyle.EXACT)
        table = table.filter(pc.fill_null(pc.equal(texts, text), False))  # noqa: FBT003
    return table


def _where(table: pa.Table, schema: Schema, wanted: Wanted) -> pa.Table:
    try:
        condition = compile_condition(Expression(wanted.where, Dialect.SPARK_SQL), schema, wanted.window)
    except ProjectError as error:
        mistake = error.mistakes[0]
        raise UsageError(f"the filter cannot be used: {mistake.message}", hint=mistake.hint) from None
    if STATE_FIELD in condition.fields:
        raise UsageError("a filter keeps no variables", hint="write a condition on the fields of one row")
    given: Mapping[str, pa.Array] = {name: _given(table, name) for name in condition.fields}
    truth, failures = condition.evaluate(given, table.num_rows)
    if len(failures):
        first = next(iter(failures))
        raise UsageError(f"the filter cannot be computed for {len(failures)} rows", detail=f"row {first.row}: {first.message}")
    return table.filter(pc.fill_null(truth, False))  # noqa: FBT003


def _given(table: pa.Table, name: str) -> pa.Array:
    if name in table.column_names:
        return _whole(table, name)
    return pa.array([_LETTERS[name]] * table.num_rows, pa.string())


def _whole(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
