"""Gives an order to one engine of a group."""

from __future__ import annotations

from contextlib import ExitStack

from hotspare.cli.shared.existing import existing_bus, existing_coordination
from hotspare.cli.status import known_group
from hotspare.coordination.contract import Member
from hotspare.errors import UsageError
from hotspare.host.orders import EngineOrder, give


def ordered(group: str, engine: str, order: EngineOrder, bus: str, coordination: str) -> Member:
    """The record of the engine that was told. UsageError where there is no such group, or engine in it."""
    if not (bus or coordination):
        raise UsageError("neither --bus nor --coordination was given", hint="give --bus URL")
    with ExitStack() as stack:
        if bus:
            existing_bus(stack, bus)
        service = existing_coordination(stack, coordination, bus)
        return give(service, known_group(service, group), engine, order)
