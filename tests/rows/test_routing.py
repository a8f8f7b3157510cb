"""The partition of an event is the one that Java clients of Kafka choose by the same key."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.model.types import FieldType
from hotspare.rows.routing import ROWS_ALONE_MAX, Routing, canonical, murmur2

MASK = 0xFFFFFFFF


def plain_murmur2(data: bytes) -> int:
    """Returns the hash of one value, word by word."""
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & MASK
        k = (k ^ k >> 24) * 0x5BD1E995 & MASK
        h = (h * 0x5BD1E995 & MASK) ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * 0x5BD1E995 & MASK
    h = (h ^ h >> 13) * 0x5BD1E995 & MASK
    return h ^ h >> 15


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafkas_java_clients(key: bytes, expected: int) -> None:
    """Numbers that Kafka's own tests have."""
    assert murmur2(pa.array([key], pa.binary())).astype("int32").tolist() == [expected]


@given(st.lists(st.binary(max_size=40)), st.integers(0, 3))
def test_many_values_are_hashed_as_each_alone(keys: list[bytes], skipped: int) -> None:
    values = pa.array(keys, pa.binary()).slice(skipped)
    assert murmur2(values).tolist() == [plain_murmur2(key) for key in keys[skipped:]]


@given(st.lists(st.binary(max_size=40), min_size=ROWS_ALONE_MAX - 2, max_size=2 * ROWS_ALONE_MAX))
def test_values_that_are_hashed_together_are_hashed_as_each_alone(keys: list[bytes]) -> None:
    assert murmur2(pa.array(keys, pa.binary())).tolist() == [plain_murmur2(key) for key in keys]


@pytest.mark.parametrize("others", [0, ROWS_ALONE_MAX - 1, ROWS_ALONE_MAX, ROWS_ALONE_MAX + 1])
def test_a_long_value_is_hashed_as_a_short_one(others: int) -> None:
    """Together with others, enough of them to be hashed together, shorter by any number of bytes."""
    long = bytes(range(251)) * 4000
    keys = [long[: 1_000_000 + rest] for rest in range(5)] + [long[:size] for size in range(others)]
    assert murmur2(pa.array(keys, pa.binary())).tolist() == [plain_murmur2(key) for key in keys]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1), st.integers(2, 100))
def test_numbers_are_put_by_their_decimals_and_null_as_empty_text(values: list[int | None], count: int) -> None:
    expected = [(plain_murmur2(b"" if v is None else str(v).encode()) & 0x7FFFFFFF) % count for v in values]
    assert Routing(0, FieldType.INT64, count).partitions(pa.array(values, pa.int64())).tolist() == expected


@pytest.mark.parametrize(
    ("type_", "column", "text"),
    [
        (FieldType.INT32, pa.array([-7], pa.int32()), b"-7"),
        (FieldType.DATE, pa.array([60], pa.timestamp("s")), b"60"),
        (FieldType.STAMP, pa.array([1_500_000], pa.timestamp("us")), b"1500000"),
        (FieldType.STRING, pa.array(["\u00e9 x"]), b"\xc3\xa9 x"),
    ],
)
def test_each_type_has_one_text(type_: FieldType, column: pa.Array, text: bytes) -> None:
    assert canonical(column, type_).to_pylist() == [text]


@pytest.mark.parametrize("type_", [FieldType.INT64, FieldType.STRING])
@pytest.mark.parametrize("different", [1, 700, 100_000])
def test_values_that_come_again_belong_where_each_alone_belongs(type_: FieldType, different: int) -> None:
    numbers = [None if i % 11 == 0 else i % different for i in range(5_000)]
    column = pa.array(numbers, pa.int64())
    column = column.cast(pa.string()) if type_ is FieldType.STRING else column
    routing = Routing(0, type_, 8)
    alone = [int(routing.partitions(column.slice(i, 1))[0]) for i in range(0, 5_000, 7)]
    assert routing.partitions(column).tolist()[::7] == alone
