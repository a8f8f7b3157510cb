"""Join window (SPEC A27): the example project, invalid joins, and the order of events."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotspare.base.errors import ProjectError
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from hotspare.windows.shared.expressions import expression_mistakes
from tests.cases.case import Case, Message, outputs_by_cause, raw_batches, run

CONFORMANCE = Path(__file__).parents[4] / "shared" / "conformance" / "join"


def lines_of(plan: Plan, messages: list[Message]) -> dict[str, list[str]]:
    """Returns the outputs of each stream, in order."""
    case = Case(plan, tuple(messages), ())
    outputs, _ = run(case, [[batch] for batch in raw_batches(case)], restarts=False)
    made: dict[str, list[str]] = {}
    for by_stream in outputs_by_cause(outputs).values():
        for stream, lines in by_stream.items():
            made.setdefault(stream, []).extend(lines)
    return made


@pytest.mark.skipif(not CONFORMANCE.is_dir(), reason=f"the example project is not at {CONFORMANCE}")
def test_the_example_project() -> None:
    """The connectors are loaded one after the other, in the order of its connector groups (which are not parsed yet)."""
    text = (CONFORMANCE / "model.xml").read_text()
    text = re.sub(r"<project-connectors>.*</project-connectors>", "", text, flags=re.DOTALL)
    text = re.sub(r"<window-(join|source)", r'<window-\1 xmlns:hs="urn:hotspare" hs:publish="true"', text)
    loaded = load_text(text, properties={"ESP_PROJECT_HOME": "."}, expressions=expression_mistakes)
    messages = []
    for at, source in enumerate(("Customers", "Loyalty", "Orders")):
        for row in (CONFORMANCE / f"{source.lower()}.csv").read_text().splitlines()[1:]:
            messages += [Message(1_000_000 * (at + 1), source, row), Message(1_000_000 * (at + 1), "", "")]
    made = lines_of(compile_plan(loaded.resolved), [*messages, Message(9_000_000, "", "")])
    opcodes = [line.split(",")[0] for line in made["contquery_01/FullOuterJoin"]]
    assert opcodes == ["I"] * 4 + ["UB", "D"] * 3 + ["I"]
    assert [len(made[f"contquery_01/{kind}Join"]) for kind in ("LeftOuter", "RightOuter", "Inner")] == [5, 5, 4]
    assert "I,N,ORD001,111,Laptop,1200,Alice,New York,Gold" in made["contquery_01/InnerJoin"]
    assert next(line for line in made["contquery_01/LeftOuterJoin"] if "ORD005" in line).endswith(",,,")


def project(join: str, edges: str = "left -> joined as left, right -> joined as right") -> str:
    return f"""
project: p
queries:
  q:
    windows:
      left: {{type: source, opcodes: any, schema: "id*:int64,x:int64,s:string"}}
      right: {{type: source, opcodes: any, schema: "id*:int64,x:int64,s:string"}}
      joined: {{type: join, {join}}}
    edges: [{edges}]
