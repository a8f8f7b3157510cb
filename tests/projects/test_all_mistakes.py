"""Every mistake of a project in one pass: those of expressions too, each at its line and with a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotspare.base.errors import Mistake, ProjectError
from hotspare.flow.plan import operator_mistakes
from hotspare.projects import esp_xml
from hotspare.projects import yaml as yaml_project
from hotspare.projects.load import load_text
from hotspare.windows.shared.expressions import expression_mistakes
from tests.cli.running import hotspare_here
from tests.model.marked import marked_lines

YAML = """
project: p
queries:
  q:
    windows:
      s: {type: source, opcodes: any, schema: 'id*:int64,x:int32,t:string'}
      odd: {type: jion}                       # !!
      f:
        type: filter
        condition: x > nosuch                 # !!
      c:
        type: compute
        schema: id*:int64,a:double,b:double,d:int32
        outputs:
          a: nosuch(x)                        # !!
          b: rand()                           # !!
          d: t                                # !!
      g:
        type: functional
        schema: id*:int64,n:int64,x:int32
        functions:
          n: x +                              # !!
          other: nosuch(x)                    # !!
      behind:
        type: filter
        condition: nosuch(1)
      sum:
        type: calculate
        algorithm: Summary
        schema: id*:int64,total:double,t:string
        parameters:
          windowLength: many                  # !!
        inputs:
          input: t                            # !!
        outputs:
          sumOut: total
          meanOut: nothing                    # !!
          oddOut: t                           # !!
    edges: [s -> f, s -> c, s -> g, odd -> behind, s -> sum]
"""


PLAN = """
project: p
queries:
  q:
    windows:
      s: {type: source, schema: 'id*:int64,x:int32,t:string'}
      wrong:
        type: copy
        retention: {bytime_sliding: 5 sek}    # !!
      behind: {type: filter, index: empty, condition: x > 1}
      typo: {type: filter, condition: y > 1}  # !!
      events:
        type: pattern
        index: empty
        schema: 'n*:int64,first:string,last:string'
        patterns:
          two:
            events:
              a: {source: s, condition: u > 1}  # !!
              b: {source: s, condition: x < 1}
            logic: fby{1 minute}(a, b)
            outputs:
              first: {a: nosuch(t)}           # !!
              last: b.t
      after_typo:
        type: pattern
        index: empty
        schema: 'n*:int64,id:int64'
        patterns:
          one:
            events:
              a: {source: typo, condition: u > 1}  # !!
            logic: a
            outputs: {id: a.id}
      odd: {type: jion}                       # !!
      after_odd: {type: compute, schema: 'id*:int64,y:int32', outputs: {y: nosuch}}
    edges: [s -> wrong -> behind, s -> typo, s -> events, typo -> after_typo, odd -> after_odd]
"""


def mistakes(text: str) -> tuple[Mistake, ...]:
    with pytest.raises(ProjectError) as raised:
        load_text(text, "p", expressions=expression_mistakes, operators=operator_mistakes)
    return raised.value.mistakes


def test_every_mistake_is_found_in_one_pass_at_its_line_with_a_hint() -> None:
    found = mistakes(YAML)
    assert sorted({m.place.line for m in found}) == marked_lines(YAML), [str(m) for m in found]
    assert [m.message for m in found if not m.hint] == []
    for text in (
        "jion",
        "nosuch",
        "function rand",
        "field d",
        "windowLength",
        "observes",
        "'nothing'",
        "'oddOut'",
        "unknown function",
    ):
        assert any(text in m.message for m in found), text


def test_mistakes_that_only_compiling_shows_come_in_the_same_pass_and_none_follows_from_another() -> None:
    """`behind` computes from updates, which a correction of the window before it may remove."""
    found = mistakes(PLAN)
    assert [m.place.line for m in found] == marked_lines(PLAN), [str(m) for m in found]


UNTYPED = """
project: p
queries:
  q:
    windows:
      s: {type: source, schema: 'id*:int64,x:flaot,t:string'}   # !!
      wrong: {type: filter, index: empty, condition: nosuch > x}  # !!
      right: {type: filter, index: empty, condition: x > 1 or t = 'a'}
      text: {type: filter, index: empty, condition: length(x) > 1}
      c: {type: compute, index: empty, schema: 'id*:int64,x:double', outputs: {x: x + t}}
      passed: {type: compute, index: empty, schema: 'id*:int64,x:double,z:int64', outputs: {x: x}}  # !!
      pair: {type: union, index: empty}
      typed: {type: source, schema: 'id*:int64,x:double,t:string'}
    edges: [s -> wrong, s -> right, s -> text, s -> c, s -> passed, s -> pair, typed -> pair]
"""


def test_windows_behind_a_field_of_an_unknown_type_are_checked_for_what_no_type_mends() -> None:
    found = mistakes(UNTYPED)
    assert [m.place.line for m in found] == marked_lines(UNTYPED), [str(m) for m in found]


def test_calculate_is_blamed_at_its_lines_in_xml_too() -> None:
    text = """
project: p
queries:
  q:
    windows:
      s: {type: source, opcodes: any, schema: 'id*:int64,x:int32,t:string'}
      sum:
        type: calculate
        algorithm: Summary
        schema: id*:int64,total:double
        parameters: {windowLength: 5}
        inputs: {input: x}
        outputs: {sumOut: total}
    edges: [s -> sum]
"""
    xml = esp_xml.dump(yaml_project.load(text))
    for right, wrong in ((">5<", ">many<"), (">x</property>", ">t</property>"), ('"sumOut"', '"smuOut"')):
        assert xml.count(right) == 1
        broken = xml.replace(right, wrong)
        (mistake,) = mistakes(broken)
        assert wrong in broken.splitlines()[mistake.place.line - 1], mistake


@pytest.mark.parametrize("outputs", [("x",), ("x", "x", "x")])
def test_expressions_are_read_where_they_are_not_as_many_as_fields(outputs: tuple[str, ...]) -> None:
    xml = esp_xml.dump(
        yaml_project.load(
            """
project: p
queries:
  q:
    windows:
      s: {type: source, opcodes: any, schema: 'id*:int64,x:int32'}
      c: {type: compute, schema: 'id*:int64,a:int32,b:int32', outputs: {a: x, b: x}}
    edges: [s -> c]
"""
        )
    )
    element = "<field-expr>x</field-expr>"
    first = xml.index("<field-expr")
    last = xml.rindex("</field-expr>") + len("</field-expr>")
    assert xml[first:last].count("field-expr") == 4
    broken = xml[:first] + element * (len(outputs) - 1) + "<field-expr>nosuch(x)</field-expr>" + xml[last:]
    messages = [m.message for m in mistakes(broken)]
    assert any("expressions for 2 fields" in m for m in messages)
    assert any("unknown function nosuch" in m for m in messages)


def test_a_command_shows_them_together(tmp_path: Path) -> None:
    project = tmp_path / "p.yaml"
    project.write_text(YAML)
    done = hotspare_here("validate", project)
    assert done.returncode == 2
    assert "window type 'jion'" in done.stderr
    assert "unknown function nosuch" in done.stderr
