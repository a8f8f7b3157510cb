"""A chunk of changelog inside the core: rows of 64-bit lanes, so that one compiled kernel serves every schema.

A lane holds int32, int64, date, stamp and money as int64, double as its bits, string and blob as a code of the string table.
`lanes.view(np.float64)` is the same memory as doubles. An invalid lane holds 0, so that equal rows are equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotspare.base.call_board import CallSlot, unwatched_slot
from hotspare.model.events import Flag, Opcode

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt8s = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

EXTRA_ROWS_MAX = 1 << 14
"""The most rows emitted at a time if one row causes many: some hundredths of a second of work."""

NO_END = -1
NO_BEATS: Int64s = np.empty((0, 2), np.int64)
"""An empty array of heartbeats (rank, time)."""
NO_BOARD = unwatched_slot()
"""Where calls of user code are shown that nothing watches. Pipelines of several threads may share it, because nothing reads it."""
OUTPUT_BYTES_MAX = 16 << 20
"""The most bytes of text in a batch of outputs, approximately; a batch of one row may have more."""


def all_true(count: int) -> Bools:
    mask: Bools = np.empty(count, np.bool_)
    mask.fill(True)  # noqa: FBT003
    return mask


def is_all(mask: Bools) -> bool:
    """Whether all entries of the mask are true. For short masks, searching for a byte is faster than `numpy.all`."""
    return 0 not in mask.tobytes()


@dataclass(slots=True)
class Chunk:
    """Rows of one window's changelog, in order.

    rank    int64[n]         row of the batch that caused the row; never falls
    opcode  uint8[n]         model.events.Opcode; UPDATE_BLOCK is always followed by a DELETE of the same rank with the old values
    flags   uint8[n]         model.events.Flag
    lanes   int64[n, width]  C-contiguous
    valid   bool[n, width]   False is null

    `is_whole`: True if it is known that no event is partial.
    """

    rank: Int64s
    opcode: UInt8s
    flags: UInt8s
    lanes: Int64s
    valid: Bools
    is_whole: bool = False

    def __len__(self) -> int:
        return len(self.rank)

    def since(self, row: int) -> Chunk:
        """Returns the rows from `row` on, sharing the arrays."""
        return self.between(row, len(self))

    def between(self, begin: int, end: int) -> Chunk:
        """Returns the rows from `begin` to before `end`, sharing the arrays."""
        rows = slice(begin, end)
        return Chunk(self.rank[rows], self.opcode[rows], self.flags[rows], self.lanes[rows], self.valid[rows])

    def copied_rows(self, rows: Int64s) -> Chunk:
        """Returns a copy of the rows with these numbers, in this order."""
        rank, opcode, flags = self.rank.take(rows), self.opcode.take(rows), self.flags.take(rows)
        return Chunk(rank, opcode, flags, self.lanes.take(rows, axis=0), self.valid.take(rows, axis=0))

    def joined(self, other: Chunk) -> Chunk:
        """Returns the rows of both, one after the other."""
        return Chunk.joined_all((self, other))

    @classmethod
    def joined_all(cls, pieces: Sequence[Chunk]) -> Chunk:
        """Returns the rows of all pieces, at least one, one after the other. If only one piece has rows, returns that piece."""
        filled = [piece for piece in pieces if len(piece)]
        if len(filled) < 2:
            return filled[0] if filled else pieces[0]
        return cls(
            np.concatenate([piece.rank for piece in filled]),
            np.concatenate([piece.opcode for piece in filled]),
            np.concatenate([piece.flags for piece in filled]),
            np.concatenate([piece.lanes for piece in filled]),
            np.concatenate([piece.valid for piece in filled]),
        )

    def with_plain_doubles(self, columns: tuple[int, ...]) -> Chunk:
        """Returns the chunk with equal bits for equal doubles in these columns, as keys need: -0.0 becomes 0.0, and all NaN become
        the same NaN."""
        if not columns or not len(self):
            return self
        lanes = self.lanes.copy()
        for column in columns:
            values = lanes.view(np.float64)[:, column]
            values[values == 0.0] = 0.0
            values[np.isnan(values)] = np.nan
        return Chunk(self.rank, self.opcode, self.flags, lanes, self.valid)

    @classmethod
    def from_stored_rows(cls, lanes: Int64s, valid: Bools) -> Chunk:
        """Returns a chunk that inserts these stored rows, with ranks 0, 1, 2 ..."""
        count = len(lanes)
        opcode, flags = np.full(count, Opcode.INSERT, np.uint8), np.full(count, Flag.NORMAL, np.uint8)
        return cls(np.arange(count), opcode, flags, np.ascontiguousarray(lanes), np.ascontiguousarray(valid), is_whole=True)

    @classmethod
    def empty(cls, width: int) -> Chunk:
        return cls(
            np.empty(0, np.int64),
            np.empty(0, np.uint8),
            np.empty(0, np.uint8),
            np.empty((0, width), np.int64),
            np.empty((0, width), np.bool_),
        )


def by_retention(chunk: Chunk) -> Bools:
    """Returns bool[n]: whether retention caused an event."""
    found: Bools = (chunk.flags & np.uint8(Flag.RETENTION)) != 0
    return found


class Positions(NamedTuple):
    """The input position of each row of a batch."""

    topics: Int32s
    partitions: Int32s
    offsets: Int64s
    indexes: Int32s


@dataclass(slots=True)
class Timeline:
    """Time within one batch, and how many rows a call of an operator may emit in addition to those that its input rows cause.

    time_us         int64[rows of the batch]  system time at each row: running maximum of append times, never falls
    heartbeat_rank  int64[m]                  rows at which a heartbeat falls due, ascending; system-time work happens here
    positions       of each row of the batch; None if unknown
    end_rank        row at which the input ends; NO_END if it does not end within this call
    slot            where an operator shows its calls of user code; nothing depends on it
    is_row_by_row   whether user code over columns is called for each row alone; its results are the same
    """

    time_us: Int64s
    heartbeat_rank: Int64s
    extra_rows_max: int = EXTRA_ROWS_MAX
    positions: Positions | None = None
    end_rank: int = NO_END
    slot: CallSlot = NO_BOARD
    is_row_by_row: bool = False

    @property
    def has_end(self) -> bool:
        return self.end_rank != NO_END

    def between(self, since: int, until: int) -> Timeline:
        """Returns the timeline with only the heartbeats of ranks from `since` to before `until`, and with the end only if its rank
        is among these."""
        beats = self.heartbeat_rank
        end_rank = self.end_rank if since <= self.end_rank < until else NO_END
        return replace(self, heartbeat_rank=beats[slice(*beats.searchsorted((since, until)))], end_rank=end_rank)
