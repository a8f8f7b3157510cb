"""Law Cut: outputs and snapshots are the same bits however the input is cut into batches, and however two topics arrive."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.snapshot import FrozenProjectState
from hotspare.rows.tuning import Tuning, tuning_override
from hotspare.table.strings import TextCollector
from hotspare.windows.calculate.operator import NewestObservations
from tests.cases.case import Case, Message, raw_batches
from tests.examples import examples
from tests.laws.core_scripts import decoded, joined, plan, scripts, snapshot_bytes
from tests.tunings import tunings, with_roomy_texts

pytestmark = pytest.mark.law


def fed(case: Case, pieces: list[pa.RecordBatch]) -> tuple[dict[str, pa.Table], bytes]:
    pipeline = Pipeline.fresh(case.plan)
    outputs = [pipeline.feed(piece) for piece in pieces]
    return joined(outputs), snapshot_bytes(pipeline)


def cut(rows: pa.RecordBatch, places: list[int]) -> list[pa.RecordBatch]:
    edges = sorted({0, rows.num_rows, *(place % (rows.num_rows + 1) for place in places)})
    return [rows.slice(begin, end - begin) for begin, end in pairwise(edges)]


def in_batches(case: Case, pieces: list[pa.RecordBatch], extra_rows_max: int) -> tuple[dict[str, pa.Table], bytes, int]:
    """Returns the result of `fed` with outputs in parts of varying limits; and the number of parts."""
    pipeline = Pipeline.fresh(case.plan, extra_rows_max=extra_rows_max)
    outputs = []
    for piece in pieces:
        for part in pipeline.compute_parts(piece):
            outputs.append(part)
            pipeline.limit_part_rows(1 + len(outputs) % 3)
    return joined(outputs), snapshot_bytes(pipeline), len(outputs)


def check_cut(case: Case, places: list[int]) -> None:
    rows = decoded(case)
    whole, snapshot = fed(case, [rows])
    parts, parts_snapshot = fed(case, cut(rows, places))
    assert parts == whole
    assert parts_snapshot == snapshot


@examples(0.5)
@given(scripts(), st.lists(st.integers(0, 60), max_size=12))
def test_cut(case: Case, places: list[int]) -> None:
    """SPEC F2, F4, F13, Z12."""
    check_cut(case, places)


@examples(0.7)
@given(scripts(), st.lists(st.integers(0, 60), max_size=60), st.integers(1, 5))
def test_parts(case: Case, places: list[int], extra_rows_max: int) -> None:
    """The outputs of one row are emitted in parts, however small: the same outputs, ordinals and state."""
    rows = decoded(case)
    expected = fed(case, [rows])
    assert in_batches(case, cut(rows, places), extra_rows_max)[:2] == expected
    assert in_batches(case, cut(rows, list(range(60))), 1)[:2] == expected


@examples(0.5)
@given(scripts(), st.integers(200, 2000))
def test_a_head_cuts_where_a_batch_gets_too_large(case: Case, bytes_max: int) -> None:
    """The head cuts whole messages into as many batches as needed, as it does at 2 GiB, with the same bits."""
    raw = pa.concat_batches(raw_batches(case))
    head = replace(Head.from_plan(case.plan), batch_bytes_max=bytes_max)
    batches, rows = head(raw), decoded(case)
    assert len(batches) > 1 or rows.nbytes <= bytes_max
    for batch in batches:
        places = set(zip(batch.column("topic").to_pylist(), batch.column("offset").to_pylist(), strict=True))
        assert batch.nbytes <= bytes_max or len(places) == 1
    assert pa.Table.from_batches(batches).equals(pa.Table.from_batches([rows]))
    assert fed(case, list(batches)) == fed(case, [rows])


@examples(0.15)
@given(scripts())
def test_row_by_row(case: Case) -> None:
    check_cut(case, list(range(100)))


@examples(0.35)
@given(scripts(), st.lists(st.integers(0, 60), max_size=12))
def test_arrival(case: Case, places: list[int]) -> None:
    """A topic may be far ahead of the others: the merge releases the same rows, with the same outputs."""
    rows = decoded(case)
    whole, snapshot = fed(case, [rows])
    topic = rows.column("topic").to_numpy()
    apart = [piece for number in (2, 1, 0) for piece in cut(rows.take(pa.array(np.flatnonzero(topic == number))), places)]
    assert fed(case, apart) == (whole, snapshot)


@examples(0.25)
@given(scripts(), st.lists(st.integers(0, 60), max_size=60), tunings())
def test_forgetting_strings(case: Case, places: list[int], tuning: Tuning) -> None:
    """Collecting strings does not show in outputs or state, however small its steps are, and even after every batch; nor in a
    snapshot that is written during it."""
    rows = decoded(case)
    with tuning_override(with_roomy_texts(tuning)):
        expected, pieces = fed(case, [rows]), cut(rows, places)
    with tuning_override(tuning), pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextCollector, "is_round_due", lambda *_: True)
        assert fed(case, pieces) == expected
        pipeline, written = Pipeline.fresh(case.plan), []
        for piece in pieces:
            written.append((pipeline.freeze(), snapshot_bytes(pipeline)))
            pipeline.feed(piece)
        assert all(frozen.header + pages_of(frozen) == was for frozen, was in written)


def pages_of(frozen: FrozenProjectState) -> bytes:
    return b"".join(name.encode() + page for name, page in frozen.pages())


@examples(0.25)
@given(st.data(), st.lists(st.integers(0, 60), max_size=12), tunings())
def test_page_sizes(data: st.DataObject, places: list[int], tuning: Tuning) -> None:
    """Outputs do not depend on the page size. With small pages, rewritten rows are at the same places as uncut, and a snapshot in
    pages of one size is restored with another one."""
    case = data.draw(scripts())
    check_page_sizes(case, decoded(case), places, tuning)


def check_page_sizes(case: Case, rows: pa.RecordBatch, places: list[int], tuning: Tuning) -> None:
    expected = fed(case, [rows])
    with tuning_override(tuning):
        small = fed(case, [rows])
        assert fed(case, cut(rows, places)) == small
        assert small[0] == expected[0]
        begin, *rest = cut(rows, places)
        in_small = snapshot_of(case, begin)
    resumed = [Pipeline.restore(case.plan, *snapshot) for snapshot in (in_small, snapshot_of(case, begin))]
    outputs = [joined([pipeline.feed(piece) for piece in rest]) for pipeline in resumed]
    assert outputs[0] == outputs[1]


def snapshot_of(case: Case, begin: pa.RecordBatch) -> tuple[bytes, dict[str, bytes]]:
    """Returns the snapshot after these rows, without those that wait in the merge."""
    pipeline = Pipeline.fresh(case.plan)
    pipeline.feed(begin)
    frozen = pipeline.freeze()
    return frozen.header, dict(frozen.pages())


@examples(0.35)
@given(scripts(), st.integers(0, 60))
def test_freezing(case: Case, place: int) -> None:
    """A snapshot that is written while the engine continues is that of the moment of the freeze (SPEC Z4)."""
    pieces = cut(decoded(case), [place])
    _, expected = fed(case, pieces[:1])
    pipeline = Pipeline.fresh(case.plan)
    pipeline.feed(pieces[0])
    frozen = pipeline.freeze()
    for piece in pieces[1:]:
        pipeline.feed(piece)
    assert frozen.header + pages_of(frozen) == expected


def test_a_tick_in_parts() -> None:
    """A tick evicts rows of several windows in a row: many parts, with the outputs of a single one."""
    inserts = [Message(1_000_000, source, " | ".join(f"I,N,k{i},{i},{i},s" for i in range(9))) for source in ("generated", "loose")]
    case = Case(plan(), (*inserts, Message(1_500_000, "", ""), Message(40_000_000, "", "")), ())
    rows = decoded(case)
    expected = fed(case, [rows])
    made, state, count = in_batches(case, cut(rows, list(range(60))), 1)
    assert (made, state) == expected
    assert count > rows.num_rows


def test_the_law_bites() -> None:
    """A window that loses its observations at the end of a batch is found."""

    def forgetful(observations: NewestObservations, values: np.ndarray, valid: np.ndarray) -> object:
        NewestObservations.__init__(observations, observations.length, observations.statistics)
        return observe(observations, values, valid)

    observe = NewestObservations.observe
    messages = [Message(1_000_000 * i, "" if i % 2 else "loose", "" if i % 2 else f"I,N,k{i},0,{i},s") for i in range(2, 8)]
    case = Case(plan(), tuple(messages), ())
    check_cut(case, [3, 6])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NewestObservations, "observe", forgetful)
        with pytest.raises(AssertionError):
            check_cut(case, [3, 6])
