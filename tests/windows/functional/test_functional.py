"""Functional window (SPEC A25, F9, Z8): functions, the event counter, and the values of a delete."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import ProjectError
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.model.project import AcceptedOpcodes, Dialect, Expression, IndexType, Publication, Retention, RetentionKind
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.windows.functional.declaration import FunctionalWindow
from tests.flow.changelogs import ROWS, fed, plan_of, raw, relation_of

MADE = Schema(
    (
        Field("k", FieldType.INT64, KeyRole.KEY),
        Field("v", FieldType.INT64),
        Field("number", FieldType.INT64),
        Field("text", FieldType.STRING),
    )
)


def window(number: str = "eventCounter()", text: str = "concat($s, '!')", index: IndexType = IndexType.HASH) -> FunctionalWindow:
    functions = (("number", Expression(number, Dialect.ESP)), ("text", Expression(text, Dialect.ESP)))
    return FunctionalWindow(name="made", schema=MADE, functions=functions, index=index, publication=Publication.PUBLISHED)


def test_fields_without_a_function_come_from_the_input_by_name() -> None:
    found = fed(plan_of(window()), ["i,n,7,3,a", "i,n,8,4,"])
    assert found.out["cq/made"] == [(1, 1, (7, 3, 1, "a!")), (1, 1, (8, 4, 2, None))]


@given(ROWS, st.booleans())
def test_the_counter_counts_what_came_and_deletes_carry_what_went_out(rows: list[str], forgets: bool) -> None:
    """SPEC A12: the folded changelog checks that each delete has the stored values, the number among them."""
    retention = Retention(RetentionKind.BYCOUNT_SLIDING, 2) if forgets else None
    found = fed(plan_of(window(), retention=retention), rows)
    made, kept = found.out.get("cq/made", []), found.out.get("cq/kept", [])
    numbers = [row[2] for opcode, _, row in made if opcode != 4]
    assert numbers == list(range(1, 1 + sum(opcode != 4 for opcode, _, _ in kept)))
    assert {k: row[1] for k, row in relation_of(made).items()} == {k: row[1] for k, row in relation_of(kept).items()}


@given(ROWS, st.integers(0, 12))
def test_the_counter_goes_on_after_a_restore(rows: list[str], cut: int) -> None:
    """SPEC Z8: counters are in the snapshot."""
    plan = plan_of(window())
    head, whole = Head.from_plan(plan), fed(plan, rows)
    first = Pipeline.fresh(plan)
    outputs = [first.feed(head.decode(raw(rows[:cut])))]
    frozen = first.freeze()
    second = Pipeline.restore(plan, frozen.header, dict(frozen.pages()))
    outputs.append(second.feed(head.decode(raw(rows[cut:], cut if cut < len(rows) else len(rows)))))
    numbers = [n for o in outputs if "cq/made" in o for n in o["cq/made"].column("number").to_pylist()]
    assert numbers == [row[2] for _, _, row in whole.out.get("cq/made", [])]
    assert second.digests == whole.pipeline.digests


@given(ROWS)
def test_a_row_that_fails_is_no_row_but_it_is_counted(rows: list[str]) -> None:
    found = fed(plan_of(window("eventCounter() * 1000 + mod(10, $v)")), rows)
    kept = found.out.get("cq/kept", [])
    arrived = [row for opcode, _, row in kept if opcode != 4]
    expected = {}
    for number, (k, v, s) in enumerate(arrived, 1):
        expected[k] = (k, v, None if v is None else number * 1000 + 10 % abs(int(str(v))) if v != 0 else 0, s)
    alive = {k: expected[k][:3] for k, row in relation_of(kept).items() if row[1] != 0}
    assert {k: row[:3] for k, row in relation_of(found.out.get("cq/made", [])).items()} == alive
    assert [reason for _, reason, at in found.bad if at == "cq/made"] == ["expression"] * sum(row[1] == 0 for row in arrived)


@given(ROWS)
def test_whether_a_delete_could_be_computed_again_does_not_matter(rows: list[str]) -> None:
    """The second event fails on arrival, and no delete does; with the other expression only deletes would fail."""
    for number in ("10 / (eventCounter() - 2)", "if(isNull(eventCounter()), 1 / 0, eventCounter())"):
        found = fed(plan_of(window(number)), rows)
        kept = found.out.get("cq/kept", [])
        arrived = [row for opcode, _, row in kept if opcode != 4]
        fails = {2} if number.startswith("10") else set()
        expected = {row[0]: (row, i not in fails) for i, row in enumerate(arrived, 1)}
        made = relation_of(found.out.get("cq/made", []))
        assert set(made) == {k for k in relation_of(kept) if expected[k][1]}
        assert [reason for _, reason, at in found.bad if at == "cq/made"] == ["expression"] * len(
            fails & set(range(1, len(arrived) + 1))
        )


def test_without_a_counter_nothing_is_kept() -> None:
    plan = plan_of(window("length($s)"))
    found = fed(plan, ["i,n,7,3,ab", "d,n,7,,"])
    assert found.out["cq/made"] == [(1, 1, (7, 3, 2, "ab!")), (4, 1, (7, 3, 2, "ab!"))]
    assert [set(node.operator.open().parts) for node in plan.nodes if node.operator.id.window == "made"] == [set()]


def test_pi_empty_keeps_nothing() -> None:
    """SPEC A14: the number of a delete is unknown then, so only inserts can be counted."""
    with pytest.raises(ProjectError, match=r"computes from eventCounter\(\) and has the index pi_EMPTY"):
        plan_of(window(index=IndexType.EMPTY))
    plan = plan_of(window(index=IndexType.EMPTY), index=IndexType.EMPTY, accepts=AcceptedOpcodes.INSERT_ONLY)
    found = fed(plan, ["i,n,7,3,ab", "i,n,7,4,", "i,n,8,3,x"])
    assert [(opcode, row[2]) for opcode, _, row in found.out["cq/made"]] == [(1, 1), (1, 2), (1, 3)]
    assert [set(node.operator.open().parts) for node in plan.nodes if node.operator.id.window == "made"] == [{"counter"}]


def test_all_mistakes_are_told_together() -> None:
    with pytest.raises(ProjectError) as caught:
        plan_of(window("evntCounter()", "systemDateTime()"))
    assert [m.message for m in caught.value.mistakes] == [
        "window cq/made, field number: unknown function evntCounter",
        "window cq/made, field text: function systemDateTime is not allowed: it reads a clock, "
        "which differs between engines and runs",
    ]