"""


GOOD = "kind: inner, conditions: {x: id}, outputs: {s: r_s}"


@pytest.mark.parametrize(
    ("join", "message"),
    [
        ("kind: leftouter, conditions: {x: x}, outputs: {s: l_s}", "the whole key of the right side"),
        ("kind: rightouter, conditions: {x: id}, outputs: {s: l_s}", "the whole key of the left side"),
        ("kind: fullouter, conditions: {x: id}, outputs: {s: l_s}", "pair the keys of both sides"),
        ("kind: inner, conditions: {x: x}, outputs: {s: l_s}, regenerates: never", "need a dimension"),
        ("kind: leftouter, conditions: {x: id}, outputs: {s: l_s}, streaming: right", "rows of window joined have no key"),
        ("kind: inner, conditions: {x: nothing}, outputs: {s: l_s}", "unknown right field 'nothing'"),
        ("kind: inner, conditions: {x: s}, outputs: {s: l_s}", "which is int64, with s, which is string"),
        ("kind: inner, conditions: {}, outputs: {s: l_s}", "has no condition"),
        ("kind: inner, conditions: {x: id}", "has no output"),
        ("kind: inner, conditions: {x: id}, outputs: {s: l_t}", "the unknown field 'l_t'"),
        ("kind: inner, conditions: {x: id}, outputs: {id: l_x}", "two fields id"),
        ("kind: inner, conditions: {x: id}, outputs: {s: l_x + 1}", "needs a type"),
        ('kind: inner, conditions: {x: id}, outputs: {"s:int64": l_y + 1}', "unknown field l_y"),
        ("kind: sideways, conditions: {x: id}, outputs: {s: l_x}", "'sideways' does not exist"),
    ],
)
def test_what_cannot_be_is_refused_with_a_hint(join: str, message: str) -> None:
    with pytest.raises(ProjectError) as raised:
        load_text(project(join), expressions=expression_mistakes)
    assert any(message in mistake.message and mistake.hint for mistake in raised.value.mistakes), raised.value.mistakes


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ("left -> joined", "has one input"),
        ("left -> joined as left, right -> joined as left", "roles"),
        ("left -> joined as left, right -> joined", "roles"),
        ("left -> joined as data, right -> joined", "edge role 'data' is not a role of an input"),
    ],
)
def test_a_join_reads_a_left_and_a_right_input(edges: str, message: str) -> None:
    with pytest.raises(ProjectError) as raised:
        load_text(project(GOOD, edges))
    assert any(message in mistake.message and mistake.hint for mistake in raised.value.mistakes), raised.value.mistakes


def test_without_roles_the_first_edge_is_left() -> None:
    rows = [Message(1, "left", "I,N,1,7,a"), Message(2, "right", "I,N,7,1,b"), Message(3, "", "")]
    made = lines_of(compile_plan(load_text(project(GOOD, "left -> joined, right -> joined")).resolved), rows)
    assert made["q/joined"] == ["I,N,1,b"]


def test_a_stream_that_is_joined_twice_gives_two_key_fields() -> None:
    """The second name, with its prefix, is equal to the first one: it gets another prefix."""
    text = """
project: twice
queries:
  q:
    windows:
      a: {type: source, opcodes: any, schema: "id*:int64,d:double"}
      b: {type: source, opcodes: any, schema: "id*:int64,d:double"}
      once: {type: join, kind: inner, conditions: {d: d}, outputs: {d: l_d}}
      again: {type: join, kind: inner, conditions: {d: d}, outputs: {x: r_d}}
    edges: [a -> once as left, b -> once as right, once -> again as left, b -> again as right]
"""
    resolved = load_text(text).resolved
    again = next(window.id for window in resolved.windows if window.id.window == "again")
    assert str(resolved.schema(again)) == "id*:int64,r_id*:int64,r_r_id*:int64,x:double"


@pytest.mark.parametrize("expression", ["ESP_OPCODE", "ESP_FLAGS"])
def test_a_joined_row_has_no_opcode_of_its_own(expression: str) -> None:
    text = project(f'kind: inner, conditions: {{x: id}}, outputs: {{"s:string": {expression}}}')
    with pytest.raises(ProjectError, match="a joined row is made of two events"):
        compile_plan(load_text(text).resolved)


def test_a_stream_of_facts_has_to_be_inserts() -> None:
    """A join that joins once, with index pi_EMPTY, does not know its earlier outputs."""
    with pytest.raises(ProjectError, match="joins each fact once"):
        compile_plan(load_text(project(f"{GOOD}, streaming: left, index: empty")).resolved)


@pytest.mark.parametrize("join", ["conditions: {x: x}", "conditions: {x: id}", "conditions: {x: id}, regenerates: never"])
def test_doubles_that_are_equal_meet(join: str) -> None:
    """Doubles are compared as in a filter, whatever their bits are."""
    text = f"""
project: p
queries:
  q:
    windows:
      given: {{type: source, opcodes: any, schema: "id*:int64,x:double"}}
      left: {{type: compute, schema: "id*:int64,x:double", outputs: {{x: x * -1.0}}}}
      right: {{type: source, opcodes: any, schema: "id*:double,x:double"}}
      joined: {{type: join, kind: inner, {join}, outputs: {{v: r_id}}}}
    edges: [given -> left, left -> joined as left, right -> joined as right]
"""
    rows = [Message(1, "right", "I,N,0,0"), Message(2, "right", "I,N,nan,nan"), Message(3, "right", "I,N,3,3")]
    rows += [Message(4, "given", "I,N,1,0"), Message(5, "given", "I,N,2,nan"), Message(6, "given", "I,N,3,-3"), Message(7, "", "")]
    made = lines_of(compile_plan(load_text(text).resolved), rows)["q/joined"]
    assert [(fields[2], fields[-1]) for fields in (line.split(",") for line in made)] == [("1", "0"), ("2", "nan"), ("3", "3")]
