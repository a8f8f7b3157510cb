"""Counter window (SPEC A33, F8): events by input, reported at heartbeats.

Every event counts, an update block once. An input is counted from its first event on. A row reports the total and the count since
the last report, at the first heartbeat at which the count interval has passed since then. For the first report, that is since the
first event. So reports are at the same place of the input in every engine, even if no events arrive.

At the first heartbeat at which the clear interval has passed since the newest event, the row reports zeros, and the input's count
restarts with its next event. With index pi_EMPTY each report is an insert; else the rows are a table with one row per input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from hotspare.model.events import Flag, Opcode
from hotspare.model.project import IndexType
from hotspare.model.resolved import ResolvedWindow
from hotspare.rows.changelog import INSERTS, RELATION
from hotspare.rows.chunk import Chunk, Int64s, Timeline
from hotspare.table.pages import Counters, Page, Pending
from hotspare.table.strings import StringTable
from hotspare.windows.counter.declaration import CounterWindow
from hotspare.windows.shared.contract import Clock, Operator, OperatorInput, OperatorResult

COUNTS, PENDING = "counts", "pending"
"""Parts of the page: WIDTH numbers for each input; reports that are not emitted yet."""
TOTAL, SINCE_US, COUNT, BEGUN_US, NEWEST_US = 0, 1, 2, 3, 4
"""Numbers of an input: all events, and the time of the first; events since the last report, and its time; the time of the newest
event. Times are in microseconds. If TOTAL is 0, the others are undefined.
"""
HAS_REPORT, LAST_REPORT = 5, 6
"""Numbers of an input: 1 if the table has a report of it, and the first of the four numbers of that report."""
WIDTH = 10
_SECOND = 1_000_000.0


@dataclass(frozen=True, slots=True)
class CounterReport:
    """A report of an input: `total` events in `total_us` microseconds since its first event, `count` events in `count_us`
    microseconds since its previous report.
    """

    total: int
    total_us: int
    count: int
    count_us: int

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        return self.total, self.total_us, self.count, self.count_us


CLEARED = CounterReport(0, 0, 0, 0)


class CounterOperator(Operator):
    clock = Clock.TICKS

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        declared = cast(CounterWindow, window.window)
        self._count_us, self._clear_us = declared.count_interval_us, declared.clear_interval_us
        self._is_table = declared.index is not IndexType.EMPTY
        self.output_changelog = RELATION if self._is_table else INSERTS
        self._names = pa.array([source.window for source, _ in window.inputs], pa.string())

    def open(self) -> Page:
        return Page({COUNTS: Counters(WIDTH * len(self.inputs)), PENDING: Pending[Chunk]()})

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        pending = cast("Pending[Chunk]", page.parts[PENDING])
        made = pending.work
        if made is None:
            counts = cast(Counters, page.parts[COUNTS]).values.reshape(-1, WIDTH)
            made = self._chunk(list(self._reports(counts, inputs, timeline)), strings)
        room = max(1, timeline.extra_rows_max) + 3 * sum(map(len, inputs))
        if len(made) > room and made.opcode[room - 1] == Opcode.UPDATE_BLOCK:  # an update block is never split
            room += 1
        pending.work = made.since(room) if len(made) > room else None
        until = None if pending.work is None else int(pending.work.rank[0])
        return OperatorResult(made.between(0, room) if pending.work is not None else made, until=until)

    def _reports(
        self, counts: Int64s, inputs: Sequence[Chunk], timeline: Timeline
    ) -> Iterator[tuple[int, int, Opcode, CounterReport]]:
        """Counts the events up to each heartbeat, and then the rest. Yields (rank, input, opcode, report) for each report row, in
        order.
        """
        came = [_events(chunk) for chunk in inputs]
        taken = [0] * len(came)
        for beat in timeline.heartbeat_rank.tolist():
            now = int(timeline.time_us[beat])
            for i, ranks in enumerate(came):
                end = int(ranks.searchsorted(beat, "right"))
                _count(counts[i], timeline.time_us[ranks[taken[i] : end]])
                taken[i] = end
                told = self._report(counts[i], now)
                if told is not None:
                    yield from self._rows(beat, i, counts[i], told)
        for i, ranks in enumerate(came):
            _count(counts[i], timeline.time_us[ranks[taken[i] :]])

    def _report(self, counts: Int64s, now: int) -> CounterReport | None:
        if not counts[TOTAL]:
            return None
        if self._clear_us and now - counts[NEWEST_US] >= self._clear_us:
            counts[:HAS_REPORT] = 0
            return CLEARED
        if now - counts[BEGUN_US] < self._count_us:
            return None
        told = CounterReport(int(counts[TOTAL]), now - int(counts[SINCE_US]), int(counts[COUNT]), now - int(counts[BEGUN_US]))
        counts[COUNT], counts[BEGUN_US] = 0, now
        return told

    def _rows(
        self, rank: int, number: int, counts: Int64s, told: CounterReport
    ) -> Iterator[tuple[int, int, Opcode, CounterReport]]:
        if not self._is_table or not counts[HAS_REPORT]:
            yield rank, number, Opcode.INSERT, told
        else:
            yield rank, number, Opcode.UPDATE_BLOCK, told
            yield rank, number, Opcode.DELETE, CounterReport(*counts[LAST_REPORT:].tolist())
        if self._is_table:
            counts[HAS_REPORT], counts[LAST_REPORT:] = 1, told.numbers

    def _chunk(self, reports: Sequence[tuple[int, int, Opcode, CounterReport]], strings: StringTable) -> Chunk:
        made = Chunk.empty(len(self.schema))
        if not reports:
            return made
        names, _ = strings.intern(self._names)
        numbers = np.array([number for _, number, _, _ in reports], np.int64)
        lanes = np.empty((len(reports), len(self.schema)), np.int64)
        doubles = lanes.view(np.float64)
        lanes[:, 0] = names[numbers]
        told = np.array([each.numbers for _, _, _, each in reports], np.int64)
        for column, count, span in ((1, 0, 1), (4, 2, 3)):
            seconds = told[:, span] / _SECOND
            lanes[:, column] = told[:, count]
            doubles[:, column + 1] = seconds
            doubles[:, column + 2] = np.divide(told[:, count], seconds, out=np.zeros(len(told)), where=seconds > 0)
        rank = np.array([rank for rank, _, _, _ in reports], np.int64)
        opcode = np.array([opcode for _, _, opcode, _ in reports], np.uint8)
        return Chunk(
            rank, opcode, np.full(len(reports), Flag.NORMAL, np.uint8), lanes, np.ones(lanes.shape, np.bool_), is_whole=True
        )


def _events(chunk: Chunk) -> Int64s:
    """Returns the rank of each event of a chunk; an update block is one event."""
    blocks = np.flatnonzero(chunk.opcode == Opcode.UPDATE_BLOCK)
    return chunk.rank if not len(blocks) else np.delete(chunk.rank, blocks + 1)


def _count(counts: Int64s, times: Int64s) -> None:
    """Adds events at these times, in ascending microseconds, to the counts of one input, in place."""
    if not len(times):
        return
    if not counts[TOTAL]:
        counts[SINCE_US] = counts[BEGUN_US] = times[0]
    counts[TOTAL] += len(times)
    counts[COUNT] += len(times)
    counts[NEWEST_US] = times[-1]
