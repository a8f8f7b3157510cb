"""The memory of strings: bytes in pages, filled one after the other; a page without strings is free and may be filled again.

Bytes are never overwritten while a snapshot may read them: an emptied page is retained until no snapshot needs it
(`retain_emptied`, `free_retained`). Little text is in an ordinary array, which is copied to grow; a larger array has all the
address space that it may need (`memory`). The first free pages are filled next, and the memory of the others is released.

If text may be evicted, full pages are, oldest first: their content does not change. An evicted page that was emptied frees its room
in the page file at once; it is ordinary memory again before it is filled.
"""

from __future__ import annotations

import mmap

import numpy as np

from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.rows.runs import runs
from hotspare.rows.tuning import Tuning
from hotspare.table.loops.interning import BEGIN, COUNT, END, FILL, PAGE_BITS, SIZE, InternedTexts, free_run
from hotspare.table.memory import PINNED_MEMORY, EvictableSpace, Space, WindowMemory, largest_granted, longer, with_room
from hotspare.table.pinned_texts import TextPlaces

FREE_PAGES_MIN, GIVEN_PAGES_MAX = 1 << 8, 1 << 8
"""The count of free pages that keep their memory (16 MiB), and the most whose memory is released at a time."""
_PAGE_BYTES = 27
"""Bytes of bookkeeping per page."""


