"""Held outputs: an output is released only when it is known to be committed, and memory is bounded (SPEC D14, D15, Z10)."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import StateError, StoreError
from hotspare.bus.contract import OutputId
from hotspare.ha.outputs.held import NO_OUTPUT, DigestTrail, HeldOutputs, HeldStream, OutputMark
from tests.ha.outputs import digest, outputs

OPERATIONS = st.lists(st.tuples(st.sampled_from(["append", "drop", "spill"]), st.integers(1, 9)), max_size=25)


def sequences(batches: list[pa.RecordBatch]) -> list[int]:
    return [s for b in batches for s in b.column(0).to_pylist()]


@given(operations=OPERATIONS, after=st.integers(0, 60), rows_max=st.integers(1, 30))
def test_it_holds_exactly_what_was_appended_and_not_dropped(operations: list[tuple[str, int]], after: int, rows_max: int) -> None:
    """The held outputs equal those of a list, through any appends, drops and spills (SPEC D11)."""
    with tempfile.TemporaryDirectory() as folder:
        held, appended, dropped = HeldStream(NO_OUTPUT), 0, 0
        for number, (operation, count) in enumerate(operations):
            if operation == "append":
                held.append(outputs(appended + 1, appended + count))
                appended += count
            elif operation == "drop":
                held.drop_through(dropped + count)
                dropped = min(dropped + count, appended)
            else:
                held.spill(Path(folder) / f"{number}.arrow")
        first = max(after, dropped) + 1
        expected = list(range(first, appended + 1))[:rows_max]
        assert sequences(list(held.batches_after(max(after, dropped), rows_max, 1 << 30))) == expected
        assert (held.last_sequence, held.base.sequence, held.rows) == (appended, dropped, appended - dropped)
        for sequence in range(appended + 2):
            mark = held.mark_at(sequence)
            if sequence == 0 and dropped == 0:
                assert mark == NO_OUTPUT
            elif dropped <= sequence <= appended:
                assert mark == OutputMark(sequence, OutputId(0, 0, sequence, 0, 0), digest(sequence))
            else:
                assert mark is None
        assert held.memory_bytes == sum(each.bytes_total for each in held._segments if each.batch is not None)
        assert held.spilled_bytes == sum(each.bytes_total for each in held._segments if each.batch is None)
        held.close()
        assert not list(Path(folder).iterdir())
        assert held.memory_bytes == held.spilled_bytes == 0


def test_a_gap_or_a_repetition_is_an_error_of_the_engine() -> None:
    held = HeldStream(OutputMark(10, None, 5))
    held.append(outputs(11, 12))
    for wrong in (outputs(12, 13), outputs(14, 14)):
        with pytest.raises(StateError, match="follows output 12"):
            held.append(wrong)


def test_beyond_its_memory_it_goes_to_disk_and_comes_back(tmp_path: Path) -> None:
    """SPEC Z10: neither a silent gap nor endless memory. Text is read back in full."""
    one = outputs(1, 100).get_total_buffer_size()
    held = HeldOutputs({"a": NO_OUTPUT, "b": NO_OUTPUT}, one * 2, tmp_path / "held")
    spilled = 0
    for i in range(10):
        spilled += held.append({"a": outputs(i * 100 + 1, i * 100 + 100), "b": outputs(i + 1, i + 1)})
        assert held.memory_bytes <= one * 2
    assert spilled > 5 * one
    whole = pa.Table.from_batches(list(held.streams["a"].batches_after(0, 10_000, 1 << 30)))
    assert whole.equals(pa.Table.from_batches([outputs(1, 1000)]))
    held.streams["a"].drop_through(1000)
    held.close()
    assert not list((tmp_path / "held").iterdir())


def test_a_disk_that_fails_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "held").write_text("a file where the folder should be")
    held = HeldOutputs({"a": NO_OUTPUT}, 1, tmp_path / "held")
    with pytest.raises(StoreError, match="cannot write held outputs"):
        held.append({"a": outputs(1, 5)})
    assert sequences(list(held.streams["a"].batches_after(0, 10, 1 << 30))) == [1, 2, 3, 4, 5]


def test_a_spilled_file_that_was_cut_short_is_an_error_with_its_name(tmp_path: Path) -> None:
    held = HeldStream(NO_OUTPUT)
    held.append(outputs(1, 50))
    held.spill(tmp_path / "x.arrow")
    (tmp_path / "x.arrow").write_bytes(b"ARROW1")
    with pytest.raises(StoreError, match=r"x\.arrow"):
        list(held.batches_after(0, 10, 1 << 30))


@given(steps=st.lists(st.tuples(st.sampled_from(["append", "let go", "drop", "compared"]), st.integers(1, 9)), max_size=25))
def test_digests_of_what_was_let_go_stay_until_they_are_compared(steps: list[tuple[str, int]]) -> None:
    """SPEC D14: a spare that holds nothing still detects that it differs."""
    held, last, base, known = HeldStream(NO_OUTPUT), 0, 0, set[int]()
    for step, count in steps:
        through = min(base + count, last)
        if step == "append":
            held.append(outputs(last + 1, last + count))
            last += count
        elif step == "let go":
            held.release_keeping_digests(base + count)
            known |= set(range(base + 1, through + 1))
        elif step == "drop":
            held.drop_through(base + count)
        else:
            held.forget_digests(count)
            known -= set(range(count + 1))
        base = held.base.sequence
        assert base == (through if step in ("let go", "drop") else base)
    for sequence in range(1, last + 1):
        expected = digest(sequence) if sequence in known or sequence >= base else None
        assert held.digest_at(sequence) == expected


def test_only_so_many_digests_are_kept() -> None:
    trail = DigestTrail(rows_max=10)
    trail.append(1, np.arange(1, 8, dtype=np.uint64))
    trail.append(8, np.arange(8, 13, dtype=np.uint64))
    assert [trail.find_digest(n) for n in range(14)] == [None, None, None, *range(3, 13), None]
    trail.append(13, np.arange(13, 43, dtype=np.uint64))
    assert [n for n in range(50) if trail.find_digest(n) is not None] == list(range(33, 43))
