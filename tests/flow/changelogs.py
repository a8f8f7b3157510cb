"""Feeds a keyed source and one window behind it with rows of text, and computes the relation that the changelog describes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import strategies as st

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.model.events import Opcode
from hotspare.model.project import AcceptedOpcodes, ContinuousQuery, Edge, IndexType, Project, Publication, Retention, Window
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.projects.resolve import resolve
from hotspare.rows.batch import MessageFormat
from hotspare.windows.copy.declaration import CopyWindow
from hotspare.windows.source.declaration import SourceWindow
from tests.raw_rows import raw_of

GIVEN = Schema((Field("k", FieldType.INT64, KeyRole.KEY), Field("v", FieldType.INT64), Field("s", FieldType.STRING)))
Row = tuple[object, ...]
Relation = dict[object, Row]

ROWS = st.lists(
    st.builds(
        lambda opcode, key, value, text: f"{opcode},n,{key},{value},{text}",
        st.sampled_from("iiuuppd"),
        st.integers(0, 3),
        st.sampled_from(["", "0", "1", "2", "3", "-1", "9223372036854775807"]),
        st.sampled_from(["", "a", "b", "12"]),
    ),
    max_size=12,
)


def plan_of(
    window: Window,
    *,
    retention: Retention | None = None,
    index: IndexType = IndexType.HASH,
    accepts: AcceptedOpcodes = AcceptedOpcodes.ANY,
) -> Plan:
    """Returns the plan source -> kept (a copy, that may forget) -> the window, published."""
    windows: tuple[Window, ...] = (
        SourceWindow(name="source", schema=GIVEN, index=index, accepts=accepts),
        CopyWindow(name="kept", retention=retention, index=index, publication=Publication.PUBLISHED),
        window,
    )
    edges = (Edge("source", "kept"), Edge("kept", window.name))
    return compile_plan(resolve(Project("p", (ContinuousQuery("cq", windows, edges),))))


def raw(rows: Sequence[str], first: int = 0) -> pa.RecordBatch:
    return raw_of([(0, 0, at, at, False, MessageFormat.CSV, row.encode()) for at, row in enumerate(rows, first)])


class Fed:
    """The outputs of each stream: (opcode, flags, values) in order, and bad events as (offset, reason, window)."""

    def __init__(self, plan: Plan) -> None:
        self._head = Head.from_plan(plan)
        self.pipeline = Pipeline.fresh(plan)
        self.out: dict[str, list[tuple[int, int, Row]]] = {}
        self.bad: list[tuple[int, str, str]] = []
        self.messages: list[str] = []
        self._next = 0

    def feed(self, rows: Sequence[str]) -> None:
        found = self.pipeline.feed(self._head.decode(raw(rows, self._next)))
        self._next += len(rows)
        for name, batch in found.items():
            events = batch.to_pylist()
            if name == "bad":
                self.bad += [(e["hs:offset"], e["reason"], e["window"]) for e in events]
                self.messages += [e["message"] for e in events]
                continue
            fields = [n for n in batch.schema.names if not n.startswith("hs:")]
            self.out.setdefault(name, [])
            self.out[name] += [(e["hs:opcode"], e["hs:flags"], tuple(e[n] for n in fields)) for e in events]


def fed(plan: Plan, rows: Sequence[str]) -> Fed:
    found = Fed(plan)
    found.feed(rows)
    return found


def relation_of(changelog: Sequence[tuple[int, int, Row]]) -> Relation:
    """Returns the rows by key. Checks every step: inserts are new, old rows follow update blocks, deletes have stored values."""
    rows: Relation = {}
    replaced: Row | None = None
    for opcode, _, row in changelog:
        key = row[0]
        if replaced is not None:
            assert opcode == Opcode.DELETE
            assert row == replaced
            replaced = None
        elif opcode == Opcode.INSERT:
            assert key not in rows
            rows[key] = row
        elif opcode == Opcode.UPDATE_BLOCK:
            replaced = rows[key]
            rows[key] = row
        else:
            assert opcode == Opcode.DELETE
            assert rows.pop(key) == row
    assert replaced is None
    return rows
