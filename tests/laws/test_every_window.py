"""Laws that every window type keeps, over its example: round trip, cut, parts, restart. A new type is included automatically."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hotspare.flow.head.head import Head
from hotspare.flow.plan import Plan, compile_plan
from hotspare.model.project import Project, Publication
from hotspare.model.types import FieldType, Schema
from hotspare.model.window_type import type_of
from hotspare.projects import esp_xml
from hotspare.projects import yaml as yaml_project
from hotspare.projects.fingerprint import project_hash
from hotspare.projects.load import load_text
from hotspare.projects.resolve import resolve
from hotspare.rows.tuning import Tuning
from hotspare.windows.registry import WINDOW_TYPES, example_project
from hotspare.windows.shared.expressions import expression_mistakes
from tests.cases.case import Case, Message, raw_batches
from tests.examples import examples
from tests.laws.test_cut import check_page_sizes, cut, fed, in_batches
from tests.laws.test_joins import check_restart
from tests.tunings import tunings

pytestmark = pytest.mark.law

TYPES = sorted(WINDOW_TYPES)
SECOND = 1_000_000


def project_of(name: str) -> Project:
    return load_text(example_project(name), expressions=expression_mistakes).project


@cache
def plan_of(name: str, pulse_us: int = 0) -> Plan:
    """Returns the example with every window published, and with a pulse if `pulse_us` is given."""
    project = project_of(name)
    (query,) = project.queries
    windows = tuple(replace(window, publication=Publication.PUBLISHED) for window in query.windows)
    if pulse_us:
        windows = tuple(replace(window, emission=replace(window.emission, pulse_us=pulse_us)) for window in windows)
    return compile_plan(resolve(replace(project, queries=(replace(query, windows=windows),))))


def value(type_: FieldType, number: int) -> str:
    if number == 0:
        return ""
    return str(number * SECOND) if type_ is FieldType.STAMP else str(number)


@st.composite
def cases(draw: st.DrawFn, name: str, pulse_us: int = 0) -> Case:
    plan = plan_of(name, pulse_us)
    schemas: dict[str, Schema] = {source.window: plan.resolved.schema(source) for source in plan.resolved.sources}
    messages, time = [], SECOND
    for _ in range(draw(st.integers(1, 12))):
        time += draw(st.sampled_from([0, 1, 700_000, 2_600_000]))
        source = draw(st.sampled_from(["", *schemas, *schemas]))
        rows = []
        for _ in range(draw(st.integers(1, 4)) if source else 0):
            fields = schemas[source].fields
            numbers = draw(st.lists(st.sampled_from([1, 1, 2, 2, 3, 0]), min_size=len(fields), max_size=len(fields)))
            written = ",".join(value(field.type, number) for field, number in zip(fields, numbers, strict=True))
            opcode, flag = draw(st.sampled_from(["I", "I", "P", "U", "D"])), draw(st.sampled_from(["N", "N", "N", "P"]))
            rows.append(f"{opcode},{flag},{written}")
        messages.append(Message(time, source, " | ".join(rows)))
    return Case(plan, (*messages, Message(time + 9 * SECOND, "", "")), ())


def decoded(case: Case) -> pa.RecordBatch:
    return Head.from_plan(case.plan).decode(pa.concat_batches(raw_batches(case)))


@pytest.mark.parametrize("name", TYPES)
def test_the_example_shows_the_type_and_survives_both_texts(name: str) -> None:
    """Law Round trip."""
    project = project_of(name)
    assert any(type_of(window).name == name for window in project.queries[0].windows)
    assert yaml_project.load(yaml_project.dump(project)) == project
    again = esp_xml.load(esp_xml.dump(project))
    assert again == project
    assert project_hash(again) == project_hash(project)


@pytest.mark.parametrize("name", TYPES)
@settings(examples(0.15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), places=st.lists(st.integers(0, 60), max_size=60), extra_rows_max=st.integers(1, 5))
def test_cut(name: str, data: st.DataObject, places: list[int], extra_rows_max: int) -> None:
    """Law Cut, with outputs in parts."""
    case = data.draw(cases(name))
    rows = decoded(case)
    whole = fed(case, [rows])
    assert fed(case, cut(rows, places)) == whole
    assert in_batches(case, cut(rows, places), extra_rows_max)[:2] == whole


@pytest.mark.parametrize("name", TYPES)
@settings(examples(0.1), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), places=st.lists(st.integers(0, 60), max_size=60), extra_rows_max=st.integers(1, 5))
def test_pulses(name: str, data: st.DataObject, places: list[int], extra_rows_max: int) -> None:
    """Law Cut, with the outputs of every window waiting for pulses (SPEC A17); waiting events are in its snapshots."""
    case = data.draw(cases(name, 2 * SECOND))
    rows = decoded(case)
    whole = fed(case, [rows])
    assert fed(case, cut(rows, places)) == whole
    assert in_batches(case, cut(rows, places), extra_rows_max)[:2] == whole
    check_restart(case, sum(places))


@pytest.mark.parametrize("name", TYPES)
@examples(0.1)
@given(data=st.data(), places=st.lists(st.integers(0, 60), max_size=12), tuning=tunings())
def test_page_sizes(name: str, data: st.DataObject, places: list[int], tuning: Tuning) -> None:
    """Outputs do not depend on the size of the pages of rows."""
    case = data.draw(cases(name))
    check_page_sizes(case, decoded(case), places, tuning)


@pytest.mark.parametrize("name", TYPES)
@examples(0.1)
@given(data=st.data(), place=st.integers(0, 60))
def test_restart(name: str, data: st.DataObject, place: int) -> None:
    """Law Crash, of the core: a snapshot that is written while the engine continues, and restored, continues with the same bits."""
    check_restart(data.draw(cases(name)), place)
