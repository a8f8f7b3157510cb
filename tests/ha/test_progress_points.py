"""Points of progress that an engine has yet to reach: bounded, however long it lags."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hotspare.bus.contract import Progress
from hotspare.ha.outputs.progress_points import ProgressPoints


def point(sequence: int) -> Progress:
    return Progress(sequence, None, sequence, 1)


@given(gaps=st.lists(st.integers(1, 50), min_size=1, max_size=300), points_max=st.integers(2, 20))
def test_the_oldest_and_the_newest_stay_and_the_rest_is_spread(gaps: list[int], points_max: int) -> None:
    points, added = ProgressPoints(points_max), [0]
    points.add(point(0))
    for gap in gaps:
        added.append(added[-1] + gap)
        points.add(point(added[-1]))
        assert len(points) <= points_max
    kept = [p.sequence for p in points.pop_through(added[-1])]
    assert (kept[0], kept[-1]) == (0, added[-1])
    assert kept == sorted(set(kept) & set(added))
    assert len(kept) == min(points_max, len(added))
    widest = max(after - before for before, after in pairwise(kept))
    assert widest <= max(50, 4 * added[-1] / (points_max - 1)) or points_max < 4
    assert len(points) == 0


@given(sequences=st.lists(st.integers(0, 100), max_size=40), passed=st.integers(0, 100))
def test_points_are_taken_once_and_in_order(sequences: list[int], passed: int) -> None:
    points = ProgressPoints()
    for sequence in sorted(sequences):
        points.add(point(sequence))
    due = sorted({s for s in sequences if s <= passed})
    assert [p.sequence for p in points.pop_through(passed)] == due
    assert points.pop_through(passed) == []
    assert len(points) == len({s for s in sequences if s > passed})
    points.clear()
    assert len(points) == 0
