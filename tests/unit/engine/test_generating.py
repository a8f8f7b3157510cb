"""Functional windows that make any number of events of one (SPEC A25): what comes out folds to what the rows mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.engine.head.head import Head
from hotspare.engine.pipeline import Pipeline
from hotspare.errors import ProjectError
from hotspare.model.project import AcceptedOpcodes, Dialect, Expression, IndexType, Publication, Retention, RetentionKind
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.model.windows.function_contexts import EventLoop, FunctionContext, LoopKind
from hotspare.model.windows.functional import FunctionalWindow
from tests.unit.engine.changelogs import ROWS, Relation, fed, plan_of, raw, relation_of

MADE = Schema((Field("key", FieldType.STRING, KeyRole.KEY), Field("k", FieldType.INT64), Field("n", FieldType.INT64)))
KEY = "string($k, '-', eventNumber())"


def written(text: str) -> Expression:
    return Expression(text, Dialect.FUNCTIONS)


def window(
    key: str = KEY, *, generate: str = "", opcode: str = "", n: str = "$v", index: IndexType = IndexType.HASH
) -> FunctionalWindow:
    """The row itself, and an event for each letter and digit of its text."""
    context = FunctionContext((("key", written(key)), ("n", written("eventNumber()"))))
    loop = EventLoop(LoopKind.REGEX, "letters", written("$s"), "[a-z0-9]", context)
    return FunctionalWindow(
        name="made",
        schema=MADE,
        functions=(("key", written(key)), ("n", written(n))),
        loops=(loop,),
        generate=written(generate) if generate else None,
        opcode=written(opcode) if opcode else None,
        index=index,
        publication=Publication.PUBLISHED,
    )


def expected(kept: Relation) -> Relation:
    made: Relation = {}
    for k, row in kept.items():
        v, text = row[1], row[2] or ""
        made[f"{k}-0"] = (f"{k}-0", k, v)
        made |= {f"{k}-{i}": (f"{k}-{i}", k, i) for i in range(1, 1 + len(str(text)))}
    return made


@given(ROWS, st.booleans())
def test_the_changelog_folds_to_the_events_of_the_rows(rows: list[str], forgets: bool) -> None:
    retention = Retention(RetentionKind.BYCOUNT_SLIDING, 2) if forgets else None
    found = fed(plan_of(window(), retention=retention), rows)
    assert relation_of(found.out.get("cq/made", [])) == expected(relation_of(found.out.get("cq/kept", [])))
    assert not [at for _, _, at in found.bad if at == "cq/made"]


@given(ROWS)
def test_a_row_that_fails_takes_its_events_away(rows: list[str]) -> None:
    found = fed(plan_of(window(n="mod(10, $v)")), rows)
    kept = relation_of(found.out.get("cq/kept", []))
    alive = {k: row for k, row in kept.items() if row[1] != 0}
    made = relation_of(found.out.get("cq/made", []))
    assert set(made) == set(expected(alive))


@given(ROWS, st.integers(0, 12), st.integers(1, 9))
def test_cuts_restarts_and_parts_do_not_matter(rows: list[str], cut: int, extra_rows_max: int) -> None:
    """Laws Cut and Crash, with a counter in what comes out."""
    plan = plan_of(window(n="eventCounter()"))
    head, whole = Head.of(plan), fed(plan, rows)
    first = Pipeline.fresh(plan, extra_rows_max=extra_rows_max)
    outputs = [first.feed(head.decode(raw(rows[:cut])))]
    frozen = first.freeze()
    second = Pipeline.restore(plan, frozen.header, dict(frozen.pages()))
    outputs.append(second.feed(head.decode(raw(rows[cut:], min(cut, len(rows))))))
    numbers = [n for o in outputs if "cq/made" in o for n in o["cq/made"].column("n").to_pylist()]
    assert numbers == [row[2] for _, _, row in whole.out.get("cq/made", [])]
    assert second.digests == whole.pipeline.digests


def test_one_event_of_thousands_comes_out_in_parts() -> None:
    plan = plan_of(window(), accepts=AcceptedOpcodes.INSERT_ONLY)
    pipeline, head = Pipeline.fresh(plan, extra_rows_max=100), Head.of(plan)
    parts = list(pipeline.parts(head.decode(raw([f"i,n,1,2,{'a' * 5000}", "i,n,2,3,b"]))))
    sizes = [part["cq/made"].num_rows for part in parts if "cq/made" in part]
    assert sum(sizes) == 5001 + 2
    assert max(sizes) <= 300


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (window("string(eventCounter())"), "computes a key from what an event is"),
        (window("guid()"), "computes a key from what an event is"),
        (window(generate="equals(ESP_OPCODE, 'I')"), "computes generate from what an event is"),
        (window(n="$w"), "unknown field w"),
        (window(index=IndexType.EMPTY, n="eventCounter()"), "and has the index pi_EMPTY"),
    ],
)
def test_what_could_not_be_found_again_is_refused(made: FunctionalWindow, message: str) -> None:
    with pytest.raises(ProjectError, match=message):
        plan_of(made)


def test_inserts_may_have_any_keys() -> None:
    plan = plan_of(window("guid()"), accepts=AcceptedOpcodes.INSERT_ONLY)
    found = fed(plan, ["i,n,1,2,ab", "i,n,2,3,c"])
    keys = [row[0] for _, _, row in found.out["cq/made"]]
    assert len(set(keys)) == 5
    assert fed(plan, ["i,n,1,2,ab", "i,n,2,3,c"]).out == found.out


def test_an_opcode_says_what_the_events_do() -> None:
    found = fed(plan_of(window(opcode="if(equals($v, 1), 'd', 'p')")), ["i,n,1,2,a", "u,n,1,1,a", "i,n,2,1,b", "d,n,2,,"])
    assert [(opcode, row[0]) for opcode, _, row in found.out["cq/made"]] == [(1, "1-0"), (1, "1-1"), (4, "1-0"), (4, "1-1")]
    assert [(at, reason) for at, reason, where in found.bad if where == "cq/made"] == [(2, "key-unknown"), (2, "key-unknown")]
