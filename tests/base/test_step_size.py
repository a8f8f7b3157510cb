"""Steps are as large as fits into their time, whatever a row costs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.step_size import STEP_MS, STEP_ROWS_MAX, STEP_ROWS_MIN, StepSize


def work(size: StepSize, row_ms: float, rows: int) -> list[float]:
    """Processes `rows` rows; returns the time that each step took."""
    took = []
    while rows:
        amount = min(rows, size.next)
        took.append(amount * row_ms)
        size.record_step(amount, took[-1])
        rows -= amount
    return took


@given(st.lists(st.tuples(st.floats(0, 0.1), st.integers(1, 3_000_000)), min_size=1, max_size=5))
def test_only_the_first_step_after_rows_became_dearer_is_long(phases: list[tuple[float, int]]) -> None:
    size = StepSize(STEP_ROWS_MIN, STEP_ROWS_MAX)
    for row_ms, rows in phases:
        for took in work(size, row_ms, rows)[1:]:
            assert took <= STEP_MS
        assert STEP_ROWS_MIN <= size.next <= STEP_ROWS_MAX


def test_a_tick_that_causes_much_work_does_not_make_steps_small() -> None:
    size = StepSize(STEP_ROWS_MIN, STEP_ROWS_MAX)
    before = size.next
    size.record_step(1, 5_000)
    assert size.next == before


def test_steps_grow_again() -> None:
    size = StepSize(STEP_ROWS_MIN, STEP_ROWS_MAX)
    work(size, 1.0, 10_000)
    assert size.next == STEP_ROWS_MIN
    work(size, 0.0001, 1_000_000)
    assert size.next == STEP_ROWS_MAX
