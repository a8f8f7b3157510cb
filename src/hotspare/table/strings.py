"""The string table: strings and blobs become int64 codes when they enter the engine, so that kernels see numbers only.

A code names a byte string inside one process. Codes are never part of a snapshot, a digest or an output: pages are written with the
strings that they use, digests take `hashes`. So the order of new strings does not matter, nor the time at which a code is reused
for another string. `TextCollector` frees a code once no row holds it.

A snapshot shares the table: it reads codes that were in use when it was taken. So these codes, and pages of text that are freed
meanwhile, are retained until the snapshot is released.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.rows import tuning
from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.table.loops import interning as k
from hotspare.table.loops import text_collection
from hotspare.table.loops.index import SEGMENTS
from hotspare.table.loops.interning import gather_bytes, hash_bytes
from hotspare.table.memory import PINNED_MEMORY, EvictableSpace, WindowMemory, with_room
from hotspare.table.pinned_texts import PinnedTexts, TextPlaces
from hotspare.table.row_index import empty_index, grown_index, index_bytes, likely_slots, slots_in
from hotspare.table.text_pages import TextPages

_CODE_BYTES = 25
"""Memory of each code in addition to index and text: place, hash and mark."""
_REUSE_FACTOR = 4
"""After a snapshot is released, the codes and pages retained for it are freed this many times as fast as they were retained."""
_PINNED_LOAD_BYTES = 4 << 20
"""The bytes of evicted texts that are moved back into memory at a time, because they are pinned."""
_PIECE = 1 << 16
"""The count of strings interned at a time: keeps offsets within int32 for strings of up to 32 KiB on average."""
_ROUND_FACTOR_IF_SHORT = 1.25
"""If memory is short, a collection round begins at this many times the codes or bytes that the previous round left."""


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Byte strings by number; number 0 is for null and empty. String i is `data[offsets[i]:offsets[i + 1]]`."""

    data: UInt8s
    offsets: Int64s

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def frozen(self) -> FrozenStrings:
        """Returns the same strings, with these numbers as codes."""
        places = np.empty((len(self), 2), np.int64)
        places[:, k.BEGIN], places[:, k.SIZE] = self.offsets[:-1], np.diff(self.offsets)
        data, offsets, hashes = self.data.view(), self.offsets[1:].astype(np.int32), np.zeros(len(self), np.uint64)
        data.flags.writeable = offsets.flags.writeable = False  # kernels are compiled for one kind
        hash_bytes(data, offsets, hashes[1:])
        return FrozenStrings(self.data, places, hashes)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class FrozenStrings:
    """The strings of the codes that were in use when the snapshot was taken. `places` int64[., 2]: BEGIN and SIZE of each code's
    bytes in `data`; `hashes`: as `StringTable.hashes`.

    Strings may be moved later, but the bytes at a place that was read stay there as long as this object lives.
    """

    data: UInt8s
    places: Int64s
    hashes: npt.NDArray[np.uint64]
    evictable_data: EvictableSpace | None = None
    """The space of `data`, if parts of it may be evicted."""

    def subset(self, codes: Int64s) -> Dictionary:
        """Returns the strings of `codes`, in that order."""
        places = self.places[codes]
        if self.evictable_data is not None:
            read = places[places[:, k.SIZE] > 0]
            self.evictable_data.read_many_ranges_ahead(read[:, k.BEGIN], read.sum(axis=1))
        data, offsets = np.empty(int(places[:, k.SIZE].sum()), np.uint8), np.empty(len(codes) + 1, np.int64)
        gather_bytes(self.data, places, data, offsets)
        return Dictionary(data, offsets)


@dataclass(frozen=True, slots=True)
class _FreedLater:
    """Codes and pages that were freed after `snapshots` snapshots had been taken; they are reused once none of these snapshots
    needs them."""

    snapshots: int
    codes: Int64s
    pages: Int64s


