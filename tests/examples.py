"""The weight of a property: its number of examples, relative to the profile.

The active profile (`HYPOTHESIS_PROFILE`, registered in tests/conftest.py) sets the number for all properties, so one setting scales
the whole suite. A property that needs more or fewer examples states a weight, never a number. The cost of an example differs by a
factor of a thousand between properties, and does not change with the profile.
"""

from __future__ import annotations

from hypothesis import settings


def examples(weight: float) -> settings:
    """Returns settings that draw `weight` times the profile's number of examples, at least one.

    Further settings of a property take these as their parent: `@settings(examples(0.5), suppress_health_check=[...])`.
    """
    return settings(max_examples=count(weight))


def count(weight: float) -> int:
    """Returns `weight` times the profile's number of examples, at least one; for code that draws by itself, such as simulated
    runs."""
    return max(1, round(weight * settings().max_examples))
