"""Encoded snapshots: which are refused, and that damage causes nothing worse than a refusal (SPEC G10)."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import ProjectChanged, SnapshotDamaged, SnapshotFormat, StoreError
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.flow.semantics import SEMANTICS
from hotspare.flow.snapshot import FORMAT
from hotspare.projects.load import load_text
from tests.cases.case import Case, Message, raw_batches
from tests.examples import examples
from tests.laws.core_scripts import PROJECT, plan


@cache
def snapshot() -> tuple[bytes, dict[str, bytes]]:
    messages = [Message(1_000_000, "keyed", "I,N,k,5,1.5,s"), Message(1_000_001, "loose", "I,N,é,6,2.5,t | I,N,b,7,3,u")]
    case = Case(plan(), (*messages, Message(2_000_000, "", "")), ())
    pipeline = Pipeline.fresh(plan())
    head = Head.from_plan(plan())
    for raw in raw_batches(case):
        pipeline.feed(head.decode(raw))
    frozen = pipeline.freeze()
    return frozen.header, dict(frozen.pages())


def test_header_says_where_and_how_far() -> None:
    header, pages = snapshot()
    content = json.loads(header)
    assert content["passed"] == [[0, 0, 0, 0, 2_000_000], [1, 0, 0, 0, 1_000_000], [2, 0, 0, 1, 1_000_001]]
    assert content["streams"]["cq/jumped_by_event"]["last_id"] == [1, 0, 0, 0, 0]
    assert content["streams"]["cq/slid_by_event"]["sequence"] == 2
    whole = [name for name in pages if name.count("/") == 1]
    assert sorted(whole) == sorted(node.page for node in plan().nodes if node.operator.open().parts)
    assert "cq/inverse#0" not in pages  # a stateless window
    assert {name.rsplit("/", 2)[0] for name in pages if name.count("/") > 1} <= set(whole)
    assert "cq/made#0/rows/0" in pages


def test_another_project_is_refused() -> None:
    header, pages = snapshot()
    other = compile_plan(load_text(PROJECT.replace("bycount_sliding: 3", "bycount_sliding: 4")).resolved)
    with pytest.raises(ProjectChanged, match="another project"):
        Pipeline.restore(other, header, pages)


def test_a_newer_format_is_refused() -> None:
    header, pages = snapshot()
    name = sorted(pages)[0]
    for other in (FORMAT - 1, FORMAT + 1):
        with pytest.raises(SnapshotFormat, match=f"the snapshot has format {other}"):
            Pipeline.restore(plan(), header.replace(b'"format":%d' % FORMAT, b'"format":%d' % other), pages)
        page = pages[name].replace(b'"format":%d' % FORMAT, b'"format":%d' % other)
        with pytest.raises(SnapshotFormat, match=f"a page has format {other}"):
            Pipeline.restore(plan(), header, {**pages, name: page})


@pytest.mark.parametrize(("semantics", "age"), [(SEMANTICS - 1, "an older"), (SEMANTICS + 1, "a newer")])
def test_a_snapshot_of_other_semantics_is_refused_by_name_with_the_ways_on(semantics: int, age: str) -> None:
    """Its pages may fit or not: the meaning of windows has changed, and the project's hash does not show it."""
    header, _ = snapshot()
    content = json.loads(header) | {"semantics": semantics}
    with pytest.raises(ProjectChanged, match=f"begun by {age} version of hotspare, whose windows have other semantics") as refused:
        Pipeline.restore(plan(), json.dumps(content).encode(), {})
    assert "--prefix" in refused.value.hint
    assert "hotspare reset" in refused.value.hint


def test_missing_and_foreign_pages_are_refused() -> None:
    header, pages = snapshot()
    name = sorted(pages)[0]
    with pytest.raises(SnapshotDamaged, match="other pages"):
        Pipeline.restore(plan(), header, {**pages, "cq/unknown#0": b""})
    with pytest.raises(SnapshotDamaged, match="other pages"):
        Pipeline.restore(plan(), header, {n: p for n, p in pages.items() if n != name})
    with pytest.raises(SnapshotDamaged):
        Pipeline.restore(plan(), header, {**pages, name: pages[sorted(pages)[1]]})


@given(st.data())
def test_truncated_pages_are_refused(data: st.DataObject) -> None:
    header, pages = snapshot()
    name = data.draw(st.sampled_from(sorted(pages)))
    length = data.draw(st.integers(0, len(pages[name]) - 1))
    with pytest.raises(SnapshotDamaged):
        Pipeline.restore(plan(), header, {**pages, name: pages[name][:length]})
    with pytest.raises(SnapshotDamaged):
        Pipeline.restore(plan(), header[: data.draw(st.integers(0, len(header) - 1))], pages)


@examples(1.6)
@given(st.data())
def test_changed_bytes_do_nothing_worse_than_being_refused(data: st.DataObject) -> None:
    """The store's checksums find every change; decoding must only not crash or run away (SPEC G11)."""
    header, pages = snapshot()
    name = data.draw(st.sampled_from([*sorted(pages), ""]))
    content = bytearray(pages[name] if name else header)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    changed = (bytes(content), pages) if not name else (header, {**pages, name: bytes(content)})
    try:
        pipeline = Pipeline.restore(plan(), *changed)
    except (StoreError, ProjectChanged):
        return
    dict(pipeline.freeze().pages())
