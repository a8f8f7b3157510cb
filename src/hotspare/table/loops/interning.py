"""Loops of the string table: byte strings to codes and back.

Bytes are in pages of a fixed size, one string after the other; a string may span several pages. `table.strings` has the table,
`table.loops.text_collection` frees codes and pages of strings that nothing holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotspare.rows.chunk import Int64s, UInt8s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.hashing import xxh64
from hotspare.table.loops.index import Index, after_place, enter, entry_of, first_place, has_room, likely_place, slot_at

UInt64s = npt.NDArray[np.uint64]
Int32s = npt.NDArray[np.int32]

BEGIN, SIZE = 0, 1
"""Columns of `InternedTexts.places`: the beginning of a string's bytes, and their count."""
COUNT, LIVE, BYTES, FREE, FILL, END, PAGE_BITS, ROUND, IS_MARKING, EMPTIED, FREED, MOVED = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
"""Entries of `InternedTexts.state`: codes are below COUNT, LIVE of them are in use, for strings of BYTES bytes; FREE codes are on
the stack; the next string begins at FILL, and there is room up to END; a page has 2**PAGE_BITS bytes. ROUND is that of the
collection, 1 or 2; IS_MARKING is 1 while strings that are looked up are held. EMPTIED, FREED and MOVED count the pages emptied, the
codes freed and the strings moved by the last call."""
STATE_WIDTH = 12


class InternedTexts(NamedTuple):
    """Strings by code, and the state of the pages of `data`.

    by_text     the index of codes by the hash of their bytes
    places      int64[., 2]: BEGIN and SIZE of each code's bytes in `data`
    hashes      XXH64 of each code's bytes
    marks       by code: 0 if the code is free, else the last round, 1 or 2, in which its string was held
    free        a stack of reusable codes
    page_bytes  by page: the bytes of strings in it
    emptied     a list of pages that lost their last string
    state       int64[12]: entries COUNT to MOVED
    """

    by_text: Index
    places: Int64s
    hashes: UInt64s
    marks: UInt8s
    free: Int64s
    data: UInt8s
    page_bytes: Int64s
    emptied: Int64s
    state: Int64s


@kernel
def same_bytes(a: UInt8s, a_begin: Whole, b: UInt8s, b_begin: Whole, size: Whole) -> bool:
    x, y, i, end = np.uint64(a_begin), np.uint64(b_begin), np.uint64(0), np.uint64(size)
    while i < end and a[x + i] == b[y + i]:
        i += np.uint64(1)
    return bool(i == end)


@kernel
def copy_bytes(source: UInt8s, begin: Whole, size: Whole, target: UInt8s, at: Whole) -> None:
    b, t = np.uint64(begin), np.uint64(at)
    for i in range(np.uint64(size)):
        target[t + i] = source[b + i]


@kernel
def count_bytes(texts: InternedTexts, begin: Whole, size: Whole, sign: Whole) -> None:
    """Adds the bytes of a string to the counts of the pages that have them (`sign` 1), or subtracts them (-1); lists pages that
    become empty."""
    bits, at, end = texts.state[PAGE_BITS], begin, begin + size
    while at < end:
        page = at >> bits
        stop = min(end, (page + 1) << bits)
        texts.page_bytes[page] += sign * (stop - at)
        if texts.page_bytes[page] == 0:
            texts.emptied[texts.state[EMPTIED]] = page
            texts.state[EMPTIED] += 1
        at = stop


@kernel
def append_bytes(texts: InternedTexts, source: UInt8s, begin: Whole, size: Whole) -> Whole:
    """Appends `size` bytes, for which `data` must have room. Returns the index of the first in `data`."""
    at = np.int64(texts.state[FILL])
    copy_bytes(source, begin, size, texts.data, at)
    count_bytes(texts, at, size, 1)
    texts.state[FILL] = at + size
    return at


@kernel
def new_code(texts: InternedTexts) -> Whole:
    state = texts.state
    state[LIVE] += 1
    if state[FREE] > 0:
        state[FREE] -= 1
        return np.int64(texts.free[state[FREE]])
    state[COUNT] += 1
    return np.int64(state[COUNT] - 1)


@kernel
def find_text(texts: InternedTexts, data: UInt8s, begin: Whole, size: Whole, h: np.uint64) -> np.uint64:
    """Returns the place of the entry of the code that has these bytes, or the empty place for such an entry."""
    place = first_place(texts.by_text, h)
    while True:
        place = likely_place(texts.by_text, h, place)
        code = slot_at(texts.by_text, place)
        if code < 0:
            return place
        if texts.places[code, SIZE] == size and same_bytes(texts.data, texts.places[code, BEGIN], data, begin, size):
            return place
        place = after_place(place)


@kernel
def intern_bytes(new_data: UInt8s, new_offsets: Int32s, first: Whole, texts: InternedTexts, codes: Int64s) -> Whole:
    """Writes the code, old or new, of each byte string `new_data[new_offsets[i]:new_offsets[i + 1]]` from number `first` on.
    Returns the end, or the number of the first string for which the index has no room. All other arrays must have room for all
    strings."""
    state = texts.state
    for i in range(first, len(new_offsets) - 1):
        begin = np.int64(new_offsets[i])
        size = np.int64(new_offsets[i + 1]) - begin
        h = xxh64(new_data, begin, begin + size)
        if not has_room(texts.by_text, h):
            return np.int64(i)
        place = find_text(texts, new_data, begin, size, h)
        code = slot_at(texts.by_text, place)
        if code < 0:
            code = new_code(texts)
            texts.places[code, BEGIN] = append_bytes(texts, new_data, begin, size)
            texts.places[code, SIZE] = size
            texts.hashes[code] = h
            texts.marks[code] = state[ROUND]
            state[BYTES] += size
            enter(texts.by_text, place, entry_of(h, code))
        elif state[IS_MARKING] == 1:
            texts.marks[code] = state[ROUND]
        codes[i] = code
    return np.int64(len(new_offsets) - 1)


@kernel
def hash_bytes(data: UInt8s, offsets: Int32s, hashes: UInt64s) -> None:
    """Writes XXH64 of each of the byte strings `data[offsets[i]:offsets[i + 1]]`."""
    for i in range(len(hashes)):
        hashes[i] = xxh64(data, np.int64(offsets[i]), np.int64(offsets[i + 1]))


@kernel
def gather_bytes(data: UInt8s, places: Int64s, out_data: UInt8s, out_offsets: Int64s | Int32s) -> None:
    """Copies the byte strings at `places` to `out_data`, one after another. String i ends at `out_offsets[i + 1]`. Strings that are
    adjacent in `data` are copied together.
    """
    at = np.int64(0)
    out_offsets[0] = 0
    i = 0
    while i < len(places):
        begin = places[i, BEGIN]
        end = begin
        while i < len(places) and places[i, BEGIN] == end:
            end += places[i, SIZE]
            i += 1
            out_offsets[i] = at + end - begin
        copy_bytes(data, begin, end - begin, out_data, at)
        at += end - begin


@kernel
def free_run(page_bytes: Int64s, kept: Int64s, need: Whole, most: Whole) -> tuple[Whole, Whole]:
    """Returns the first consecutive pages without strings and with `kept` 0 as (number of the first, count): at least `need` and at
    most `most`; fewer than `need` if it finds none."""
    begin, end = np.int64(0), np.int64(0)
    while end < len(page_bytes) and end - begin < most:
        if page_bytes[end] != 0 or kept[end] != 0:
            if end - begin >= need:
                break
            begin = end + 1
        end += 1
    return begin, end - begin
