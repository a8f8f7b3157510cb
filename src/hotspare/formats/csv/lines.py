"""Finds the lines of many messages in one buffer, and slices strings from a buffer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.formats.csv.grammar import BYTE_ORDER_MARK
from hotspare.rows.elementwise import Rows

Bytes = npt.NDArray[np.uint8]
LINE_FEED, RETURN = b"\n\r"
_SPACE, _TAB = b" \t"
LAST_BLANK = _SPACE
"""The greatest blank byte."""
_NOTHING = pa.array([b""], pa.binary())
_ZERO = pa.scalar(0, pa.int32())
_IS_SPACE = np.isin(np.arange(256), list(b" \t\v\f\r"))


@dataclass(frozen=True, slots=True)
class TextLines:
    """Lines as slices of one buffer, in rising order: line i is `data[begin[i]:end[i]]`, belongs to message `parent[i]`, and its
    line feed is `data[feed[i]]`. Every message in `data` ends with a line feed."""

    data: Bytes
    begin: Rows
    end: Rows
    feed: Rows
    parent: Rows

    def kept(self, mask: npt.NDArray[np.bool_]) -> TextLines:
        if mask.all():
            return self
        at = np.flatnonzero(mask)
        return TextLines(self.data, self.begin[at], self.end[at], self.feed[at], self.parent[at])

    def whole_begin(self, lines: Rows) -> Rows:
        """Returns where these lines begin in `data` if a byte order mark before a line is included."""
        begin = self.begin[lines]
        whole: Rows = begin - len(BYTE_ORDER_MARK) * (self.data[begin - 1] != LINE_FEED)
        return whole

    def lines_at(self, places: Rows) -> Rows:
        """Returns the index of the line at each place of `data`; each place must be within a line."""
        return np.searchsorted(self.begin, places, side="right") - 1

    def texts(self, lines: Rows) -> pa.Array:
        """Returns the lines with these indexes as strings. The lines must be UTF-8, the indexes must rise."""
        return strings_of(self.data, self.begin[lines], self.end[lines])


def lines_of(values: pa.Array) -> TextLines:
    """Returns all lines of the messages that are not blank, without byte order marks and line ends. `values`: an Arrow binary
    array."""
    lines = every_line(values)
    return lines.kept(~_is_blank(lines))


def every_line(values: pa.Array) -> TextLines:
    """Returns all lines of the messages, including blank lines. A message with n line feeds has n + 1 lines."""
    data = np.frombuffer(joined(values), np.uint8)
    feed = np.flatnonzero(data == LINE_FEED)
    begin = np.concatenate([np.zeros(1, np.int64), feed[:-1] + 1])
    if len(feed) == len(values):
        parent = np.arange(len(values), dtype=np.int64)
    else:
        sizes = pc.binary_length(values).fill_null(_ZERO).to_numpy().astype(np.int64)
        last = np.searchsorted(feed, np.cumsum(sizes + 1) - 1)
        parent = np.repeat(np.arange(len(values), dtype=np.int64), np.diff(last, prepend=-1))
    return _without_marks(TextLines(data, begin, _without_returns(data, begin, feed), feed, parent))


def _without_returns(data: Bytes, begin: Rows, end: Rows) -> Rows:
    """Returns the ends of lines, moved back to before the carriage returns at the line's end."""
    is_return = (end > begin) & (data[end - 1] == RETURN)
    if not is_return.any():
        return end
    end = end - is_return
    again = np.flatnonzero(is_return & (end > begin) & (data[end - 1] == RETURN))
    if len(again):
        end[again] = np.maximum(begin[again], last_not_passed(data == RETURN, end[again] - 1) + 1)
    return end


def are_blanks(data: Bytes, delimiter: int) -> npt.NDArray[np.bool_]:
    """Whether each byte is a blank (`csv.grammar`)."""
    found: npt.NDArray[np.bool_] = data == _SPACE
    if delimiter != _TAB:
        found |= data == _TAB
    return found


def last_not_passed(is_passed: npt.NDArray[np.bool_], at: Rows) -> Rows:
    """Returns, for each place in `at`, the last place at or before it where `is_passed` is false; -1 if there is none."""
    others = np.concatenate([[-1], np.flatnonzero(~is_passed)])
    return others[np.searchsorted(others, at, side="right") - 1]


def _without_marks(lines: TextLines) -> TextLines:
    """Returns the lines with their begins moved past a leading byte order mark."""
    at = np.flatnonzero(lines.data[lines.begin] == BYTE_ORDER_MARK[0])
    for place, byte in enumerate(BYTE_ORDER_MARK[1:], 1):
        at = at[lines.data[lines.begin[at] + place] == byte]  # each line ends with a line feed, so this never reads the next one
    if not len(at):
        return lines
    begin = lines.begin.copy()
    begin[at] += len(BYTE_ORDER_MARK)
    return TextLines(lines.data, begin, lines.end, lines.feed, lines.parent)


def _is_blank(lines: TextLines) -> npt.NDArray[np.bool_]:
    blank: npt.NDArray[np.bool_] = lines.begin == lines.end
    at = np.flatnonzero(_IS_SPACE[lines.data[lines.begin]] & ~blank)
    if len(at):
        blank[at] = pc.ascii_is_space(lines.texts(at)).to_numpy(zero_copy_only=False)
    return blank


def joined(values: pa.Array) -> pa.Buffer:
    """Returns one buffer of all values, with a line feed after each; null is empty."""
    every = pa.concat_arrays([values.fill_null(_NOTHING[0]) if values.null_count else values, _NOTHING])
    every = pa.ListArray.from_arrays(pa.array(np.array([0, len(every)], np.int32)), every)
    return pc.binary_join(every, b"\n").buffers()[2]


def strings_of(data: Bytes, begin: Rows, end: Rows) -> pa.Array:
    """Returns the strings `data[begin[i]:end[i]]`. `begin` and `end` must rise, and the slices must not overlap. Raises
    OverflowError if `data` has 2 GiB or more."""
    count = len(begin)
    if count == 0:
        return pa.nulls(0, pa.string())
    if len(data) >= 1 << 31:
        raise OverflowError("the texts are more than an Arrow array can hold")
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2], bounds[1::2] = begin, end
    pieces = pa.Array.from_buffers(pa.string(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def null_where(empty: npt.NDArray[np.bool_], strings: pa.Array) -> pa.Array:
    if not empty.any():
        return strings
    validity = pa.py_buffer(np.packbits(~empty, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), len(strings), [validity, *strings.buffers()[1:]])


def numbered(parents: Rows) -> npt.NDArray[np.int32]:
    """Returns the index of each row within its message. `parents`: the message of each row, which never falls."""
    count = len(parents)
    new = parents[1:] != parents[:-1]
    if count == 0 or new.all():
        return np.zeros(count, np.int32)
    begins = np.flatnonzero(np.concatenate([[True], new]))
    lengths = np.diff(np.append(begins, count))
    return (np.arange(count) - np.repeat(begins, lengths)).astype(np.int32)
