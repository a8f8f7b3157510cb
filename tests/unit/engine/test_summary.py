"""Summary against its definition, written out in plain Python arithmetic (SPEC A39): equal bit for bit."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotspare.engine.state.pages import Column
from hotspare.engine.state.summary import All, Newest
from hotspare.errors import SnapshotDamaged
from hotspare.model.algorithms import SUMMARY_OUTPUTS

VALUES = st.one_of(st.none(), st.floats(-1e6, 1e6), st.sampled_from([0.0, -0.0, 0.1, 4846.0, 1e-300]))


def defined(window: list[float | None]) -> dict[str, float | None]:
    """The statistics of one window, as the docstring of `hotspare.engine.state.summary` defines them."""
    values = [v for v in window if v is not None]
    total = squares = css = 0.0
    for value in values:
        total += value
        squares += value * value
    mean = total / len(values) if values else None
    for value in values:
        css += (value - mean) * (value - mean)
    return _derived(len(values), len(window) - len(values), values, total, squares, css)


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


@settings(max_examples=60)
@given(st.lists(VALUES, min_size=1, max_size=40), st.integers(1, 8), st.integers(0, 40))
def test_newest(values: list[float | None], length: int, middle: int) -> None:
    observations = Newest(length)
    for begin, part in ((0, values[:middle]), (len(values[:middle]), values[middle:])):
        basis = observations.observe(*arrays(part))
        again = Newest(length)
        again.load(observations.columns())
        observations = again
        for i in range(len(part)):
            window = values[max(0, begin + i + 1 - length) : begin + i + 1]
            for name, expected in defined(window).items():
                assert same(basis.statistic(name)[i], expected), (name, window)


@settings(max_examples=60)
@given(st.lists(VALUES, min_size=1, max_size=40), st.integers(0, 40))
def test_all(values: list[float | None], middle: int) -> None:
    observations = All()
    n = missing = 0
    total = squares = mean = css = 0.0
    seen: list[float] = []
    for part in (values[:middle], values[middle:]):
        basis = observations.observe(*arrays(part))
        again = All()
        again.load(observations.columns())
        observations = again
        for i, value in enumerate(part):
            if value is None:
                missing += 1
            else:
                n += 1
                seen.append(value)
                total += value
                squares += value * value
                difference = value - mean
                mean += difference / n
                css += difference * (value - mean)
            for name, expected in _derived(n, missing, seen, total, squares, css).items():
                assert same(basis.statistic(name)[i], expected), name


def test_infinities_that_meet_are_null() -> None:
    basis = Newest(2).observe(*arrays([math.inf, -math.inf, 1.0]))
    assert np.isnan(basis.statistic("sumOut")).tolist() == [False, True, False]
    assert basis.statistic("maxOut").tolist() == [math.inf, math.inf, 1.0]


def test_too_many_observations_are_damage() -> None:
    with pytest.raises(SnapshotDamaged):
        Newest(2).load({"values": Column(np.zeros(2)), "valid": Column(np.zeros(2, np.bool_))})
