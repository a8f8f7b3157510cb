"""Rows that are refused, in columns: there may be as many as good ones, and they cost no more.

Refusals    rows of what a window works on, and why ──► BadEvents   rows of the batch, with their texts (core)
                                                    └─► BadRows     places in messages, with their texts (head)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hotspare.engine.batch import BAD_TYPE
from hotspare.engine.chunk import Int64s
from hotspare.engine.codec.csv_split import BadRow

_NO_TEXTS = pa.array([], pa.string())
_NO_ROWS: Int64s = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Refusals:
    """`rows` rise; for each a reason code and a sentence, as Arrow strings."""

    rows: Int64s
    reason: pa.Array
    message: pa.Array

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, rows: Int64s, cause: Int64s, causes: Sequence[tuple[str, str]]) -> Refusals:
        """Row i for the reason and with the sentence of `causes[cause[i]]`."""
        if not len(rows):
            return NOTHING_REFUSED
        number = pa.array(cause)
        reasons, messages = (pa.array([str(text) for text in texts], pa.string()) for texts in zip(*causes, strict=True))
        return cls(rows, reasons.take(number), messages.take(number))


NOTHING_REFUSED = Refusals(_NO_ROWS, _NO_TEXTS, _NO_TEXTS)


@dataclass(frozen=True, slots=True)
class BadEvents:
    """`rank`: rows of the batch. `columns`: reason codes, sentences and events as text, and windows once they are known, as Arrow
    strings in the order of `plan.BAD_SCHEMA`."""

    rank: Int64s
    columns: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return len(self.rank)

    def __add__(self, other: BadEvents) -> BadEvents:
        if not len(self) or not len(other):
            return other if not len(self) else self
        pairs = zip(self.columns, other.columns, strict=True)
        return BadEvents(np.concatenate((self.rank, other.rank)), tuple(pa.concat_arrays(pair) for pair in pairs))

    def of_window(self, window: str) -> BadEvents:
        """With the window that refused them."""
        return BadEvents(self.rank, (*self.columns, pa.repeat(window, len(self))))

    def slice(self, begin: int, end: int) -> BadEvents:
        """Those from number `begin` to before number `end`."""
        return BadEvents(self.rank[begin:end], tuple(column.slice(begin, end - begin) for column in self.columns))

    def by_rank(self) -> BadEvents:
        """Rising by rank; those of one rank stay in their order."""
        if (np.diff(self.rank) >= 0).all():
            return self
        order = np.argsort(self.rank, kind="stable")
        return BadEvents(self.rank[order], tuple(column.take(pa.array(order)) for column in self.columns))


NO_BAD_EVENTS = BadEvents(_NO_ROWS, ())


@dataclass(frozen=True, slots=True)
class BadRows:
    """Bad rows of messages: the number of the message, the index there, and `content` of `batch.BAD_TYPE`."""

    message: Int64s
    index: Int64s
    content: pa.StructArray

    @classmethod
    def of(cls, rows: Sequence[BadRow], window: str) -> BadRows:
        """What a codec could not read."""
        reason = pa.array([str(row.reason) for row in rows], pa.string())
        sentence, text = (pa.array([getattr(row, name) for row in rows], pa.string()) for name in ("sentence", "text"))
        message, index = (np.array([getattr(row, name) for row in rows], np.int64) for name in ("message", "index"))
        return cls(message, index, bad_content(reason, sentence, text, window))


def bad_content(reason: pa.Array, message: pa.Array, text: pa.Array, window: str) -> pa.StructArray:
    """Of `batch.BAD_TYPE`, all of one window."""
    return pa.StructArray.from_arrays([reason, message, text, pa.repeat(window, len(reason))], fields=list(BAD_TYPE))
