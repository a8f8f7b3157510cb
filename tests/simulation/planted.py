"""Mistakes that could be made in the rules of failover and below them: the simulation must find each of them.

Those that the model of the protocol finds too are among them.
"""

from __future__ import annotations

from tests.simulation import (
    planted_applications,
    planted_cascade,
    planted_cold,
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
    planted_recent,
    planted_rules,
    planted_shards,
    planted_time,
    planted_world,
)
"""Their mistakes are in PLANTED."""
