"""Law Runner, within one engine: whether a window runs in head or core changes no output, no bad event and no snapshot."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import assume, given

from hotspare.base.errors import ProjectError
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.model.project import Project
from hotspare.projects.resolve import resolve
from tests.cases.case import Case, Message, raw_batches
from tests.laws.core_scripts import snapshot_bytes
from tests.laws.test_relations import Given, as_text, scripts
from tests.strategies_projects import stateless_chains

pytestmark = pytest.mark.law


def plans(project: Project) -> tuple[Plan, Plan]:
    """Returns a plan that leaves all possible work to the head, and one whose windows are all traced, so that the core does it."""
    query = project.queries[0]
    traced = replace(project, queries=(replace(query, trace=tuple(window.name for window in query.windows)),))
    return compile_plan(resolve(project)), compile_plan(resolve(traced))


def fed(plan: Plan, script: list[Given]) -> tuple[dict[str, pa.RecordBatch], bytes]:
    messages = tuple(Message(time, "w0" if events else "", " | ".join(map(as_text, events))) for time, events in script)
    pipeline = Pipeline.fresh(plan)
    outputs = pipeline.feed(Head.from_plan(plan).decode(pa.concat_batches(raw_batches(Case(plan, messages, ())))))
    return outputs, snapshot_bytes(pipeline)


@given(stateless_chains(), scripts())
def test_head_or_core(project: Project, script: list[Given]) -> None:
    """Sequences, digests and texts of bad events are included; append times also fall."""
    try:
        in_head, in_core = plans(project)
    except ProjectError:
        assume(False)
    assert in_head.head_chains != in_core.head_chains
    assert in_head.project_hash == in_core.project_hash
    (outputs, snapshot), (expected, expected_snapshot) = fed(in_head, script), fed(in_core, script)
    assert outputs == expected
    assert snapshot == expected_snapshot
