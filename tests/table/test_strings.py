"""The string table: byte strings to codes and back; what it shares with snapshots, and what remains of it when it is pickled."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from hotspare.rows.tuning import Tuning, tuning_override
from hotspare.table.loops.hashing import xxh64
from hotspare.table.strings import StringTable
from tests.examples import examples

TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=12), st.sampled_from(["", "a", "\0", "é" * 40])), max_size=30)


@given(st.lists(TEXTS, max_size=5))
def test_round_trip(batches: list[list[str | None]]) -> None:
    """Equal strings have equal codes, in whatever batch they arrive; null is code 0."""
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


@examples(0.35)
@given(st.lists(st.integers(0, 500), min_size=100, max_size=300), st.integers(1, 300), st.sampled_from([7, 1000]))
def test_texts_that_repeat_and_texts_that_do_not_get_the_same_codes(numbers: list[int], kinds: int, null_each: int) -> None:
    """Either method of looking up a long column."""
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


def test_growth_and_blobs() -> None:
    """Some are longer than a page of text, and fifty thousand are more than an ordinary array holds."""
    table = StringTable()
    values = [b"%d" % i * (i % 50) for i in range(50_000)] + [b"x" * 100_000, b"y" * 300_000]
    codes, valid = table.intern(pa.array(values, pa.binary()))
    assert table.arrow(codes, valid, pa.binary()).to_pylist() == values
    assert table.intern(pa.array(values[::7], pa.binary()))[0].tolist() == codes[::7].tolist()
    assert table.bytes == sum(map(len, set(values)))


@tuning_override(Tuning(small_bytes=0))
def test_a_large_table_grows_without_being_copied() -> None:
    """It is pickled without the room that it has."""
    table = StringTable()
    table.intern(pa.array([f"first {i}" for i in range(200)]))
    was = table._texts
    texts = [f"more {i}" for i in range(4_000)]
    codes, valid = table.intern(pa.array(texts))
    assert all(getattr(table._texts, name) is getattr(was, name) for name in ("places", "hashes", "marks"))
    sent = pickle.dumps(table)
    assert len(sent) < 2_000_000
    received = pickle.loads(sent)
    assert received.arrow(codes, valid, pa.string()).to_pylist() == texts
    assert received.intern(pa.array([*texts, "new"]))[0].tolist() == [*codes.tolist(), 4_201]


def test_dictionary_of_a_page() -> None:
    """The strings of a snapshot get the codes of another table; number 0 is null."""
    table, other = StringTable(), StringTable()
    other.intern(pa.array(["z", "b"]))
    codes, _ = table.intern(pa.array(["a", "b", "c"]))
    dictionary = table.freeze().subset(np.concatenate([[0], codes]))
    found = other.intern_dictionary(dictionary)
    assert found[0] == 0
    assert other.arrow(found[1:], np.ones(3, np.bool_), pa.string()).to_pylist() == ["a", "b", "c"]
