"""The complete state of a project in an engine: pages, positions, time, and the progress of its output streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from hotspare.base.call_place import Decision
from hotspare.base.positions import OutputId as OutputId
from hotspare.flow.output_room import OutputRoom
from hotspare.rows.partition_clock import NO_TIME as NO_TIME
from hotspare.table.pages import LazyPart, Page
from hotspare.table.strings import HoldsCodes, StringTable, TextCollector

PartitionKey: TypeAlias = tuple[int, int]
"""The index of the inbound topic in `Resolved.sources`, and the partition's number."""


@dataclass(frozen=True, slots=True)
class Passed:
    """The position of the last row of a partition that was stepped, and the system time in us at that row."""

    offset: int
    index: int
    time_us: int


@dataclass(slots=True)
class StreamState:
    """The newest output of a stream. `sequence`: 0 before the first output. `digest`: the digest up to that output. `last`: the
    numbers of its id. `room`: preallocated columns for the next outputs; not part of snapshots."""

    sequence: int = 0
    digest: int = 0
    last: tuple[int, int, int, int, int] | None = None
    room: OutputRoom = field(default_factory=OutputRoom, repr=False, compare=False)

    @property
    def last_id(self) -> OutputId | None:
        return OutputId(*self.last) if self.last is not None else None


@dataclass(slots=True)
class State:
    """The state of a project, owned by one engine at a time; `flow.step.step` changes it in place.

    pages              by name, `query/window#stage`
    strings            not part of a snapshot: pages are written with the strings that they use
    collector          garbage-collects strings that no page holds, a little after each step
    lazy_parts         parts with row pages that are still in the store after a restore: read at use, or a few after each step
    passed             per partition, the last row stepped
    clocks             per partition, the append time from which its believed time continues (`partition_clock.Belief`)
    time_us            system time: the greatest believed time of the rows stepped; NO_TIME before the first
    heartbeat_time_us  system time of the last heartbeat; NO_TIME before the first
    streams            by name, including `rows.batch.BAD_STREAM`
    decisions          about calls of user code: those that were applied, in the order of the rows (`flow.decided`)
    is_whole           False during a batch: until all its outputs are taken, the state must not be continued or saved
    """

    pages: dict[str, Page]
    streams: dict[str, StreamState]
    strings: StringTable = field(default_factory=StringTable)
    collector: TextCollector = field(default_factory=TextCollector)
    lazy_parts: list[LazyPart] = field(default_factory=list)
    passed: dict[PartitionKey, Passed] = field(default_factory=dict)
    clocks: dict[PartitionKey, int] = field(default_factory=dict)
    time_us: int = NO_TIME
    heartbeat_time_us: int = NO_TIME
    decisions: tuple[Decision, ...] = ()
    is_whole: bool = True

    def collect_strings(self, rows: int) -> None:
        """Continues the garbage collection of strings that no window holds. The amount of work is bounded and grows with `rows`,
        the rows of the step before."""
        self._mark_pinned()
        self.collector.collect_some(self.strings, self._holders, rows)

    def load_some_pages(self, rows: int) -> None:
        """Reads a few of the row pages that are still in the store after a restore. `rows`: the rows of the step before. Propagates
        errors of the store."""
        if self.lazy_parts:
            self.lazy_parts = [part for part in self.lazy_parts if part.load_some_pages(rows)]

    def collect_all_strings(self) -> None:
        """Garbage-collects all strings that no window holds. Outputs do not depend on when strings are collected."""
        self._mark_pinned()
        self.collector.finish(self.strings, self._holders)
        self.collector.begin(self.strings)
        self.collector.finish(self.strings, self._holders)

    def _mark_pinned(self) -> None:
        if self.strings.can_evict_strings:
            self.strings.staying.mark_written(self._pinned_holders(), self.strings.count)

    def _holders(self) -> dict[str, HoldsCodes]:
        return _holders_in(self.pages)

    def _pinned_holders(self) -> dict[str, HoldsCodes]:
        """Returns the parts with string codes, of pinned pages only: their texts are never evicted."""
        return _holders_in({name: page for name, page in self.pages.items() if page.is_pinned})


def _holders_in(pages: Mapping[str, Page]) -> dict[str, HoldsCodes]:
    parts = ((f"{name}/{at}", part) for name, page in pages.items() for at, part in page.parts.items())
    return {name: part for name, part in parts if isinstance(part, HoldsCodes)}
