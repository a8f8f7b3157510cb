"""The loop that reads JSON messages: their rows, and the members of each object, by the rules of `json.plain`.

`read_messages` first reads an event at the begin of each row (`event_end`), which succeeds for every valid object. If that fails,
`row_end` finds where the row ends, and `judged` what is wrong with it. So each byte is read a few times at most, whatever a message
contains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.formats.json.loops.row_ends import after_row, judged, next_row, row_end, trimmed
from hotspare.formats.json.loops.syntax import (
    ARRAY,
    BACKSLASH,
    CLOSE,
    CLOSE_ARRAY,
    ESCAPED,
    HEX_DIGIT,
    KINDS,
    LOWER_U,
    NULL,
    NUMBER,
    OBJECT,
    OPEN,
    OPEN_ARRAY,
    OPENS,
    QUOTE,
    STRING,
    VALUE,
    WORD,
    gap_end,
    is_at,
    name_end,
    next_part,
    scalar_end,
    string_end,
    value_end,
)
from hotspare.formats.json.plain import DEPTH_MAX
from hotspare.formats.loops import Fields
from hotspare.rows.chunk import Int32s, Int64s, UInt8s
from hotspare.rows.compile import Whole, called, kernel

ENVELOPE = 15
"""The code of an event with a member `event` that is not exactly one object."""
TWICE, NO_UNICODE = 6, 7
"""What may be wrong with a member besides the kind of its value: it comes twice, or has half of a surrogate pair."""
OF_MEMBERS, MEMBER_CODES = 32, 8
"""Codes from OF_MEMBERS on: OF_MEMBERS + MEMBER_CODES * member + the wrong kind, or TWICE, or NO_UNICODE."""
TAKES_NUMBER, TAKES_ITEMS, TAKES_ARRAY, TAKES_OBJECT = 1, 2, 4, 8
"""Bits of `Known.takes`: the value may be a number; an array, as its items; an array, as its text; an object, as its text."""
MESSAGE, AT, INDEX, GOOD, BAD, SPILLED, WALK, CODE, ENVELOPES, ENVELOPE_BEGIN = range(10)
"""Entries of `state`: message, place and index of the next row; the number of good and of bad rows; the used bytes of
`Fields.spill`; the number of the walk over members, and its first error or 0; for members `event` that are not null: their number,
and the begin of one, or -1 if it is not an object."""
STATE_WIDTH = 10
RECENT_WIDTH = 3
RECENT_INNER = 4
"""The members of an object in the member `event` begin here in `Known.recent`."""
WHOLE, OWN, INNER = range(3)
"""Walks over members: of all of the event; of opcode and flags next to the member `event`; of that member's object."""
OWN_MEMBERS = 2
"""The number of known members that are not fields: opcode and flags, which come first."""
UNKNOWN, NO_NAME = -1, -2
BAD_WIDTH = 5
_SEMICOLON = ord(";")
_HASH_SEED, _HASH_FACTOR, _HASH_MASK = 2166136261, 16777619, 0xFFFFFFFF


class Known(NamedTuple):
    """The known members. The name of member i is `names[ends[i - 1]:ends[i]]`. `slots`: a hash table of their numbers, -1 if a slot
    is free; its size is a power of 2. `takes`: by member. The last member is the envelope `event`; its name is empty if a field has
    this name. `recent`: int64[n, RECENT_WIDTH], begin, end and member of the n-th name of the objects before: the next ones likely
    have the same.
    """

    names: UInt8s
    ends: Int64s
    slots: Int64s
    takes: UInt8s
    recent: Int64s


class GoodRows(NamedTuple):
    """Good rows: for each its message, its number there, and the bounds of its text."""

    message: Int64s
    number: Int32s
    begin: Int32s
    end: Int32s


class JsonScratch(NamedTuple):
    """`opened`: the open brackets, with room for one per byte of a message, at least DEPTH_MAX. `seen`: for each known member, the
    newest walk that met it."""

    opened: UInt8s
    seen: Int64s


@kernel
def write_character(code: Whole, spill: UInt8s, at: Whole) -> Whole:
    """Writes a character as UTF-8. Returns the end."""
    if code < 0x80:
        spill[at] = code
        return at + 1
    if code < 0x800:
        spill[at] = 0xC0 | code >> 6
        spill[at + 1] = 0x80 | code & 0x3F
        return at + 2
    if code < 0x10000:
        spill[at] = 0xE0 | code >> 12
        spill[at + 1] = 0x80 | code >> 6 & 0x3F
        spill[at + 2] = 0x80 | code & 0x3F
        return at + 3
    spill[at] = 0xF0 | code >> 18
    spill[at + 1] = 0x80 | code >> 12 & 0x3F
    spill[at + 2] = 0x80 | code >> 6 & 0x3F
    spill[at + 3] = 0x80 | code & 0x3F
    return at + 4


