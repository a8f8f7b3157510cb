"""Loops of the string table: byte strings to codes and back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hotspare.engine.kernels import Whole, kernel
from hotspare.engine.kernels.hashing import xxh64
from hotspare.engine.rows.chunk import Bools, Int64s, UInt8s

UInt64s = npt.NDArray[np.uint64]
Int32s = npt.NDArray[np.int32]


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
def intern_bytes(
    new_data: UInt8s, new_offsets: Int32s, data: UInt8s, offsets: Int64s, hashes: UInt64s, slots: Int64s, count: int, codes: Int64s
) -> int:
    """Give each of the new byte strings its code, adding the unknown ones at the end; return the new count.

    `slots` is an open-addressing table of codes, 0 where empty, its length a power of two; all arrays have room.
    """
    mask = np.uint64(len(slots) - 1)
    for i in range(len(new_offsets) - 1):
        begin = np.int64(new_offsets[i])
        size = np.int64(new_offsets[i + 1]) - begin
        h = xxh64(new_data, begin, begin + size)
        slot = np.int64(h & mask)
        while True:
            code = slots[slot]
            if code == 0:
                code = count
                at = offsets[count]
                copy_bytes(new_data, begin, size, data, at)
                offsets[count + 1] = at + size
                hashes[count] = h
                slots[slot] = count
                count += 1
                break
            known = offsets[code]
            same_size = offsets[code + 1] - known == size
            if hashes[code] == h and same_size and same_bytes(data, known, new_data, begin, size):
                break
            slot = (slot + 1) & np.int64(mask)
        codes[i] = code
    return count


@kernel
def hash_bytes(data: UInt8s, offsets: Int32s, hashes: UInt64s) -> None:
    """XXH64 of each of the byte strings `data[offsets[i]:offsets[i + 1]]`."""
    for i in range(len(hashes)):
        hashes[i] = xxh64(data, np.int64(offsets[i]), np.int64(offsets[i + 1]))


@kernel
def fill_slots(hashes: UInt64s, begin: int, end: int, slots: Int64s) -> None:
    """Enter codes from `begin` to before `end`, which are not in the table."""
    mask = np.uint64(len(slots) - 1)
    for code in range(begin, end):
        slot = np.int64(hashes[code] & mask)
        while slots[slot] != 0:
            slot = (slot + 1) & np.int64(mask)
        slots[slot] = code


@kernel
def mark_codes(codes: Int64s, used: Bools) -> None:
    for i in range(len(codes)):
        used[codes[i]] = True


@kernel
def gather_bytes(data: UInt8s, offsets: Int64s, codes: Int64s, out_data: UInt8s, out_offsets: Int64s | Int32s) -> None:
    """Copy the byte strings of `codes`, one after another; `out_offsets` has one more entry than `codes`. Those of codes that
    follow each other stand together, and are copied together."""
    at = np.int64(0)
    out_offsets[0] = 0
    i = 0
    while i < len(codes):
        first = codes[i]
        begin, next_code = offsets[first], first
        while i < len(codes) and codes[i] == next_code:
            next_code += 1
            i += 1
            out_offsets[i] = at + offsets[next_code] - begin
        size = offsets[next_code] - begin
        copy_bytes(data, begin, size, out_data, at)
        at += size
