"""Numbers of simple forms have the values that `parse` gives them, to the bit; most numbers are of simple forms."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hotspare.model.types import FieldType
from hotspare.rows.loops import NOT_SIMPLE, simple_double, simple_whole
from hotspare.rows.values import parse
from tests.examples import examples

DIGITS = st.text("0123456789", max_size=20)
TEXTS = st.one_of(
    st.builds("{}{}{}{}".format, st.sampled_from(["", "-", "+", " "]), DIGITS, st.sampled_from(["", ".", ".."]), DIGITS),
    st.builds(
        "{}.{}{}{}{}".format,
        DIGITS,
        DIGITS,
        st.sampled_from("eE"),
        st.sampled_from(["", "-", "+", "--"]),
        st.text("0123456789", max_size=3),
    ),
    st.text("0123456789+-.eEx naif\0", max_size=8),
    st.floats().map(repr),
    st.integers(-(2**63), 2**63 - 1).map(str),
)


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(f"9{text}9".encode(), np.uint8)


@examples(8)
@given(TEXTS)
def test_integers(text: str) -> None:
    found = simple_whole(_bytes(text), 1, 1 + len(text))
    values, _ = parse(pa.array([text]), FieldType.INT64)
    assert found in (NOT_SIMPLE, values[0].as_py())


@examples(8)
@given(TEXTS)
@example("923000000000000000.0e0")
def test_doubles(text: str) -> None:
    found = simple_double(_bytes(text), 1, 1 + len(text))
    values, _ = parse(pa.array([text]), FieldType.DOUBLE)
    assert np.isnan(found) or np.float64(found).tobytes() == np.float64(values[0].as_py()).tobytes()


@given(st.integers(1 - 10**18, 10**18 - 1))
def test_integers_of_18_digits_are_simple(value: int) -> None:
    assert simple_whole(_bytes(str(value)), 1, 1 + len(str(value))) == value


@given(st.integers(-(10**15), 10**15), st.integers(0, 17))
def test_decimals_of_15_digits_are_simple(value: int, places: int) -> None:
    text = f"{value}e-{places}"
    assert simple_double(_bytes(text), 1, 1 + len(text)) == float(text)


@given(st.floats(1e-40, 1e40))
def test_doubles_as_they_are_written_are_simple(value: float) -> None:
    assert simple_double(_bytes(repr(value)), 1, 1 + len(repr(value))) == value


@given(st.integers(2**52, 2**53 - 1), st.integers(0, 5), st.sampled_from([-1, 0, 1]))
def test_numbers_next_to_the_middle_of_two_doubles_are_rounded_correctly(value: int, power: int, beside: int) -> None:
    text = str(((2 * value + 1) << power) + beside)
    found = simple_double(_bytes(text), 1, 1 + len(text))
    assert np.isnan(found) if beside == 0 else found == float(text)


@pytest.mark.parametrize(
    ("text", "value"), [("-0", -0.0), ("007.50", 7.5), ("5.", 5.0), (".5", 0.5), ("1E+22", 1e22), ("-1e-22", -1e-22)]
)
def test_forms(text: str, value: float) -> None:
    assert np.float64(simple_double(_bytes(text), 1, 1 + len(text))).tobytes() == np.float64(value).tobytes()


@pytest.mark.parametrize(
    "text", ["", "-", ".", "1e", "1e+", "e5", "1e5.", "9007199254740993", "1e23", "nan", "inf", "0x10", "1_0", "1 "]
)
def test_other_texts_are_left(text: str) -> None:
    assert np.isnan(simple_double(_bytes(text), 1, 1 + len(text)))
