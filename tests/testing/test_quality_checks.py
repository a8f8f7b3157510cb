"""The checks of each quality: allowed deliveries pass, and each violation is reported (docs/qualities.md)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.model.quality import PRECISE, SIMPLE, Quality, QualityKind
from hotspare.testing.quality_checks import (
    DeliveredOutput,
    Reference,
    count_doubled,
    count_lost,
    quality_violations,
    without_repeats,
)

BY_COUNT = Quality(QualityKind.BUFFERED, window_events=3)
BY_TIME = Quality(QualityKind.BUFFERED, window_ms=100)
TRIMMED = Quality(QualityKind.TRIMMED, progress_events=4, progress_ms=1_000)


def outputs(*runs: tuple[int, int, int], time_ms: int = 0) -> list[DeliveredOutput]:
    """Returns the outputs of runs of (epoch, first, last)."""
    return [DeliveredOutput(n, epoch, time_ms) for epoch, first, last in runs for n in range(first, last + 1)]


ALLOWED = [
    (PRECISE, outputs((1, 1, 5), (2, 6, 9)), 9),
    (SIMPLE, outputs((1, 1, 5), (2, 6, 9)), 9),
    (SIMPLE, outputs((1, 1, 5), (2, 8, 9)), 9),
    (SIMPLE, outputs((1, 1, 5)), 9),
    (SIMPLE, [], 9),
    (BY_COUNT, outputs((1, 1, 2), (3, 5, 9)), 9),
    (TRIMMED, outputs((1, 1, 5), (2, 3, 9)), 9),
    (TRIMMED, outputs((1, 1, 5), (2, 3, 4), (3, 3, 9)), 9),
    (TRIMMED, outputs((1, 1, 5), (1, 5, 9)), 9),
]
FORBIDDEN = [
    (PRECISE, outputs((1, 1, 5), (2, 7, 9)), "output 6 lost before 7 of epoch 2"),
    (PRECISE, outputs((1, 1, 5), (2, 5, 9)), "output 5 of epoch 2 delivered after 5"),
    (PRECISE, outputs((1, 1, 5)), "outputs 6 to 9 not delivered"),
    (PRECISE, outputs((2, 1, 5), (1, 6, 9)), "output 6 of epoch 1 delivered after one of epoch 2"),
    (PRECISE, outputs((1, 1, 10)), "output 10 delivered, the reference ends with 9"),
    (SIMPLE, outputs((1, 1, 5), (1, 7, 9)), "output 6 lost within epoch 1"),
    (SIMPLE, outputs((1, 1, 5), (2, 5, 9)), "output 5 of epoch 2 delivered after 5"),
    (BY_COUNT, outputs((1, 1, 2), (3, 8, 9)), "outputs 3 to 7 lost, among the newest 3 of 9"),
    (TRIMMED, outputs((1, 1, 5), (2, 7, 9)), "output 6 lost"),
    (TRIMMED, outputs((1, 1, 5), (2, 2, 9)), "output 2 of epoch 2 delivered after 5, at most 3 may repeat"),
    (TRIMMED, outputs((1, 1, 8)), "output 9 not delivered"),
]


@pytest.mark.parametrize(("quality", "delivered", "last"), ALLOWED)
def test_what_is_allowed_passes(quality: Quality, delivered: list[DeliveredOutput], last: int) -> None:
    assert quality_violations(quality, delivered, Reference(last)) == ()


@pytest.mark.parametrize(("quality", "delivered", "complaint"), FORBIDDEN)
def test_what_is_not_is_told(quality: Quality, delivered: list[DeliveredOutput], complaint: str) -> None:
    found = quality_violations(quality, delivered, Reference(9))
    assert any(complaint in sentence for sentence in found), found


def test_a_window_by_time_loses_only_what_is_older() -> None:
    reference = Reference(9, times_ms=[n * 10 for n in range(9)])
    young, old = [[*outputs((1, 1, 2)), *outputs((2, 5, 9), time_ms=ms)] for ms in (129, 130)]
    assert quality_violations(BY_TIME, old, reference) == ()
    assert "output 4 lost 99 ms after it could be computed" in quality_violations(BY_TIME, young, reference)[0]
    short_of_window = Reference(9, reference.times_ms, frozenset({2}))
    assert quality_violations(BY_TIME, young, short_of_window) == ()


@given(st.lists(st.integers(1, 9), max_size=20), st.sampled_from([PRECISE, SIMPLE, BY_COUNT, TRIMMED]))
def test_precise_promises_all_that_the_others_do(sequences: list[int], weaker: Quality) -> None:
    delivered = [DeliveredOutput(n, 1) for n in sequences]
    if not quality_violations(PRECISE, delivered, Reference(9)):
        assert not quality_violations(weaker, delivered, Reference(9))


@given(st.lists(st.integers(1, 9), max_size=20))
def test_a_receiver_that_keeps_the_greatest_sequence_sees_nothing_twice(sequences: list[int]) -> None:
    """SPEC D10, F3, F12."""
    delivered = [DeliveredOutput(n, 1) for n in sequences]
    kept = without_repeats(delivered)
    assert count_doubled(kept) == 0
    if not quality_violations(TRIMMED, delivered, Reference(9)):
        assert [d.sequence for d in kept] == list(range(1, 10))
        assert count_lost(delivered, Reference(9)) == 0
