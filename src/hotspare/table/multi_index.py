"""An index of rows by key and by the fields of a condition, as a part of a page: the rows that a join stores of one side.

Rows are those of a `Relation`, in its pages. Lists have the rows that agree in the fields of the condition, in order of arrival. An
updated row keeps its place in the list, unless these fields change: then it counts as the newest. Null agrees with nothing. Lists
are derived from rows and are in no snapshot; their index grows by splitting.

If rows are loaded at use after a restore, lists have only the loaded rows. Callers load the missing rows of a list before they walk
it; loaded rows are inserted in order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hotspare.rows.chunk import Chunk, Int64s, Timeline
from hotspare.table.derived_parts import DerivedPart
from hotspare.table.loops import multi_index as k
from hotspare.table.loops import relation, slots
from hotspare.table.loops.relation import Policy
from hotspare.table.memory import largest_granted, longer
from hotspare.table.relation import KEEP_ALL, Relation, Resolution, Shape
from hotspare.table.row_index import empty_lists, grown_index, index_bytes
from hotspare.table.unloaded import LoadMode
from hotspare.table.unloaded_relation import load_page_to_clear


class MultiIndex(DerivedPart):
    """Rows by key, and lists of the rows that agree in `shape.conditions`.

    Call `resolve_chunk`, run a kernel that updates `lists` event by event, then call `settle`. Or a kernel changes rows and lists
    itself between `begin_in_kernel` and `settle`; call `load_page_to_clear` before the kernel compacts a page. Do not freeze in
    between. `reading` may be AT_USE only if the values of all rows that a caller walks are passed to `load_matches` before.
    """

    def __init__(
        self, shape: Shape, policy: Policy = KEEP_ALL, reading: LoadMode = LoadMode.WHOLE, noted: tuple[int, ...] = ()
    ) -> None:
        """Creates an empty index. `noted`: columns whose values in loaded rows `pop_noted_values` returns."""
        self.rows = Relation(shape, policy, reading=reading)
        self._lists = empty_lists(self.rows.pages.rows, k.LINKS_WIDTH)
        self._noted_columns, self._noted = noted, np.empty((0, len(noted)), np.int64)
        self._follow_pages()

    @property
    def live(self) -> int:
        return self.rows.live

    @property
    def lists(self) -> k.Lists:
        """The lists for kernels, current after `resolve_chunk` and after each `make_room`."""
        return self._lists

    @property
    def pinned_bytes(self) -> int:
        return index_bytes(self._lists.by_condition) + 8 * k.LINKS_WIDTH * self.rows.pages.slots_used

    def resolve_chunk(self, chunk: Chunk, timeline: Timeline) -> Resolution:
        """Applies a chunk to the rows and returns its effect. The lists gain only the rows that this loads: the caller applies the
        chunk's events to them."""
        resolution = self.rows.resolve_chunk(chunk, timeline)
        self._follow_pages()
        return resolution

    def prefetch_matches(self, lanes: Int64s, columns: Int64s) -> None:
        """Prefetches rows that agree with these columns of `lanes` in the fields of the condition."""
        self.rows.pages.prefetch_matches(self._lists.by_condition, lanes, columns)

    def load_matches(self, values: Int64s) -> None:
        """Loads unloaded rows with these values in the fields of the condition, before their lists are walked. A chunk may have
        been applied already, if it changed only loaded rows."""
        self.rows.pages.load_matches(values)
        self._admit()

    def load_page_to_clear(self) -> None:
        """Loads the page that the next event may compact, if that page is unloaded."""
        load_page_to_clear(self.rows.pages)
        self._admit()

    def link_next(self) -> None:
        """Adds more loaded rows to the expiry order; if that is not possible, first loads the pages that expire next."""
        self.rows.pages.link_next()
        self._admit()

    def pop_noted_values(self) -> Int64s:
        """Returns the distinct values of the noted columns in rows loaded since the last call: int64[values, columns]."""
        noted, self._noted = self._noted, self._noted[:0]
        return noted

    def load_some_pages(self, rows: int) -> bool:
        is_left = self.rows.load_some_pages(rows)
        self._admit()
        return is_left

    def begin_in_kernel(self) -> None:
        """Prepares rows and lists for a kernel that changes both itself until `settle`."""
        self.rows.pages.record_moves()
        self._follow_pages(len(self.rows.lanes))

    def make_more_room(self) -> None:
        """Makes room for the next event of a kernel that changes rows and lists itself: in pages, and for one more list."""
        self.rows.pages.make_room()
        self.make_room()
        self._follow_pages(len(self.rows.lanes))

    def change(self, chunk: Chunk, timeline: Timeline) -> None:
        """Applies a chunk to rows and lists, and drops its outputs."""
        made = self.resolve_chunk(chunk, timeline).output_records
        opcode, slot, at = made[:, relation.OPCODE].astype(np.uint8), made[:, relation.SLOT].copy(), 0
        while (at := int(k.follow_all(self._lists, opcode, slot, np.int64(at)))) < len(slot):
            self.make_room()
        self.settle()

    def find_matches(self, conditions: Int64s) -> tuple[Int64s, Int64s]:
        """Returns (number, slot) of each settled row that agrees with the fields `conditions[number]`, none of which is null, in no
        order."""
        at = np.empty(len(conditions), np.int64)
        k.find_lists(self._lists, conditions, np.arange(conditions.shape[1]), at)
        number = np.flatnonzero(at >= 0)
        numbers, slots_, at = [number], [at[number]], at[number]
        while len(at):
            at = self._lists.links[at, k.AFTER]
            number, at = number[at >= 0], at[at >= 0]
            numbers.append(number)
            slots_.append(at)
        return np.concatenate(numbers), np.concatenate(slots_)

    def make_room(self) -> None:
        """Makes room for one more list."""
        self._lists = self._lists._replace(by_condition=grown_index(self._lists.by_condition))

    def settle(self) -> None:
        """Ends a chunk; called after all its events were applied to the lists, and its outputs consumed."""
        k.follow_moves(self._lists, np.int64(2**62))
        self.rows.release_outputs()
        self._lists = self._lists._replace(moved=self.rows.pages.rows.moved)
        self._lists.counts[:] = 0

    def __reduce__(self) -> tuple[Callable[..., MultiIndex], tuple[object, ...]]:
        return _received, (self.rows, self._noted_columns)

    def _follow_pages(self, slots_needed: int = 0) -> None:
        """Points the lists to the current memory of the rows, with links for `slots_needed` slots, or for those in use."""
        rows, links, needed = self.rows.pages.rows, self._lists.links, max(slots_needed, self.rows.pages.slots_used)
        if len(links) < needed:
            links = largest_granted(
                len(rows.lanes), needed, lambda length: longer(self._lists.links, len(self._lists.links), length)
            )
        self._lists = self._lists._replace(links=links, lanes=rows.lanes, valid=rows.valid, order=rows.order, moved=rows.moved)
        self._lists.counts[[k.FOLLOWED, k.MOVES]] = 0, rows.state[slots.MOVED]
        self._admit()

    def _admit(self) -> None:
        """Adds loaded rows to the lists, as the rows were before the current chunk: its events are applied to the lists later."""
        found, at = self.rows.pages.pop_loaded_slots(), 0
        self._record_noted(found)
        while len(found) and (at := int(k.admit_all(self._lists, found, np.int64(at)))) < len(found):
            self.make_room()

    def _record_noted(self, slots: Int64s) -> None:
        if self._noted_columns and len(slots):
            found = self.rows.lanes[slots[:, np.newaxis], list(self._noted_columns)]
            self._noted = np.unique(np.concatenate((self._noted, found)), axis=0)

    def _loaded(self) -> None:
        """Builds the lists of all loaded rows."""
        self._lists = empty_lists(self.rows.pages.rows, k.LINKS_WIDTH)
        self._follow_pages()
        order, at = self.rows.pages.loaded_slots_in_order(), 0
        self._record_noted(order)
        while (at := int(k.fill_lists(self._lists, order, np.int64(at)))) < len(order):
            self.make_room()
        self.rows.pages.record_loaded_slots()


def _received(rows: Relation, noted: tuple[int, ...]) -> MultiIndex:
    index = MultiIndex(rows.shape, rows.policy, noted=noted)
    index.rows = rows
    index._loaded()
    index._register_derived()
    return index
