"""The memory of strings: bytes in pages, filled one after the other; one without strings is free, and may be filled again.

Bytes are never written over while a snapshot may read them: a page that was emptied is kept until the table says that no snapshot
needs it (`keep`, `give`). While there is little text the bytes are an ordinary array, and growing copies it; a larger one has
all the address space that it may need (`memory`); the first free pages are filled next, and of the others memory is given back.
"""

from __future__ import annotations

import numpy as np

from hotspare.engine.kernels.interning import COUNT, END, FILL, PAGE_BITS, InternedTexts, free_run
from hotspare.engine.rows.chunk import Bools, Int64s, UInt8s
from hotspare.engine.state.memory import RESERVED_BYTES, Space, as_much, longer, with_room
from hotspare.runs import runs

TEXT_PAGE_BITS = 16
"""A page has 64 KiB."""
SMALL_TEXT_BYTES = 1 << 20
"""So much text is in an ordinary array."""
RUN_PAGES_MAX = 1 << 10
"""So many pages are chosen together at most, unless more are needed."""
FREE_PAGES_MIN, GIVEN_PAGES_MAX = 1 << 8, 1 << 8
"""So many free pages keep their memory, 16 MiB, and of so many it is given back at a time."""


class TextPages:
    """Which pages are kept, and the address space. `InternedTexts` has the rest; methods return it where arrays are others."""

    def __init__(self) -> None:
        self._space: Space | None = None
        self._kept: Int64s = np.zeros(1, np.int64)
        """How often a page was emptied and is not given free yet."""
        self._touched: Bools = np.ones(1, np.bool_)
        """Whether a page has memory."""
        self._filling = 0
        """The page that was being filled when that was noted last."""
        self._high = 1
        """No page from here on was ever filled."""
        self._gave = False
        """Whether there may be free pages whose memory is to be given back."""

    def bytes(self, texts: InternedTexts) -> int:
        """Of memory."""
        if self._space is None:
            return len(texts.data)
        self._note_filled(texts)
        return int(np.count_nonzero(self._touched[: self._high])) << int(texts.state[PAGE_BITS])

    def _note_filled(self, texts: InternedTexts) -> None:
        """Pages up to the one that is being filled have memory."""
        filling = (int(texts.state[FILL]) - 1) >> int(texts.state[PAGE_BITS])
        self._touched[self._filling : filling + 1] = True
        self._filling = max(self._filling, filling)

    def with_room(self, texts: InternedTexts, size: int) -> InternedTexts:
        """With room for so many bytes where the next string begins."""
        state, bits = texts.state, int(texts.state[PAGE_BITS])
        if state[FILL] + size <= state[END]:
            return texts
        self._note_filled(texts)
        need = -(-size >> bits)
        begin, count = map(int, free_run(texts.page_bytes, self._kept, need, max(need, RUN_PAGES_MAX)))
        if count < need:
            begin, count, texts = len(texts.page_bytes), max(need, RUN_PAGES_MAX), self._longer(texts, need)
            count = min(count, len(texts.page_bytes) - begin)
        state[FILL], state[END] = begin << bits, (begin + count) << bits
        self._high, self._filling = max(self._high, begin + count), begin
        return texts

    def _longer(self, texts: InternedTexts, need: int) -> InternedTexts:
        """With so many pages more, or twice as many, or all that may be needed. The array of places is another one, too: a snapshot
        has the old ones of both, and strings that move later move in the new ones."""
        bits, pages = int(texts.state[PAGE_BITS]), len(texts.page_bytes)
        length = max(pages + need, 2 * pages) << bits
        if length <= SMALL_TEXT_BYTES:
            data = np.empty(length, np.uint8)
        else:
            self._space = as_much(RESERVED_BYTES, length, lambda most: Space(np.dtype(np.uint8), most >> bits << bits))
            data = self._space.array
        data[: pages << bits] = texts.data
        pages = len(data) >> bits
        self._kept = with_room(self._kept, len(self._kept), pages)[:pages]
        self._touched = with_room(self._touched, len(self._touched), pages)[:pages]
        page_bytes = with_room(texts.page_bytes, len(texts.page_bytes), pages)[:pages]
        count = int(texts.state[COUNT])
        places = as_much(len(texts.places), count + 1, lambda most: longer(texts.places, count, most))
        emptied = with_room(texts.emptied, len(texts.emptied), pages)[:pages]
        return texts._replace(data=data, page_bytes=page_bytes, emptied=emptied, places=places)

    def keep(self, pages: Int64s) -> None:
        """They were emptied, and stay as they are."""
        self._kept[pages] += 1

    def give(self, texts: InternedTexts, pages: Int64s) -> None:
        """No snapshot needs what was in them when they were kept."""
        self._kept[pages] -= 1
        self._gave = True

    def trim(self, texts: InternedTexts) -> None:
        """Give memory of free pages back, a bounded number at a time, the last ones first; but keep as many as there are in use, or
        `FREE_PAGES_MIN`, which are used again before others."""
        if self._space is None or not self._gave:
            return
        self._note_filled(texts)
        bits, used = int(texts.state[PAGE_BITS]), texts.page_bytes[: self._high] > 0
        free = np.flatnonzero(self._touched[: self._high] & ~used & (self._kept[: self._high] == 0))
        free = free[(free < int(texts.state[FILL]) >> bits) | (free >= int(texts.state[END]) >> bits)]
        surplus = min(len(free) - max(FREE_PAGES_MIN, int(used.sum())), GIVEN_PAGES_MAX)
        if surplus <= 0:
            self._gave = False
            return
        pages = free[-surplus:]
        self._touched[pages] = False
        for begin, end in runs(pages).tolist():
            self._space.give_back(begin << bits, end << bits)

    def sparse(self, texts: InternedTexts) -> UInt8s:
        """uint8[pages]: 1 where a page is less than half full, and not being filled."""
        is_sparse, used = np.zeros(len(texts.page_bytes), np.uint8), texts.page_bytes[: self._high]
        bits = int(texts.state[PAGE_BITS])
        is_sparse[: self._high] = (used > 0) & (used < 1 << bits >> 1)
        is_sparse[int(texts.state[FILL]) >> bits :][:1] = 0
        return is_sparse
