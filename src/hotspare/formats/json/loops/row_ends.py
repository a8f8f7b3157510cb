"""The ends of the rows of a JSON text, by the rules of `json.cutting`, and the errors of rows that are not valid objects.

A row that begins with a valid object needs only `after_row`. Bad rows are read several times, each time once from begin to end. All
functions stop at `stop`, the end of the message.
"""

from __future__ import annotations

from hotspare.formats.json.loops.syntax import (
    BACKSLASH,
    BETWEEN,
    BLANK,
    CLOSE,
    CLOSES,
    COLON_BYTE,
    COMMA_BYTE,
    DEEP,
    FEED,
    KINDS,
    OPEN,
    OPEN_ARRAY,
    OPENS,
    QUOTE,
    STRING,
    UTF8,
    gap_end,
    is_deep,
    scalar_end,
    value_end,
)
from hotspare.formats.json.plain import DEPTH_MAX
from hotspare.formats.loops import is_utf8
from hotspare.rows.chunk import UInt8s
from hotspare.rows.compile import Whole, called, kernel

XML, FOLLOWS = 13, 14
"""Codes of errors, besides those of the syntax. XML: the row begins with `<`; FOLLOWS: another value follows the first."""
NOT_AN_OBJECT = 16
"""The code of a row that is a value of kind 0; that of a value of kind k is greater by k."""
_LESS = ord("<")
_MARK_0, _MARK_1, _MARK_2 = b"\xef\xbb\xbf"


@kernel
def is_mark(data: UInt8s, at: Whole, stop: Whole) -> bool:
    """Whether a byte order mark is at `at`."""
    return bool(at + 2 < stop and data[at] == _MARK_0 and data[at + 1] == _MARK_1 and data[at + 2] == _MARK_2)


@kernel
def line_end(data: UInt8s, at: Whole, stop: Whole) -> Whole:
    """Returns the place behind the next line feed, or `stop`."""
    while at < stop:
        at += 1
        if data[at - 1] == FEED:
            break
    return at


@called
def lone_value_end(data: UInt8s, at: Whole, stop: Whole) -> Whole:
    """Returns the end of a value at the place of an event (`cutting._VALUE`), or -1 if that is not certainly a value."""
    if data[at] == QUOTE:
        end = at + 1
        while end < stop and data[end] != QUOTE:
            if data[end] == BACKSLASH:
                end += 1
            if end >= stop or data[end] == FEED:
                return -1
            end += 1
        if end >= stop:
            return -1
        end += 1
    else:
        end, _ = scalar_end(data, at, stop)
        if end < 0:
            return -1
    if end >= stop or data[end] == OPEN or KINDS[data[end]] & BETWEEN or is_mark(data, end, stop):
        return end
    return -1


@kernel
def after_row(data: UInt8s, end: Whole, stop: Whole) -> Whole:
    """Returns `end` if the bytes behind a value that ends there may be other rows, else the end of their line."""
    at = end
    while at < stop and data[at] != FEED:
        if KINDS[data[at]] & BETWEEN:
            at += 1
        elif is_mark(data, at, stop):
            at += 3
        elif data[at] == OPEN or lone_value_end(data, at, stop) >= 0:
            break
        else:
            return line_end(data, at, stop)
    return end


@kernel
def next_row(data: UInt8s, at: Whole, stop: Whole) -> Whole:
    """Returns the begin of the first row from `at` on, which must be between rows; `stop` if there is none."""
    while at < stop:
        if KINDS[data[at]] & BETWEEN:
            at += 1
        elif is_mark(data, at, stop):
            at += 3
        else:
            break
    return at


@kernel
def trimmed(data: UInt8s, begin: Whole, end: Whole) -> Whole:
    """Returns `end` moved back over blanks."""
    while end > begin and KINDS[data[end - 1]] & BLANK:
        end -= 1
    return end


@kernel
def flat_line_end(data: UInt8s, at: Whole, stop: Whole) -> Whole:
    """Returns the end of a line that begins with a brace, ends with one, and has no other; -1 for any other line."""
    closed = 0
    end = at + 1
    while end < stop and data[end] != FEED:
        if data[end] == OPEN or closed > 1:
            return -1
        if data[end] == CLOSE:
            closed += 1
        end += 1
    end = trimmed(data, at, end)
    return end if closed == 1 and data[end - 1] == CLOSE else -1


@kernel
def may_hold_object(data: UInt8s, at: Whole, parent: Whole) -> bool:
    """Whether an object may begin at `at`, judged by the bracket `parent` that encloses it and by the last byte before it that is
    not a blank."""
    at -= 1
    while KINDS[data[at]] & BLANK:
        at -= 1
    if parent == OPEN:
        return bool(data[at] == COLON_BYTE)
    return bool(data[at] == OPEN_ARRAY) or bool(data[at] == COMMA_BYTE)


@kernel
def line_begin(data: UInt8s, begin: Whole, at: Whole) -> Whole:
    """Returns the begin of the line of the place `at`, -1 if `begin` is in this line."""
    while at > begin:
        at -= 1
        if data[at] == FEED:
            return at + 1
    return -1


@called
def object_end(data: UInt8s, begin: Whole, stop: Whole, opened: UInt8s) -> tuple[Whole, Whole]:
    """Returns the end of the object that begins at `begin`, judged by strings and brackets alone, and 1. For an invalid object,
    returns the end of the line that shows the error, or `stop` if the object is not closed; and 0."""
    depth, at = 0, begin
    while at < stop:
        byte = data[at]
        at += 1
        if byte == QUOTE:
            while at < stop and data[at] != QUOTE:
                if data[at] == BACKSLASH:
                    at += 1
                if at < stop and data[at] == FEED:
                    return at + 1, 0
                at += 1
            at += 1
        elif KINDS[byte] & OPENS:
            if byte == OPEN and depth > 0 and not may_hold_object(data, at - 1, opened[depth - 1]):
                line = line_begin(data, begin, at - 1)
                return line if line >= 0 else line_end(data, at, stop), 0
            opened[depth] = byte
            depth += 1
        elif KINDS[byte] & CLOSES:
            depth -= 1
            if opened[depth] != (OPEN if byte == CLOSE else OPEN_ARRAY):
                return line_end(data, at, stop), 0
            if depth == 0:
                return at, 1
    return stop, 0


@called
def row_end(data: UInt8s, at: Whole, stop: Whole, opened: UInt8s) -> Whole:
    """Returns the end of the row that begins at `at` (`cutting.event_end`)."""
    if data[at] != OPEN:
        end = lone_value_end(data, at, stop)
        return after_row(data, end, stop) if end >= 0 else line_end(data, at, stop)
    end = flat_line_end(data, at, stop)
    if end >= 0:
        return end
    end, is_object = object_end(data, at, stop, opened)
    return after_row(data, end, stop) if is_object else end


@called
def judged(data: UInt8s, begin: Whole, end: Whole, opened: UInt8s) -> Whole:
    """Returns the code of the error in a row that is not a valid object."""
    if not is_utf8(data, begin, end):
        return UTF8
    if is_deep(data, begin, end):
        return DEEP
    first = value_end(data, begin, end, DEPTH_MAX, opened)
    if first < 0:
        return XML if data[begin] == _LESS else -first
    if first < end:
        following = value_end(data, gap_end(data, first, end), end, DEPTH_MAX, opened)
        return FOLLOWS if following >= 0 else -following
    if data[begin] == QUOTE:
        return NOT_AN_OBJECT + STRING
    _, kind = scalar_end(data, begin, end)
    return NOT_AN_OBJECT + kind
