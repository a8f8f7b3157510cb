"""The string table: strings and blobs become int64 codes at the engine's door, so that kernels see numbers only.

A code is a name for a byte string inside one process. Codes are never part of a snapshot, a digest or an output: pages are
written with the strings that they use, digests take `hashes`. So it does not matter in which order strings were met, and
`compact` may forget unused ones between any two batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.engine.kernels.interning import fill_slots, gather_bytes, hash_bytes, intern_bytes
from hotspare.engine.rows.chunk import Bools, Int64s, UInt8s
from hotspare.engine.state.memory import with_room

COMPACT_CODES_MIN = 65_536
COMPACT_BYTES_MIN = 64 << 20
"""Below so many codes, and so many bytes, a table is not worth compacting."""
FILLED_AT_ONCE = 1 << 14
"""So many codes are entered into a larger table of slots in one step, or four times as many as there are new ones."""


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Byte strings by number; number 0 stands for null and is empty. `offsets` has one entry more than there are strings."""

    data: UInt8s
    offsets: Int64s

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def subset(self, codes: Int64s) -> Dictionary:
        """The strings of `codes`, in that order."""
        sizes = self.offsets[codes + 1] - self.offsets[codes]
        data = np.empty(int(sizes.sum()), np.uint8)
        offsets = np.empty(len(codes) + 1, np.int64)
        gather_bytes(self.data, self.offsets, codes, data, offsets)
        return Dictionary(data, offsets)


