"""Finds the newest message of a partition whose last offsets may be holes."""

from __future__ import annotations

from hotspare.bus.contract import Bus, Message, Partition

_STEP_FIRST = 16
_STEP_MAX = 16_384


def newest_message(bus: Bus, partition: Partition, bytes_max: int = 1 << 20) -> Message | None:
    """Returns the newest message of a partition; None if it has no messages. Reads backwards in growing steps, in batches of at
    most `bytes_max` bytes."""
    begin, high = bus.begin_offset(partition), bus.end_offset(partition)
    step = _STEP_FIRST
    while high > begin:
        low = max(begin, high - step)
        newest: Message | None = None
        while low < high:
            messages = bus.read(partition, low, messages_max=step, bytes_max=bytes_max)
            newest = messages[-1] if messages else newest
            low = messages[-1].offset + 1 if messages else high
        if newest is not None:
            return newest
        high, step = max(begin, high - step), min(2 * step, _STEP_MAX)
    return None
