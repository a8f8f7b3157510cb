"""Distances and polygons (SPEC A39): the same numbers as libraries compute, from sums, products and roots alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.windows.geofence.geometry import (
    EARTH_RADIUS_M,
    METRES_PER_DEGREE,
    Doubles,
    edge_distance,
    is_inside_by_crossing,
    is_inside_by_winding,
    polygon_of,
    sine,
    sphere_distance,
)


def _of(*values: float) -> Doubles:
    return np.array(values, np.float64)


@given(st.floats(-1000, 1000))
def test_a_sine_is_that_of_the_library(degrees: float) -> None:
    assert sine(_of(degrees))[0] == pytest.approx(math.sin(math.radians(degrees)), abs=3e-15)


@given(st.floats(-180, 180), st.floats(-90, 90), st.floats(-180, 180), st.floats(-90, 90))
def test_a_distance_on_the_sphere_is_the_angle_between_two_places(x: float, y: float, to_x: float, to_y: float) -> None:
    def vector(longitude: float, latitude: float) -> Doubles:
        a, b = math.radians(longitude), math.radians(latitude)
        return _of(math.cos(b) * math.cos(a), math.cos(b) * math.sin(a), math.sin(b))

    chord = float(np.linalg.norm(vector(x, y) - vector(to_x, to_y)))
    expected = 2 * EARTH_RADIUS_M * math.asin(min(1.0, chord / 2))
    assert sphere_distance(_of(x), _of(y), _of(to_x), _of(to_y))[0] == pytest.approx(expected, abs=0.3, rel=1e-9)


def test_what_is_inside_an_edge_that_crosses_itself_depends_on_the_rule() -> None:
    star = polygon_of("0 3 2 -3 -3 1 3 1 -2 -3", " ")
    assert star is not None
    x, y = _of(0.0, 0.0, 9.0), _of(0.0, 2.0, 0.0)
    assert is_inside_by_crossing(star, x, y).tolist() == [False, True, False]
    assert is_inside_by_winding(star, x, y).tolist() == [True, True, False]


def test_the_distance_to_an_edge_is_that_to_its_closest_segment() -> None:
    box = polygon_of("0,0,4,0,4,2,0,2,0,0", ",")
    assert box is not None
    assert len(box.x) == 4
    assert box.centroid == (2.0, 1.0)
    found = edge_distance(box, _of(2.0, 7.0, 5.0), _of(1.0, 6.0, 1.0), np.ones(3), 1.0)
    assert found.tolist() == [1.0, 5.0, 1.0]
    assert edge_distance(box, _of(5.0), _of(1.0), _of(METRES_PER_DEGREE), METRES_PER_DEGREE)[0] == METRES_PER_DEGREE


@pytest.mark.parametrize("text", ["", "1 2 3 4", "1 2 3 4 5", "0 0 1 1 0 0", "0 0 1 1 x 2", "0 0 1 1 nan 2", "0 0 1 1 1e300 2"])
def test_other_texts_are_no_polygon(text: str) -> None:
    assert polygon_of(text, " ") is None
