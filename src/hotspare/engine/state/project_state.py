"""Everything an engine must remember of a project: pages, positions, time, and how far its output streams are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from hotspare.engine.partition_clock import NO_TIME as NO_TIME
from hotspare.engine.state.output_room import OutputRoom
from hotspare.engine.state.pages import Page
from hotspare.engine.state.strings import StringTable
from hotspare.positions import OutputId as OutputId

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
    passed: dict[PartitionKey, Passed] = field(default_factory=dict)
    clocks: dict[PartitionKey, int] = field(default_factory=dict)
    time_us: int = NO_TIME
    heartbeat_time_us: int = NO_TIME
    is_whole: bool = True

    def compact_strings(self) -> None:
        """Forget strings that no page holds. Nothing that an engine puts out shows when this happens."""
        used = np.zeros(self.strings.count, np.bool_)
        for page in self.pages.values():
            for part in page.parts.values():
                part.mark(used)
        codes = self.strings.compact(used)
        for page in self.pages.values():
            for part in page.parts.values():
                part.recode(codes)