class StringTable:
    """Byte strings by code. Codes start at 1; an invalid lane holds 0."""

    def __init__(self) -> None:
        self.count = 1
        self.longest = 0
        """No string ever had more bytes."""
        self._live_codes = self._live_bytes = 0
        self._data: UInt8s = np.empty(1024, np.uint8)
        self._offsets: Int64s = np.zeros(65, np.int64)
        self._hashes: npt.NDArray[np.uint64] = np.zeros(64, np.uint64)
        self._slots: Int64s = np.zeros(256, np.int64)
        self._larger: Int64s | None = None
        """The next table of slots, while it is filled: codes before `_filled` are in it."""
        self._filled = 1

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """XXH64 of each code's bytes; 0 for code 0."""
        return self._hashes[: self.count]

    def intern(self, array: pa.Array) -> tuple[Int64s, Bools]:
        """Codes and validity of an Arrow string or binary array; the code of null is 0."""
        if _repeats_little(array):
            if array.null_count == 0:
                return self.intern_bytes(*_bytes_of(array)), np.ones(len(array), np.bool_)
            valid, codes = array.is_valid().to_numpy(zero_copy_only=False), np.zeros(len(array), np.int64)
            codes[valid] = self.intern_bytes(*_bytes_of(array.drop_null()))  # bytes behind a null are no text
            return codes, valid
        encoded = array.dictionary_encode()
        unique = self.intern_bytes(*_bytes_of(encoded.dictionary))
        if encoded.indices.null_count == 0:
            return unique[encoded.indices.to_numpy()], np.ones(len(array), np.bool_)
        valid = encoded.indices.is_valid().to_numpy(zero_copy_only=False)
        indexes = encoded.indices.fill_null(0).to_numpy()
        codes = unique[indexes] if len(unique) else np.zeros(len(array), np.int64)
        codes[~valid] = 0
        return codes, valid

    def sizes(self, codes: Int64s) -> Int64s:
        """Bytes of each code's string."""
        sizes: Int64s = self._offsets[codes + 1] - self._offsets[codes]
        return sizes

    def intern_bytes(self, data: UInt8s, offsets: npt.NDArray[np.int32]) -> Int64s:
        """Codes of the byte strings `data[offsets[i]:offsets[i + 1]]`."""
        self.longest = max(self.longest, int(np.diff(offsets).max(initial=0)))
        self._reserve(len(offsets) - 1, int(offsets[-1]) - int(offsets[0]))
        codes = np.empty(len(offsets) - 1, np.int64)
        self.count = intern_bytes(data, offsets, self._data, self._offsets, self._hashes, self._slots, self.count, codes)
        return codes

    def intern_dictionary(self, dictionary: Dictionary) -> Int64s:
        """Codes of a dictionary's strings by their number; number 0 gets code 0."""
        codes = np.zeros(len(dictionary), np.int64)
        step = 1 << 16  # keeps the offsets of one piece within int32 for strings of up to 32 KiB on average
        for begin in range(1, len(dictionary), step):
            end = min(begin + step, len(dictionary))
            first, last = int(dictionary.offsets[begin]), int(dictionary.offsets[end])
            offsets = (dictionary.offsets[begin : end + 1] - first).astype(np.int32)
            codes[begin:end] = self.intern_bytes(dictionary.data[first:last], offsets)
        return codes

    def arrow(self, codes: Int64s, valid: Bools, type_: pa.DataType) -> pa.Array:
        """The strings (type_ string) or blobs (type_ binary) of `codes`, null where not valid."""
        size = int(self.sizes(codes).sum())
        if size >= 1 << 31:
            raise pa.ArrowInvalid(f"texts of {size} bytes are more than an Arrow array can hold")
        data, offsets = np.empty(size, np.uint8), np.empty(len(codes) + 1, np.int32)
        gather_bytes(self._data, self._offsets, codes, data, offsets)
        mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(type_, len(codes), [mask, pa.py_buffer(offsets), pa.py_buffer(data)])

    def dictionary(self) -> Dictionary:
        """Everything known now. Stays as it is while the table goes on."""
        return Dictionary(self._data[: self.bytes], self._offsets[: self.count + 1])

    def __getstate__(self) -> dict[str, Any]:
        """Without room to grow, which may be all address space."""
        whole = self.dictionary()
        return self.__dict__ | {"_data": whole.data, "_offsets": whole.offsets, "_hashes": self.hashes}

    def wants_compaction(self) -> bool:
        """Whether forgetting unused strings is likely to halve the table, by what was in use when that was done last."""
        is_long = self.count > max(COMPACT_CODES_MIN, 2 * self._live_codes)
        return is_long or self.bytes > max(COMPACT_BYTES_MIN, 2 * self._live_bytes)

    @property
    def bytes(self) -> int:
        """Of all strings together."""
        return int(self._offsets[self.count])

    def compact(self, used: Bools) -> Int64s:
        """Forget every code that is not `used`; return the new code of each old one (0 for those forgotten)."""
        kept = np.flatnonzero(used[1 : self.count]) + 1
        codes = np.zeros(self.count, np.int64)
        codes[kept] = np.arange(1, len(kept) + 1)
        old = Dictionary(self._data, self._offsets[: self.count + 1])
        subset = old.subset(np.concatenate([np.zeros(1, np.int64), kept]))
        hashes = self._hashes[kept]
        self.count = len(kept) + 1
        self._live_codes = self.count
        self._data = subset.data
        self._offsets = subset.offsets
        self._live_bytes = self.bytes
        self._hashes = np.concatenate([np.zeros(1, np.uint64), hashes])
        self._rebuild_slots()
        return codes

    def _reserve(self, strings: int, size: int) -> None:
        need = self.count + strings
        self._hashes = with_room(self._hashes, self.count, need)
        self._offsets = with_room(self._offsets, self.count + 1, need + 1)
        used = int(self._offsets[self.count])
        self._data = with_room(self._data, used, used + size)
        if 2 * need > len(self._slots):
            self._grow_slots(need, strings)

    def _grow_slots(self, need: int, strings: int) -> None:
        """Fill a larger table, some codes at a time: enough to be done before the one in use is three quarters full."""
        if self._larger is None or 2 * need > len(self._larger):
            self._larger, self._filled = np.zeros(_slots_for(need), np.int64), 1
        is_too_full = 4 * need > 3 * len(self._slots)
        end = self.count if is_too_full else min(self.count, self._filled + max(FILLED_AT_ONCE, 4 * strings))
        fill_slots(self._hashes, self._filled, end, self._larger)
        self._filled = end
        if end == self.count:
            self._slots, self._larger = self._larger, None

    def _rebuild_slots(self) -> None:
        self._slots, self._larger = np.zeros(_slots_for(self.count), np.int64), None
        fill_slots(self._hashes, 1, self.count, self._slots)


def _slots_for(codes: int) -> int:
    """Of a table that is a quarter full with so many codes, or less."""
    return max(256, 1 << (4 * codes - 1).bit_length())


def _repeats_little(array: pa.Array) -> bool:
    """Whether a table of what is in the array would not save looking for each text by itself; the first texts tell."""
    some = array.slice(0, _LOOKED_AT)
    return len(array) <= _LOOKED_AT or 2 * len(some.unique()) > len(some)


_LOOKED_AT = 64


def text_hashes(array: pa.Array) -> npt.NDArray[np.uint64]:
    """What `StringTable.hashes` would hold for each of these strings, none of which is null: for texts that no kernel reads."""
    data, offsets = _bytes_of(array)
    hashes = np.empty(len(array), np.uint64)
    hash_bytes(data, offsets, hashes)
    return hashes


def _bytes_of(array: pa.Array) -> tuple[UInt8s, npt.NDArray[np.int32]]:
    """The bytes of a string or binary array, and where each value begins and the last one ends; not to be written to."""
    _, offsets_buffer, data_buffer = array.buffers()
    data, offsets = np.empty(0, np.uint8), np.zeros(1, np.int32)
    if len(array):
        offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + len(array) + 1]
        data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else data
    data.flags.writeable = offsets.flags.writeable = False  # kernels are compiled for one kind
    return data, offsets
