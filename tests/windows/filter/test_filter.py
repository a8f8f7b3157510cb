"""Filter window (SPEC A26): which events pass, and the result of an update of which only one row passes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from hotspare.base.errors import ProjectError
from hotspare.model.events import Flag, Opcode
from hotspare.model.project import Dialect, Expression, IndexType, Publication, Retention, RetentionKind
from hotspare.windows.filter.declaration import FilterWindow
from tests.flow.changelogs import ROWS, Row, fed, plan_of, relation_of

INS, DEL, UB = int(Opcode.INSERT), int(Opcode.DELETE), int(Opcode.UPDATE_BLOCK)


def window(text: str, dialect: Dialect = Dialect.SPARK_SQL) -> FilterWindow:
    return FilterWindow(name="passed", condition=Expression(text, dialect), publication=Publication.PUBLISHED)


def passed(text: str, rows: list[str], dialect: Dialect = Dialect.SPARK_SQL) -> list[tuple[int, Row]]:
    return [(opcode, row) for opcode, _, row in fed(plan_of(window(text, dialect)), rows).out.get("cq/passed", [])]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (5, 6, [(INS, (1, 5, "a")), (UB, (1, 6, "a")), (DEL, (1, 5, "a"))]),
        (5, 1, [(INS, (1, 5, "a")), (DEL, (1, 5, "a"))]),
        (1, 5, [(INS, (1, 5, "a"))]),
        (1, 2, []),
    ],
)
def test_an_update_is_what_it_is_behind_the_filter(before: int, after: int, expected: list[tuple[int, Row]]) -> None:
    assert passed("v > 3", [f"i,n,1,{before},a", f"u,n,1,{after},a"]) == expected


@given(ROWS)
def test_the_changelog_means_the_rows_that_pass(rows: list[str]) -> None:
    found = fed(plan_of(window("10 div v > 3")), rows)
    given_rows = relation_of(found.out.get("cq/kept", []))
    expected = {k: (k, v, s) for k, v, s in given_rows.values() if v in (1, 2, 3) and 10 // v > 3}
    assert {k: v for k, v in relation_of(found.out.get("cq/passed", [])).items() if v[1] in (1, 2, 3)} == expected
    accepted = [row for opcode, _, row in found.out.get("cq/kept", []) if opcode != DEL]
    assert [reason for _, reason, at in found.bad if at == "cq/passed"] == ["expression"] * sum(row[1] == 0 for row in accepted)


def test_null_counts_as_false() -> None:
    assert passed("v > 3", ["i,n,1,,a", "i,n,2,4,a"]) == [(INS, (2, 4, "a"))]


def test_a_number_is_a_condition_in_sas() -> None:
    assert passed("v", ["i,n,1,0,a", "i,n,2,4,a", "i,n,3,,a"], Dialect.ESP) == [(INS, (2, 4, "a"))]


def test_only_inserts_pass() -> None:
    """SPEC A26: ESP_OPCODE is visible."""
    rows = ["i,n,1,1,a", "u,n,1,2,a", "i,n,2,1,b", "d,n,2,,"]
    assert passed('ESP_OPCODE == "I"', rows, Dialect.ESP) == [(INS, (1, 1, "a")), (INS, (2, 1, "b"))]


def test_a_filter_on_flags_drops_exactly_retention_deletes() -> None:
    """SPEC A9."""
    retention = Retention(RetentionKind.BYCOUNT_SLIDING, 2)
    plan = plan_of(window("ESP_FLAGS <> 'R'"), retention=retention)
    found = fed(plan, [f"i,n,{k},1,a" for k in range(4)] + ["d,n,3,,"])
    kept = [(opcode, flags) for opcode, flags, _ in found.out["cq/kept"]]
    assert (DEL, Flag.RETENTION) in kept
    assert [(o, f) for o, f, _ in found.out["cq/passed"]] == [pair for pair in kept if pair[1] != Flag.RETENTION]


def test_published_events_are_resolved_by_the_index() -> None:
    """SPEC A10-A12: also with old rows that did not pass."""
    rows = ["p,n,1,5,a", "p,n,1,1,a", "u,p,1,,b", "u,p,1,9,", "d,n,1,,", "u,n,2,7,a"]
    found = fed(plan_of(window("v > 3"), index=IndexType.EMPTY), rows)
    changes = [(INS, (1, 5, "a")), (DEL, (1, 5, "a")), (INS, (1, 9, "b")), (DEL, (1, 9, "b"))]
    assert [(opcode, row) for opcode, _, row in found.out["cq/passed"]] == changes
    assert found.bad == [(5, "key-unknown", "cq/passed")]


def test_without_an_index_published_events_pass_by_their_keys_alone() -> None:
    """SPEC A14: the value of another field before an update is unknown."""
    with pytest.raises(ProjectError, match="arrive as they are published"):
        plan_of(replace(window("v > 3"), index=IndexType.EMPTY), index=IndexType.EMPTY)
    plan = plan_of(replace(window("k <> 2"), index=IndexType.EMPTY), index=IndexType.EMPTY)
    found = fed(plan, ["u,n,1,5,a", "p,n,2,1,a", "d,n,1,9,a", "p,n,3,7,a"])
    assert [opcode for opcode, _, _ in found.out["cq/passed"]] == [Opcode.UPDATE, Opcode.DELETE, Opcode.UPSERT]


def test_a_condition_that_is_none_is_refused() -> None:
    with pytest.raises(ProjectError, match="the condition has type int64"):
        plan_of(window("v"))


@pytest.mark.parametrize("text", ["random() < 0.5", "systemMicro() % 2 == 0", "left(guid(), 1) < '8'"])
def test_a_delete_takes_out_what_a_drawn_number_let_in(text: str) -> None:
    """A delete has no number of its own: only the index knows whether its row passed."""
    rows = [f"{op},n,{i},{value},a" for op, value in (("i", 1), ("u", 2), ("d", 2)) for i in range(40)]
    found = passed(text, rows, Dialect.ESP)
    assert 0 < sum(opcode == INS for opcode, _ in found) < 80
    held: set[Row] = set()
    for opcode, row in found:
        if opcode == DEL:
            held.remove(row)
        else:
            assert row not in held
            held.add(row)
    assert not held
