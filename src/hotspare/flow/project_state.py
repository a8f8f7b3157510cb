"""Everything an engine must remember of a project: pages, positions, time, and how far its output streams are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from hotspare.base.positions import OutputId as OutputId
from hotspare.flow.output_room import OutputRoom
from hotspare.rows.partition_clock import NO_TIME as NO_TIME
from hotspare.table.pages import Keyed, Page
from hotspare.table.strings import HoldsCodes, StringTable, TextCollector

PartitionKey: TypeAlias = tuple[int, int]
"""Index of the inbound topic in Resolved.sources, number of the partition."""


@dataclass(frozen=True, slots=True)
class Passed:
    """The last row of a partition that went through the door, and the believed time at it."""

    offset: int
    index: int
    time_us: int


@dataclass(slots=True)
class StreamState:
    """The newest output of a stream: its sequence (0: none yet), the digest up to it, the numbers of its id. And room for the next
    ones, which is in no snapshot."""

    sequence: int = 0
    digest: int = 0
    last: tuple[int, int, int, int, int] | None = None
    room: OutputRoom = field(default_factory=OutputRoom, repr=False, compare=False)

    @property
    def last_id(self) -> OutputId | None:
        return OutputId(*self.last) if self.last is not None else None


@dataclass(slots=True)
class State:
    """Owned by one engine at a time: `step` takes it, changes it in place and gives it back.

    pages              by `query/window#slice`
    strings            not part of a snapshot: pages are written with the strings that they use
    collector          forgets those that no page holds, a little after each step
    read_later         parts of which a restore left row pages in the store: they are read at use, or a few after each step
    passed             per partition
    clocks             per partition, the append time that its believed time goes on from (`partition_clock.Belief`)
    time_us            system time: the greatest believed time that passed; NO_TIME before the first
    heartbeat_time_us  system time of the last heartbeat; NO_TIME before the first
    streams            by name, `bad` among them
    is_whole           False while a batch is worked on: until all its outputs are taken, this is no state to go on from
    """

    pages: dict[str, Page]
    streams: dict[str, StreamState]
    strings: StringTable = field(default_factory=StringTable)
    collector: TextCollector = field(default_factory=TextCollector)
    read_later: list[Keyed] = field(default_factory=list)
    passed: dict[PartitionKey, Passed] = field(default_factory=dict)
    clocks: dict[PartitionKey, int] = field(default_factory=dict)
    time_us: int = NO_TIME
    heartbeat_time_us: int = NO_TIME
    is_whole: bool = True

    def collect_strings(self, rows: int) -> None:
        """Go on with forgetting strings that no window holds, after a step of so many rows."""
        self._mark_staying()
        self.collector.go_on(self.strings, self._holders, rows)

    def read_some(self, rows: int) -> None:
        """Go on with reading what a restore left in the store, after a step of so many rows. What the store raises."""
        if self.read_later:
            self.read_later = [part for part in self.read_later if part.read_some(rows)]

    def forget_strings(self) -> None:
        """All that no window holds now, at once. Nothing that an engine puts out shows when this happens."""
        self._mark_staying()
        self.collector.finish(self.strings, self._holders)
        self.collector.begin(self.strings)
        self.collector.finish(self.strings, self._holders)

    def _mark_staying(self) -> None:
        if self.strings.can_leave:
            self.strings.staying.go_on(self._staying(), self.strings.count)

    def _holders(self) -> dict[str, HoldsCodes]:
        return _holders_in(self.pages)

    def _staying(self) -> dict[str, HoldsCodes]:
        """Those whose texts stay in memory."""
        return _holders_in({name: page for name, page in self.pages.items() if page.stays})


def _holders_in(pages: Mapping[str, Page]) -> dict[str, HoldsCodes]:
    parts = ((f"{name}/{at}", part) for name, page in pages.items() for at, part in page.parts.items())
    return {name: part for name, part in parts if isinstance(part, HoldsCodes)}
