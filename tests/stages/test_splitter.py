"""Splitters that cannot be right are refused, and what has no effect is spoken of (SPEC A34)."""

from __future__ import annotations

import pytest

from hotspare.base.errors import ProjectError
from hotspare.flow.plan import compile_plan
from hotspare.projects.load import load_text
from hotspare.windows.shared.expressions import expression_mistakes

PROJECT = """
project: p
queries:
  q:
    windows:
      a: {{type: source, schema: "id*:int64,x:double,s:string"{source}}}
      b: {{type: copy}}
    edges: ["a -> b{slot}"]
"""


def mistakes(source: str, slot: str = " slot 1") -> list[str]:
    try:
        compile_plan(load_text(PROJECT.format(source=source, slot=slot), expressions=expression_mistakes).resolved)
    except ProjectError as error:
        return [mistake.message for mistake in error.mistakes]
    return []


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (", opcodes: any, splitter: s", "window q/a, splitter: the splitter has type string, not a numeric type"),
        (", opcodes: any, splitter: nothing", "window q/a, splitter: unknown field nothing"),
        (", opcodes: any, splitter: length(ESP_OPCODE)", "the splitter of window q/a uses more than the values of a row"),
        (", opcodes: any, index: empty, splitter: x", "the splitter of window q/a uses other fields than keys"),
        (', opcodes: any, splitter: ""', "window a has an empty expression"),
    ],
)
def test_a_splitter_that_cannot_be_right_is_refused(source: str, said: str) -> None:
    (message,) = mistakes(source)
    assert message.startswith(said)


@pytest.mark.parametrize(
    "source",
    [
        ", opcodes: any, splitter: x",
        ", opcodes: any, splitter: x > 1",
        ", opcodes: any, index: empty, splitter: id",
        ", opcodes: insert-only, index: empty, splitter: length(ESP_OPCODE)",
    ],
)
def test_other_splitters_are_not(source: str) -> None:
    assert mistakes(source) == []


def test_a_slot_is_a_whole_number() -> None:
    assert mistakes(", opcodes: any, splitter: x", " slot one") == ["slot 'one' of an edge is not a whole number"]
    assert mistakes(", opcodes: any, splitter: x", " slot -2") == ["slot '-2' of an edge is not a whole number"]


@pytest.mark.parametrize(
    ("source", "slot", "said"),
    [
        ("", " slot 0", "slot 0 of the edge to b has no effect: window a has no splitter"),
        (", opcodes: any, splitter: x", "", "the splitter of window a has no effect: no edge has a slot"),
    ],
)
def test_what_has_no_effect_is_warned_about(source: str, slot: str, said: str) -> None:
    assert [warning.message for warning in load_text(PROJECT.format(source=source, slot=slot)).warnings] == [said]


def test_a_function_of_a_shared_library_is_refused() -> None:
    text = """<project name="p"><contqueries><contquery name="q" include-singletons="true"><windows><window-source name="a">
        <splitter-plug name="lib" function="f"/><schema-string>id*:int64</schema-string></window-source></windows></contquery>
        </contqueries></project>"""
    with pytest.raises(ProjectError) as caught:
        load_text(text)
    (mistake,) = caught.value.mistakes
    assert "<splitter-plug>" in mistake.message and "shared library" in mistake.message + mistake.hint