class TextPages:
    """The address space of texts, and the state of its pages. `InternedTexts` has the arrays; methods that replace arrays return a
    new one."""

    def __init__(self, tuning: Tuning, home: WindowMemory = PINNED_MEMORY) -> None:
        self._tuning = tuning
        self._home = home
        self._space: Space | EvictableSpace | None = None
        self.leaving: EvictableSpace | None = None
        """The same space as `_space` if parts of it may be evicted, else None."""
        self.away = 0
        """The count of evicted pages, including pages that were emptied since, until they are filled again."""
        self._is_away: Bools = np.zeros(1, np.bool_)
        self._stays: Bools = np.zeros(1, np.bool_)
        """Which pages must not be evicted."""
        self._born: Int64s = np.zeros(1, np.int64)
        """The time at which a page was filled, by the last `date_writes`."""
        self._now = 0
        self._kept: Int64s = np.zeros(1, np.int64)
        """By page: how many times it was retained after it was emptied, and not freed since."""
        self._touched: Bools = np.ones(1, np.bool_)
        """Whether a page has memory."""
        self._filling = 0
        """The page being filled at the last `_record_filled`."""
        self._high = 1
        """The first page that was never filled."""
        self._gave = False
        """Whether there may be free pages whose memory can be released."""

    def pinned_bytes(self, texts: InternedTexts) -> int:
        """Returns the bytes that can never be evicted."""
        return _PAGE_BYTES * self._high + self._bytes(texts) - self.evictable_bytes(texts)

    def evictable_bytes(self, texts: InternedTexts) -> int:
        """Returns the bytes that may be evicted and have not been."""
        if self.leaving is None:
            return 0
        staying = int(np.count_nonzero(self._touched[: self._high] & self._stays[: self._high]))
        return self._bytes(texts) - (staying << int(texts.state[PAGE_BITS]))

    def _bytes(self, texts: InternedTexts) -> int:
        if self._space is None:
            return len(texts.data)
        self._record_filled(texts)
        return int(np.count_nonzero(self._touched[: self._high])) << int(texts.state[PAGE_BITS])

    def _record_filled(self, texts: InternedTexts) -> None:
        """Records that pages up to the one being filled have memory."""
        filling = (int(texts.state[FILL]) - 1) >> int(texts.state[PAGE_BITS])
        self._touched[self._filling : filling + 1] = True
        self._born[self._filling : filling + 1] = self._now
        self._filling = max(self._filling, filling)

    def with_room(self, texts: InternedTexts, size: int) -> InternedTexts:
        """Returns the texts with room for `size` bytes where the next string begins."""
        state, bits = texts.state, int(texts.state[PAGE_BITS])
        if state[FILL] + size <= state[END]:
            return texts
        self._record_filled(texts)
        need = -(-size >> bits)
        run = max(need, self._tuning.text_run_pages)
        begin, count = map(int, free_run(texts.page_bytes, self._kept, need, run))
        if count < need:
            begin, count, texts = len(texts.page_bytes), run, self._longer(texts, need)
            count = min(count, len(texts.page_bytes) - begin)
        self._restore_memory(begin, begin + count, bits)
        self._stays[begin : begin + count] = False
        state[FILL], state[END] = begin << bits, (begin + count) << bits
        self._high, self._filling = max(self._high, begin + count), begin
        return texts

    def _restore_memory(self, begin: int, end: int, bits: int) -> None:
        """Makes the evicted ones of these free pages ordinary memory again."""
        if self.away and self.leaving is not None and (gone := int(np.count_nonzero(self._is_away[begin:end]))):
            self.leaving.release_range(begin << bits, end << bits)
            self._is_away[begin:end] = self._touched[begin:end] = False
            self.away -= gone

    def _longer(self, texts: InternedTexts, need: int) -> InternedTexts:
        """Returns the texts with room for at least `need` more pages. Little text gets an array of twice the pages, a larger one
        all the address space that it may need. Replaces the array of places, too: a snapshot keeps both old arrays, and strings
        that move later move in the new ones."""
        bits, pages = int(texts.state[PAGE_BITS]), len(texts.page_bytes)
        length = max(pages + need, 2 * pages) << bits
        if length <= min(self._tuning.small_text_bytes, self._home.small_bytes):
            data = np.empty(length, np.uint8)
        else:
            self._space = largest_granted(
                self._tuning.reserved_bytes, length, lambda most: self._reserved(most >> bits << bits, bits)
            )
            self.leaving = None if isinstance(self._space, Space) else self._space
            data = self._space.array
        data[: pages << bits] = texts.data
        self._touched[:], self._is_away[:], self.away = True, False, 0
        pages = len(data) >> bits
        self._kept, self._touched, self._is_away, self._stays, self._born = (
            with_room(each, len(each), pages)[:pages]
            for each in (self._kept, self._touched, self._is_away, self._stays, self._born)
        )
        page_bytes = with_room(texts.page_bytes, len(texts.page_bytes), pages)[:pages]
        count = int(texts.state[COUNT])
        places = largest_granted(len(texts.places), count + 1, lambda most: longer(texts.places, count, most))
        emptied = with_room(texts.emptied, len(texts.emptied), pages)[:pages]
        return texts._replace(data=data, page_bytes=page_bytes, emptied=emptied, places=places)

    def _reserved(self, length: int, bits: int) -> Space | EvictableSpace:
        leaving = self._home.space(np.dtype(np.uint8), length) if _is_whole(bits) else None
        return leaving or Space(np.dtype(np.uint8), length)

    def retain_emptied(self, pages: Int64s) -> None:
        """Retains the bytes of these emptied pages until `free_retained`."""
        self._kept[pages] += 1

    def free_retained(self, texts: InternedTexts, pages: Int64s) -> None:
        """Frees retained pages whose content no snapshot needs any more."""
        self._kept[pages] -= 1
        self._gave = True
        if self.away and self.leaving is not None:
            gone = pages[self._is_away[pages] & (texts.page_bytes[pages] == 0) & (self._kept[pages] == 0)]
            for begin, end in (runs(np.unique(gone)) << int(texts.state[PAGE_BITS])).tolist():
                self.leaving.discard_evicted(begin, end)

    def _free(self, texts: InternedTexts) -> Int64s:
        """Returns free pages that have memory, except the pages that are filled next."""
        bits, high = int(texts.state[PAGE_BITS]), self._high
        free = np.flatnonzero(self._touched[:high] & (texts.page_bytes[:high] == 0) & (self._kept[:high] == 0))
        return free[(free < int(texts.state[FILL]) >> bits) | (free >= int(texts.state[END]) >> bits)]

    def trim(self, texts: InternedTexts) -> None:
        """Releases the memory of free pages, a bounded number at a time, the last pages first. As many free pages as pages are in
        use, but at least `FREE_PAGES_MIN`, retain their memory and are filled before others."""
        if self._space is None or not self._gave or not _is_whole(int(texts.state[PAGE_BITS])):
            return
        self._record_filled(texts)
        free, high = self._free(texts), self._high
        used = int(np.count_nonzero(self._touched[:high] & (texts.page_bytes[:high] > 0)))
        surplus = min(len(free) - max(FREE_PAGES_MIN, used), GIVEN_PAGES_MAX)
        if surplus <= 0:
            self._gave = False
            return
        self._release_memory(free[-surplus:], int(texts.state[PAGE_BITS]))

    def _release_memory(self, pages: Int64s, bits: int) -> None:
        assert self._space is not None
        self._touched[pages] = False
        for begin, end in runs(pages).tolist():
            self._space.release_range(begin << bits, end << bits)

    def sparse(self, texts: InternedTexts) -> UInt8s:
        """Returns uint8[pages]: 1 if a page is less than half full and not being filled."""
        is_sparse, used = np.zeros(len(texts.page_bytes), np.uint8), texts.page_bytes[: self._high]
        bits = int(texts.state[PAGE_BITS])
        is_sparse[: self._high] = (used > 0) & (used < 1 << bits >> 1)
        is_sparse[int(texts.state[FILL]) >> bits :][:1] = 0
        return is_sparse

    def date_writes(self, texts: InternedTexts, now: int) -> None:
        self._record_filled(texts)
        self._now = now

    def coldest(self, texts: InternedTexts) -> tuple[int, int] | None:
        if self.leaving is None:
            return None
        pages = self._evictable_pages(texts)
        if len(self._free(texts)):
            return 0, 0
        return (0, int(self._born[pages[0]])) if len(pages) else None

    def pin_pages_of(self, texts: InternedTexts, standing: TextPlaces) -> TextPlaces:
        """Pins pages of which these texts are at least half, and pages with a text longer than a page, which is never moved.
        Returns the texts in other pages."""
        page_bytes = 1 << int(texts.state[PAGE_BITS])
        is_long = standing.sizes > page_bytes
        long, short = standing.select_texts(is_long), standing.select_texts(~is_long) if is_long.any() else standing
        high = self._high
        self._stays[:high] = short.bytes_by_page(texts, high) >= page_bytes >> 1
        for first, last in zip(long.first.tolist(), long.last.tolist(), strict=True):
            self._stays[first : last + 1] = True
        stays = self._stays[:high] & ~self._is_away[:high]
        return short.select_texts(~(stays[short.first] & stays[short.last]))

    def pin_pages_from_byte(self, texts: InternedTexts, begin: int) -> None:
        """Pins the pages from byte `begin` on until the next `pin_pages_of`: texts that must not be evicted were written there."""
        bits = int(texts.state[PAGE_BITS])
        self._stays[begin >> bits : (int(texts.state[FILL]) >> bits) + 1] = True

    def next_evicted(self, texts: InternedTexts, size: int) -> Bools:
        """Returns which pages `evict_coldest` would evict next for `size` bytes."""
        next_ = np.zeros(len(texts.page_bytes), np.bool_)
        next_[self._evictable_pages(texts)[: max(1, size >> int(texts.state[PAGE_BITS]))]] = True
        return next_

    @property
    def is_page_evicted(self) -> Bools:
        """Which pages are evicted."""
        return self._is_away

    def evict_coldest(self, texts: InternedTexts, size: int) -> int:
        """Releases the memory of free pages; if no page is free, evicts the coldest pages, about `size` bytes. Returns the bytes
        released or evicted. Raises PageFileError."""
        bits = int(texts.state[PAGE_BITS])
        if len(free := self._free(texts)):
            self._release_memory(free, bits)
            return len(free) << bits
        assert self.leaving is not None
        pages = np.sort(self._evictable_pages(texts)[: max(1, size >> bits)])
        for begin, end in runs(pages).tolist():
            self.leaving.evict_range(begin << bits, end << bits)
            self._is_away[begin:end], self._touched[begin:end] = True, False
            self.away += end - begin
        return len(pages) << bits

    def _evictable_pages(self, texts: InternedTexts) -> Int64s:
        """Returns full pages that hold strings, or bytes that a snapshot needs, oldest first."""
        bits, high = int(texts.state[PAGE_BITS]), self._high
        may = self._touched[:high] & ~self._stays[:high] & ((texts.page_bytes[:high] > 0) | (self._kept[:high] > 0))
        may[int(texts.state[FILL]) >> bits : int(texts.state[END]) >> bits] = False
        found = np.flatnonzero(may)
        return found[np.argsort(self._born[found], kind="stable")]

    def prefetch_strings(self, texts: InternedTexts, places: Int64s) -> None:
        """Prefetches, together, the evicted strings at these places."""
        if self.leaving is None or not self.away:
            return
        places = places[places[:, SIZE] > 0]
        bits, begins, ends = int(texts.state[PAGE_BITS]), places[:, BEGIN], places.sum(axis=1)
        gone = self._is_away[begins >> bits] | self._is_away[(ends - 1) >> bits]
        if gone.any():
            self.leaving.prefetch_many_ranges(begins[gone], ends[gone])


def _is_whole(bits: int) -> bool:
    """Whether a page of 2 ** `bits` bytes consists of complete system pages, so that its memory can be released without that of its
    neighbours."""
    return (1 << bits) % mmap.PAGESIZE == 0
