"""Raw batches and projects for the tests of the head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from hotspare.model.project import (
    AcceptedOpcodes,
    ContinuousQuery,
    Dialect,
    Edge,
    Expression,
    IndexType,
    Project,
    Publication,
    Window,
)
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import MessageFormat
from hotspare.windows.compute.declaration import ComputeWindow
from hotspare.windows.copy.declaration import CopyWindow
from hotspare.windows.filter.declaration import FilterWindow
from hotspare.windows.source.declaration import SourceWindow
from tests.raw_rows import raw_of

TRADES = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("price", FieldType.DOUBLE), Field("name", FieldType.STRING)))
READINGS = Schema((Field("key", FieldType.STRING, KeyRole.KEY), Field("at", FieldType.STAMP)))
PRICED = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("half", FieldType.DOUBLE), Field("size", FieldType.INT32)))


@dataclass(frozen=True)
class Message:
    """A raw message; a tick if `value` is None."""

    topic: int
    value: bytes | None
    format: int = MessageFormat.CSV
    partition: int = 0


def raw(messages: Sequence[Message], first_offset: int = 0) -> pa.RecordBatch:
    return raw_of(
        [
            (each.topic, each.partition, offset, 1_000 * offset, each.value is None, each.format, each.value or b"")
            for offset, each in enumerate(messages, first_offset)
        ]
    )


def project(accepts: AcceptedOpcodes = AcceptedOpcodes.INSERT_ONLY, filter_published: Publication = Publication.HIDDEN) -> Project:
    """Returns trades (stateless) -> large (filter) -> halves (compute) -> kept (copy); readings (keyed) -> seen (copy)."""
    sql = Dialect.SPARK_SQL
    windows: tuple[Window, ...] = (
        SourceWindow(name="readings", schema=READINGS),
        CopyWindow(name="seen", publication=Publication.PUBLISHED),
        SourceWindow(name="trades", schema=TRADES, index=IndexType.EMPTY, accepts=accepts),
        FilterWindow(
            name="large",
            index=IndexType.EMPTY,
            condition=Expression("100 / price < 10 and ESP_FLAGS <> 'R'", sql),
            publication=filter_published,
        ),
        ComputeWindow(
            name="halves",
            index=IndexType.EMPTY,
            schema=PRICED,
            outputs=(Expression("price / (id - 3)", sql), Expression("cast(name as int)", sql)),
        ),
        CopyWindow(name="kept", index=IndexType.EMPTY, publication=Publication.PUBLISHED),
    )
    edges = (Edge("readings", "seen"), Edge("trades", "large"), Edge("large", "halves"), Edge("halves", "kept"))
    return Project("p", (ContinuousQuery("cq", windows, edges),))
