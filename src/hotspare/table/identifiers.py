"""GUID-shaped texts that are the same in every engine: derived from a window's name and a number, not from a random generator."""

from __future__ import annotations

import numpy as np
import xxhash

from hotspare.rows.chunk import Int64s
from hotspare.table.loops.columns import identifier_texts
from hotspare.table.strings import StringTable

IDENTIFIER_LENGTH = 36


def seed_of(name: str) -> np.uint64:
    """Returns the seed that makes the texts of one window differ from those of other windows."""
    return np.uint64(xxhash.xxh3_64_intdigest(name.encode()))


def identifiers(seed: np.uint64, numbers: Int64s, strings: StringTable) -> Int64s:
    """Returns the string-table codes of the texts for `numbers`."""
    text = np.empty(len(numbers) * IDENTIFIER_LENGTH, np.uint8)
    identifier_texts(seed, numbers, text)
    return strings.intern_bytes(text, np.arange(0, len(text) + 1, IDENTIFIER_LENGTH, dtype=np.int32))