class StringTable:
    """Byte strings by code. Codes start at 1; an invalid lane holds 0."""

    def __init__(self) -> None:
        self.longest = 0
        """The most bytes that a string ever had."""
        self._tuning = tuning.current()
        state, page_bytes = np.zeros(k.STATE_WIDTH, np.int64), 1 << self._tuning.text_page_bits
        state[[k.COUNT, k.END, k.PAGE_BITS, k.ROUND]] = 1, page_bytes, self._tuning.text_page_bits, 1
        self._pages = TextPages(self._tuning)
        self._texts = k.InternedTexts(
            by_text=empty_index(),
            places=np.zeros((64, 2), np.int64),
            hashes=np.zeros(64, np.uint64),
            marks=np.zeros(64, np.uint8),
            free=np.empty(0, np.int64),
            data=np.empty(page_bytes, np.uint8),
            page_bytes=np.zeros(1, np.int64),
            emptied=np.zeros(1, np.int64),
            state=state,
        )
        self._snapshots: list[tuple[int, weakref.ref[FrozenStrings]]] = []
        self._taken = 0
        """The count of snapshots ever taken."""
        self._kept: deque[_FreedLater] = deque()
        self._freed = 0
        self._home = PINNED_MEMORY
        self.staying = PinnedTexts()
        self._straying = TextPlaces.from_codes(self._texts, np.empty(0, np.int64))
        """Pinned texts in pages that may be evicted."""
        self._is_known = True
        """Whether `_straying` is current: False after strings may have been written."""

    def set_window_memory(self, home: WindowMemory) -> None:
        """Sets the memory in which strings live; called before the first string."""
        self._home, self._pages = home, TextPages(self._tuning, home)
        home.register_tenant(self)

    @property
    def can_evict_strings(self) -> bool:
        """Whether strings can be evicted at all."""
        return self._home is not PINNED_MEMORY

    @property
    def pinned_bytes(self) -> int:
        """Bytes that can never be evicted: codes, their index, and pinned texts."""
        codes = self.count * _CODE_BYTES + 8 * int(self._texts.state[k.FREE])
        return codes + index_bytes(self._texts.by_text) + self._pages.pinned_bytes(self._texts)

    @property
    def evictable_bytes(self) -> int:
        return self._pages.evictable_bytes(self._texts)

    @property
    def has_evicted(self) -> bool:
        """Whether some strings are evicted, because memory is short."""
        return self._pages.away > 0

    def date_writes(self, now: int) -> None:
        self._pages.date_writes(self._texts, now)
        if self.staying.are_any and self._pages.leaving is not None:
            self._is_known = False

    def coldest(self) -> tuple[int, int] | None:
        if not self._is_known:
            self._find_pinned_texts()
        return self._pages.coldest(self._texts)

    def evict_coldest(self, size: int) -> int:
        if len(self._straying.codes):
            self._move_pinned_texts(self._pages.next_evicted(self._texts, size))
        return self._pages.evict_coldest(self._texts, size)

    def _find_pinned_texts(self) -> None:
        """Finds the pinned texts that are in evictable pages, and moves evicted ones back into memory, about `_PINNED_LOAD_BYTES`
        at a time."""
        self._straying, self._is_known = self._pages.pin_pages_of(self._texts, self.staying.find_pinned(self._texts)), True
        if self.has_evicted:
            self._move_pinned_texts(self._pages.is_page_evicted.copy(), _PINNED_LOAD_BYTES)

    def _move_pinned_texts(self, pages: Bools, bytes_max: int = 1 << 62) -> None:
        """Moves pinned texts out of the flagged pages, to the place after the newest text: about `bytes_max` bytes."""
        is_there = pages[self._straying.first] | pages[self._straying.last]
        is_there &= np.cumsum(self._straying.sizes * is_there) - self._straying.sizes < bytes_max
        if not is_there.any():
            return
        going, self._straying = self._straying.select_texts(is_there), self._straying.select_texts(~is_there)
        self._texts = self._pages.with_room(self._texts, int(going.sizes.sum()))
        begin = int(self._texts.state[k.FILL])
        places = self._texts.places[going.codes]
        self._pages.prefetch_strings(self._texts, places)
        these = self._texts._replace(places=places, marks=np.ones(len(places), np.uint8))
        moved = np.empty((len(places), 2), np.int64)
        self._texts.state[k.MOVED] = 0
        text_collection.copy_sparse(these, pages.view(np.uint8), 0, len(places), 1 << 62, moved)
        moved = moved[: int(self._texts.state[k.MOVED])]
        moved[:, text_collection.MOVED_CODE] = going.codes[moved[:, text_collection.MOVED_CODE]]
        text_collection.redirect_moved(self._texts, moved)
        self._pages.pin_pages_from_byte(self._texts, begin)
        self._defer_free(np.empty(0, np.int64))

    @property
    def count(self) -> int:
        """The end of the range of codes: each code is below it."""
        return int(self._texts.state[k.COUNT])

    @property
    def live(self) -> int:
        """The count of codes in use."""
        return int(self._texts.state[k.LIVE])

    @property
    def codes_assigned(self) -> int:
        """The count of strings that ever got a code."""
        return self.live + self._freed

    @property
    def bytes(self) -> int:
        """Bytes of the strings of all codes in use."""
        return int(self._texts.state[k.BYTES])

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """XXH64 of each code's bytes; 0 for code 0."""
        return self._texts.hashes[: self.count]

    @property
    def texts(self) -> tuple[Int64s, UInt8s]:
        """The arrays for kernels, valid until the next call of a method: (begin, size) of each code's bytes, int64[., 2]; and the
        bytes."""
        return self._texts.places, self._texts.data

    def intern(self, array: pa.Array) -> tuple[Int64s, Bools]:
        """Returns codes and validity of an Arrow string or binary array; the code of null is 0."""
        if _repeats_little(array):
            if array.null_count == 0:
                return self.intern_bytes(*_bytes_of(array)), np.ones(len(array), np.bool_)
            valid, codes = array.is_valid().to_numpy(zero_copy_only=False), np.zeros(len(array), np.int64)
            codes[valid] = self.intern_bytes(*_bytes_of(array.drop_null()))  # bytes behind a null are not text
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
        """Returns the byte length of each code's string."""
        sizes: Int64s = self._texts.places[codes, k.SIZE]
        return sizes

    def intern_bytes(self, data: UInt8s, offsets: npt.NDArray[np.int32]) -> Int64s:
        """Returns the codes of the byte strings `data[offsets[i]:offsets[i + 1]]`; new strings get new codes."""
        self.longest = max(self.longest, int(np.diff(offsets).max(initial=0)))
        count, at = len(offsets) - 1, 0
        self._prefetch_compared(data, offsets)
        self._reserve(count, int(offsets[-1]) - int(offsets[0]))
        codes = np.empty(count, np.int64)
        while (at := int(k.intern_bytes(data, offsets, at, self._texts, codes))) < count:
            self._texts = self._texts._replace(by_text=grown_index(self._texts.by_text))
        return codes

    def _prefetch_compared(self, data: UInt8s, offsets: npt.NDArray[np.int32]) -> None:
        """Prefetches, together, evicted strings with which the new ones are compared."""
        if self.has_evicted:
            hashes = np.empty(len(offsets) - 1, np.uint64)
            data, offsets = data.view(), offsets.view()
            data.flags.writeable = offsets.flags.writeable = False  # kernels are compiled for one kind
            hash_bytes(data, offsets, hashes)
            codes = likely_slots(self._texts.by_text, hashes)
            self._pages.prefetch_strings(self._texts, self._texts.places[codes[codes >= 0]])

    def intern_dictionary(self, dictionary: Dictionary) -> Int64s:
        """Returns the codes of a dictionary's strings by their number; number 0 gets code 0."""
        codes = np.zeros(len(dictionary), np.int64)
        for begin in range(1, len(dictionary), _PIECE):
            end = min(begin + _PIECE, len(dictionary))
            first, last = int(dictionary.offsets[begin]), int(dictionary.offsets[end])
            offsets = (dictionary.offsets[begin : end + 1] - first).astype(np.int32)
            codes[begin:end] = self.intern_bytes(dictionary.data[first:last], offsets)
        return codes

    def arrow(self, codes: Int64s, valid: Bools, type_: pa.DataType) -> pa.Array:
        """Returns the strings (type_ string) or blobs (type_ binary) of `codes`, null if not valid. Raises ArrowInvalid if they
        have 2 GiB or more.
        """
        places = self._texts.places[codes]
        self._pages.prefetch_strings(self._texts, places)
        size = int(places[:, k.SIZE].sum())
        if size >= 1 << 31:
            raise pa.ArrowInvalid(f"texts of {size} bytes are more than an Arrow array can hold")
        data, offsets = np.empty(size, np.uint8), np.empty(len(codes) + 1, np.int32)
        gather_bytes(self._texts.data, places, data, offsets)
        mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(type_, len(codes), [mask, pa.py_buffer(offsets), pa.py_buffer(data)])

    def pin_codes(self, codes: Int64s) -> None:
        """Pins the texts of these codes, which a restore gave to rows; does nothing if strings are never evicted."""
        if self.can_evict_strings:
            self.staying.pin_codes(codes, self.count)

    def freeze(self) -> FrozenStrings:
        """Returns the current strings, readable while the table changes."""
        twin = FrozenStrings(self._texts.data, self._texts.places, self._texts.hashes, self._pages.leaving)
        self._taken += 1
        self._snapshots = [*self._alive(), (self._taken, weakref.ref(twin))]
        return twin

    def __reduce__(self) -> tuple[Callable[..., StringTable], tuple[object, ...]]:
        """Pickles and copies strings with their codes, without the room to grow, which may be large.

        A collection round frees a code some time after it removes the code's string from the index. Such codes are free in the
        copy, because their strings may already have another code.
        """
        codes = slots_in(self._texts.by_text)
        whole = FrozenStrings(self._texts.data, self._texts.places, self._texts.hashes).subset(np.append(0, codes))
        return _received, (self._home, self.count, codes, whole, self.longest)

    def begin_round(self) -> None:
        """Begins a collection round. From now on a code is held if it is new, if it is looked up, or if the collector sets its mark
        to `round`."""
        self._texts.state[k.ROUND] = 3 - self.round
        self._texts.state[k.IS_MARKING] = 1
        self.staying.begin_round()

    @property
    def round(self) -> int:
        """The number of the collection round, 1 or 2: the mark of held codes."""
        return int(self._texts.state[k.ROUND])

    @property
    def marks(self) -> UInt8s:
        """The mark of each code: uint8[.]."""
        return self._texts.marks

    def purge(self, first: int, looks: int) -> tuple[int, int]:
        """Removes strings that are not held from the index, from segment `first` on, as far as the budget of `looks` allows.
        Returns the next segment, or -1 after the last one, and the looks left."""
        left = int(self._texts.by_text.sizes[SEGMENTS]) - first
        segments = min(left, looks // text_collection.SEGMENT_LOOKS + 1)
        return int(text_collection.purge(self._texts, first, segments)), looks - segments * text_collection.SEGMENT_LOOKS

    def free_unmarked(self, first: int, looks: int) -> int:
        """Frees codes from `first` on that are neither held nor in the index, as far as the budget of `looks` allows. Returns the
        next code to check."""
        freed = np.empty(looks // text_collection.FREED_LOOKS + 2, np.int64)
        self._texts.state[k.FREED] = 0
        at = int(text_collection.free_unmarked(self._texts, first, self.count, looks, freed))
        count = int(self._texts.state[k.FREED])
        self._freed += count
        self._defer_free(freed[:count].copy())
        return at

    def end_round(self) -> None:
        """Ends the collection round; called after all codes that are not held were freed."""
        self._texts.state[k.IS_MARKING] = 0
        self.staying.end_round(self.count)

    def sparse_pages(self) -> UInt8s:
        """Returns uint8[pages]: 1 if a page of text is less than half full."""
        return self._pages.sparse(self._texts)

    def move_text(self, is_sparse: UInt8s, first: int, looks: int) -> int:
        """Moves strings of codes from `first` on out of sparse pages, as far as the budget of `looks` allows. Returns the next code
        to check."""
        size = max(min(looks * text_collection.BYTES_A_LOOK, self.bytes), 1 << int(self._texts.state[k.PAGE_BITS]))
        self._texts = self._pages.with_room(self._texts, size)
        if self.has_evicted:
            places = self._texts.places[first : min(first + looks, self.count)]
            page = np.minimum(places[:, k.BEGIN] >> int(self._texts.state[k.PAGE_BITS]), len(is_sparse) - 1)
            places = places[is_sparse[page] == 1]
            self._pages.prefetch_strings(self._texts, places[np.cumsum(places[:, k.SIZE]) <= size])
        moved = np.empty((looks // text_collection.MOVED_LOOKS + 2, 2), np.int64)
        self._texts.state[k.MOVED] = 0
        at = int(text_collection.copy_sparse(self._texts, is_sparse, first, self.count, looks, moved))
        text_collection.redirect_moved(self._texts, moved)
        self._defer_free(np.empty(0, np.int64))
        return at

    def reuse_freed(self) -> None:
        """Frees some of the codes and pages that were retained for snapshots and that no snapshot needs any more."""
        self._pages.trim(self._texts)
        if not self._kept:
            return
        self._snapshots = self._alive()
        oldest = self._snapshots[0][0] if self._snapshots else self._taken + 1
        for _ in range(_REUSE_FACTOR):
            if not self._kept or self._kept[0].snapshots >= oldest:
                break
            kept = self._kept.popleft()
            self._pages.free_retained(self._texts, kept.pages)
            self._push_free(kept.codes)

    def _alive(self) -> list[tuple[int, weakref.ref[FrozenStrings]]]:
        return [(number, ref) for number, ref in self._snapshots if ref() is not None]

    def _defer_free(self, codes: Int64s) -> None:
        """Retains these codes, and the pages that the last kernel call emptied, until no snapshot needs them."""
        emptied = self._texts.emptied[: int(self._texts.state[k.EMPTIED])].copy()
        self._texts.state[k.EMPTIED] = 0
        if len(codes) or len(emptied):
            self._pages.retain_emptied(emptied)
            self._kept.append(_FreedLater(self._taken, codes, emptied))
        self.reuse_freed()

    def _push_free(self, codes: Int64s) -> None:
        used = int(self._texts.state[k.FREE])
        free = with_room(self._texts.free, used, used + len(codes))
        free[used : used + len(codes)] = codes[::-1]
        self._texts.state[k.FREE] = used + len(codes)
        self._texts = self._texts._replace(free=free)

    def _reserve(self, strings: int, size: int) -> None:
        count = self.count
        self._texts = texts = self._pages.with_room(self._texts, size)
        if count + strings > min(len(texts.places), len(texts.hashes), len(texts.marks)):
            self._texts = texts._replace(
                places=with_room(texts.places, count, count + strings),
                hashes=with_room(texts.hashes, count, count + strings),
                marks=with_room(texts.marks, count, count + strings),
            )


def _received(home: WindowMemory, count: int, codes: Int64s, strings: Dictionary, longest: int) -> StringTable:
    table = StringTable()
    table.set_window_memory(home)
    table._reserve(count, 0)
    table._texts.state[k.COUNT] = count
    table._push_free(codes)
    table.intern_dictionary(strings)
    table._push_free(np.setdiff1d(np.arange(1, count), codes))
    table.longest = longest
    return table


def _repeats_little(array: pa.Array) -> bool:
    """Whether each text is looked up directly, without a dictionary of the array: in an array of at most `_LOOKED_AT` texts, or if
    more than half of the first `_LOOKED_AT` differ."""
    some = array.slice(0, _LOOKED_AT)
    return len(array) <= _LOOKED_AT or 2 * len(some.unique()) > len(some)


_LOOKED_AT = 64


def text_hashes(array: pa.Array) -> npt.NDArray[np.uint64]:
    """Returns the hash of each of these non-null strings, as in `StringTable.hashes`, without interning them: for texts that no
    kernel reads."""
    data, offsets = _bytes_of(array)
    hashes = np.empty(len(array), np.uint64)
    hash_bytes(data, offsets, hashes)
    return hashes


def _bytes_of(array: pa.Array) -> tuple[UInt8s, npt.NDArray[np.int32]]:
    """Returns the bytes of a string or binary array and their offsets, one more than values; both read-only."""
    _, offsets_buffer, data_buffer = array.buffers()
    data, offsets = np.empty(0, np.uint8), np.zeros(1, np.int32)
    if len(array):
        offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + len(array) + 1]
        data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else data
    data.flags.writeable = offsets.flags.writeable = False  # kernels are compiled for one kind
    return data, offsets


@runtime_checkable
class HoldsCodes(Protocol):
    """A part of a page whose rows hold codes. Rows have positions, ascending as they are written; each is written once."""

    @property
    def codes_per_row(self) -> int: ...

    @property
    def write_position(self) -> int:
        """The position after the newest row."""

    def mark(self, marks: UInt8s, mark: int, since: int, rows: int) -> int:
        """Sets `marks` to `mark` for the codes of `rows` rows, or a few more, from position `since` on. Returns the position
        reached."""


class _Phase(Enum):
    REST = "rest"
    MARK = "mark"
    PURGE = "purge"
    FREE = "free"
    MOVE = "move"


class TextCollector:
    """Garbage-collects strings that no row holds, a little after each step: mark and sweep, in pieces of bounded size.

        rest ─► mark: codes in rows ─► purge: the index ─► free: codes without a mark ─► move: text out of sparse pages ─► rest

    - **Mark** reads the rows of each window in the order in which they were written. Written rows do not change, and new ones come
      last. So once the newest row of every window is marked, every code in a row is. Codes of text that arrives meanwhile, new or
      known, are marked at once.
    - **Purge** removes strings without a mark from the index. A string that arrives again before it is removed is marked and stays;
      a string that arrives later gets a new code.
    - **Free** goes through all codes and frees those without a mark. A code in use never changes, so rows, their indexes and
      pending work are left alone.
    - **Move** compacts pages of text that are less than half full and releases their memory.

    A round begins when codes in use, or the bytes of their strings, are twice as many as the previous round left, and more than
    `collect_codes_min` or `collect_bytes_min` of `Tuning`. If strings were evicted, a quarter more is enough. So strings that
    nothing holds are at most as many as held ones, or as those bounds, plus those that arrive during a round: for each new string,
    the collector checks `looks_per_string` codes. After a round, text takes at most twice the memory of the existing strings.

    The time of a round changes no result: codes are in no output, no digest and no snapshot.

    A copied or pickled collector is at rest: its next round finds what this one would have removed.
    """

    def __init__(self) -> None:
        self._tuning = tuning.current()
        self._phase = _Phase.REST
        self._marked: dict[str, tuple[int, int]] = {}
        """By part: the position up to which its rows are marked, and its write position at that time."""
        self._next = 0
        """The next segment of the index, or the next code, to check."""
        self._sparse: UInt8s = np.zeros(0, np.uint8)
        self._live_codes = self._live_bytes = 0
        """Codes and bytes in use when the last round ended."""
        self._given = 0
        """The count of strings that had ever got a code at the last call of `collect_some`."""

    @property
    def is_resting(self) -> bool:
        return self._phase is _Phase.REST

    def is_round_due(self, strings: StringTable) -> bool:
        """Whether a round is likely to halve the table, or to free a fifth of it if memory is short."""
        times = _ROUND_FACTOR_IF_SHORT if strings.has_evicted else 2
        codes_min, bytes_min = self._tuning.collect_codes_min, self._tuning.collect_bytes_min
        is_long = strings.live > max(codes_min, times * self._live_codes) or strings.staying.is_round_due(bytes_min)
        return is_long or strings.bytes > max(bytes_min, times * self._live_bytes)

    def collect_some(self, strings: StringTable, parts: Callable[[], Mapping[str, HoldsCodes]], rows: int) -> None:
        """Continues the current round, or begins one if it is due, after a step of `rows` rows. `parts` returns all parts that hold
        codes, always under the same names."""
        strings.reuse_freed()
        sizes = self._tuning
        looks = sizes.looks_min + sizes.looks_per_row * rows + sizes.looks_per_string * (strings.codes_assigned - self._given)
        self._given = strings.codes_assigned
        if self.is_resting:
            if not self.is_round_due(strings):
                return
            self.begin(strings)
        if self._phase is _Phase.MARK:
            looks = self._mark(strings, parts(), looks)
        if self._phase is _Phase.PURGE and looks > 0:
            looks = self._purge(strings, looks)
        if self._phase is _Phase.FREE and looks > 0:
            self._free(strings, looks)
        elif self._phase is _Phase.MOVE:
            self._move(strings, looks)

    def begin(self, strings: StringTable) -> None:
        """Begins a round, from rest."""
        strings.begin_round()
        self._phase, self._marked = _Phase.MARK, {}

    def finish(self, strings: StringTable, parts: Callable[[], Mapping[str, HoldsCodes]]) -> None:
        """Runs the current round to its end."""
        while not self.is_resting:
            self.collect_some(strings, parts, 0)

    def __reduce__(self) -> tuple[type[TextCollector], tuple[()]]:
        return TextCollector, ()

    def _mark(self, strings: StringTable, parts: Mapping[str, HoldsCodes], looks: int) -> int:
        """Marks the codes of rows and returns the looks left. Rows written since the last call cost no looks, so marking ends
        however many rows are written."""
        is_done = True
        for name, part in parts.items():
            position, written_before = self._marked.get(name, (0, part.write_position))
            written, width = part.write_position, part.codes_per_row
            if width and position < written:
                extra = written - written_before
                rows = extra + max(0, looks) // width
                reached = part.mark(strings.marks, strings.round, position, rows)
                if name in strings.staying:
                    part.mark(strings.staying.marks, strings.staying.round, position, rows)
                looks -= max(0, reached - position - extra) * width
                position = reached
            self._marked[name] = position, written
            is_done = is_done and (not width or position == written)
        if is_done:
            self._phase, self._next = _Phase.PURGE, 0
        return looks

    def _purge(self, strings: StringTable, looks: int) -> int:
        """Removes strings without a mark from the index, and returns the looks left."""
        self._next, looks = strings.purge(self._next, looks)
        if self._next < 0:
            self._phase, self._next = _Phase.FREE, 1
        return looks

    def _free(self, strings: StringTable, looks: int) -> None:
        self._next = strings.free_unmarked(self._next, looks)
        if self._next < strings.count:
            return
        strings.end_round()
        self._live_codes, self._live_bytes = strings.live, strings.bytes
        self._sparse, self._next = strings.sparse_pages(), 1
        self._phase = _Phase.MOVE if self._sparse.any() else _Phase.REST

    def _move(self, strings: StringTable, looks: int) -> None:
        self._next = strings.move_text(self._sparse, self._next, looks)
        if self._next >= strings.count:
            self._phase, self._sparse = _Phase.REST, np.zeros(0, np.uint8)
