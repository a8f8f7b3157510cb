"""The inbound topic of a window, and the partitions of the rows that are published to it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hotspare.base.choices import MissingTopic

if TYPE_CHECKING:
    from collections.abc import Callable

    from hotspare.adapters.failover.partition_count_check import PartitionCountCheck
    from hotspare.adapters.files.row_routing import RowRouting
    from hotspare.base.errors import UsageError
    from hotspare.bus.contract import Bus, Partition
    from hotspare.model.types import Schema


@dataclass(frozen=True, slots=True)
class WindowPath:
    """The path of a window: `project/query/window`."""

    project: str
    query: str
    window: str

    def __str__(self) -> str:
        return f"{self.project}/{self.query}/{self.window}"


@dataclass(frozen=True, slots=True)
class Target:
    """The window to which rows are published.

    `partition`: the partition of all rows; None: the field `partition_by` determines the partition of each row. `missing`: whether
    a missing topic is created, with `shards` partitions, or is an error. `coordination_url`: the coordination of the engines; ""
    for the default next to the bus.
    """

    bus_url: str
    prefix: str
    window: WindowPath
    partition: int | None = None
    shards: int = 1
    partition_by: str = ""
    missing: MissingTopic = MissingTopic.REFUSE
    coordination_url: str = ""


class RowDestination(NamedTuple):
    """The destination of rows: `partition` for all rows, unless `routing` determines the partition of each row. `counted_topic`
    checks that the topic's number of partitions does not change meanwhile."""

    partition: Partition
    routing: RowRouting | None
    counted_topic: PartitionCountCheck


def row_destination(bus: Bus, target: Target, schema: Schema | None, told: Callable[[str], None]) -> RowDestination:
    """Returns the destination of rows, after creating the topic if needed; `told` is then called with a sentence.

    Raises UsageError if the topic is missing and `target` does not allow to create it, or has another number of partitions than
    the target's shards. Also raises UsageError if no field determines the partition of a row.
    """
    from hotspare.adapters.failover.partition_count_check import PartitionCountCheck
    from hotspare.bus.contract import Partition

    topic = _topic(target)
    count = _ensure_topic(bus, topic, target, told)
    return RowDestination(
        Partition(topic, target.partition or 0), _routing(target, schema, topic, count), PartitionCountCheck(bus, topic, count)
    )


def refuse_missing(bus: Bus, target: Target) -> None:
    """Raises UsageError if the topic does not exist and `target` does not allow to create it: no engine of the window has
    started."""
    topic = _topic(target)
    if target.missing is MissingTopic.REFUSE and topic not in bus.topics():
        raise _unknown(bus, topic, target)


def _topic(target: Target) -> str:
    from hotspare.bus.naming import checked_prefix, inbound_topic

    path = target.window
    return inbound_topic(checked_prefix(target.prefix), path.project, path.query, path.window)


def _ensure_topic(bus: Bus, topic: str, target: Target, told: Callable[[str], None]) -> int:
    """Returns the number of the topic's partitions, after creating a missing topic if `target` allows it.

    Raises UsageError if the topic is missing otherwise, or if its number of partitions is not the shards that the command names;
    TopicMissing if the topic would lack the target's partition.
    """
    from hotspare.base.errors import TopicMissing, UsageError

    existing = bus.topics().get(topic)
    if existing is not None and target.shards not in (1, existing):
        what = f"topic {topic} has {existing} partitions, but --shards is {target.shards}"
        raise UsageError(
            what, hint="leave --shards out for a topic that exists; for another number of shards, publish under another --prefix"
        )
    if existing is not None:
        return existing
    if target.missing is MissingTopic.REFUSE:
        raise _unknown(bus, topic, target)
    if (target.partition or 0) >= target.shards:
        hint = "publish to partition 0" if target.shards == 1 else ""
        raise TopicMissing(f"topic {topic} does not exist, so it has no partition {target.partition}", hint=hint)
    bus.create_topic(topic, target.shards)
    told(f"topic {topic} is new: no engine reads it yet")
    return target.shards


def _unknown(bus: Bus, topic: str, target: Target) -> UsageError:
    """Returns the error for a topic that does not exist. It names starting engines of the project, else the windows under this
    prefix to which rows can be published."""
    from hotspare.base.errors import UsageError

    if starting := _starting(target):
        return UsageError(
            f"an engine of window {target.window} is starting: topic {topic} does not exist yet",
            detail=", ".join(f"{engine}: {phase}" for engine, phase in starting.items()),
            hint="publish again when `hotspare status` shows an active engine",
        )
    start, end = f"{target.prefix}.", ".I"
    here = [name[len(start) : -len(end)] for name in sorted(bus.topics()) if name.startswith(start) and name.endswith(end)]
    windows = [name.replace(".", "/") for name in here if name.count(".") == 2]
    hint = "start an engine first: it creates the topic; or add --create to this command, and --shards if it is divided"
    return UsageError(
        f"no engine of window {target.window} has started here: topic {topic} does not exist",
        detail=f"windows under prefix {target.prefix}: {', '.join(windows) or 'none'}",
        hint=hint,
    )


def _starting(target: Target) -> dict[str, str]:
    """Returns the phase of each engine of the window's project that is starting, by engine, without engines that are known to be
    dead. Empty if no engine is starting, or coordination cannot be reached."""
    from hotspare.base.errors import HotspareError
    from hotspare.bus.naming import group_name, whole_group
    from hotspare.host.starting import STARTING
    from hotspare.operate.groups import existing_coordination, is_running

    whole = group_name(target.prefix, target.window.project)
    with contextlib.suppress(HotspareError), contextlib.ExitStack() as stack:
        service = existing_coordination(stack, target.coordination_url, target.bus_url)
        members = [each for group in service.groups() if whole_group(group) == whole for each in service.members(group)]
        return {each.engine: each.detail[STARTING] for each in members if STARTING in each.detail and is_running(each) is not False}
    return {}


def _routing(target: Target, schema: Schema | None, topic: str, count: int) -> RowRouting | None:
    """Returns the routing of rows; None if all rows have the same partition. Raises UsageError if the field that determines the
    partition is not known."""
    from hotspare.adapters.files.row_routing import RowRouting
    from hotspare.base.errors import UsageError
    from hotspare.rows.routing import routing_by

    if count == 1 or target.partition is not None:
        return None
    found = None if schema is None else routing_by(schema, target.partition_by, count)
    if schema is None or found is None:
        what = f"topic {topic} has {count} partitions, and the partition of a row is not known"
        raise UsageError(what, hint="give the project's file with --project, or a --partition for all rows")
    return RowRouting(schema, found)