@kernel
def unicode_escape(data: UInt8s, at: Whole) -> Whole:
    """Returns the number of four hexadecimal digits."""
    code = np.int64(0)
    for i in range(at, at + 4):
        code = code << 4 | np.int64(HEX_DIGIT[data[i]])
    return code


@called
def unescaped_end(data: UInt8s, begin: Whole, end: Whole, spill: UInt8s, at: Whole) -> tuple[Whole, Whole]:
    """Writes the content of a valid string to `spill[at:]`. Returns the end there, and 0; 1 if it has half of a surrogate pair,
    which is written like any other character."""
    has_half = 0
    while begin < end:
        byte = data[begin]
        if byte != BACKSLASH:
            spill[at] = byte
            begin, at = begin + 1, at + 1
            continue
        byte = data[begin + 1]
        begin += 2
        if byte != LOWER_U:
            spill[at] = ESCAPED[byte]
            at += 1
            continue
        code = unicode_escape(data, begin)
        begin += 4
        if 0xD800 <= code < 0xE000:
            low: Whole = 0
            if code < 0xDC00 and begin + 1 < end and data[begin] == BACKSLASH and data[begin + 1] == LOWER_U:
                low = unicode_escape(data, begin + 2)
            if 0xDC00 <= low < 0xE000:
                code = 0x10000 + (code - 0xD800 << 10) + low - 0xDC00
                begin += 6
            else:
                has_half = 1
        at = write_character(code, spill, at)
    return at, has_half


@called
def items_end(data: UInt8s, at: Whole, stop: Whole, spill: UInt8s, target: Whole) -> tuple[Whole, Whole]:
    """Writes a valid array to `spill[target:]` as CSV writes it. Returns the end there, and 0; or the error: ARRAY if an item is
    not a number, a string or null, or would be another text in CSV; NO_UNICODE."""
    has_half: Whole = 0
    close: Whole = 0
    spill[target] = OPEN_ARRAY
    target += 1
    at = gap_end(data, at + 1, stop)
    if data[at] == CLOSE_ARRAY:
        close = 1
    while not close:
        if data[at] == QUOTE:
            end, _ = string_end(data, at + 1, stop)
            first = target
            target, is_half = unescaped_end(data, at + 1, end, spill, target)
            has_half |= is_half
            for i in range(first, target):
                if spill[i] == _SEMICOLON or spill[i] == OPEN_ARRAY or spill[i] == CLOSE_ARRAY:
                    return target, ARRAY
            at = end + 1
        elif KINDS[data[at]] & OPENS:
            return target, ARRAY
        else:
            end, kind = scalar_end(data, at, stop)
            if kind == WORD:
                return target, ARRAY
            for i in range(at, end):
                spill[target] = data[i]
                target += 1
            at = end
        at, close = next_part(data, at, stop, CLOSE_ARRAY)
        spill[target] = _SEMICOLON
        target += 1 - close
    spill[target] = CLOSE_ARRAY
    return target + 1, NO_UNICODE if has_half else 0


@kernel
def same_name(data: UInt8s, begin: Whole, end: Whole, names: UInt8s, first: Whole, last: Whole) -> bool:
    if end - begin != last - first:
        return False
    while begin < end and data[begin] == names[first]:
        begin, first = begin + 1, first + 1
    return bool(begin == end)


@kernel
def name_hash(data: UInt8s, begin: Whole, end: Whole) -> Whole:
    h = np.int64(_HASH_SEED)
    for i in range(begin, end):
        h = (h ^ np.int64(data[i])) * _HASH_FACTOR & _HASH_MASK
    return h ^ h >> 16


@called
def find_name(data: UInt8s, begin: Whole, end: Whole, known: Known) -> Whole:
    """Returns the number of the known member with this name, or UNKNOWN."""
    mask = len(known.slots) - 1
    slot = name_hash(data, begin, end) & mask
    while known.slots[slot] >= 0:
        member = known.slots[slot]
        first = known.ends[member - 1] if member > 0 else np.int64(0)
        if same_name(data, begin, end, known.names, first, known.ends[member]):
            return np.int64(member)
        slot = slot + 1 & mask
    return UNKNOWN


