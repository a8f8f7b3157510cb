"""Sends orders to start or to stop to one engine of a group, or to all."""

from __future__ import annotations

from hotspare.coordination.contract import Coordination, Member
from hotspare.host.orders import EngineOrder, send_order
from hotspare.operate.groups import groups_named, recent_members, single_group_named


def order_engines(service: Coordination, group: str, engine: str, what: EngineOrder) -> list[Member]:
    """Sends the order and returns the records of the engines that received it. With `engine` "", these are all engines with a
    recent record; the active engine of each shard is last.
    Raises UsageError if the group, or the engine in it, does not exist.
    """
    if engine:
        return [send_order(service, single_group_named(service, group), engine, what)]
    told = []
    for name in groups_named(service, group):
        holder = service.leader(name).holder
        engines = [member.engine for member in recent_members(service, name)]
        told += [send_order(service, name, each, what) for each in sorted(engines, key=lambda each: (each == holder, each))]
    return told
