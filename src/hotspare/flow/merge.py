"""Merges inbound partitions into one order: by (believed append time, topic, partition, offset, index).

Each partition decides alone which append times to believe (partition_clock.py). A row is released when no partition can still
deliver an earlier one. A partition's next row is not before the newest time believed there. So only idle partitions delay others,
and ticks advance idle partitions. The order, and what is released after a given input, do not depend on how the input arrived. Rows
that wait are not part of the state: a restored engine reads them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.base.errors import StateError
from hotspare.flow.project_state import NO_TIME, PartitionKey, Passed
from hotspare.rows.batch import BAD_TYPE, HEAD_ROW_BYTES, RowKind
from hotspare.rows.chunk import Int64s
from hotspare.rows.elementwise import buffer_bytes, chosen, columns_of
from hotspare.rows.merged import FIXED, MergedRows
from hotspare.rows.ordering import by_partition
from hotspare.rows.partition_clock import Belief, PartitionClock

PULLED_BYTES_MAX = 1 << 29
"""Size limit in bytes of a pulled batch. The offsets of an Arrow array of text end at 2 GiB, and a window may emit three rows for
one."""


_TICK, _BAD = int(RowKind.TICK), int(RowKind.BAD)
_TICK_BYTE = bytes([_TICK])
_TOPIC, _PARTITION, _OFFSET, _TIME, _KIND = map(FIXED.index, ("topic", "partition", "offset", "time_us", "kind"))


@dataclass(slots=True)
class _Rows:
    """Decoded rows of one topic: the columns FIXED, the topic's events (None without any), and the content of bad rows, each as
    long as the rows."""

    fixed: Sequence[npt.NDArray[Any]]
    events: pa.Array | None
    bad: pa.Array
    _nbytes: int = -1

    def __len__(self) -> int:
        return len(self.fixed[0])

    @property
    def nbytes(self) -> int:
        """The size of the rows, computed when it is first needed: that takes longer than to merge a few rows."""
        if self._nbytes < 0:
            self._nbytes = int(len(self) * HEAD_ROW_BYTES + sum(array.nbytes for array in self._arrays))
        return self._nbytes

    @property
    def buffer_bytes(self) -> int:
        """The size of the buffers in which the rows are, perhaps with others."""
        return len(self) * HEAD_ROW_BYTES + sum(map(buffer_bytes, self._arrays))

    @property
    def _arrays(self) -> Sequence[pa.Array]:
        return (self.bad,) if self.events is None else (self.events, self.bad)

    def slice(self, begin: int, end: int) -> _Rows:
        """Returns the rows from `begin` to before `end`, sharing the arrays."""
        fixed, count = [column[begin:end] for column in self.fixed], end - begin
        events = None if self.events is None else self.events.slice(begin, count)
        return _Rows(fixed, events, self.bad.slice(begin, count))

    def at(self, rows: Int64s) -> _Rows:
        """Returns the rows at the rising indexes `rows`; without a copy if these are contiguous."""
        begin, end = int(rows[0]), int(rows[-1]) + 1
        if end - begin == len(rows):
            return self.slice(begin, end)
        events = None if self.events is None else chosen(self.events, rows)
        return _Rows([_read_only(column.take(rows)) for column in self.fixed], events, chosen(self.bad, rows))


def _read_only(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    column.flags.writeable = False  # as Arrow's are: kernels are compiled for read-only arrays
    return column


@dataclass(slots=True)
class _Piece:
    """Rows of one topic whose times are settled. `times`: the believed time of each row; `clocks`: `Belief.clock_us` after each
    row."""

    topic: int
    rows: _Rows
    times: Int64s
    clocks: Int64s

    def slice(self, begin: int, end: int) -> _Piece:
        if begin == 0 and end == len(self.times):
            return self
        return _Piece(self.topic, self.rows.slice(begin, end), self.times[begin:end], self.clocks[begin:end])


@dataclass(slots=True)
class _Partition:
    """A partition: its clock, the rows that wait for other partitions (`pieces`), and later rows whose times are not settled
    (`unsettled`)."""

    topic: int
    clock: PartitionClock
    pieces: deque[_Piece] = field(default_factory=deque)
    unsettled: deque[_Rows] = field(default_factory=deque)
    waiting: int = 0
    event_time_us: int = NO_TIME
    """The believed time of the newest event whose time is settled."""

    @property
    def waiting_bytes(self) -> int:
        """The size of the waiting rows in bytes. Memory use is higher if only a part of a batch waits, because the rest of the
        batch is not freed."""
        return sum(piece.rows.nbytes for piece in self.pieces) + sum(rows.nbytes for rows in self.unsettled)

    def push(self, rows: _Rows) -> None:
        times, clocks = self.clock.settle_rows(rows.fixed[_TIME], rows.fixed[_KIND] == _TICK)
        self.unsettled.append(rows)
        self.waiting += len(rows)
        at = 0
        while at < len(times):
            rows = self.unsettled.popleft()
            count = min(len(rows), len(times) - at)
            if count < len(rows):
                self.unsettled.appendleft(rows.slice(count, len(rows)))
                rows = rows.slice(0, count)
            piece = _Piece(self.topic, rows, times[at : at + count], clocks[at : at + count])
            self._record_event_time(piece)
            self.pieces.append(piece)
            at += count

    def _record_event_time(self, piece: _Piece) -> None:
        count = len(piece.rows.fixed[_KIND].tobytes().rstrip(_TICK_BYTE))
        if count:
            self.event_time_us = piece.times.item(count - 1)


class Merge:
    """Merges the rows of declared partitions. `beliefs`: per partition, the belief after the last row that was stepped. `clocks`:
    per partition, `Belief.clock_us` after the last row pulled. `bytes_max`: size limit of a pulled batch of more than one row.

    `skew_max_us`: how far an append time may advance and still be believed at once (partition_clock.py). `trusted`: topics whose
    append times are believed without this limit, because another engine has settled them. `unmerged`: a topic without
    events, of which only the positions are recorded.
    """

    def __init__(
        self,
        partitions: Iterable[PartitionKey],
        beliefs: Mapping[PartitionKey, Belief],
        skew_max_us: int | None = None,
        bytes_max: int = PULLED_BYTES_MAX,
        trusted: frozenset[int] = frozenset(),
        unmerged: int | None = None,
    ) -> None:
        self._bytes_max, self._unmerged = bytes_max, unmerged
        self.clocks: dict[PartitionKey, int] = {}
        self._beliefs = dict(beliefs)
        self._skew_max_us, self._trusted = skew_max_us, trusted
        self._partitions: dict[PartitionKey, _Partition] = {}
        self.blocking_partitions: frozenset[PartitionKey] = frozenset()
        """The partitions whose next row may precede an event of another partition, so that this event may have to wait."""
        self.set_partitions(partitions)

    @property
    def waiting_rows(self) -> int:
        """The count of rows that wait: for rows of another partition, or for later rows of their own partition."""
        return sum(each.waiting for each in self._partitions.values())

    @property
    def waiting_bytes(self) -> int:
        """The bytes of memory of the waiting rows."""
        return sum(each.waiting_bytes for each in self._partitions.values())

    @property
    def awaited_partition(self) -> PartitionKey:
        """The partition for which all others wait. Only new rows of this partition release waiting rows."""
        return min(self._partitions, key=lambda key: (self._partitions[key].clock.time_us, key))

    def _blocking_partitions(self) -> frozenset[PartitionKey]:
        partitions = self._partitions.items()
        events = [(each.event_time_us, key) for key, each in partitions if each.event_time_us != NO_TIME]
        newest = sorted(events, reverse=True)[:2]  # one of them is the newest event of all other partitions
        return frozenset(
            key for key, each in partitions if any(event_us >= each.clock.time_us for event_us, other in newest if other != key)
        )

    def set_partitions(self, partitions: Iterable[PartitionKey]) -> None:
        """Declares which partitions exist. Raises StateError if that would remove a partition that has waiting rows."""
        wanted = sorted(frozenset(partitions))
        for key, each in self._partitions.items():
            if each.waiting and key not in wanted:
                raise StateError(f"partition {key[1]} of topic {key[0]} has waiting rows and cannot be removed")
        known = self._partitions
        self._partitions = {key: known[key] if key in known else self._fresh(key) for key in wanted}
        self.blocking_partitions = self._blocking_partitions()

    def _fresh(self, key: PartitionKey) -> _Partition:
        skew_max_us = None if key[0] in self._trusted else self._skew_max_us
        return _Partition(key[0], PartitionClock(skew_max_us, self._beliefs.get(key, Belief())))

    def push(self, batch: pa.RecordBatch) -> Mapping[PartitionKey, Passed]:
        """Adds decoded rows, which must be in order of position within each partition. Returns the last row of each partition of
        the topic `unmerged`; its rows are not added. Raises StateError for an undeclared partition."""
        passed: dict[PartitionKey, Passed] = {}
        if batch.num_rows == 0:
            return passed
        columns = columns_of(batch)
        fixed, bad = [column.to_numpy() for column in columns[: len(FIXED)]], columns[-1]
        for key, rows in by_partition(fixed[_TOPIC], fixed[_PARTITION]):
            if key[0] == self._unmerged:
                last = -1 if rows is None else int(rows[-1])
                passed[key] = Passed(int(fixed[_OFFSET][last]), 0, int(fixed[_TIME][last]))
                continue
            place = len(FIXED) + key[0]
            mine = _Rows(fixed, columns[place] if place < len(columns) - 1 else None, bad)
            self._partition(key).push(mine if rows is None else mine.at(rows))
        self.blocking_partitions = self._blocking_partitions()
        return passed

    def pull(self) -> Iterator[MergedRows]:
        """Removes the rows that may be released and yields them in merge order, in batches of bounded size. `time_us` of each row
        is its believed time; no batch is empty.
        """
        ready: list[_Piece] = []
        bounds = sorted((each.clock.time_us, key) for key, each in self._partitions.items())[:2]
        for key, each in self._partitions.items():
            ready += self._ready(key, each, next((bound for bound in bounds if bound[1] != key), None))
        return (_in_order(pieces) for pieces in _bounded(ready, self._bytes_max))

    def _partition(self, key: PartitionKey) -> _Partition:
        partition = self._partitions.get(key)
        if partition is None:
            raise StateError(
                f"partition {key[1]} of topic {key[0]} is not declared, but has rows",
                hint="declare every inbound partition before reading",
            )
        return partition

    def _ready(self, key: PartitionKey, partition: _Partition, bound: tuple[int, PartitionKey] | None) -> list[_Piece]:
        """Removes and returns the rows of a partition that no other partition can still precede. `bound`: the time and the key of
        the other partition that is complete up to the earliest time; None without another partition."""
        ready: list[_Piece] = []
        while partition.pieces:
            piece = partition.pieces[0]
            size = count = len(piece.times)
            if bound is not None:
                count = int(piece.times.searchsorted(bound[0], side="right" if key < bound[1] else "left"))
            if count == 0:
                break
            ready.append(piece.slice(0, count))
            self.clocks[key] = int(piece.clocks[count - 1])
            partition.waiting -= count
            if count < size:
                partition.pieces[0] = piece.slice(count, size)
                break
            partition.pieces.popleft()
        return ready


def _bounded(pieces: Sequence[_Piece], bytes_max: int) -> Iterator[Sequence[_Piece]]:
    """Splits the rows of all pieces, in merge order, into halves until each part has at most `bytes_max` bytes or one row. Yields
    the parts."""
    count = sum(len(piece.times) for piece in pieces)
    if count < 2 or sum(piece.rows.buffer_bytes for piece in pieces) <= bytes_max or _size(pieces) <= bytes_max:
        if count:
            yield pieces
        return
    bounds = np.cumsum([0, *(len(piece.times) for piece in pieces)])
    first = np.sort(_order(_joined_numbers([piece.times for piece in pieces]))[: count // 2])
    cuts = np.diff(np.searchsorted(first, bounds)).tolist()
    yield from _bounded([piece.slice(0, cut) for piece, cut in zip(pieces, cuts, strict=True)], bytes_max)
    yield from _bounded([piece.slice(cut, len(piece.times)) for piece, cut in zip(pieces, cuts, strict=True)], bytes_max)


def _size(pieces: Sequence[_Piece]) -> int:
    return sum(piece.rows.nbytes for piece in pieces)


_NONE_BAD = pa.array([], BAD_TYPE)


def _in_order(pieces: Sequence[_Piece]) -> MergedRows:
    """Returns the rows of the pieces as one batch in merge order. There must be at least one row."""
    times = _joined_numbers([piece.times for piece in pieces])
    columns = [_joined_numbers(parts) for parts in zip(*(piece.rows.fixed for piece in pieces), strict=True)]
    columns[_TIME] = _read_only(times)
    events: dict[int, pa.StructArray] = {}
    places: list[Int64s] = []
    for topic, mine in groupby(pieces, lambda piece: piece.topic):
        rows = [piece.rows for piece in mine]
        places.append(np.arange(sum(map(len, rows))))
        if rows[0].events is not None:
            events[topic] = _joined([each.events for each in rows])
    place, bad = _joined_numbers(places), _NONE_BAD
    if _BAD in columns[_KIND].tobytes():
        bad = _joined([_bad_of(piece.rows) for piece in pieces])
        place[columns[_KIND] == _BAD] = np.arange(len(bad))
    if len(pieces) > 1:
        if (times[1:] < times[:-1]).any():
            order = _order(times)
            columns, place = [column.take(order) for column in columns], place.take(order)
        for column in columns:
            _read_only(column)
    return MergedRows(dict(zip(FIXED, columns, strict=True)), place, events, bad)


def _bad_of(rows: _Rows) -> pa.StructArray:
    return chosen(rows.bad, np.flatnonzero(rows.fixed[_KIND] == _BAD))


def _order(times: Int64s) -> Int64s:
    """Returns the indexes that sort the rows by time. The sort is stable, so rows of equal time remain in order of partition and
    position."""
    order: Int64s = np.argsort(times, kind="stable")
    return order


def _joined_numbers(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Returns the arrays, concatenated."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Returns the Arrow arrays, concatenated."""
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
