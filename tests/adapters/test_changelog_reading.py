"""A subscriber's processing of a changelog: no pairs, no retention deletes, snapshots, sequence checks (SPEC I14-I16)."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.changelog_reading import (
    RetentionDeletes,
    RowChoice,
    SequenceBreak,
    UpdateBlocks,
    WindowContent,
    sequence_breaks,
)
from hotspare.base.errors import StateError
from hotspare.model.events import Opcode
from tests.adapters.outputs import UB, D, I, N, R, Row, block


def opcodes(batch: pa.RecordBatch) -> list[int]:
    return [int(opcode) for opcode in batch.column("hs:opcode").to_pylist()]


def test_i14_a_collapsed_update_is_one_row_with_the_new_values() -> None:
    """SPEC I14."""
    rows: list[Row] = [(I, N, 1, 1.0), (UB, N, 1, 2.0), (D, N, 1, 1.0), (D, N, 1, 2.0)]
    chosen = RowChoice(updates=UpdateBlocks.COLLAPSED).select_rows(block(rows, 1), update_open=0)
    assert opcodes(chosen) == [I, Opcode.UPDATE, D]
    assert chosen.column("value").to_pylist() == [1.0, 2.0, 2.0]


def test_i14_a_pair_may_be_cut_between_messages() -> None:
    choice = RowChoice(updates=UpdateBlocks.COLLAPSED)
    assert opcodes(choice.select_rows(block([(D, N, 1, 1.0), (D, N, 2, 2.0)], 3), update_open=1)) == [D]
    assert opcodes(RowChoice().select_rows(block([(D, N, 1, 1.0)], 3), update_open=1)) == [D]


def test_i15_only_deletes_by_retention_are_dropped() -> None:
    """SPEC I15."""
    rows: list[Row] = [(I, R, 1, 1.0), (D, R, 1, 1.0), (D, N, 2, 1.0)]
    chosen = RowChoice(retention_deletes=RetentionDeletes.DROPPED).select_rows(block(rows, 1), update_open=0)
    assert list(zip(opcodes(chosen), chosen.column("id").to_pylist(), strict=True)) == [(I, 1), (D, 2)]


def test_i15_an_update_that_retention_causes_keeps_both_rows() -> None:
    """SPEC I15, A11: the old row of an update is not a delete, whatever its flags, also at the start of a message."""
    choice = RowChoice(retention_deletes=RetentionDeletes.DROPPED)
    rows: list[Row] = [(UB, R, 1, 2.0), (D, R, 1, 1.0), (D, R, 2, 1.0), (UB, R, 3, 1.0)]
    chosen = choice.select_rows(block(rows, 1), update_open=0)
    assert list(zip(opcodes(chosen), chosen.column("id").to_pylist(), strict=True)) == [(UB, 1), (D, 1), (UB, 3)]
    assert opcodes(choice.select_rows(block([(D, R, 3, 2.0), (D, R, 4, 2.0)], 5), update_open=1)) == [D]


@given(st.lists(st.integers(1, 3), min_size=1, max_size=20), st.integers(0, 3))
def test_every_break_of_the_sequence_is_found(steps: list[int], last: int) -> None:
    sequences, now = [], last
    for step in steps:
        now += step - 1
        sequences.append(now)
    batch = block([(I, N, 1, 1.0)] * len(sequences), 1).set_column(0, "hs:sequence", pa.array(sequences, pa.int64()))
    before = [last or sequences[0] - 1, *sequences[:-1]]
    expected = [SequenceBreak(a, b) for a, b in zip(before, sequences, strict=True) if b != a + 1]
    assert sequence_breaks(batch, last) == expected


def test_a_break_says_what_is_missing_or_doubled() -> None:
    assert "2 outputs are missing after sequence 4" in str(SequenceBreak(4, 7))
    assert "is repeated" in str(SequenceBreak(4, 4))


keys = st.integers(1, 4)
values = st.one_of(st.none(), st.sampled_from([0.0, -0.0, math.nan, 1.5]))


@given(steps=st.lists(st.tuples(keys, values, st.booleans()), max_size=40), size=st.integers(1, 7))
def test_i16_folding_gives_the_content(steps: list[tuple[int, float | None, bool]], size: int) -> None:
    """Compared with a dictionary: inserts, update pairs and deletes of a keyed window, in batches of any size (SPEC I16)."""
    held: dict[int, float | None] = {}
    rows: list[Row] = []
    for key, value, is_delete in steps:
        if is_delete and key in held:
            rows.append((D, N, key, held.pop(key)))
        elif key in held:
            rows += [(UB, N, key, value), (D, N, key, held.pop(key))]
            held[key] = value
        else:
            rows.append((I, N, key, value))
            held[key] = value
    content = WindowContent()
    for begin in range(0, len(rows), size):
        content.fold_batch(block(rows[begin : begin + size], begin + 1))
    found = [row for batch in content.as_insert_batches() for row in batch.select(["hs:opcode", "id", "value"]).to_pylist()]
    assert len(content) == len(held)
    assert [(row["id"], repr(row["value"])) for row in found] == [(key, repr(value)) for key, value in held.items()]
    assert all(row["hs:opcode"] == I for row in found)


def test_i16_memory_follows_the_content_not_the_changelog() -> None:
    content = WindowContent(compact_rows=10)
    for number in range(1000):
        content.fold_batch(block([(I, N, number, 1.0), (I, N, -number - 1, 1.0), (D, N, number, 1.0)], 1))
        assert content._rows_kept <= 2 * len(content) + 10
    assert next(content.as_insert_batches()).column("id").to_pylist()[:2] == [-1, -2]


def test_i16_memory_follows_the_content_also_where_rows_are_large() -> None:
    content = WindowContent(compact_bytes=1_000)
    for number in range(1000):
        content.fold_batch(block([(I, N, number, 1.0), (I, N, -number - 1, 1.0), (D, N, number, 1.0)], 1))
    assert content._rows_kept <= 2 * len(content) + 100


def test_i16_a_content_over_the_limit_is_refused() -> None:
    content = WindowContent(rows_max=2)
    with pytest.raises(StateError, match="more than 2 rows"):
        content.fold_batch(block([(I, N, n, 1.0) for n in range(3)], 1))
