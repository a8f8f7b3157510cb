"""Law 5, round trip: projects that mean the same in YAML and ESP XML give equal models; what we print we can read back."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.model.fingerprint import differences, from_document, project_hash, to_document
from hotspare.model.frontends import esp_xml, yaml_project
from hotspare.model.load import load_text
from hotspare.model.project import Project, SourceWindow, Window
from tests.strategies_projects import projects

pytestmark = pytest.mark.law

FORMS = [yaml_project, esp_xml]


def places_apart(project: Project) -> list[object]:
    """What comparison leaves out, but what printing must keep as well."""
    return [project.description, sorted(project.metadata), [(w.name, w.description) for q in project.queries for w in q.windows]]


@given(projects())
def test_what_is_printed_is_read_back(project: Project) -> None:
    """Law 5; SPEC A1, A6, A44: through each form, and through one after the other, in both orders."""
    for first, second in itertools.product(FORMS, FORMS):
        once = first.load(first.dump(project))
        twice = second.load(second.dump(once))
        assert once == project
        assert twice == project
        assert project_hash(twice) == project_hash(project)
        assert places_apart(twice) == places_apart(project)


@given(projects())
def test_printing_settles(project: Project) -> None:
    """Law 5: the same project is the same text, so stored projects can be compared as texts."""
    for form in FORMS:
        text = form.dump(project)
        assert form.dump(form.load(text)) == text
        assert load_text(text).project == project
    assert from_document(to_document(project)) == project


@given(projects(), st.data())
def test_a_difference_is_seen_and_told(project: Project, data: st.DataObject) -> None:
    """SPEC A44: what changes outputs changes the hash and is told in words; what does not, does not."""
    other = project
    window: Window = data.draw(st.sampled_from([w for q in project.queries for w in q.windows]))
    change = data.draw(st.sampled_from(["heartbeat", "connectors", "type", "nothing"]))
    if change == "heartbeat":
        other = dataclasses.replace(project, heartbeat_interval_us=project.heartbeat_interval_us % 86_400_000_000 + 1_000)
    elif change == "connectors":
        other = _with(project, window, dataclasses.replace(window, connectors=(), description="another"))
        other = dataclasses.replace(other, properties=())
    elif change == "type" and isinstance(window, SourceWindow) and window.schema is not None:
        field = window.schema.fields[0]
        other = _with(project, window, dataclasses.replace(window, description=field.name))
    try:
        same = project_hash(other) == project_hash(project)
    except Exception as error:
        assert "publishes nothing" in str(error) or "heartbeat" in str(error)
        return
    assert same == (differences(project, other) == [])
    assert same or change in ("heartbeat", "connectors")
    if change == "heartbeat":
        assert not same
        assert differences(project, other)[0].startswith("project: heartbeat was ")


def _with(project: Project, old: Window, new: Window) -> Project:
    return dataclasses.replace(
        project,
        queries=tuple(dataclasses.replace(q, windows=tuple(new if w is old else w for w in q.windows)) for q in project.queries),
    )
