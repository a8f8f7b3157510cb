"""Functional windows that make any number of events of one (SPEC A25): the outputs fold to the events of the current rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import ProjectError
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.model.events import Opcode
from hotspare.model.function_contexts import EventLoop, FunctionContext, LoopKind
from hotspare.model.project import (
    AcceptedOpcodes,
    ContinuousQuery,
    Dialect,
    Edge,
    Expression,
    IndexType,
    Project,
    Publication,
    Retention,
    RetentionKind,
)
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.projects.resolve import resolve
from hotspare.windows.filter.declaration import FilterWindow
from hotspare.windows.functional.declaration import FunctionalWindow
from hotspare.windows.source.declaration import SourceWindow
from tests.flow.changelogs import GIVEN, ROWS, Relation, fed, plan_of, raw, relation_of

MADE = Schema((Field("key", FieldType.STRING, KeyRole.KEY), Field("k", FieldType.INT64), Field("n", FieldType.INT64)))
KEY = "string($k, '-', eventNumber())"


def written(text: str) -> Expression:
    return Expression(text, Dialect.FUNCTIONS)


def window(
    key: str = KEY, *, generate: str = "", opcode: str = "", n: str = "$v", index: IndexType = IndexType.HASH
) -> FunctionalWindow:
    """Makes the row itself, and an event for each letter and digit of its text."""
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
    """Laws Cut and Crash, with a counter in the output."""
    plan = plan_of(window(n="eventCounter()"))
    head, whole = Head.from_plan(plan), fed(plan, rows)
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
    pipeline, head = Pipeline.fresh(plan, extra_rows_max=100), Head.from_plan(plan)
    parts = list(pipeline.compute_parts(head.decode(raw([f"i,n,1,2,{'a' * 5000}", "i,n,2,3,b"]))))
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


def two_ways(index: IndexType, key: str = "string(input(), $k)") -> Plan:
    """Returns source -> small and odd, filters that may both pass an event -> made, which numbers its input."""
    made = replace(window(key, n="eventCounter()", index=index), loops=())
    filters = [
        FilterWindow(name=name, condition=Expression(text, Dialect.SPARK_SQL), index=index, publication=Publication.PUBLISHED)
        for name, text in (("small", "v < 3"), ("odd", "v % 2 = 1"))
    ]
    accepts = AcceptedOpcodes.ANY if index is IndexType.HASH else AcceptedOpcodes.INSERT_ONLY
    edges = (Edge("source", "small"), Edge("source", "odd"), Edge("odd", "made"), Edge("small", "made"))
    source = SourceWindow(name="source", schema=GIVEN, index=index, accepts=accepts)
    return compile_plan(resolve(Project("p", (ContinuousQuery("cq", (source, *filters, made), edges),))))


@given(ROWS)
def test_several_inputs_make_one_relation(rows: list[str]) -> None:
    """An event that arrives by two edges is counted at each, in the project's order of inputs."""
    found = fed(two_ways(IndexType.HASH), rows)
    expected = {f"{name}{k}": k for name in ("odd", "small") for k in relation_of(found.out.get(f"cq/{name}", []))}
    made = found.out.get("cq/made", [])
    assert {key: row[1] for key, row in relation_of(made).items()} == expected
    come = [opcode for name in ("odd", "small") for opcode, _, _ in found.out.get(f"cq/{name}", []) if opcode != Opcode.DELETE]
    assert sorted(row[2] for opcode, _, row in made if opcode != Opcode.DELETE) == list(range(1, 1 + len(come)))


@given(ROWS, st.lists(st.integers(0, 12), max_size=4), st.integers(1, 9))
def test_several_inputs_give_the_same_however_they_are_cut(rows: list[str], cuts: list[int], extra_rows_max: int) -> None:
    """Laws Cut and Crash; rows that an index refuses are those of their own input."""
    plan = two_ways(IndexType.HASH, "string($k)")
    head, whole = Head.from_plan(plan), fed(plan, rows)
    pipeline, outputs, bad = Pipeline.fresh(plan, extra_rows_max=extra_rows_max), [], []
    for begin, end in pairwise([0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]):
        frozen = pipeline.freeze()
        pipeline = Pipeline.restore(plan, frozen.header, dict(frozen.pages()))
        found = pipeline.feed(head.decode(raw(rows[begin:end], begin)))
        outputs += found["cq/made"].to_pylist() if "cq/made" in found else []
        bad += [(e["hs:offset"], e["reason"], e["window"]) for e in found["bad"].to_pylist()] if "bad" in found else []
    assert [(e["hs:opcode"], e["hs:flags"], (e["key"], e["k"], e["n"])) for e in outputs] == whole.out.get("cq/made", [])
    assert bad == whole.bad
    assert pipeline.digests == whole.pipeline.digests


def test_several_inputs_without_an_index_pass_in_order() -> None:
    found = fed(two_ways(IndexType.EMPTY), ["i,n,1,1,a", "i,n,2,2,a", "i,n,3,5,a"])
    assert [(row[0], row[2]) for _, _, row in found.out["cq/made"]] == [("odd1", 1), ("small1", 2), ("small2", 3), ("odd3", 4)]


@given(ROWS)
def test_a_field_of_the_input_may_be_the_key(rows: list[str]) -> None:
    """Rows with the same value share one output: an insert of an existing key is refused, an update replaces it."""
    schema = Schema((Field("s", FieldType.STRING, KeyRole.KEY), Field("k", FieldType.INT64)))
    made = FunctionalWindow(name="made", schema=schema, functions=(), publication=Publication.PUBLISHED)
    found = fed(plan_of(made), rows)
    kept = relation_of(found.out.get("cq/kept", []))
    folded = relation_of(found.out.get("cq/made", []))
    assert set(folded) <= {row[2] for row in kept.values()}
    assert all(kept[row[1]][2] == text for text, row in folded.items())
