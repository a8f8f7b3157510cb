"""Inspects a snapshot: its header, its parts with their sizes, and the rows of a part as a table.

Sizes are computed from the bytes alone, so a snapshot of any project can be inspected. Reading rows needs exactly its project.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from hotspare.base.errors import SnapshotDamaged, UsageError
from hotspare.flow.plan import Node, Plan, Stage
from hotspare.flow.snapshot import PartPages, WindowRowPages, check_header, decode_page, unpack, unreadable
from hotspare.model.types import Schema
from hotspare.rows.batch import ARROW_TYPE
from hotspare.table.derived_parts import DerivedPart
from hotspare.table.lanes import coded_columns, to_arrow_columns
from hotspare.table.pages import Column, Page
from hotspare.table.relation import Relation
from hotspare.table.strings import StringTable

ROWS = "rows"
"""The name of the part that holds the rows that a window emitted."""


@dataclass(frozen=True, slots=True)
class StreamAt:
    sequence: int
    digest: str


@dataclass(frozen=True, slots=True)
class HeaderFacts:
    """The content of a header. `positions`: the last offset processed, by (index of the inbound topic, partition). `extra`: the
    entries that have no attribute here, such as the origin of a persisted snapshot.
    """

    format: int
    semantics: int
    project_hash: str
    time_us: int
    positions: Mapping[tuple[int, int], int]
    streams: Mapping[str, StreamAt]
    extra: Mapping[str, Any] = field(default_factory=dict)


_KNOWN = ("format", "semantics", "project", "time_us", "heartbeat_time_us", "passed", "clocks", "streams")


def header_facts(header: bytes) -> HeaderFacts:
    """Parses a header. Raises SnapshotDamaged if it cannot be read."""
    try:
        content = json.loads(header)
        return HeaderFacts(
            format=int(content["format"]),
            semantics=int(content["semantics"]),
            project_hash=str(content["project"]),
            time_us=int(content["time_us"]),
            positions={(int(t), int(p)): int(offset) for t, p, offset, *_ in content["passed"]},
            streams={str(n): StreamAt(int(s["sequence"]), str(s["digest"])) for n, s in content["streams"].items()},
            extra={name: value for name, value in content.items() if name not in _KNOWN},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise unreadable("the header of the snapshot", error) from error


@dataclass(frozen=True, slots=True)
class PartSize:
    """The size of one part of a window's state. `window`: `query/window`, followed by the stage in parentheses if the part belongs
    to a stage before or after the window. `rows`: None if the part is not a table. `pages`: the count of row pages. `bytes`: the
    size as written."""

    window: str
    part: str
    rows: int | None
    pages: int
    bytes: int


def part_sizes(pages: Mapping[str, bytes]) -> list[PartSize]:
    """Returns the size of every part, ordered by window and part. Raises SnapshotDamaged if a page cannot be read."""
    owners = sorted(name for name in pages if _is_whole(name))
    beside: dict[tuple[str, str], list[tuple[bool, int]]] = {}
    for name, data in pages.items():
        if not _is_whole(name):
            owner, part, number = name.rsplit("/", 2)
            beside.setdefault((owner, part), []).append((number.isdecimal(), len(data)))
    found = []
    for owner in owners:
        parts: dict[str, dict[str, Column]] = {}
        for name, column in _columns(pages[owner]).items():
            part, _, buffer = name.rpartition("/")
            parts.setdefault(part, {})[buffer] = column
        for part, columns in sorted(parts.items()):
            row_pages = beside.get((owner, part), [])
            size = sum(column.array.nbytes for column in columns.values()) + sum(size for _, size in row_pages)
            count = sum(is_of_rows for is_of_rows, _ in row_pages)
            found.append(PartSize(_label(owner), part, _row_count(columns), count, size))
    return found


def _is_whole(name: str) -> bool:
    """Whether `name` is that of a window's page (`query/window#stage`), not of a row page (`query/window#stage/part/number`)."""
    return "/" not in name.rpartition("#")[2]


def _label(page: str) -> str:
    window, _, stage = page.rpartition("#")
    return window if stage == Stage.WINDOW.value else f"{window} ({stage})"


def _columns(data: bytes) -> dict[str, Column]:
    try:
        return unpack(data)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
        raise SnapshotDamaged("a page of the snapshot cannot be read", detail=str(error)) from error


