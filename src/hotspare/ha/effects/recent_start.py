"""From where an engine reads that makes its state from recent input (SPEC F11): as far back as its windows remember, and a margin.

Messages are looked for by their append times, which may be wrong for a while. A wrong one costs time and nothing else: when the
state is complete is decided by the time that the engine itself believes, counted from the messages that it begins with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hotspare.bus.contract import Bus, Message, Partition
from hotspare.ha.rules.settings import GroupTopics

_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class RecentStart:
    """`offsets` by (topic index, partition). `complete_us`: from this append time on all that came is read; None: there was nothing
    before, so it is the group's whole input."""

    offsets: Mapping[tuple[int, int], int]
    complete_us: int | None


def recent_start(bus: Bus, topics: GroupTopics, origin: Mapping[tuple[str, int], int], span_us: int) -> RecentStart:
    """`span_us` before the newest message, or where a topic begins; what is missing then has to come."""
    newest_us = max((_newest_us(bus, p) for _, p in topics.partitions), default=0)
    offsets: dict[tuple[int, int], int] = {}
    complete_us: int | None = None
    for index, p in topics.partitions:
        first = origin[p.topic, p.number]
        begin, end = max(first, bus.begin_offset(p)), bus.end_offset(p)
        offset = _first_since(bus, p, begin, end, newest_us - span_us)
        offsets[index, p.number] = offset
        if offset > first:
            message = _at(bus, p, offset)
            since_us = newest_us - span_us if message is None else message.append_time_us
            complete_us = max(complete_us or 0, since_us)
    return RecentStart(offsets, complete_us)


def _first_since(bus: Bus, partition: Partition, begin: int, end: int, time_us: int) -> int:
    """The offset of a message that is not older, while all before it that were looked at are; `end` where all are older."""
    while begin < end:
        middle = (begin + end) // 2
        message = _at(bus, partition, middle)
        if message is None or message.append_time_us >= time_us:
            end = middle
        else:
            begin = message.offset + 1
    return begin


def _newest_us(bus: Bus, partition: Partition) -> int:
    """The append time of the newest message; 0 where there is none. What ends transactions has offsets, too."""
    begin, end, back = bus.begin_offset(partition), bus.end_offset(partition), 1
    while end - back >= begin:
        if (message := _at(bus, partition, end - back)) is not None:
            return message.append_time_us
        back *= 2
    message = _at(bus, partition, begin)
    return 0 if message is None else message.append_time_us


def _at(bus: Bus, partition: Partition, offset: int) -> Message | None:
    """The first message at this offset or later."""
    messages = bus.read(partition, offset, messages_max=1, bytes_max=_BYTES_MAX)
    return messages[0] if messages else None
