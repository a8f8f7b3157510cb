"""How far back the rows of a window with retention go (SPEC A19-A23, H9)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hotspare.model.durations import format_duration
from hotspare.model.project import Retention, RetentionKind
from hotspare.model.window_type import Memory, Remembered

_BY_FIRST_EVENT = (RetentionKind.BYCOUNT_JUMPING, RetentionKind.BYTIME_JUMPING)


def forgets(retention: Retention | None) -> Iterator[Remembered]:
    """What a retention lets a window remember; nothing where there is none, or each group keeps rows for ever."""
    if retention is None or retention.by:
        return
    if retention.kind.is_by_count:
        yield Remembered(Memory.COUNT, retention.limit, f"holds {retention.limit} rows")
    else:
        span_us = retention.limit + retention.unit_us  # rows that are looked back to wait for the end of their unit
        by = f" by its field {retention.time_field}" if retention.time_field else ""
        yield Remembered(Memory.TIME, span_us, f"holds rows for {format_duration(span_us)}{by}", retention.time_field)
    if retention.kind in _BY_FIRST_EVENT:
        yield Remembered(Memory.EVERYTHING, 0, "jumps at steps that are counted from its first event")


def refusal_to_part(retention: Retention | None, fields: Collection[str]) -> str:
    """Why rows that are partitioned by the value of `fields` cannot be forgotten so; "" where they can."""
    if retention is None or not retention.kind.is_by_count or set(fields).intersection(retention.by):
        return ""
    if retention.by:
        return "its retention counts rows of groups that stand in several partitions"
    return "its retention counts the rows of all partitions together"
