"""Every mistake of a join is reported once, with its line and a hint (SPEC A1, A27, A35)."""

from __future__ import annotations

import pytest

from hotspare.base.errors import ProjectError
from hotspare.projects import esp_xml
from hotspare.projects import yaml as yaml_project
from hotspare.projects.load import load_text
from hotspare.windows.shared.expressions import expression_mistakes

EDGES = "[orders -> named as left, people -> named as right]"
PROJECT = f"""
project: p
queries:
  q:
    windows:
      orders: {{type: source, opcodes: any, schema: "order*:int64,customer:int64,amount:double"}}
      people: {{type: source, opcodes: any, schema: "id*:int64,name:string,group:int64"}}
      named:
        type: join
        kind: leftouter
        conditions: {{customer: id}}
        outputs: {{name: r_name, "twice:double": 2 * l_amount}}
    edges: {EDGES}
"""


def mistakes(text: str) -> list[tuple[str, str]]:
    with pytest.raises(ProjectError) as raised:
        load_text(text, "p", expressions=expression_mistakes)
    return [(each.message, each.hint) for each in raised.value.mistakes]


@pytest.mark.parametrize(
    ("before", "after", "message", "hint"),
    [
        ("        kind: leftouter\n", "", "join window named has no kind", "leftouter"),
        ("kind: leftouter", "kind: left", "kind of join: 'left' does not exist", "'leftouter'"),
        ("        conditions: {customer: id}\n", "", "window named has no condition", "a field of each side"),
        ("{customer: id}", "{custmer: id}", "unknown left field 'custmer'", "'customer'"),
        ("{customer: id}", "{amount: id}", "amount, which is double, with id, which is int64", "compute"),
        ("{customer: id}", "{customer: id, order: id}", "compares the right field id twice", ""),
        ("{customer: id}", "{customer: group}", "name the whole key of the right side", "join inner"),
        ("leftouter", "rightouter", "name the whole key of the left side", "join inner"),
        ("leftouter", "fullouter", "pair the keys of both sides", "no others"),
        ("leftouter", "fullouter\n        regenerates: never", "cannot join once", "leave regenerates"),
        (
            "leftouter",
            "leftouter\n        streaming: right",
            "the right side, so it is the dimension, which has to be kept",
            "let the other",
        ),
        ("name: r_name", "name: upper(r_name)", "output name of window named is not an l_field or r_field", "l_name"),
        ("name: r_name", "name: r_nme", "output name of window named is the unknown field 'r_nme'", "'r_name'"),
        ("name: r_name", "order: r_name", "window named has two fields order", ""),
        ("name: r_name", 'name: r_name, "name:string": r_name', "window named has two fields name", "another name"),
        ("2 * l_amount", "2 * amount", "unknown field amount", "'l_amount'"),
        (EDGES, "[orders -> named as left]", "window named has one input: orders", "left and right"),
        (EDGES, "[orders -> named as left, peple -> named as right]", "an edge names the unknown window 'peple'", "'people'"),
        (EDGES, "[orders -> named as left, orders -> named as right]", "there are two edges from orders to named", ""),
        (EDGES, "[orders -> named as left, people -> named as left]", "the roles ['left', 'left']", "one is left"),
        (EDGES, "[orders -> named as left, people -> named]", "the roles ['left', '']", "one is left"),
        (
            EDGES,
            "[orders -> named as left, people -> named as data]",
            "edge role 'data' is not a role of an input of window named",
            "left, right",
        ),
    ],
)
def test_a_join(before: str, after: str, message: str, hint: str) -> None:
    assert PROJECT.count(before) == 1
    found = mistakes(PROJECT.replace(before, after))
    assert len(found) == 1, found
    assert message in found[0][0]
    assert hint in found[0][1]


def test_two_outputs_of_one_name_are_a_mistake_in_xml_too() -> None:
    xml = esp_xml.dump(yaml_project.load(PROJECT))
    selection = '<field-selection name="name" source="r_name"/>'
    assert xml.count(selection) == 1
    found = mistakes(xml.replace(selection, selection + '<field-selection name="name" source="l_amount"/>'))
    assert [message for message, _ in found] == ["window named has two fields name"]
