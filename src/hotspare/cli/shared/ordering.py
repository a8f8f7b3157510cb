"""Gives an order to one engine of a group, or to all."""

from __future__ import annotations

from contextlib import ExitStack

from hotspare.base.errors import UsageError
from hotspare.cli.shared.existing import existing_bus, existing_coordination
from hotspare.cli.shared.group_report import SILENT_MS_MAX
from hotspare.cli.status import known_group, known_groups
from hotspare.coordination.contract import Member
from hotspare.ha.rules.membership import present
from hotspare.host.orders import EngineOrder, give


def ordered(group: str, engine: str, order: EngineOrder, bus: str, coordination: str) -> list[Member]:
    """Returns the records of the engines that got the order: with engine "" all that gave word lately, the active one of each shard
    last. UsageError if the group, or the engine in it, does not exist."""
    if not (bus or coordination):
        raise UsageError("neither --bus nor --coordination was given", hint="give --bus URL")
    with ExitStack() as stack:
        if bus:
            existing_bus(stack, bus)
        service = existing_coordination(stack, coordination, bus)
        if engine:
            return [give(service, known_group(service, group), engine, order)]
        told = []
        for name in known_groups(service, group):
            holder = service.leader(name).holder
            engines = [member.engine for member in present(service.members(name), SILENT_MS_MAX)]
            told += [give(service, name, each, order) for each in sorted(engines, key=lambda each: (each == holder, each))]
        return told
