"""Variables as bytes: aliases, order and bits are kept, and other bytes are refused (SPEC A36)."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import SnapshotDamaged
from hotspare.scripting.canonical_bytes import TooManyBytes, UnkeptValue, decode, encode

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary())
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SCALARS, inner, max_size=4), max_leaves=20
)
VARIABLES = st.dictionaries(st.text(min_size=1), VALUES, max_size=5)


@given(VARIABLES)
def test_variables_read_back_equal_in_their_order(variables: dict[str, Any]) -> None:
    found = decode(encode(variables, 1 << 20))
    assert found == variables
    assert repr(found) == repr(variables)


@given(VARIABLES)
def test_bytes_depend_on_the_values_alone(variables: dict[str, Any]) -> None:
    written = encode(variables, 1 << 20)
    assert encode(decode(written), 1 << 20) == written


def test_aliases_and_circles_stay() -> None:
    inner: list[Any] = [1]
    inner.append(inner)
    found = decode(encode({"a": inner, "b": {"same": inner}, "c": [1]}, 1 << 20))
    assert found["a"] is found["b"]["same"] is found["a"][1]
    assert found["c"] == [1]


def test_depth_costs_nothing() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    found, depth = decode(encode({"deep": deep}, 1 << 30))["deep"], 0
    while found:
        found, depth = found[0], depth + 1
    assert depth == 100_000


@given(st.floats())
def test_doubles_keep_their_bits(value: float) -> None:
    found = decode(encode({"x": value}, 100))["x"]
    assert found == value or math.isnan(value)
    assert math.copysign(1, found) == math.copysign(1, value)


@pytest.mark.parametrize(("value", "kind"), [({1}, "set"), (len, "builtin_function_or_method"), (object(), "object")])
def test_another_kind_of_value_is_refused_with_its_name(value: Any, kind: str) -> None:
    with pytest.raises(UnkeptValue) as refused:
        encode({"seen": {"a": [0, value]}}, 1 << 20)
    assert (refused.value.path, refused.value.kind) == ("seen['a'][1]", kind)


def test_more_bytes_than_allowed_are_refused() -> None:
    written = encode({"text": "x" * 100}, 1 << 20)
    assert encode({"text": "x" * 100}, len(written)) == written
    with pytest.raises(TooManyBytes):
        encode({"text": "x" * 100}, 100)


@given(VARIABLES, st.data())
def test_damaged_bytes_are_told_or_mean_something_else(variables: dict[str, Any], data: st.DataObject) -> None:
    written = bytearray(encode(variables, 1 << 20))
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] ^= data.draw(st.integers(1, 255))
    with suppress(SnapshotDamaged):
        decode(bytes(written))
    with pytest.raises(SnapshotDamaged):
        decode(bytes(written[:-1]))
