"""64-bit hashes: of bytes (XXH64 with seed 0), and the mixing of numbers that digests and indexes are built on."""

from __future__ import annotations

import numpy as np

from hotspare.rows.chunk import UInt8s
from hotspare.rows.compile import Whole, kernel

_P1 = np.uint64(11400714785074694791)
_P2 = np.uint64(14029467366897019727)
_P3 = np.uint64(1609587929392839161)
_P4 = np.uint64(9650029242287828579)
_P5 = np.uint64(2870177450012600261)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)


@kernel
def mix(x: np.uint64) -> np.uint64:
    """Returns a hash of a 64-bit number: a permutation in which each bit of the input affects all bits of the result (splitmix64's
    finaliser)."""
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))


@kernel
def rotate(x: np.uint64, bits: int) -> np.uint64:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@kernel
def word4(data: UInt8s, at: Whole) -> np.uint64:
    """Returns the 4 bytes from `at` on as a little-endian number. They are combined one by one, with an index that is never
    negative, because compilers turn exactly this into one load.
    """
    i = np.uint64(at)
    low = np.uint64(data[i]) | (np.uint64(data[i + np.uint64(1)]) << np.uint64(8))
    high = np.uint64(data[i + np.uint64(2)]) | (np.uint64(data[i + np.uint64(3)]) << np.uint64(8))
    return low | (high << np.uint64(16))


@kernel
def word8(data: UInt8s, at: Whole) -> np.uint64:
    return word4(data, at) | (word4(data, at + 4) << np.uint64(32))


@kernel
def xxh64_round(lane: np.uint64, value: np.uint64) -> np.uint64:
    return rotate(lane + value * _P2, 31) * _P1


@kernel
def xxh64_tail(h: np.uint64, data: UInt8s, at: Whole, end: Whole) -> np.uint64:
    """Returns the hash `h` with the last 0 to 31 bytes, `data[at:end]`, mixed in, after the final avalanche."""
    while at + 8 <= end:
        h = rotate(h ^ xxh64_round(np.uint64(0), word8(data, at)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= end:
        h = rotate(h ^ (word4(data, at) * _P1), 23) * _P2 + _P3
        at += 4
    while at < end:
        h = rotate(h ^ (np.uint64(data[np.uint64(at)]) * _P5), 11) * _P1
        at += 1
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


@kernel
def xxh64(data: UInt8s, begin: Whole, end: Whole) -> np.uint64:
    """Returns XXH64 of `data[begin:end]`."""
    size = np.uint64(end - begin)
    if end - begin < 32:
        return xxh64_tail(_P5 + size, data, begin, end)
    a = _P1 + _P2
    b = _P2
    c = np.uint64(0)
    d = np.uint64(0) - _P1
    at = begin
    while at + 32 <= end:
        a = xxh64_round(a, word8(data, at))
        b = xxh64_round(b, word8(data, at + 8))
        c = xxh64_round(c, word8(data, at + 16))
        d = xxh64_round(d, word8(data, at + 24))
        at += 32
    h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18)
    h = (h ^ xxh64_round(np.uint64(0), a)) * _P1 + _P4
    h = (h ^ xxh64_round(np.uint64(0), b)) * _P1 + _P4
    h = (h ^ xxh64_round(np.uint64(0), c)) * _P1 + _P4
    h = (h ^ xxh64_round(np.uint64(0), d)) * _P1 + _P4
    return xxh64_tail(h + size, data, at, end)
