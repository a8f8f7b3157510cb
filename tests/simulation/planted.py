"""Bugs planted in the rules of failover and below them: the simulation must find each of them.

They include those that the model of the protocol finds.
"""

from __future__ import annotations

from tests.simulation import (
    planted_applications,
    planted_cascade,
    planted_cold,
    planted_hang,
    planted_recent,
    planted_rules,
    planted_shards,
    planted_time,
    planted_world,
)
from tests.simulation.planting import PLANTED as PLANTED

MODULES = (
    planted_applications,
    planted_cascade,
    planted_cold,
    planted_hang,
    planted_recent,
    planted_rules,
    planted_shards,
    planted_time,
    planted_world,
)
"""Modules that register their bugs in PLANTED."""
