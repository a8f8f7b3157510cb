"""Every mistake of a project in one pass: those of expressions too, each at its line and with a hint (DESIGN section 8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotspare.engine.expressions.windows import expression_mistakes
from hotspare.errors import Mistake, ProjectError
from hotspare.model.frontends.esp_xml import project as esp_xml
from hotspare.model.frontends.yaml import project as yaml_project
from hotspare.model.load import load_text
from tests.unit.cli.running import hotspare_here
from tests.unit.model.marked import marked_lines

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


def mistakes(text: str) -> tuple[Mistake, ...]:
    with pytest.raises(ProjectError) as raised:
        load_text(text, "p", expressions=expression_mistakes)
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
