"""The bounds that retention sets on the age and count of a window's rows (SPEC A19-A23, H9)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hotspare.model.durations import format_duration
from hotspare.model.project import Retention, RetentionKind
from hotspare.model.window_type import HorizonMeasure, StateHorizon

_BY_FIRST_EVENT = (RetentionKind.BYCOUNT_JUMPING, RetentionKind.BYTIME_JUMPING)


def retention_horizons(retention: Retention | None) -> Iterator[StateHorizon]:
    """Yields the bounds that a retention sets on a window's rows. Yields none without retention, and none if it has groups, because
    the number of groups is not bounded."""
    if retention is None or retention.by:
        return
    if retention.kind.is_by_count:
        yield StateHorizon(HorizonMeasure.COUNT, retention.limit, f"holds {retention.limit} rows")
    else:
        span_us = retention.limit + retention.unit_us  # lookback rows wait for the end of their unit
        by = f" by its field {retention.time_field}" if retention.time_field else ""
        yield StateHorizon(HorizonMeasure.TIME, span_us, f"holds rows for {format_duration(span_us)}{by}", retention.time_field)
    if retention.kind in _BY_FIRST_EVENT:
        yield StateHorizon(HorizonMeasure.EVERYTHING, 0, "jumps at steps that are counted from its first event")


def partitioning_refusal(retention: Retention | None, fields: Collection[str]) -> str:
    """Returns why retention cannot evict rows that are partitioned by the value of `fields`; "" if it can."""
    if retention is None or not retention.kind.is_by_count or set(fields).intersection(retention.by):
        return ""
    if retention.by:
        return "its retention counts rows of groups that are spread over several partitions"
    return "its retention counts the rows of all partitions together"
