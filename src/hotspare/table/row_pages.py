"""The memory of a relation: pages of slots that grow without being copied and are shared with snapshots (`table.loops.pages`).

No slot is written twice, so a snapshot shares all of them and copies only which rows existed. A page whose rows a snapshot may need
is not reused while the snapshot lives. So several snapshots may live at once, freezing costs a bit per slot, and memory grows by
the rows removed while a snapshot is written.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.rows.tuning import Tuning
from hotspare.table.evicted_pages import EvictedPages
from hotspare.table.key_filters import RowLookups
from hotspare.table.loops import index as index_kernels
from hotspare.table.loops import pages as k
from hotspare.table.loops import relation as relation_kernels
from hotspare.table.loops import slots
from hotspare.table.memory import PINNED_MEMORY, EvictableSpace, WindowMemory, entry_bytes, grown, largest_granted, longer
from hotspare.table.row_index import empty_index, grown_index, index_bytes
from hotspare.table.row_layout import NO_PAGE, Layout, StoredRows, packed, unpacked
from hotspare.table.row_shape import Shape, is_expiry_per_row
from hotspare.table.strings import FrozenStrings
from hotspare.table.unlinked import UnlinkedRows
from hotspare.table.unloaded import FrozenUnloaded, UnloadedPages

_AHEAD = 4
"""The step of read-ahead: after every `_AHEAD` loaded pages, the next 2 * `_AHEAD` are requested."""
_NO_SLOTS: Int64s = np.empty(0, np.int64)


class RowPages:
    """The row pages of one table: in memory, evicted, or still in the store.

    `rows` is for kernels; call `make_room` if they need it, and `release` after their outputs are consumed.
    """

    def __init__(
        self, shape: Shape, policy: relation_kernels.Policy, page_slots: int, tuning: Tuning, home: WindowMemory = PINNED_MEMORY
    ) -> None:
        self.page_slots = page_slots
        self._tuning = tuning
        self.home = home
        self._away: EvictedPages | None = None
        """The state of eviction of the pages; None while no page can be evicted."""
        self._page_stays = 0
        """The bytes of each page that are never evicted."""
        self._read_from: EvictedPages | None = None
        """In a snapshot: the evicted pages of the table, for read-ahead."""
        self.unloaded: UnloadedPages | None = None
        """Pages that a restore left in the store; None if all are loaded."""
        self._brought: list[Int64s] | None = None
        """Slots of newly loaded rows, for `pop_loaded_slots`; None if not recorded."""
        self._absent_then: FrozenUnloaded | None = None
        """In a snapshot: the pages that were unloaded when it was taken."""
        self.unlinked: UnlinkedRows | None = None
        """Loaded rows that are not in the list yet; None if there cannot be any."""
        self._twins: list[weakref.ref[RowPages]] = []
        self._pinned = np.empty(0, np.int64)
        """Empty pages that snapshots still need."""
        self._moves = np.empty((0, k.MOVED_WIDTH), np.int64)
        """The buffer for the field `moved` of `rows`, kept for reuse."""
        state = np.zeros(slots.STATE_WIDTH, np.int64)
        state[[slots.FIRST, slots.LAST, slots.OPEN, slots.HAND, slots.OLDEST, slots.YOUNGEST, slots.SEAM]] = slots.NONE
        state[slots.UNLINKED] = slots.NEVER
        state[[slots.NEWEST, slots.BOUNDARY]] = slots.UNSET
        state[slots.PAGE_SLOTS], state[slots.SPARE] = page_slots, tuning.spare_slots
        state[slots.EITHER] = is_expiry_per_row(policy)
        self._by_time, self._by_event = policy.kind >= relation_kernels.TIME_SLIDING, policy.by_event == 1
        self._is_linked = relation_kernels.is_linked.py_func(policy)
        self.rows = k.Rows(
            by_key=empty_index(),
            lanes=np.empty((0, shape.width), np.int64),
            valid=np.empty((0, shape.width), np.bool_),
            order=np.empty(0, np.int64),
            time=np.empty(0, np.int64),
            links=np.empty((0, slots.LINKS_WIDTH), np.int64),
            waiting=np.empty(0, np.int64),
            alive=np.empty(0, np.uint64),
            pages=np.empty((0, k.PAGES_WIDTH), np.int64),
            free=np.empty(0, np.int64),
            emptied=np.empty(0, np.int64),
            moved=np.empty((0, k.MOVED_WIDTH), np.int64),
            heap=np.empty((0, 2), np.int64),
            state=state,
            keys=np.array(shape.keys, np.int64),
            conditions=np.array(shape.conditions, np.int64),
        )
        home.register_tenant(self)

    @property
    def is_ordered(self) -> bool:
        """Whether rows are in a list or a heap."""
        return self._is_linked or self._by_event

    @property
    def slots_used(self) -> int:
        """The end of the slots of all pages ever used."""
        return int(self.rows.state[slots.HIGH]) * self.page_slots

    @property
    def write_position(self) -> int:
        """The position after the newest row: page number times slots per page, plus slot."""
        state = self.rows.state
        return int((state[slots.NUMBER] - 1) * self.page_slots + state[slots.FILL]) if state[slots.OPEN] >= 0 else 0

    def make_room(self) -> None:
        """Makes room for the most that the next event may need, in pages, index and `moved`."""
        self.rows = self.rows._replace(by_key=grown_index(self.rows.by_key))
        rows, state = self.rows, self.rows.state
        at_hand = int(state[slots.FREE]) + len(rows.pages) - int(state[slots.HIGH])
        needed = int(k.pages_needed(state))
        if at_hand < needed:
            self._grow(len(rows.pages) + needed - at_hand)
        if len(rows.moved) and int(state[slots.MOVED]) + k.CLEARED_MAX * self.page_slots > len(rows.moved):
            moved = grown(rows.moved, int(state[slots.MOVED]), 2 * len(rows.moved) + k.CLEARED_MAX * self.page_slots)
            self._moves = moved
            self.rows = self.rows._replace(moved=moved)

    def record_moves(self) -> None:
        """Starts recording moved rows in the field `moved` of `rows`."""
        if len(self._moves) < k.CLEARED_MAX * self.page_slots:
            self._moves = np.empty((k.CLEARED_MAX * self.page_slots, k.MOVED_WIDTH), np.int64)
        self.rows = self.rows._replace(moved=self._moves)

    def stop_recording_moves(self) -> None:
        if len(self.rows.moved):
            self.rows = self.rows._replace(moved=np.empty((0, k.MOVED_WIDTH), np.int64))
        self.rows.state[slots.MOVED] = 0

    def build_index(self) -> None:
        """Builds the index of all rows; loads unloaded pages first."""
        self.load_all_pages()
        self.begin_index(int(self.rows.state[slots.LIVE]))
        self.enter_rows(0, self.slots_used)

    def begin_index(self, live: int) -> None:
        """Starts an empty index with room for `live` rows."""
        length = 1
        while length * index_kernels.SEGMENT_ENTRIES_MAX < 2 * live:
            length *= 2
        self.rows = self.rows._replace(by_key=empty_index(length))
        self.rows.state[slots.INDEXED] = 1

    def enter_rows(self, at: int, end: int) -> None:
        """Enters the rows of slots from `at` to before `end` into the index."""
        while at < end:
            at = int(relation_kernels.fill_index(self.rows, at, end))
            if at < end:
                self.rows = self.rows._replace(by_key=grown_index(self.rows.by_key))

    def release(self) -> None:
        """Frees emptied pages that no snapshot needs, after the outputs are consumed."""
        state, rows = self.rows.state, self.rows
        count = int(state[slots.EMPTIED])
        if count == 0 and len(self._pinned) == 0:
            return
        needed_before = max((int(twin.rows.state[slots.NUMBER]) for twin in self._sharing()), default=0)
        pages = np.concatenate([self._pinned, rows.emptied[:count]])
        is_needed = rows.pages[pages, k.PAGE_NUMBER] < needed_before
        self._pinned, freed = pages[is_needed], pages[~is_needed]
        if self._away is not None:
            self._away.free_evicted_pages(freed)
        free = int(state[slots.FREE])
        rows.free[free : free + len(freed)] = freed
        state[slots.FREE], state[slots.EMPTIED] = free + len(freed), 0

    def freeze(self) -> RowPages:
        """Returns a twin with the current rows, readable while this one changes."""
        twin = RowPages.__new__(RowPages)
        twin.page_slots, twin._twins, twin._pinned = self.page_slots, [], self._pinned
        twin.home, twin._away, twin._read_from = PINNED_MEMORY, None, self._away
        twin.unloaded, twin._absent_then = None, self.unloaded.freeze() if self.unloaded is not None else None
        twin._brought = twin.unlinked = None
        twin._by_time, twin._by_event, twin._is_linked = self._by_time, self._by_event, self._is_linked
        rows, state = self.rows, self.rows.state
        words = -(-self.slots_used // 64)
        alive, pages = rows.alive[:words].copy(), rows.pages[: int(state[slots.HIGH])].copy()
        twin.rows = rows._replace(state=state.copy(), alive=alive, pages=pages)
        self._twins = [ref for ref in self._twins if ref() is not None]
        self._twins.append(weakref.ref(twin))
        return twin

    def _sharing(self) -> list[RowPages]:
        self._twins = [ref for ref in self._twins if ref() is not None]
        return [twin for twin in (ref() for ref in self._twins) if twin is not None]

    def alive_slots(self) -> Int64s:
        """Returns the slots that hold a row, ascending."""
        words = self.rows.alive[: -(-self.slots_used // 64)]
        return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[: self.slots_used])

    def slots_in_arrival_order(self) -> Int64s:
        """Returns the slots that hold a row, in order of arrival; loads unloaded pages."""
        self.load_all_pages()
        return self.loaded_slots_in_order()

    def loaded_slots_in_order(self) -> Int64s:
        """Returns the same as `slots_in_arrival_order`, for loaded pages only."""
        if self.unloaded is None:
            return self._by_arrival(self.alive_slots())
        is_there = np.ones(int(self.rows.state[slots.HIGH]), np.bool_)
        is_there[: len(self.unloaded.is_unloaded)] = self.unloaded.is_unloaded == 0
        found = [page * self.page_slots + np.flatnonzero(self._alive_in(page)) for page in np.flatnonzero(is_there).tolist()]
        return self._by_arrival(np.concatenate([_NO_SLOTS, *found]))

    def _by_arrival(self, found: Int64s) -> Int64s:
        return found[np.argsort(self.rows.order[found], kind="stable")]

    def _alive_in(self, page: int) -> Bools:
        """Returns which slots of a page hold a row."""
        begin, end = page * self.page_slots, (page + 1) * self.page_slots
        words = self.rows.alive[begin // 64 : -(-end // 64)].view(np.uint8)
        return np.unpackbits(words, bitorder="little")[begin % 64 :][: self.page_slots].view(np.bool_)

    def in_use(self) -> Int64s:
        """Returns the pages that hold rows and the one being filled, ordered by number."""
        state = self.rows.state
        pages = self.rows.pages[: int(state[slots.HIGH])]
        in_use = pages[:, k.PAGE_LIVE] > 0
        if state[slots.OPEN] >= 0:
            in_use[int(state[slots.OPEN])] = True
        found = np.flatnonzero(in_use)
        return found[np.argsort(pages[found, k.PAGE_NUMBER])]

    def layout(self) -> Layout:
        """Returns the current layout."""
        state, in_use = self.rows.state, self.in_use()
        numbers = self.rows.pages[in_use, k.PAGE_NUMBER]
        hand = int(self.rows.pages[int(state[slots.HAND]), k.PAGE_NUMBER]) if state[slots.HAND] >= 0 else NO_PAGE
        return Layout(self.page_slots, numbers, self._bits_in(in_use), int(state[slots.FILL]), hand, int(state[slots.ARRIVALS]))

    def _bits_in(self, pages: Int64s) -> UInt8s:
        """Returns which slots of these pages hold a row, as `Layout.bits`."""
        flat, page_slots = self.rows.alive[: -(-self.slots_used // 64)].view(np.uint8), self.page_slots
        if page_slots % 8 == 0:
            return flat[: self.slots_used // 8].reshape(-1, page_slots // 8)[pages]
        return packed(unpacked(flat, self.slots_used).reshape(-1, page_slots)[pages])

    def rows_of(self, page: int, alive: Bools) -> tuple[StoredRows, FrozenStrings | None]:
        """Returns a snapshot's rows in the `alive` slots of a page, and the strings of their codes (None: those of the table)."""
        if (absent := self._unloaded_rows(page, alive)) is not None:
            return absent
        where, rows = page * self.page_slots + np.flatnonzero(alive), self.rows
        time = rows.time[where] if self._by_time else np.empty(0, np.int64)
        return StoredRows(rows.lanes[where], rows.valid[where], rows.order[where], time), None

    def columns_of(self, page: int, alive: Bools, asked_by: RowLookups) -> tuple[Int64s, Int64s, FrozenStrings | None]:
        """Returns the lookup columns and expiry keys of the same rows as `rows_of`, and the strings of their codes."""
        if (absent := self._unloaded_rows(page, alive)) is not None:
            return *asked_by.values_and_expiry_keys(absent[0]), absent[1]
        where = page * self.page_slots + np.flatnonzero(alive)
        order, time = (each[where] if len(each) else each for each in (self.rows.order, self.rows.time))
        return self.rows.lanes[where[:, np.newaxis], list(asked_by.columns)], asked_by.expiry_key.select_keys(order, time), None

    def _unloaded_rows(self, page: int, alive: Bools) -> tuple[StoredRows, FrozenStrings] | None:
        then = self._absent_then
        if then is not None and page < len(then.is_unloaded) and then.is_unloaded[page]:
            return then.reader.rows_with_strings(int(then.numbers[page]), alive)
        if self._read_from is not None:
            self._read_from.read_ahead(page)
        return None

    def allocate_pages(self, layout: Layout) -> None:
        """Allocates pages as in this layout; `fill` then writes their rows, page by page."""
        count, counts, words = len(layout.numbers), layout.counts, layout.words
        self._grow(count + 2)
        rows, state = self.rows, self.rows.state
        rows.alive[: len(words)] = words
        pages = rows.pages[:count]
        pages[:, k.PAGE_NUMBER] = layout.numbers
        pages[:, k.PAGE_LIVE] = counts
        pages[:, k.PAGE_AFTER], pages[:, k.PAGE_BEFORE] = np.arange(1, count + 1), np.arange(-1, count - 1)
        if count:
            pages[-1, k.PAGE_AFTER] = slots.NONE
            state[[slots.OLDEST, slots.YOUNGEST, slots.OPEN]] = 0, count - 1, count - 1
            state[[slots.FILL, slots.NUMBER]] = layout.fill, int(layout.numbers[-1]) + 1
            state[slots.HAND] = np.searchsorted(layout.numbers, layout.hand) if layout.hand != NO_PAGE else slots.NONE
        state[[slots.HIGH, slots.PAGES]] = count
        state[[slots.LIVE, slots.ARRIVALS]] = int(counts.sum()), layout.arrivals
        if self._away is not None:
            self._away.record_allocated(self.rows)

    def fill(self, page: int, alive: Bools, stored: StoredRows) -> None:
        """Writes the rows of an allocated page to its `alive` slots, without entering them into list, heap or index."""
        where, rows = page * self.page_slots + np.flatnonzero(alive), self.rows
        rows.lanes[where], rows.valid[where], rows.order[where] = stored.lanes, stored.valid, stored.order
        if self._by_time:
            rows.time[where] = stored.time
        if self._away is not None:
            self._away.mark_filled(page)

    def leave_unloaded(self, absent: UnloadedPages) -> None:
        """Records that these allocated pages are still in the store, to be loaded later."""
        self.unloaded = absent
        if self.is_ordered:
            self.unlinked = UnlinkedRows(self.rows, len(absent.is_unloaded), self.page_slots, self._tuning.linked_rows)
            self.rows = self.unlinked.with_waiting_slots(self.rows)

    def index_filled_page(self, page: int) -> None:
        """Enters the rows of a filled page into the index, and adds them to the rows that wait for their place in the list."""
        begin, end = page * self.page_slots, (page + 1) * self.page_slots
        if self.rows.state[slots.INDEXED]:
            self.enter_rows(begin, end)
        if self.unlinked is not None:
            self.unlinked.add_waiting_page(self.rows, page, begin + np.flatnonzero(self._alive_in(page)))

    def load_page_now(self, page: int) -> None:
        """Loads a page now, if it is unloaded. Raises what the store raises, and SnapshotDamaged."""
        absent = self.unloaded
        if absent is None or page >= len(absent.is_unloaded) or not absent.is_unloaded[page]:
            return
        begin, alive = page * self.page_slots, self._alive_in(page)
        stored = absent.rows(page, alive)
        absent.check_least_expiry(page, stored)
        self.fill(page, alive, stored)
        self.index_filled_page(page)
        if self._brought is not None:
            self._brought.append(begin + np.flatnonzero(alive))
        absent.mark_loaded(page)
        if not absent.left:
            self.unloaded = None

    def load_matches(self, values: Int64s) -> None:
        """Loads unloaded pages that may hold rows with these values in the fields of the condition."""
        if self.unloaded is not None and len(values):
            self._load_each(self.unloaded.pages_with_conditions(values))

    def record_loaded_slots(self) -> None:
        """Starts recording loaded rows for `pop_loaded_slots`, if pages are unloaded."""
        self._brought = [] if self.unloaded is not None else None

    def pop_loaded_slots(self) -> Int64s:
        """Returns the slots into which rows were loaded since the last call, in order of arrival."""
        if not self._brought:
            return _NO_SLOTS
        found = np.concatenate(self._brought)
        self.record_loaded_slots()
        return self._by_arrival(found)

    def _load_each(self, pages: Sequence[int]) -> None:
        """Loads pages; evicts the values of pages that do not fit in memory."""
        room = self.home.loadable_bytes if pages else 0
        for at, page in enumerate(pages):
            if self.unloaded is not None and at % _AHEAD == 0:
                self.unloaded.prefetch_places(pages[at : at + 2 * _AHEAD])
            self.load_page_now(page)
            room -= self.page_slots * self.rows.lanes.itemsize * self.rows.lanes.shape[1]
            if room < 0 and self._away is not None:
                self._away.evict_values(page)

    def load_all_pages(self) -> None:
        """Loads all unloaded pages."""
        if self.unloaded is not None:
            self._load_each(self.unloaded.pages_by_expiry(self.unloaded.left))

    def link_next(self) -> None:
        """Adds more loaded rows to the expiry order; if that is not possible, first loads the pages that expire next. Raises what
        the store raises, and SnapshotDamaged."""
        if self.unlinked is not None:
            self.unlinked.link_next(self.rows, self.unloaded, self.load_page_now)

    def _link_some(self, rows: int) -> None:
        """Links more waiting rows, after a step of `rows` rows."""
        if self.unlinked is None:
            return
        self.unlinked.link(self.rows, self.unloaded, self._tuning.linked_rows + rows)
        if self.unloaded is None and self.unlinked.is_empty:
            self.unlinked = None
            self.rows = self.rows._replace(waiting=np.empty(0, np.int64))
            self.rows.state[slots.SEAM] = slots.NONE

    def load_some_pages(self, rows: int) -> bool:
        """Loads pages after a step of `rows` rows, as long as there is room, and links rows. Returns False if no page is unloaded
        and no row waits to be linked."""
        if self.unloaded is not None and not self.unloaded.index_next_filter():
            count = 1 + rows // self.page_slots
            size = self.page_slots * self.rows.lanes.itemsize * self.rows.lanes.shape[1]
            if self.home.loadable_bytes > count * size:
                self._load_each(self.unloaded.pages_by_expiry(count))
        self._link_some(rows)
        return self.unloaded is not None or self.unlinked is not None

    def _grow(self, pages_min: int) -> None:
        """Makes room for at least `pages_min` pages, and for twice as many as before if memory allows. Reserves the maximum once
        copying would take long."""
        rows = self.rows
        pages = max(pages_min, 2 * len(rows.pages))
        slot_bytes = sum(map(entry_bytes, (rows.lanes, rows.valid, rows.order)))
        if pages * self.page_slots * slot_bytes > min(self._tuning.small_bytes, self.home.small_bytes):
            pages = max(pages, self._tuning.reserved_bytes // (slot_bytes * self.page_slots))
        self.rows = largest_granted(pages, pages_min, self._with_pages)

    def _with_pages(self, pages: int) -> k.Rows:
        rows, length = self.rows, pages * self.page_slots
        used, used_slots = int(rows.state[slots.HIGH]), self.slots_used
        timed = length if self._by_time else 0
        spaces: list[tuple[EvictableSpace, int]] = []
        lanes = self._longer(rows.lanes, used_slots, length, spaces)
        valid = self._longer(rows.valid, used_slots, length, spaces)
        order = self._longer(rows.order, used_slots, length, spaces)
        time = self._longer(rows.time, min(used_slots, timed), timed, spaces)
        links = longer(rows.links, used_slots if self._is_linked else 0, length if self._is_linked else 0)
        heap = longer(rows.heap, used_slots if self._by_event else 0, length if self._by_event else 0)
        larger = rows._replace(
            lanes=lanes,
            valid=valid,
            order=order,
            time=time,
            links=links,
            heap=heap,
            alive=longer(rows.alive, -(-used_slots // 64), -(-length // 64)),
            pages=longer(rows.pages, used, pages),
            emptied=longer(rows.emptied, int(rows.state[slots.EMPTIED]), pages),
            free=longer(rows.free, int(rows.state[slots.FREE]), pages),
        )
        staying = (links, heap) if spaces else (links, heap, lanes, valid, order, time)
        self._page_stays = 50 + self.page_slots // 8 + self.page_slots * sum(entry_bytes(each) for each in staying if len(each))
        if spaces:
            self._away = EvictedPages(spaces, self.page_slots, pages)
            if self.unloaded is not None:
                self._away.mark_unfilled(np.flatnonzero(self.unloaded.is_unloaded))
        return larger

    def _longer(
        self, array: npt.NDArray[Any], used: int, length: int, spaces: list[tuple[EvictableSpace, int]]
    ) -> npt.NDArray[Any]:
        """Returns the array with `length` slots, as `memory.longer` does. If the array can be evicted, appends its space and its
        entries per slot to `spaces`."""
        width = int(np.prod(array.shape[1:]))
        large = length * width * array.itemsize > self.home.small_bytes and EvictedPages.can_evict_pages(self.page_slots)
        if not large or (space := self.home.space(array.dtype, length * width)) is None:
            return longer(array, used, length)
        spaces.append((space, width))
        larger: npt.NDArray[Any] = space.array[: length * width].reshape((length, *array.shape[1:]))
        larger[:used] = array[:used]
        return larger

    def prefetch_for_keys(self, lanes: Int64s) -> None:
        """Prefetches evicted pages that rows with these keys need, and loads unloaded ones."""
        if self.unloaded is not None and len(lanes):
            self._load_each(self.unloaded.pages_with_keys(lanes) if self.rows.state[slots.INDEXED] else [])
        if self._away is not None:
            self._away.prefetch_for_keys(self.rows, lanes)

    def prefetch_scan(self, since: int, count: int) -> None:
        """Prefetches `count` slots from position `since` on, for one scan."""
        if self._away is not None:
            self._away.prefetch_scan(self.rows, since, count)

    def prefetch_matches(self, index: index_kernels.Index, lanes: Int64s, columns: Int64s) -> None:
        """Prefetches the rows that an index finds by these columns of `lanes`."""
        if self._away is not None:
            self._away.prefetch_matches(index, lanes, columns)

    @property
    def pinned_bytes(self) -> int:
        """Bytes that can never be evicted: index, list, heap and page entries; also the rows if they are few."""
        asking = (self.unloaded.bytes if self.unloaded is not None else 0) + (
            self.unlinked.bytes if self.unlinked is not None else 0
        )
        return asking + index_bytes(self.rows.by_key) + int(self.rows.state[slots.HIGH]) * self._page_stays

    @property
    def evictable_bytes(self) -> int:
        return self._away.evictable_bytes(self.rows) if self._away is not None else 0

    def date_writes(self, now: int) -> None:
        if self._away is not None:
            self._away.date_writes(self.rows, now)

    def coldest(self) -> tuple[int, int] | None:
        return self._away.coldest(self.rows) if self._away is not None else None

    def evict_coldest(self, size: int) -> int:
        return self._away.evict_coldest(self.rows, size) if self._away is not None else 0
