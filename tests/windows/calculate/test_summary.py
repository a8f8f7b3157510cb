"""Summary against its definition, written out in plain Python arithmetic (SPEC A39): equal bit for bit."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import SnapshotDamaged
from hotspare.table.pages import Column
from hotspare.windows.calculate.algorithms import SUMMARY_OUTPUTS
from hotspare.windows.calculate.operator import AllObservations, NewestObservations

VALUES = st.one_of(st.none(), st.floats(-1e6, 1e6), st.sampled_from([0.0, -0.0, 0.1, 4846.0, 1e-300]))


def added(values: list[float]) -> tuple[float, float, float, float]:
    """Returns sum, sum of squares, mean and sum of squared differences by Welford, in this order."""
    total = squares = mean = css = 0.0
    for n, value in enumerate(values, 1):
        total += value
        squares += value * value
        difference = value - mean
        mean += difference / n
        css += difference * (value - mean)
    return total, squares, mean, css


def defined(window: list[float | None], block: int = 0) -> dict[str, float | None]:
    """Returns the statistics of one window, as the docstring of `windows.calculate.operator` defines them. `block`: the number of
    its observations in the previous block."""
    end = [v for v in window[:block] if v is not None]
    beginning = [v for v in window[block:] if v is not None]
    total, squares, mean, css = added(end[::-1])
    total_, squares_, mean_, css_ = added(beginning)
    both = css + css_
    if end and beginning:
        apart = mean_ - mean
        both += apart * apart * (float(len(end)) * len(beginning) / (len(end) + len(beginning)))
    values = end + beginning
    return _derived(len(values), len(window) - len(values), values, total + total_, squares + squares_, both)


def _derived(n: int, missing: int, values: list[float], total: float, squares: float, css: float) -> dict[str, float | None]:
    mean = total / n if n else None
    var = css / (n - 1) if n > 1 else None
    std = math.sqrt(var) if var is not None else None
    return {
        "nOut": float(n),
        "nMissOut": float(missing),
        "minOut": min(values, default=None),
        "maxOut": max(values, default=None),
        "sumOut": total if n else None,
        "meanOut": mean,
        "stdOut": std,
        "varOut": var,
        "stderrOut": std / math.sqrt(n) if std is not None else None,
        "cvOut": 100.0 * std / mean if std is not None and mean else None,
        "ussOut": squares if n else None,
        "cssOut": css if n else None,
    }


def arrays(values: list[float | None]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([v or 0.0 for v in values], np.float64), np.array([v is not None for v in values], np.bool_)


def same(found: float, expected: float | None) -> bool:
    return math.isnan(found) if expected is None else struct.pack("d", found + 0.0) == struct.pack("d", expected + 0.0)


def test_every_output_has_a_definition() -> None:
    assert set(defined([])) == set(SUMMARY_OUTPUTS)


@given(st.lists(VALUES, min_size=1, max_size=40), st.integers(1, 8), st.integers(0, 40))
def test_newest(values: list[float | None], length: int, middle: int) -> None:
    observations = NewestObservations(length)
    for begin, part in ((0, values[:middle]), (len(values[:middle]), values[middle:])):
        basis = observations.observe(*arrays(part))
        again = NewestObservations(length)
        again.load(observations.columns())
        observations = again
        for i in range(len(part)):
            first, block = max(0, begin + i + 1 - length), (begin + i) // length * length
            window = values[first : begin + i + 1]
            for name, expected in defined(window, max(0, block - first)).items():
                assert same(basis.statistic(name)[i], expected), (name, window)


@given(st.lists(VALUES, min_size=1, max_size=40), st.integers(0, 40))
def test_all(values: list[float | None], middle: int) -> None:
    observations = AllObservations()
    seen = 0
    for part in (values[:middle], values[middle:]):
        basis = observations.observe(*arrays(part))
        again = AllObservations()
        again.load(observations.columns())
        observations = again
        for i in range(len(part)):
            for name, expected in defined(values[: seen + i + 1]).items():
                assert same(basis.statistic(name)[i], expected), name
        seen += len(part)


def test_a_window_that_is_longer_than_all_rows_adds_them_all() -> None:
    """Only requested statistics are kept: a window may hold a million observations."""
    observations = NewestObservations(1_000_000, ["sumOut"])
    values = np.arange(1_000_100, dtype=np.float64)
    parts = [observations.observe(part, np.ones(len(part), np.bool_)) for part in (values[:7], values[7:])]
    assert parts[0].statistic("sumOut").tolist() == np.cumsum(values[:7]).tolist()
    assert parts[1].statistic("sumOut")[-1] == values[100:].sum()


def test_infinities_that_meet_are_null() -> None:
    basis = NewestObservations(2).observe(*arrays([math.inf, -math.inf, 1.0]))
    assert np.isnan(basis.statistic("sumOut")).tolist() == [False, True, False]
    assert basis.statistic("maxOut").tolist() == [math.inf, math.inf, 1.0]


@pytest.mark.parametrize(("count", "place"), [(2, 0), (1, 2), (0, 1), (0, -1)])
def test_observations_that_stand_nowhere_in_a_window_are_damage(count: int, place: int) -> None:
    content = {"values": Column(np.zeros(count)), "valid": Column(np.zeros(count, np.bool_)), "place": Column(np.array([place]))}
    with pytest.raises(SnapshotDamaged):
        NewestObservations(2).load(content)