@called
def fill_slots(known: Known) -> None:
    """Enters the known members to `slots`, which is empty."""
    mask, first = len(known.slots) - 1, np.int64(0)
    for member in range(len(known.ends)):
        last = known.ends[member]
        slot = name_hash(known.names, first, last) & mask
        while known.slots[slot] >= 0:
            slot = slot + 1 & mask
        if last > first or member < len(known.ends) - 1:
            known.slots[slot] = member
        first = last


@kernel
def member_of(
    data: UInt8s, begin: Whole, end: Whole, has_escapes: Whole, number: Whole, known: Known, spill: UInt8s, spilled: Whole
) -> Whole:
    """Returns the known member with the name `data[begin:end]`, or UNKNOWN. `number`: the number of the member in its object."""
    recent = known.recent
    is_kept = number < len(recent)
    if is_kept and recent[number, 1] >= 0 and same_name(data, begin, end, data, recent[number, 0], recent[number, 1]):
        return np.int64(recent[number, 2])
    if has_escapes:
        last, _ = unescaped_end(data, begin, end, spill, spilled)
        member = find_name(spill, spilled, last, known)
    else:
        member = find_name(data, begin, end, known)
    if is_kept:
        recent[number, 0], recent[number, 1], recent[number, 2] = begin, end, member
    return member


@kernel
def set_code(state: Int64s, member: Whole, what: Whole) -> None:
    """Records an error of a member, unless the row has one already."""
    if state[CODE] == 0:
        state[CODE] = OF_MEMBERS + MEMBER_CODES * member + what


@kernel
def write_value(
    data: UInt8s,
    begin: Whole,
    end: Whole,
    kind: Whole,
    has_escapes: Whole,
    member: Whole,
    takes: Whole,
    number: Whole,
    fields: Fields,
    state: Int64s,
) -> None:
    """Writes the text of a value that is not null to entry `number` of `fields`, or records that its kind is wrong. The bounds of a
    string are those of its content."""
    if kind == STRING and has_escapes:
        first = state[SPILLED]
        last, has_half = unescaped_end(data, begin, end, fields.spill, first)
        if has_half:
            set_code(state, member, NO_UNICODE)
        state[SPILLED] = last
        fields.begin[number], fields.size[number] = ~first, last - first
    elif kind == ARRAY and takes & TAKES_ITEMS:
        first = state[SPILLED]
        last, wrong = items_end(data, begin, end, fields.spill, first)
        if wrong:
            set_code(state, member, wrong)
        state[SPILLED] = last
        fields.begin[number], fields.size[number] = ~first, last - first
    elif (
        kind == STRING
        or (kind == NUMBER and takes & TAKES_NUMBER)
        or (kind == ARRAY and takes & TAKES_ARRAY)
        or (kind == OBJECT and takes & TAKES_OBJECT)
    ):
        fields.begin[number], fields.size[number] = begin, end - begin
    else:
        set_code(state, member, kind)


@kernel
def take_member(
    data: UInt8s,
    begin: Whole,
    end: Whole,
    kind: Whole,
    has_escapes: Whole,
    member: Whole,
    row: Whole,
    known: Known,
    scratch: JsonScratch,
    fields: Fields,
    state: Int64s,
) -> None:
    """Takes the value of a known member to `fields`, as far as a first look at the object can tell."""
    envelope = len(known.takes) - 1
    if member == envelope:
        if kind != NULL:
            state[ENVELOPES] += 1
            state[ENVELOPE_BEGIN] = begin if kind == OBJECT else np.int64(-1)
        return
    if scratch.seen[member] == state[WALK]:
        set_code(state, member, TWICE)
    scratch.seen[member] = state[WALK]
    if kind != NULL:
        write_value(data, begin, end, kind, has_escapes, member, known.takes[member], row * envelope + member, fields, state)


