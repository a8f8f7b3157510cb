"""The downtime in a year that measured gaps amount to."""

from __future__ import annotations

import pytest

from hotspare.demo import availability


def test_downtime_in_a_year_is_that_of_a_failover_times_failovers() -> None:
    """SPEC N4: four nines are 52 minutes a year."""
    assert int(availability.nines_minutes(4)) == 52
    assert availability.down_minutes(751, 365) == pytest.approx(751 / 1000 * 365 / 60)
    most = availability.failovers_max(751, 4)
    assert availability.down_minutes(751, most) <= availability.nines_minutes(4) < availability.down_minutes(751, most + 1)


def test_the_demo_says_it_of_the_longest_gap() -> None:
    """SPEC N4."""
    said = availability.availability_sentence([254.0, 751.0])
    assert "4.6 minutes in a year (99.9991 % available)" in said
    assert said.endswith("four nines leave 52.6 minutes, or 4199 such failovers")


def test_nothing_is_said_where_no_gap_was_measured() -> None:
    assert availability.availability_sentence([]) == ""
