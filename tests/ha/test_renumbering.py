"""Streams that another project of the group numbered before: where this engine's outputs begin in them (SPEC Z6)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hotspare.bus.contract import OutputId, Progress
from hotspare.ha.outputs.held import NO_OUTPUT, HeldStream, OutputMark
from hotspare.ha.rules.facts import StreamFacts
from hotspare.ha.rules.renumbering import is_behind, with_known_shift, with_unknown_shift
from tests.ha.outputs import SCHEMA

Row = tuple[int, int, int, int, int]
"""A cause of an output: topic, partition, offset, index, ordinal."""


def batch(first: int, rows: list[Row], digests: list[int]) -> pa.RecordBatch:
    columns = [list(range(first, first + len(rows))), *(list(c) for c in zip(*rows, strict=True)), digests]
    schema = pa.schema(list(SCHEMA)[:7])
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


def mark(sequence: int, row: Row, digest: int) -> OutputMark:
    return OutputMark(sequence, OutputId(*row), digest)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), max_size=12), st.integers(0, 7), st.integers(0, 2), st.booleans())
def test_outputs_go_on_behind_the_position_of_the_newest_that_is_committed(
    causes: list[tuple[int, int]], offset: int, ordinal: int, is_own: bool
) -> None:
    """Compared with a list: all of one partition that is later in the input; after an output of its own, all that follows."""
    rows: list[Row] = []
    for at, index in sorted(causes):
        same = [row for row in rows if row[2:4] == (at, index)]
        rows.append((0, 0, at, index, len(same)))
    held = HeldStream(NO_OUTPUT)
    for i in range(0, len(rows), 5):
        held.append(batch(i + 1, rows[i : i + 5], [1000 + j for j in range(i, i + len(rows[i : i + 5]))]))
    newest = (0, 0, offset, 1, ordinal)
    here = [i for i, row in enumerate(rows) if row == newest]
    digest = 1000 + here[0] if is_own and here else 7
    found = held.sequence_at_or_before(mark(40, newest, digest))
    expected = here[0] + 1 if is_own and here else len([row for row in rows if row[2:4] <= (offset, 1)])
    assert found == expected
    held.renumber_from(mark(40, newest, digest), found)
    kept = [row for each in held.batches_after(0, 100, 1 << 20) for row in each.to_pylist()]
    assert [row["hs:sequence"] for row in kept] == [41 + i for i in range(len(rows) - found)]
    assert [row["hs:digest"] for row in kept] == [1000 + i for i in range(found, len(rows))]
    assert (held.base.sequence, held.last_sequence) == (40, 40 + len(kept))
    held.append(batch(len(rows) + 1, [(0, 0, 9, 0, 0)], [5]))
    assert held.last_sequence == 41 + len(kept), "what is computed later has the numbers that follow, too"


def test_spilled_outputs_are_found_and_kept(tmp_path: Path) -> None:
    held = HeldStream(NO_OUTPUT)
    held.append(batch(1, [(0, 0, i, 0, 0) for i in range(4)], [1, 2, 3, 4]))
    held.spill(tmp_path / "held.arrow")
    held.append(batch(5, [(0, 0, 4, 0, 0)], [5]))
    newest = mark(9, (0, 0, 2, 0, 0), 0)
    held.renumber_from(newest, held.sequence_at_or_before(newest))
    assert not list(tmp_path.iterdir())
    assert [row["hs:sequence"] for each in held.batches_after(0, 9, 1 << 20) for row in each.to_pylist()] == [10, 11]


def test_what_follows_at_the_same_position_is_kept_where_the_newest_was_let_go_of_already() -> None:
    held = HeldStream(NO_OUTPUT)
    held.append(batch(1, [(0, 0, 4, 0, ordinal) for ordinal in range(4)], [1, 2, 3, 4]))
    newest = mark(9, (0, 0, 4, 0, 1), 2)
    assert held.sequence_at_or_before(newest) == 2
    held.drop_through(2)
    assert held.sequence_at_or_before(newest) == 2


def test_outputs_of_other_partitions_are_before_where_an_earlier_one_follows_them() -> None:
    held = HeldStream(NO_OUTPUT)
    held.append(batch(1, [(1, 0, 8, 0, 0), (0, 0, 3, 0, 0), (1, 0, 9, 0, 0), (0, 0, 5, 0, 0)], [1, 2, 3, 4]))
    assert held.sequence_at_or_before(mark(7, (0, 0, 4, 0, 0), 0)) == 2
    assert held.sequence_at_or_before(mark(7, (2, 0, 4, 0, 0), 0)) == 0
    assert held.sequence_at_or_before(NO_OUTPUT) == 0


def test_who_has_not_taken_the_input_of_the_newest_committed_output_is_behind() -> None:
    committed = Progress(5, OutputId(0, 1, 30, 0, 0), 1, 1)
    known = StreamFacts(committed=committed, is_shift_unknown=True)
    assert is_behind(known, {(0, 1): 30}, {(0, 1)})
    assert is_behind(known, {}, {(0, 1)})
    assert not is_behind(known, {(0, 1): 31}, {(0, 1)})
    assert not is_behind(known, {}, {(0, 0)}), "nobody reads that partition any more"
    assert not is_behind(StreamFacts(committed=committed), {}, {(0, 1)})
    assert not is_behind(StreamFacts(is_shift_unknown=True), {}, {(0, 1)})


def test_a_placed_stream_is_compared_from_what_is_committed_on() -> None:
    known = with_unknown_shift(StreamFacts(committed=Progress(5, None, 1, 1), verified=9))
    assert (known.is_shift_unknown, known.verified) == (True, 0)
    assert (with_known_shift(known).is_shift_unknown, with_known_shift(known).verified) == (False, 5)
