"""The guard around evaluation: whatever a function does, each row is a value or a failure of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.expressions import evaluate
from hotspare.expressions.function import DOUBLE, Function, eager, fixed_rule
from hotspare.model.types import FieldType
from tests.expressions.samples import SQL, compiled

Planted = Callable[[pa.Array], Any]


def _raises(value: pa.Array) -> Any:
    if 13.0 in value.to_pylist():
        raise ZeroDivisionError("planted")
    return value


def _drops(value: pa.Array) -> Any:
    return value.filter(pc.not_equal(value, 13.0))


def _changes_type(value: pa.Array) -> Any:
    return value.cast(pa.int64()) if 13.0 in value.to_pylist() else value


def _is_no_array(value: pa.Array) -> Any:
    return [13.0] if 13.0 in value.to_pylist() else value


@contextmanager
def planted(kernel: Planted) -> Iterator[None]:
    """Replaces exp by another function within the context."""
    function = Function("exp", fixed_rule(DOUBLE, DOUBLE), eager(lambda _frame, _call, arguments: kernel(arguments[0])), "planted")
    found = evaluate.lookup_function
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "lookup_function", lambda name: function if name == "exp" else found(name))
        yield


@pytest.mark.parametrize("kernel", [_raises, _drops, _changes_type, _is_no_array])
@given(values=st.lists(st.sampled_from([0.0, 1.0, 13.0, 2.0]), max_size=20))
def test_a_row_on_which_a_function_goes_wrong_fails_alone(kernel: Planted, values: list[float]) -> None:
    with planted(kernel):
        expression = compiled("exp(x) + 1", SQL, FieldType.DOUBLE)
        given_, failures = expression.evaluate({"x": pa.array(values, pa.float64())}, len(values))
    assert given_.to_pylist() == [None if value == 13.0 else value + 1 for value in values]
    assert [failure.row for failure in failures] == [row for row, value in enumerate(values) if value == 13.0]
    assert all("the value cannot be computed" in failure.message and "exp(x) + 1" in failure.message for failure in failures)


@pytest.mark.parametrize("error", [MemoryError, OSError, pa.ArrowMemoryError])
def test_want_of_memory_is_no_fault_of_a_row(error: type[Exception]) -> None:
    def kernel(value: pa.Array) -> Any:
        raise error("planted")

    with planted(kernel), pytest.raises(error):
        compiled("exp(x)", SQL, FieldType.DOUBLE).evaluate({"x": pa.array([1.0, 2.0])}, 2)
