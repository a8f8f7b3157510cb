"""The loop over the bytes of CSV, by `csv.grammar`: it finds the rows of messages and their fields.

A row is walked field by field. A walk that meets an open quote goes on to the end of the message and may be in vain: then the row
ends at its first line feed, and the next line begins a row. Every line that such a walk passed begins inside quotes, so a row that
is inside quotes at its first line feed, in the range of the walk, ends as the walk ended. `state` has this range and end. So no
byte is walked more than three times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.formats.loops import Fields, is_utf8
from hotspare.rows.chunk import Int32s, Int64s, UInt8s
from hotspare.rows.compile import Whole, kernel

DELIMITER, STOPS_PLAIN, STOPS_QUOTED, BLANK, SPACE = 1, 2, 4, 8, 16
"""Kinds of bytes, as bits of `Text.kinds`: the delimiter; bytes that matter outside, and inside quotes; blanks of the grammar, and
bytes of a line that is not a row."""
LINE_FEED, RETURN, QUOTE, ESCAPE = b'\n\r"\\'
_MARK = b"\xef\xbb\xbf"
_MARK_0, _MARK_1, _MARK_2 = _MARK
NOT_UTF8, OPEN, MISPLACED = -1, -2, -3
"""Verdicts on a bad row: it is not UTF-8; a quote is not closed within the message and the limit; more than blanks follow a closing
quote."""
FIRST_FEED, SPILLED, COVER_END, COVER_VERDICT, GOOD = 0, 1, 2, 3, 4
"""Entries of `state`: the first line feed in the row, or -1; the used bytes of `Fields.spill`; the end of the newest walk that left
its first line, and its verdict, 0 if it found the end of a row there; the number of good rows."""
STATE_WIDTH = 5
DECODING, CUTTING = 0, 1
"""Purposes of `split_rows`."""


class Text(NamedTuple):
    """Messages in one buffer: message i is `data[bounds[i]:bounds[i + 1]]`. `kinds`: uint8[256], the kinds of each byte."""

    data: UInt8s
    bounds: Int32s
    kinds: UInt8s


class FoundRows(NamedTuple):
    """Rows: for each its message, its number there, the bounds of its text, and the number of its columns, or a verdict."""

    message: Int64s
    number: Int32s
    begin: Int32s
    end: Int32s
    columns: Int32s


@kernel
def after_kind(text: Text, begin: Whole, stop: Whole, kind: Whole) -> Whole:
    """Returns the first place from `begin` on whose byte is not of this kind, or `stop`."""
    i, end = np.uint64(begin), np.uint64(stop)
    while i < end and text.kinds[text.data[i]] & kind:
        i += np.uint64(1)
    return np.int64(i)


@kernel
def find_kind(text: Text, begin: Whole, stop: Whole, kind: Whole) -> Whole:
    """Returns the first place from `begin` on whose byte is of this kind, or `stop`."""
    i, end = np.uint64(begin), np.uint64(stop)
    while i < end and not text.kinds[text.data[i]] & kind:
        i += np.uint64(1)
    return np.int64(i)


@kernel
def next_feed(data: UInt8s, begin: Whole, stop: Whole) -> Whole:
    i, end = np.uint64(begin), np.uint64(stop)
    while i < end and data[i] != LINE_FEED:
        i += np.uint64(1)
    return np.int64(i)


@kernel
def before_returns(data: UInt8s, begin: Whole, end: Whole) -> Whole:
    """Returns `end` moved back over carriage returns, at most to `begin`."""
    while end > begin and data[end - 1] == RETURN:
        end -= 1
    return end


@kernel
def plain_end(text: Text, begin: Whole, stop: Whole) -> tuple[Whole, Whole]:
    """Returns the end of an unquoted field, and the number of its backslashes that are not part of its value."""
    data, dropped, place = text.data, 0, begin
    while True:
        place = find_kind(text, place, stop, STOPS_PLAIN)
        if place >= stop or data[place] != ESCAPE:
            return place, dropped
        if place + 1 >= stop or data[place + 1] == LINE_FEED:
            return place + 1, dropped
        if text.kinds[data[place + 1]] & DELIMITER:
            dropped += 1
        place += 2


@kernel
def closing_quote(text: Text, row: Whole, begin: Whole, stop: Whole, limit: Whole, state: Int64s) -> tuple[Whole, Whole]:
    """Returns the place of the quote that closes a field, `begin` is after its opening quote; and the number of bytes in between
    that are not part of its value. Returns `stop` if no quote closes it within the message, or if the row that begins at `row` is
    known to be bad."""
    data, dropped, place = text.data, 0, begin
    while True:
        place = find_kind(text, place, stop, STOPS_QUOTED)
        if place >= stop:
            return stop, dropped
        byte = data[place]
        following = data[place + 1] if place + 1 < stop else np.uint8(0)
        if byte == LINE_FEED:
            if state[FIRST_FEED] < 0:
                state[FIRST_FEED] = place
                if place < state[COVER_END] and (state[COVER_VERDICT] < 0 or state[COVER_END] - row > limit):
                    return stop, dropped
            place += 1
        elif byte == QUOTE and following != QUOTE:
            return place, dropped
        elif byte == ESCAPE and following == LINE_FEED:
            place += 1
        else:
            if byte == QUOTE or following in (QUOTE, ESCAPE):
                dropped += 1
            place += 2


@kernel
def spill_value(text: Text, begin: Whole, end: Whole, is_quoted: Whole, fields: Fields, state: Int64s) -> Whole:
    """Appends a field's value to `fields.spill`, without escape characters and the first of two quotes. Returns the offset in
    `fields.spill` at which the value begins."""
    data, first = text.data, np.int64(state[SPILLED])
    place, target = begin, first
    while place < end:
        byte = data[place]
        if place + 1 < end and (byte == ESCAPE or (byte == QUOTE and is_quoted)):
            following = data[place + 1]
            goes = following in (QUOTE, ESCAPE) if is_quoted else text.kinds[following] & DELIMITER != 0
            if not goes:
                fields.spill[target] = byte
                target += 1
            byte = following
            place += 1
        fields.spill[target] = byte
        place, target = place + 1, target + 1
    state[SPILLED] = target
    return first


@kernel
def write_field(
    text: Text, number: Whole, begin: Whole, end: Whole, is_quoted: Whole, dropped: Whole, fields: Fields, state: Int64s
) -> None:
    """Writes the bounds of the value of field `number`, whose text without outer blanks and quotes has these bounds."""
    if dropped:
        first = spill_value(text, begin, end, is_quoted, fields, state)
        fields.begin[number] = ~first
        fields.size[number] = state[SPILLED] - first
    else:
        fields.begin[number] = begin
        fields.size[number] = end - begin if is_quoted or end > begin else -1


@kernel
def read_row(
    text: Text, row: Whole, begin: Whole, stop: Whole, limit: Whole, number: Whole, columns: Whole, fields: Fields, state: Int64s
) -> tuple[Whole, Whole, Whole]:
    """Reads the row that begins at `row`, after a byte order mark at `begin`, of a message that ends at `stop`. Writes its first
    `columns` fields, to `fields` from `number` on.

    Returns the end of the row, the place of its line feed or `stop`, and the number of its columns, or a verdict."""
    data, place, count = text.data, begin, 0
    state[FIRST_FEED] = -1
    while True:
        inner = after_kind(text, place, stop, BLANK)
        if inner < stop and data[inner] == QUOTE:
            close, dropped = closing_quote(text, row, inner + 1, stop, limit, state)
            if close >= stop:
                return bad_row(data, begin, stop, stop, OPEN, state)
            end = after_kind(text, close + 1, stop, BLANK)
            feed = end
            while feed < stop and data[feed] == RETURN:
                feed += 1
            if feed < stop and data[feed] != LINE_FEED and (feed > end or not text.kinds[data[feed]] & DELIMITER):
                return bad_row(data, begin, feed, stop, MISPLACED, state)
            if count < columns:
                write_field(text, number + count, inner + 1, close, 1, dropped, fields, state)
        else:
            feed, dropped = plain_end(text, inner, stop)
            end = feed
            if feed >= stop or data[feed] == LINE_FEED:
                end = before_returns(data, place, feed)
            last = end
            while last > inner and text.kinds[data[last - 1]] & BLANK:
                last -= 1
            if count < columns:
                write_field(text, number + count, inner, last, 0, dropped, fields, state)
        count += 1
        if feed >= stop or data[feed] == LINE_FEED:
            if state[FIRST_FEED] >= 0 and feed - row > limit:
                return bad_row(data, begin, feed, stop, 0, state)
            return end, feed, count
        place = feed + 1


@kernel
def bad_row(data: UInt8s, begin: Whole, end: Whole, stop: Whole, verdict: Whole, state: Int64s) -> tuple[Whole, Whole, Whole]:
    """Returns the result of `read_row` for a bad row, whose walk ended at `end`: it ends at its first line feed. `verdict`: 0 if
    the walk found an end of the row beyond the limit."""
    feed = state[FIRST_FEED]
    if feed < 0:
        feed = next_feed(data, end, stop)
    elif feed < state[COVER_END]:
        verdict = state[COVER_VERDICT]
    else:
        state[COVER_END] = end
        state[COVER_VERDICT] = verdict
    return before_returns(data, begin, feed), feed, OPEN if verdict == 0 else verdict


@kernel
def after_mark(data: UInt8s, begin: Whole, stop: Whole) -> Whole:
    """Returns `begin`, moved past a byte order mark."""
    if begin + 2 < stop and data[begin] == _MARK_0 and data[begin + 1] == _MARK_1 and data[begin + 2] == _MARK_2:
        return begin + 3
    return begin


@kernel
def split_rows(text: Text, columns: Whole, limit: Whole, purpose: Whole, rows: FoundRows, fields: Fields, state: Int64s) -> Whole:
    """Writes the rows of all messages. Returns their number. `limit`: `grammar.ROW_BYTES_MAX`; `state`: zeros.

    For DECODING, writes the fields of the good rows, those of `columns` columns, one row after the other. For CUTTING, `columns` is
    0; blank rows are rows, too, which begin at their byte order mark, and an empty row follows a line feed at the end of a
    message."""
    data, count, good = text.data, 0, 0
    for message in range(len(text.bounds) - 1):
        row: Whole = np.int64(text.bounds[message])
        stop, number = np.int64(text.bounds[message + 1]), 0
        while row < stop + purpose:
            begin, spilled = after_mark(data, row, stop), state[SPILLED]
            found: Whole = 0
            feed = after_kind(text, begin, stop, SPACE)
            end = feed
            is_blank = feed >= stop or data[feed] == LINE_FEED
            if is_blank and purpose == DECODING:
                row = feed + 1
                continue
            if not is_blank:
                end, feed, found = read_row(text, row, begin, stop, limit, good * columns, columns, fields, state)
            if purpose == CUTTING:
                begin, end = row, before_returns(data, begin, end)
            elif not is_utf8(data, begin, end):
                found = NOT_UTF8
            if found == columns:
                good += 1
            else:
                state[SPILLED] = spilled
            rows.message[count] = message
            rows.number[count] = number
            rows.begin[count] = begin
            rows.end[count] = end
            rows.columns[count] = found
            count, number = count + 1, number + 1
            row = feed + 1
    state[GOOD] = good
    return count
