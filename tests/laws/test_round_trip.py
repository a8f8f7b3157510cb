"""Law 5, round trip: projects that mean the same in YAML and ESP XML give equal models; printed projects can be parsed again."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.model.project import IndexType, Project, Window
from hotspare.projects import esp_xml
from hotspare.projects import yaml as yaml_project
from hotspare.projects.fingerprint import differences, from_document, project_hash, to_document
from hotspare.projects.load import load_text
from hotspare.windows.copy.declaration import CopyWindow
from tests.strategies_projects import projects

pytestmark = pytest.mark.law

FORMS = [yaml_project, esp_xml]


def places_apart(project: Project) -> list[object]:
    """Returns the parts that comparison ignores, but printing must keep."""
    return [project.description, sorted(project.metadata), [(w.name, w.description) for q in project.queries for w in q.windows]]


@given(projects())
def test_what_is_printed_is_read_back(project: Project) -> None:
    """Law 5; SPEC A1, A6, A44, A5: through each form, and through one after the other, in both orders."""
    for first, second in itertools.product(FORMS, FORMS):
        once = first.load(first.dump(project))
        twice = second.load(second.dump(once))
        assert once == project
        assert twice == project
        assert project_hash(twice) == project_hash(project)
        assert places_apart(twice) == places_apart(project)


@pytest.mark.parametrize("span_us", [1_000, 1_000_001, 1_234_567, 86_399_999_999])
def test_a_microsecond_survives_printing(span_us: int) -> None:
    """Law 5, not left to random values: spans that are not whole milliseconds or seconds."""
    text = f"""
project: p
heartbeat: {span_us} microseconds
queries:
  q:
    windows:
      a: {{type: source, opcodes: any, index: empty, schema: "k*:int64,t:stamp"}}
      b: {{type: copy, retention: {{bytime_jumping_lookback: {span_us} microseconds, unit: {span_us} microseconds, field: t}}}}
    edges: [a -> b]
"""
    project = load_text(text).project
    copy = project.queries[0].windows[1]
    assert isinstance(copy, CopyWindow)
    assert copy.retention is not None
    assert (project.heartbeat_interval_us, copy.retention.limit, copy.retention.unit_us) == (span_us, span_us, span_us)
    for form in FORMS:
        assert form.load(form.dump(project)) == project


@given(projects())
def test_printing_settles(project: Project) -> None:
    """Law 5: the same project is the same text, so stored projects can be compared as texts."""
    for form in FORMS:
        text = form.dump(project)
        assert form.dump(form.load(text)) == text
        assert load_text(text).project == project
    assert from_document(to_document(project)) == project


@given(projects(), projects(), st.sampled_from(IndexType))
def test_a_difference_is_seen_and_told(project: Project, other: Project, index: IndexType) -> None:
    """SPEC A44: hashes differ exactly if the differences can be named; parts without meaning change neither."""
    assert (project_hash(project) == project_hash(other)) == (differences(project, other) == [])

    interval_us = project.heartbeat_interval_us
    other_pace = dataclasses.replace(project, heartbeat_interval_us=interval_us + (1 if interval_us < 1_000_000 else -1))
    assert project_hash(other_pace) != project_hash(project)
    assert differences(project, other_pace)[0].startswith("project: heartbeat was ")

    queries = tuple(
        dataclasses.replace(q, trace=(), windows=tuple(_reworded(w, index) for w in q.windows)) for q in project.queries
    )
    reworded = dataclasses.replace(project, queries=queries, properties=(), metadata=(("a", "b"),), description="another")
    assert project_hash(reworded) == project_hash(project)
    assert differences(project, reworded) == []


def _reworded(window: Window, index: IndexType) -> Window:
    """Returns the same window in other words; keyed index types behave alike (SPEC A14)."""
    keyed = IndexType.EMPTY not in (window.index, index)
    return dataclasses.replace(window, description="other", index=index if keyed else window.index)
