"""Forwarding into source windows of other queries (SPEC A37): invalid targets are refused by name."""

from __future__ import annotations

import pytest

from hotspare.base.errors import ProjectError
from hotspare.flow.plan import compile_plan
from hotspare.projects import esp_xml
from hotspare.projects import yaml as yaml_project
from hotspare.projects.fingerprint import project_hash
from hotspare.projects.resolve import resolve

PROJECT = """
project: p
queries:
  a:
    windows:
      given: {type: source, opcodes: any, schema: "id*:int64"}
      made: {type: lua, schema: "id*:int64", events: f, code: "function f(e) return e end", forward: [TO]}
    edges: [given -> made]
  b:
    windows:
      given: {type: source, opcodes: any, schema: "SCHEMA"}
      made: {type: lua, schema: "id*:int64", events: f, code: "function f(e) return e end", forward: [BACK]}
    edges: [given -> made]
  c:
    windows:
      other: {type: source, opcodes: any, schema: "id*:int64"}
    singletons: included
"""


def text(to: str = "b/given", schema: str = "id*:int64", back: str = "c/other") -> str:
    return PROJECT.replace("TO", to).replace("SCHEMA", schema).replace("BACK", back)


def test_who_forwards_comes_first_wherever_it_stands() -> None:
    for project in (yaml_project.load(text()), yaml_project.load(text("c/other", back="a/given"))):
        resolved = resolve(project)
        place = {window.id: i for i, window in enumerate(resolved.windows)}
        for window in resolved.windows:
            assert all(place[source] < place[window.id] for source in window.forwarding_windows)
        compile_plan(resolved)


def test_it_is_part_of_the_meaning_and_of_both_texts() -> None:
    project = yaml_project.load(text())
    assert yaml_project.load(yaml_project.dump(project)) == project
    assert esp_xml.load(esp_xml.dump(project)) == project
    assert project_hash(project) != project_hash(yaml_project.load(text("c/other")))


@pytest.mark.parametrize(
    ("project", "message"),
    [
        (text("b/nothing"), "forwards to the unknown window b/nothing"),
        (text("b/made"), "forwards to b/made, which is not a source window"),
        (text(schema="id*:string"), "has the schema id*:int64, but forwards to b/given, which has id*:string"),
        (text(back="a/given"), "forwarding leads in a circle: a/given, a/made, b/given, b/made"),
        (text("a/given"), "forwarding leads in a circle: a/given, a/made"),
    ],
)
def test_what_cannot_be_is_refused(project: str, message: str) -> None:
    with pytest.raises(ProjectError) as error:
        resolve(yaml_project.load(project))
    assert any(message in str(mistake) for mistake in error.value.mistakes), error.value
