"""The weights of properties scale with the profile."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.examples import examples


@pytest.mark.parametrize(("weight", "share"), [(0.5, 0.5), (1, 1), (3, 3)])
def test_a_weight_is_a_multiple_of_the_profile(weight: float, share: float) -> None:
    assert examples(weight).max_examples == round(settings().max_examples * share)


def test_a_property_draws_at_least_one_example() -> None:
    assert examples(0.0001).max_examples == 1


def test_other_settings_are_those_of_the_profile() -> None:
    made, profile = examples(2), settings()
    assert (made.deadline, made.derandomize, made.print_blob) == (profile.deadline, profile.derandomize, profile.print_blob)
