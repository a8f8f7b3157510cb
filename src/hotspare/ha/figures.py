"""Figures of one engine for people: they are of one process and in no snapshot, and nothing is decided by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from hotspare.flow.head.unknown_members import UnknownMember, merged

_BY = ["window", "reason"]


class BadCounts:
    """How many bad events an engine computed since it started, by window and reason. Not thread-safe.

    Counts rows of the stream of bad events (`flow.plan.BAD_SCHEMA`). The stream itself, with its sequence, is what engines agree
    on.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, outputs: pa.RecordBatch | None) -> None:
        """Counts a batch of the stream; None is an empty one."""
        if outputs is None or not outputs.num_rows:
            return
        counted = pa.Table.from_batches([outputs]).select(_BY).group_by(_BY).aggregate([([], "count_all")])
        names, counts = zip(counted["window"].to_pylist(), counted["reason"].to_pylist(), strict=True), counted["count_all"]
        for (window, reason), count in zip(names, counts.to_pylist(), strict=True):
            key = window or "", reason or ""
            self._counts[key] = self._counts.get(key, 0) + count

    def largest(self, count_max: int) -> list[tuple[str, str, int]]:
        """Returns at most `count_max` rows (window, reason, count), the greatest counts first."""
        rows = sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))
        return [(window, reason, count) for (window, reason), count in rows[:count_max]]


_NAMES_MAX = 100
"""Limit on the windows and members that are counted; later ones are not."""


class UnknownCounts:
    """How many events with members that no field has an engine saw since it started, by source window and member: of the events
    that the head looks at (`flow.head.unknown_members`). Not thread-safe."""

    def __init__(self) -> None:
        self._found: list[UnknownMember] = []

    def add(self, found: Sequence[UnknownMember]) -> dict[str, list[UnknownMember]]:
        """Counts what a batch has. Returns what is in it of each window of which nothing was unknown before."""
        if not found:
            return {}
        known = {each.window for each in self._found}
        self._found = merged([*self._found, *found])[:_NAMES_MAX]
        first: dict[str, list[UnknownMember]] = {}
        for each in merged(found):
            if each.window not in known:
                first.setdefault(each.window, []).append(each)
        return first

    def largest(self, count_max: int) -> list[tuple[str, str, str, int]]:
        """Returns at most `count_max` rows (window, member, the field that may be meant or "", events), the most events first."""
        rows = sorted(self._found, key=lambda each: (-each.events, each.window, each.name))
        return [(each.window, each.name, each.near, each.events) for each in rows[:count_max]]


SKEW_WINDOW_MS = 10_000
"""Of a `ClockSkew`."""


@dataclass(slots=True)
class ClockSkew:
    """How far an engine's clock is ahead of the bus's, seen by the messages that it reads of one inbound partition.

    A message is read some time after it was appended, so the difference of the clocks is at most the least of what its reader's
    clock shows beyond its append time: the least of the last one to two windows counts. Only messages that were read as they came
    say anything.
    """

    _least_us: int | None = None
    _before_us: int | None = None
    _since_ms: int = 0

    def note(self, now_ms: int, read_time_us: int, append_time_us: int) -> None:
        """A message that was read at `read_time_us` by this engine's clock. `now_ms` only rises."""
        late_us = read_time_us - append_time_us
        if self._least_us is None or now_ms - self._since_ms >= SKEW_WINDOW_MS:
            self._before_us = self._least_us if now_ms - self._since_ms < 2 * SKEW_WINDOW_MS else None
            self._least_us, self._since_ms = late_us, now_ms
        self._least_us = min(self._least_us, late_us)

    @property
    def ahead_ms(self) -> int | None:
        """The most by which this engine's clock is ahead; negative if the bus's is. None while nothing is known."""
        if self._least_us is None:
            return None
        least_us = self._least_us if self._before_us is None else min(self._least_us, self._before_us)
        return least_us // 1000


@dataclass(slots=True)
class Marks:
    """When the stages of the newest promotion took place, to report how long its parts took."""

    noticed_ms: int = 0
    campaign_ms: int = 0
    won_ms: int = 0
    fenced_ms: int = 0
    read_ms: int = 0
    active_ms: int = 0
    publish_ms: int = 0
