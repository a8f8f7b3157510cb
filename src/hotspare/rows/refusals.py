"""Refused rows, in columns: there may be as many as good ones, and they cost no more.

Refusals    rows that a window refuses, and reasons ──► BadEvents   rows of the batch, with their texts (core)
                                                    └─► BadRows     places in messages, with their texts (head)
rows that no format can read ───────────────────────────► BadRows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.rows.batch import BAD_TYPE
from hotspare.rows.chunk import Bools, Int64s

BAD_TEXT_LENGTH_MAX = 4096
"""The most characters of the text of a bad row."""

_NO_TEXTS = pa.array([], pa.string())
_NO_ROWS: Int64s = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Refusals:
    """Refused `rows`, ascending. `reason`, `message`: the reason code and the sentence of each, as Arrow strings."""

    rows: Int64s
    reason: pa.Array
    message: pa.Array

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def from_causes(cls, rows: Int64s, cause: Int64s, causes: Sequence[tuple[str, str]]) -> Refusals:
        """Returns refusals of `rows`. Row `rows[i]` has the reason and the sentence of `causes[cause[i]]`."""
        if not len(rows):
            return NOTHING_REFUSED
        number = pa.array(cause)
        reasons, messages = (pa.array([str(text) for text in texts], pa.string()) for texts in zip(*causes, strict=True))
        return cls(rows, reasons.take(number), messages.take(number))

    def merged_refusals(self, others: Refusals) -> Refusals:
        """Returns these refusals and `others`, by ascending row. Both are of the same input rows; no row is in both."""
        if not len(self) or not len(others):
            return self if len(self) else others
        rows = np.concatenate((self.rows, others.rows))
        order = np.argsort(rows, kind="stable")
        reason, message = (
            pa.concat_arrays([getattr(self, name), getattr(others, name)]).take(pa.array(order)) for name in ("reason", "message")
        )
        return Refusals(rows[order], reason, message)

    @classmethod
    def joined(cls, parts: Sequence[tuple[int, Refusals]]) -> Refusals:
        """Returns the refusals of consecutive pieces of rows as refusals of all rows. `parts`: the number of a piece's first row,
        and its refusals, by row of the piece."""
        some = [(begin, part) for begin, part in parts if len(part)]
        if not some:
            return NOTHING_REFUSED
        reason, message = (pa.concat_arrays([getattr(part, name) for _, part in some]) for name in ("reason", "message"))
        return cls(np.concatenate([part.rows + begin for begin, part in some]), reason, message)


NOTHING_REFUSED = Refusals(_NO_ROWS, _NO_TEXTS, _NO_TEXTS)


@dataclass(frozen=True, slots=True)
class BadEvents:
    """Refused events. `rank`: rows of the batch. `columns`: reason codes, sentences and events as text, and windows once they are
    known, as Arrow strings in the order of `plan.BAD_SCHEMA`."""

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
        """Returns the events with one more column: the name of the window that refused them."""
        return BadEvents(self.rank, (*self.columns, pa.repeat(window, len(self))))

    def slice(self, begin: int, end: int) -> BadEvents:
        """Returns the events from number `begin` to before number `end`."""
        return BadEvents(self.rank[begin:end], tuple(column.slice(begin, end - begin) for column in self.columns))

    def by_rank(self) -> BadEvents:
        """Returns the events in ascending rank; events of one rank keep their order."""
        if len(self) < 2 or (np.diff(self.rank) >= 0).all():
            return self
        order = np.argsort(self.rank, kind="stable")
        return BadEvents(self.rank[order], tuple(column.take(pa.array(order)) for column in self.columns))

    def by_texts(self) -> BadEvents:
        """Returns the events, which are in ascending rank, with events of one rank ordered by reason, sentence, and descending
        text: so the new row of an update block (UB) is before the old one (D)."""
        if len(self) < 2 or (np.diff(self.rank) > 0).all():
            return self
        names = ("rank", "reason", "sentence", "text")
        table = pa.table([self.rank, *self.columns[:3]], names)
        ways = ("ascending", "ascending", "ascending", "descending")
        order = pc.sort_indices(table, list(zip(names, ways, strict=True)))
        return BadEvents(self.rank, tuple(column.take(order) for column in self.columns))


NO_BAD_EVENTS = BadEvents(_NO_ROWS, ())


@dataclass(frozen=True, slots=True)
class BadRows:
    """Bad rows of messages. `message`, `index`: the number of the message and the index there. `reason`, `sentence`, `text`: the
    reason code, the sentence and the row as it arrived, as Arrow strings. `window`: the window that refused them, "" if not needed.
    """

    message: Int64s
    index: Int64s
    reason: pa.Array
    sentence: pa.Array
    text: pa.Array
    window: str = ""

    def __len__(self) -> int:
        return len(self.message)

    @classmethod
    def from_rows(cls, rows: Sequence[tuple[int, int, str, str, str]]) -> BadRows:
        """Returns the bad rows of tuples (message, index, reason, sentence, text)."""
        if not rows:
            return NO_BAD_ROWS
        message, index, *texts = zip(*rows, strict=True)
        reason, sentence, text = (pa.array([str(each) for each in column], pa.string()) for column in texts)
        return cls(np.array(message, np.int64), np.array(index, np.int64), reason, sentence, clipped(text))

    @classmethod
    def joined(cls, parts: Sequence[BadRows]) -> BadRows:
        """Returns the rows of all parts, one after the other."""
        parts = [part for part in parts if len(part)]
        if len(parts) < 2:
            return parts[0] if parts else NO_BAD_ROWS
        columns = [[part.reason, part.sentence, part.text] for part in parts]
        message, index = (np.concatenate([getattr(part, name) for part in parts]) for name in ("message", "index"))
        return cls(message, index, *(pa.concat_arrays(column) for column in zip(*columns, strict=True)))

    def renumbered(self, messages: Int64s) -> BadRows:
        """Returns the rows with message number `messages[i]` in place of i."""
        return replace(self, message=messages[self.message])

    def with_place_of(self, window: str, is_alone: Bools) -> BadRows:
        """Returns the rows with their place, window and row, before each sentence. `is_alone`: whether a row is the only one of its
        message; then its place has no row number."""
        place = pa.scalar(f"window {window}: ")
        if not is_alone.all():
            rows = pc.binary_join_element_wise(f"window {window}, row ", pa.array(self.index).cast(pa.string()), ": ", "")
            place = pc.if_else(pa.array(is_alone), place, rows) if is_alone.any() else rows
        sentence = pc.binary_join_element_wise(place, self.sentence, "")
        return replace(self, sentence=sentence, window=window)

    @property
    def content(self) -> pa.StructArray:
        """The rows as an Arrow array of `batch.BAD_TYPE`."""
        columns = [self.reason, self.sentence, self.text, pa.repeat(self.window, len(self))]
        return pa.StructArray.from_arrays(columns, fields=list(BAD_TYPE))


NO_BAD_ROWS = BadRows(_NO_ROWS, _NO_ROWS, _NO_TEXTS, _NO_TEXTS, _NO_TEXTS)


def clipped(texts: pa.Array, length_max: int = BAD_TEXT_LENGTH_MAX) -> pa.Array:
    """Returns strings of at most `length_max` characters: longer ones are cut."""
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    return texts if longest <= length_max else pc.utf8_slice_codeunits(texts, 0, length_max)