def _row_count(columns: Mapping[str, Column]) -> int | None:
    return int(np.bitwise_count(columns["alive"].array).sum()) if "alive" in columns else None


@dataclass(frozen=True, slots=True)
class ReadablePart:
    """A part whose rows can be read. `schema`: the schema of the rows, which is that of the window or of one of its inputs."""

    window: str
    part: str
    schema: Schema


def readable_parts(plan: Plan) -> list[ReadablePart]:
    """Returns every part of a project's windows whose rows have the schema of the window or of one of its inputs. Other state, such
    as the sums of groups, is private to the window."""
    found = []
    for node in plan.nodes:
        if node.stage is Stage.WINDOW:
            for part, state in sorted(node.operator.open().parts.items()):
                schema = _schema(node, part, state)
                found += [] if schema is None else [ReadablePart(node.window, part, schema)]
    return found


def _schema(node: Node, part: str, state: object) -> Schema | None:
    relation = _relation(state)
    if relation is None:
        return None
    if part == ROWS:
        return node.operator.schema
    inputs = node.operator.inputs
    for given in sorted(inputs, key=lambda each: each.role != part):  # a part is called as the role of its input
        shape, schema = relation.shape, given.schema
        if (shape.width, shape.keys, shape.codes) == (len(schema), schema.key_indexes, coded_columns(schema)):
            return schema
    return None


def _relation(state: object) -> Relation | None:
    rows = state.rows if isinstance(state, DerivedPart) else state
    return rows if isinstance(rows, Relation) else None


def stored_part_rows(
    plan: Plan, header: bytes, pages: Mapping[str, bytes], window: str, part: str = ROWS
) -> tuple[Schema, pa.Table]:
    """Returns the schema of a part's rows, and the rows in order of arrival, a column per field. Raises UsageError if the part does
    not exist or has no readable rows. Raises SnapshotFormat or ProjectChanged if the snapshot is of another project, format or
    semantics; SnapshotDamaged if it cannot be read."""
    check_header(plan, json.loads(header))
    kept = {(each.window, each.part): each.schema for each in readable_parts(plan)}
    if (window, part) not in kept:
        names = ", ".join(name if of == ROWS else f"{name} {of}" for name, of in kept)
        what = f"window {window} keeps no {part} that can be read" if part != ROWS else f"window {window} keeps no rows of its own"
        if window not in {str(each.id) for each in plan.resolved.windows}:
            what = f"project {plan.resolved.project.name} has no window {window}"
        raise UsageError(what, hint=f"rows are kept by: {names}" if names else "no window of this project keeps rows")
    schema = kept[window, part]
    page, strings = _loaded(plan, pages, window)
    relation = _relation(page.parts[part])
    assert relation is not None
    lanes, valid, _ = relation.stored()
    columns = to_arrow_columns(lanes[:, : len(schema)], valid[:, : len(schema)], schema, strings)
    return schema, pa.table(columns, names=[f.name for f in schema.fields])


def table_schema(schema: Schema) -> pa.Schema:
    """Returns the Arrow schema of the table that `stored_part_rows` returns for rows of this schema."""
    return pa.schema([(f.name, ARROW_TYPE[f.type]) for f in schema.fields])


def _loaded(plan: Plan, pages: Mapping[str, bytes], window: str) -> tuple[Page, StringTable]:
    """Loads only the page of one window; returns the page and a table of its strings. Raises SnapshotDamaged if the page is missing
    or cannot be read."""
    node = next(each for each in plan.nodes if each.window == window and each.stage is Stage.WINDOW)
    if node.page not in pages:
        raise SnapshotDamaged("the snapshot has other pages than the project", detail=f"it lacks {node.page}")
    of_rows = WindowRowPages(pages, {})
    for name in pages:
        owner, part, number = [*name.rsplit("/", 2), "", ""][:3]
        if owner == node.page and number.isdecimal():
            of_rows.parts.setdefault(part, PartPages()).rows[int(number)] = name
    page, strings = node.operator.open(), StringTable()
    try:
        decode_page(page, pages[node.page], of_rows, strings)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, AttributeError) as error:
        raise unreadable("the snapshot", error) from error
    return page, strings
