"""The weight of a property: how many examples it draws, relative to the profile.

The profile in force (`HYPOTHESIS_PROFILE`, registered in tests/conftest.py) sets the number for all properties, so one knob scales
the whole suite. A property that needs more or fewer examples than the others states a weight, never a number: what one example
costs differs by a factor of a thousand between properties, and does not change with the profile.
"""

from __future__ import annotations

from hypothesis import settings


def examples(weight: float) -> settings:
    """Returns settings that draw `weight` times the profile's number of examples, at least one.

    More settings of a property take these as their parent: `@settings(examples(0.5), suppress_health_check=[...])`.
    """
    return settings(max_examples=count(weight))


def count(weight: float) -> int:
    """Returns `weight` times the profile's number of examples, at least one: for what draws by itself, as simulated runs do."""
    return max(1, round(weight * settings().max_examples))