@kernel
def members_end(
    data: UInt8s, at: Whole, stop: Whole, walk: Whole, row: Whole, known: Known, scratch: JsonScratch, fields: Fields, state: Int64s
) -> Whole:
    """Reads the members of the object that begins at `at`, to row `row` of `fields`. Returns its end."""
    number = RECENT_INNER if walk == INNER else 0
    at = gap_end(data, at + 1, stop)
    if is_at(data, at, stop, CLOSE):
        return at + 1
    is_done: Whole = 0
    while not is_done:
        first = at + 1
        close, name_escapes, at = name_end(data, at, stop)
        if close < 0:
            return close
        if at >= stop:
            return -VALUE
        byte, begin = data[at], at
        has_escapes: Whole = 0
        kind: Whole = STRING
        if byte == QUOTE:
            begin = at + 1
            end, has_escapes = string_end(data, begin, stop)
            at = end + 1
        elif KINDS[byte] & OPENS:
            kind = OBJECT if byte == OPEN else ARRAY
            end = value_end(data, at, stop, DEPTH_MAX - 1, scratch.opened)
            at = end
        else:
            end, kind = scalar_end(data, at, stop)
            at = end
        if end < 0:
            return end
        member = member_of(data, first, close, name_escapes, number, known, fields.spill, state[SPILLED])
        if member >= 0 and (walk == WHOLE or member < (OWN_MEMBERS if walk == OWN else len(known.takes) - 1)):
            take_member(data, begin, end, kind, has_escapes, member, row, known, scratch, fields, state)
        number += 1
        at, is_done = next_part(data, at, stop, CLOSE)
        if at < 0:
            return at
    return at


@kernel
def begin_walk(row: Whole, known: Known, fields: Fields, spilled: Whole, state: Int64s) -> None:
    """Makes all members of row `row` null."""
    members = len(known.takes) - 1
    for number in range(row * members, (row + 1) * members):
        fields.size[number] = -1
    state[WALK] += 1
    state[SPILLED], state[CODE] = spilled, 0


@kernel
def event_end(
    data: UInt8s, begin: Whole, stop: Whole, row: Whole, known: Known, scratch: JsonScratch, fields: Fields, state: Int64s
) -> Whole:
    """Reads the valid object that begins at `begin` to row `row` of `fields`, with its first error in `state`. Returns its end."""
    spilled, walk, at = state[SPILLED], WHOLE, begin
    whole_end: Whole = 0
    state[ENVELOPES] = 0
    begin_walk(row, known, fields, spilled, state)
    while True:
        end = members_end(data, at, stop, walk, row, known, scratch, fields, state)
        if end < 0:
            return end
        if walk == WHOLE:
            whole_end = end
            if state[ENVELOPES] == 0:
                break
            if state[ENVELOPES] > 1 or state[ENVELOPE_BEGIN] < 0:
                state[CODE] = ENVELOPE
                break
            begin_walk(row, known, fields, spilled, state)
        elif walk == OWN:
            at = state[ENVELOPE_BEGIN]
        else:
            break
        walk += 1
    return whole_end


@kernel
def write_bad_row(message: Whole, index: Whole, begin: Whole, end: Whole, code: Whole, bad: Int64s, at: Whole) -> None:
    bad[at, 0], bad[at, 1], bad[at, 2], bad[at, 3], bad[at, 4] = message, index, begin, end, code


@kernel
def read_messages(
    rows: GoodRows, data: UInt8s, bounds: Int32s, known: Known, scratch: JsonScratch, fields: Fields, bad: Int64s, state: Int64s
) -> None:
    """Reads the rows of all messages, from the row on that `state` names, until `rows` or `bad` is full. Message i is
    `data[bounds[i]:bounds[i + 1]]`.

    Writes the good rows to `rows`, and their members to `fields`. Writes the bad rows to `bad`, int64[n, BAD_WIDTH]: the message,
    the index there, the bounds of the text, and the code of the error.
    """
    message, at, index = state[MESSAGE], state[AT], state[INDEX]
    good, wrong = np.int64(0), np.int64(0)
    state[SPILLED] = 0
    while message < len(bounds) - 1 and good < len(rows.message) and wrong < len(bad):
        stop = np.int64(bounds[message + 1])
        begin = next_row(data, at, stop)
        if begin >= stop:
            message, at, index = message + 1, stop, np.int64(0)
            continue
        end: Whole = -1
        spilled = state[SPILLED]
        if data[begin] == OPEN:
            end = event_end(data, begin, stop, good, known, scratch, fields, state)
        if end >= 0 and after_row(data, end, stop) == end:
            at, code = end, state[CODE]
        else:
            at = row_end(data, begin, stop, scratch.opened)
            end = trimmed(data, begin, at)
            code = np.int64(judged(data, begin, end, scratch.opened))
        if code == 0:
            rows.message[good], rows.number[good], rows.begin[good], rows.end[good] = message, index, begin, end
            good += 1
        else:
            write_bad_row(message, index, begin, end, code, bad, wrong)
            state[SPILLED] = spilled
            wrong += 1
        index += 1
    state[MESSAGE], state[AT], state[INDEX], state[GOOD], state[BAD] = message, at, index, good, wrong
