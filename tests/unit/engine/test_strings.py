"""The string table: byte strings to codes and back, and forgetting unused ones."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from hotspare.engine.kernels.hashing import xxh64
from hotspare.engine.kernels.interning import fill_slots
from hotspare.engine.state import memory, strings
from hotspare.engine.state.strings import StringTable

TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=12), st.sampled_from(["", "a", "\0", "é" * 40])), max_size=30)


@settings(max_examples=60)
@given(st.lists(TEXTS, max_size=5))
def test_round_trip(batches: list[list[str | None]]) -> None:
    """Equal strings have equal codes, in whatever batch they came; null is code 0."""
    table = StringTable()
    codes_of: dict[str, int] = {}
    for batch in batches:
        array = pa.array(["?", *batch], pa.string()).slice(1)
        codes, valid = table.intern(array)
        assert table.arrow(codes, valid, pa.string()).to_pylist() == batch
        for text, code in zip(batch, codes.tolist(), strict=True):
            assert code == (0 if text is None else codes_of.setdefault(text, code))
    assert len(set(codes_of.values())) == len(codes_of)
    for text, code in codes_of.items():
        assert int(table.hashes[code]) == xxhash.xxh64_intdigest(text.encode())


@settings(max_examples=20)
@given(st.lists(st.integers(0, 500), min_size=100, max_size=300), st.integers(1, 300), st.sampled_from([7, 1000]))
def test_texts_that_repeat_and_texts_that_do_not_get_the_same_codes(numbers: list[int], kinds: int, null_each: int) -> None:
    """However a long column is looked up."""
    texts = [None if n % null_each == 3 else f"t{n % kinds}" for n in numbers]
    array, table = pa.array(texts, pa.string()), StringTable()
    codes, valid = table.intern(array)
    assert [code == 0 for code in codes.tolist()] == [text is None for text in texts]
    assert table.count == 1 + len({text for text in texts if text is not None})
    assert table.arrow(codes, valid, pa.string()).equals(array)
    again, _ = table.intern(pa.concat_arrays([array, pa.array(["x"] * 900)]))
    assert again[: len(codes)].tolist() == codes.tolist()


@given(st.binary(max_size=200))
def test_hash_is_xxh64(data: bytes) -> None:
    assert int(xxh64(np.frombuffer(data, np.uint8), 0, len(data))) == xxhash.xxh64_intdigest(data)


@settings(max_examples=40)
@given(TEXTS, st.data())
def test_compaction(batch: list[str | None], data: st.DataObject) -> None:
    """Kept strings keep their content under their new codes, and are found again; the others are gone."""
    table = StringTable()
    codes, _ = table.intern(pa.array(batch, pa.string()))
    used = np.zeros(table.count, np.bool_)
    kept = data.draw(st.lists(st.sampled_from(codes.tolist()), unique=True)) if batch else []
    used[kept] = True
    before = table.dictionary()
    old = before.subset(codes)
    new = table.compact(used)
    assert table.count == 1 + sum(1 for code in kept if code)
    for text, code in zip(batch, codes.tolist(), strict=True):
        if code in kept and text is not None:
            assert table.arrow(new[[code]], np.array([True]), pa.string()).to_pylist() == [text]
            assert table.intern(pa.array([text]))[0].tolist() == [new[code]]
        elif code not in kept:
            assert new[code] == 0
    again = before.subset(codes)
    assert (again.data.tolist(), again.offsets.tolist()) == (old.data.tolist(), old.offsets.tolist())


def test_growth_and_blobs() -> None:
    table = StringTable()
    values = [b"%d" % i * (i % 50) for i in range(5_000)]
    codes, valid = table.intern(pa.array(values, pa.binary()))
    assert table.arrow(codes, valid, pa.binary()).to_pylist() == values
    assert table.intern(pa.array(values[::7], pa.binary()))[0].tolist() == codes[::7].tolist()


def test_a_large_table_grows_without_being_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is sent without the room that it has."""
    monkeypatch.setattr(memory, "SMALL_BYTES", 0)
    table = StringTable()
    table.intern(pa.array([f"first {i}" for i in range(200)]))
    was = table._data, table._offsets, table._hashes
    texts = [f"more {i}" for i in range(9_000)]
    codes, valid = table.intern(pa.array(texts))
    assert all(now is before for now, before in zip((table._data, table._offsets, table._hashes), was, strict=True))
    sent = pickle.dumps(table)
    assert len(sent) < 2_000_000
    received = pickle.loads(sent)
    assert received.arrow(codes, valid, pa.string()).to_pylist() == texts
    assert received.intern(pa.array([*texts, "new"]))[0].tolist() == [*codes.tolist(), 9_201]


def test_slots_are_entered_into_a_larger_table_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step enters more than a bounded number, and every string is found meanwhile."""
    monkeypatch.setattr(strings, "FILLED_AT_ONCE", 50)
    entered: list[int] = []

    def counted(hashes: np.ndarray, begin: int, end: int, slots: np.ndarray) -> None:
        entered.append(end - begin)
        fill_slots(hashes, begin, end, slots)

    monkeypatch.setattr(strings, "fill_slots", counted)
    table, codes = StringTable(), {}
    for first in range(0, 5_000, 10):
        texts = [f"text {i}" for i in range(first, first + 10)]
        codes |= dict(zip(texts, table.intern(pa.array(texts))[0].tolist(), strict=True))
        asked = [f"text {i}" for i in range(0, first, 97)]
        assert table.intern(pa.array(asked, pa.string()))[0].tolist() == [codes[text] for text in asked]
    assert table.count == 5_001
    assert sum(entered) > 2_500
    assert max(entered) <= 4 * 52


def test_dictionary_of_a_page() -> None:
    """What a snapshot holds comes back under the codes of another table; number 0 is null."""
    table, other = StringTable(), StringTable()
    other.intern(pa.array(["z", "b"]))
    codes, _ = table.intern(pa.array(["a", "b", "c"]))
    dictionary = table.dictionary().subset(np.concatenate([[0], codes]))
    found = other.intern_dictionary(dictionary)
    assert found[0] == 0
    assert other.arrow(found[1:], np.ones(3, np.bool_), pa.string()).to_pylist() == ["a", "b", "c"]


def test_small_tables_are_not_compacted() -> None:
    table = StringTable()
    table.intern(pa.array([str(i) for i in range(65_000)]))
    assert not table.wants_compaction()
    table.intern(pa.array([str(i) for i in range(66_000)]))
    assert table.wants_compaction()
    table.compact(np.ones(table.count, np.bool_))
    assert not table.wants_compaction()


def test_a_few_large_strings_are_worth_forgetting_as_many_small_ones_are() -> None:
    """Eighty of a megabyte take more memory than a million of ten bytes."""
    table = StringTable()
    table.intern(pa.array([f"{number}-" + "x" * (1 << 20) for number in range(80)]))
    assert table.wants_compaction()
    used = np.zeros(table.count, np.bool_)
    used[1:50] = True
    table.compact(used)
    assert not table.wants_compaction()
