"""Compute window (SPEC A24), including the meaning of its changelog (SPEC A11, A12)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from hotspare.base.errors import ProjectError
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.model.project import Dialect, Expression, Publication, WindowId
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.projects.load import load_project
from hotspare.rows.changelog import RELATION
from hotspare.rows.chunk import Chunk, Timeline
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable
from hotspare.windows.compute.declaration import ComputeWindow
from hotspare.windows.compute.operator import ComputeOperator
from hotspare.windows.shared.contract import OperatorInput
from tests.flow.changelogs import GIVEN, ROWS, fed, plan_of, raw, relation_of

CONFORMANCE = Path(__file__).parents[4] / "shared" / "conformance" / "compute"
MADE = Schema((Field("n", FieldType.INT64), Field("k", FieldType.INT64, KeyRole.KEY), Field("t", FieldType.STRING)))


def window(*expressions: str, schema: Schema = MADE) -> ComputeWindow:
    outputs = tuple(Expression(text, Dialect.SPARK_SQL) for text in expressions)
    return ComputeWindow(name="made", schema=schema, outputs=outputs, publication=Publication.PUBLISHED)


def test_outputs_stand_in_schema_order_and_keys_pass_by_name() -> None:
    found = fed(plan_of(window("v * 2", "upper(s)")), ["i,n,7,3,a"])
    assert found.out["cq/made"] == [(1, 1, (6, 7, "A"))]


@given(ROWS)
def test_the_changelog_means_the_computed_relation(rows: list[str]) -> None:
    """Rows whose expression fails are missing; the others have the values computed from the input relation."""
    found = fed(plan_of(window("10 div v", "s")), rows)
    given_rows = relation_of(found.out.get("cq/kept", []))
    expected = {k: (None if v is None else int(10 / v), k, s) for k, v, s in given_rows.values() if v != 0}
    made = [(opcode, flags, (k, n, t)) for opcode, flags, (n, k, t) in found.out.get("cq/made", [])]
    assert {k: (n, k, t) for k, n, t in relation_of(made).values()} == expected


@given(ROWS)
def test_every_row_that_fails_is_a_bad_event_once(rows: list[str]) -> None:
    """An event fails when it arrives, not when its row is replaced or deleted."""
    found = fed(plan_of(window("10 div v", "s")), rows)
    accepted = [row for opcode, _, row in found.out.get("cq/kept", []) if opcode != 4]
    here = [reason for _, reason, at in found.bad if at == "cq/made"]
    assert here == ["expression"] * sum(row[1] == 0 for row in accepted)


def test_a_bad_event_names_window_field_and_what_failed() -> None:
    found = fed(plan_of(window("10 div v", "s")), ["i,n,7,0,a", "i,n,8,5,b"])
    assert found.bad == [(0, "expression", "cq/made")]
    assert found.messages == ["window cq/made, field n: division by zero in 10 div v"]
    assert [row for _, _, row in found.out["cq/made"]] == [(2, 8, "b")]


def test_fields_that_pass_are_the_very_same_arrays() -> None:
    """Identity computes cost almost nothing."""
    identity = window("v", "s", schema=GIVEN)
    operator = ComputeOperator(ResolvedWindow(WindowId("cq", "made"), identity, GIVEN, ()), [OperatorInput(GIVEN, RELATION)])
    chunk = Chunk(
        np.arange(3), np.full(3, 1, np.uint8), np.full(3, 1, np.uint8), np.arange(9).reshape(3, 3), np.ones((3, 3), np.bool_)
    )
    applied = operator.process_chunks(Page(), [chunk], Timeline(np.zeros(3, np.int64), np.empty(0, np.int64)), StringTable())
    assert applied.chunk.lanes is chunk.lanes


def test_all_mistakes_of_a_window_are_told_together() -> None:
    with pytest.raises(ProjectError) as caught:
        plan_of(window("vv", "upper(v)"))
    assert [m.message for m in caught.value.mistakes] == [
        "window cq/made, field n: unknown field vv",
        "window cq/made, field t: upper: argument 1 has type int64, not string",
    ]


@pytest.mark.skipif(not CONFORMANCE.is_dir(), reason=f"the example project is not at {CONFORMANCE}")
def test_the_example_project() -> None:
    """`match` is 1, 1, 0 for keys 1111, 1112, 1113."""
    plan = compile_plan(load_project(CONFORMANCE / "model.xml", {"ESP_PROJECT_HOME": str(CONFORMANCE)}).resolved)
    rows = (CONFORMANCE / "input-compute.csv").read_text().splitlines()
    out = Pipeline.fresh(plan).feed(Head.from_plan(plan).decode(raw(rows)))["contQuery/computeWindow"]
    assert dict(zip(out.column("ID").to_pylist(), out.column("match").to_pylist(), strict=True)) == {1111: 1, 1112: 1, 1113: 0}
