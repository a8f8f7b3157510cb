"""Consecutive snapshots: what is written of the second, and that each is whole by itself."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.pipeline import Pipeline
from hotspare.flow.snapshot import FrozenProjectState, RowPageContent
from hotspare.rows.tuning import Tuning, tuning_override
from hotspare.stores.contract import Store
from hotspare.stores.directory import DirectoryStore
from hotspare.stores.memory import MemoryStore
from tests.cases.case import Case, Message
from tests.examples import examples
from tests.laws.core_scripts import decoded, joined, plan, scripts, snapshot_bytes
from tests.tunings import tunings

_TEXTS = (
    "I,N,k{i},{at},{x}.5,s{i} | P,N,k1,{at},{x},é | I,N,n{i},,2,t",
    "D,N,k{j},0,0,s | P,P,k{i},,7,",
    "I,N,m{i},{at},-3,xyz | SD,N,n{j},0,0,s",
)


def changes() -> Case:
    """Returns 80 messages of inserts, updates and deletes, to all sources of the project."""
    made = []
    for i in range(80):
        source = ("loose", "keyed", "generated")[i // 2 % 3]
        text = _TEXTS[i % len(_TEXTS)].format(i=i, j=i - 2, x=i % 11, at=i * 300_000)
        if source == "generated":
            text = f"I,N,,{i * 300_000},{i % 7},g{i % 4}"
        made.append(Message(1_000_000 + i * 400_000, source, text))
        if i % 4 == 3:
            made.append(Message(1_000_000 + i * 400_000 + 1, "", ""))
    return Case(plan(), tuple(made), ())


class Encoded:
    """Counts the row pages that are encoded."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        encode = RowPageContent.encode

        def counted(content: RowPageContent) -> bytes:
            self.count += 1
            return encode(content)

        patch.setattr(RowPageContent, "encode", counted)


def put(store: Store, name: str, frozen: FrozenProjectState) -> None:
    store.write_candidate("g", name, "e", 1, frozen.header, frozen.contents())


def restored(store: Store, name: str) -> Pipeline:
    stored = store.get("g", name)
    return Pipeline.restore(plan(), stored.header, stored.pages)


@examples(0.4)
@given(st.data(), st.lists(st.integers(0, 60), min_size=1, max_size=4), tunings())
def test_each_of_several_snapshots_is_whole(data: st.DataObject, places: list[int], tuning: Tuning) -> None:
    """The restored state is bit for bit that of its moment, whichever pages earlier snapshots wrote."""
    rows, store = decoded(data.draw(scripts())), MemoryStore()
    with tuning_override(tuning):
        pipeline, begin = Pipeline.fresh(plan()), 0
        expected: dict[str, bytes] = {}
        for end in sorted({place % (rows.num_rows + 1) for place in places}):
            pipeline.feed(rows.slice(begin, end - begin))
            begin = end
            put(store, f"s{end}", pipeline.freeze())
            expected[f"s{end}"] = snapshot_bytes(pipeline)
        for name, was in expected.items():
            assert snapshot_bytes(restored(store, name)) == was


def filled(rows: pa.RecordBatch, page_slots: int) -> Pipeline:
    with tuning_override(Tuning(page_slots=page_slots)):
        pipeline = Pipeline.fresh(plan())
    pipeline.feed(rows)
    return pipeline


@pytest.mark.parametrize("kind", ["directory", "memory"])
def test_only_pages_that_are_new_are_written(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC G4, G8."""
    store: Store = DirectoryStore(tmp_path) if kind == "directory" else MemoryStore()
    rows = decoded(changes())
    pipeline = filled(rows.slice(0, 180), 2)
    encoded = Encoded(monkeypatch)
    put(store, "first", pipeline.freeze())
    all_pages = encoded.count
    put(store, "again", pipeline.freeze())
    assert encoded.count == all_pages > 40
    pipeline.feed(rows.slice(180, 12))
    put(store, "second", pipeline.freeze())
    assert 0 < encoded.count - all_pages < 2 * all_pages // 3
    assert snapshot_bytes(restored(store, "second")) == snapshot_bytes(pipeline)


def test_what_the_store_lost_is_written_again(tmp_path: Path) -> None:
    """A snapshot is discarded and its pages collected, or the engine changes its store: no page is assumed to exist."""
    store, rows = DirectoryStore(tmp_path / "a"), decoded(changes())
    pipeline = filled(rows.slice(0, 180), 2)
    put(store, "first", pipeline.freeze())
    store.discard("g", "first")
    other = DirectoryStore(tmp_path / "b")
    for target in (store, other):
        put(target, "second", pipeline.freeze())
        assert snapshot_bytes(restored(target, "second")) == snapshot_bytes(pipeline)


def test_two_snapshots_are_written_at_once(tmp_path: Path) -> None:
    """Page by page in turn, while the engine continues; each is that of its moment."""
    rows, store = decoded(changes()), DirectoryStore(tmp_path)
    pipeline, begin = filled(rows.slice(0, 100), 2), 100
    moments = []
    for name in ("first", "second"):
        moments.append((name, pipeline.freeze(), snapshot_bytes(pipeline)))
        pipeline.feed(rows.slice(begin, 30))
        begin += 30
    for name, frozen, was in reversed(moments):
        put(store, name, frozen)
        assert snapshot_bytes(restored(store, name)) == was


@examples(0.25)
@given(st.data(), st.integers(0, 60), tunings())
def test_a_state_is_sent_to_another_process(data: st.DataObject, place: int, tuning: Tuning) -> None:
    """Also while a snapshot of it is written: the received state continues bit for bit as the sent one (SPEC H6)."""
    rows = decoded(data.draw(scripts()))
    with tuning_override(tuning):
        pipeline, begin = Pipeline.fresh(plan()), place % (rows.num_rows + 1)
        pipeline.feed(rows.slice(0, begin))
        frozen = pipeline.freeze()
        received = Pipeline(plan(), pickle.loads(pickle.dumps(pipeline._state)))
        expected = Pipeline.restore(plan(), frozen.header, dict(frozen.pages()))  # rows that wait in a merge are not state
        outputs = [joined([each.feed(rows.slice(begin))]) for each in (expected, received)]
        assert outputs[0] == outputs[1]
        assert snapshot_bytes(received) == snapshot_bytes(expected)
