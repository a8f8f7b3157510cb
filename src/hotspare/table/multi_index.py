"""Rows by key and, several together, by the fields of a condition, as a part of a page: what a join keeps of one side.

Rows are those of a `Relation`, in its pages. Beside them stand lists: rows that agree in the fields of the condition, in order of
arrival. A row that changes keeps its place, unless these fields change: then it is the last to have arrived. Null agrees with
nothing. Lists are derived from rows, and in no snapshot; their index grows by splitting.

Where rows are read at use after a restore, lists have those that were read. Who walks a list brings what it lacks before; rows that
come are admitted where they arrived.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hotspare.rows.chunk import Chunk, Int64s, Timeline
from hotspare.table.absent import WhenRead
from hotspare.table.absent_relation import bring_to_clear
from hotspare.table.loops import multi_index as k
from hotspare.table.loops import relation, slots
from hotspare.table.loops.relation import Policy
from hotspare.table.memory import as_much, longer
from hotspare.table.over_rows import OverRows
from hotspare.table.relation import KEEP_ALL, Relation, Resolution, Shape
from hotspare.table.row_index import empty_lists, grown_index, index_bytes


class MultiIndex(OverRows):
    """`apply` resolves a chunk, then a kernel that is given `lists` follows event by event, then `settle`. Until then it is not
    frozen. Or a kernel changes rows and lists itself, between `begin` and `settle`; before it clears a page, `bring_to_clear`.
    `shape.conditions`: the fields of the condition. `reading`: AT_USE only where rows are walked that agree with values for which
    was asked by `bring`, and no others."""

    def __init__(
        self, shape: Shape, policy: Policy = KEEP_ALL, reading: WhenRead = WhenRead.WHOLE, noted: tuple[int, ...] = ()
    ) -> None:
        """`noted`: columns of which `taken_noted` tells what rows have that were loaded, or came later."""
        self.rows = Relation(shape, policy, reading=reading)
        self._lists = empty_lists(self.rows.pages.rows, k.LINKS_WIDTH)
        self._noted_columns, self._noted = noted, np.empty((0, len(noted)), np.int64)
        self._follow_pages()

    @property
    def live(self) -> int:
        return self.rows.live

    @property
    def lists(self) -> k.Lists:
        """For kernels, after `apply`, and after each `make_room`."""
        return self._lists

    @property
    def stays_bytes(self) -> int:
        return index_bytes(self._lists.by_condition) + 8 * k.LINKS_WIDTH * self.rows.pages.slots_used

    def apply(self, chunk: Chunk, timeline: Timeline) -> Resolution:
        """Change the rows; lists are as they were."""
        resolution = self.rows.apply(chunk, timeline)
        self._follow_pages()
        return resolution

    def expect(self, lanes: Int64s, columns: Int64s) -> None:
        """Rows that agree with these columns of `lanes` in the fields of the condition come next."""
        self.rows.pages.expect_by(self._lists.by_condition, lanes, columns)

    def bring(self, values: Int64s) -> None:
        """Rows that have these values in the fields of the condition are walked next: read those that a restore left in the store.
        A chunk may have changed the rows before: none that was absent then."""
        self.rows.pages.bring_by(values)
        self._admit()

    def bring_to_clear(self) -> None:
        """Read the page that the next event may clear, if it is absent."""
        bring_to_clear(self.rows.pages)
        self._admit()

    def link_next(self) -> None:
        """It is to be known which row leaves next."""
        self.rows.pages.link_next()
        self._admit()

    def taken_noted(self) -> Int64s:
        """What came up since this was asked, each once."""
        noted, self._noted = self._noted, self._noted[:0]
        return noted

    def read_some(self, rows: int) -> bool:
        is_left = self.rows.read_some(rows)
        self._admit()
        return is_left

    def begin(self) -> None:
        """A kernel changes rows and lists itself from now on."""
        self.rows.pages.note_moves()
        self._follow_pages(len(self.rows.lanes))

    def make_more_room(self) -> None:
        """Room for what such a kernel may need next: in pages, and for one list more."""
        self.rows.pages.make_room()
        self.make_room()
        self._follow_pages(len(self.rows.lanes))

    def change(self, chunk: Chunk, timeline: Timeline) -> None:
        """Change the rows, and their lists with them."""
        made = self.apply(chunk, timeline).made
        opcode, slot, at = made[:, relation.OPCODE].astype(np.uint8), made[:, relation.SLOT].copy(), 0
        while (at := int(k.follow_all(self._lists, opcode, slot, np.int64(at)))) < len(slot):
            self.make_room()
        self.settle()

    def found(self, conditions: Int64s) -> tuple[Int64s, Int64s]:
        """(number, slot) of each row that agrees with the fields `conditions[number]`, none of which is null, in no order. Of rows
        that are settled."""
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
        """Room for one list more."""
        self._lists = self._lists._replace(by_condition=grown_index(self._lists.by_condition))

    def settle(self) -> None:
        """All events are followed, and outputs taken away."""
        k.follow_moves(self._lists, np.int64(2**62))
        self.rows.forget_outputs()
        self._lists = self._lists._replace(moved=self.rows.pages.rows.moved)
        self._lists.counts[:] = 0

    def __reduce__(self) -> tuple[Callable[..., MultiIndex], tuple[object, ...]]:
        return _received, (self.rows, self._noted_columns)

    def _follow_pages(self, slots_needed: int = 0) -> None:
        """Name the memory in which rows stand now, with links for so many slots, or for those that were given."""
        rows, links, needed = self.rows.pages.rows, self._lists.links, max(slots_needed, self.rows.pages.slots_used)
        if len(links) < needed:
            links = as_much(len(rows.lanes), needed, lambda length: longer(self._lists.links, len(self._lists.links), length))
        self._lists = self._lists._replace(links=links, lanes=rows.lanes, valid=rows.valid, order=rows.order, moved=rows.moved)
        self._lists.counts[[k.FOLLOWED, k.MOVES]] = 0, rows.state[slots.MOVED]
        self._admit()

    def _admit(self) -> None:
        """Rows that came from the store, as they stood before the chunk that is worked on: its events are followed later."""
        found, at = self.rows.pages.taken_brought(), 0
        self._note(found)
        while len(found) and (at := int(k.admit_all(self._lists, found, np.int64(at)))) < len(found):
            self.make_room()

    def _note(self, slots: Int64s) -> None:
        if self._noted_columns and len(slots):
            found = self.rows.lanes[slots[:, np.newaxis], list(self._noted_columns)]
            self._noted = np.unique(np.concatenate((self._noted, found)), axis=0)

    def _loaded(self) -> None:
        """Lists of all rows that were read."""
        self._lists = empty_lists(self.rows.pages.rows, k.LINKS_WIDTH)
        self._follow_pages()
        order, at = self.rows.pages.present(), 0
        self._note(order)
        while (at := int(k.fill_lists(self._lists, order, np.int64(at)))) < len(order):
            self.make_room()
        self.rows.pages.tell_brought()


def _received(rows: Relation, noted: tuple[int, ...]) -> MultiIndex:
    index = MultiIndex(rows.shape, rows.policy, noted=noted)
    index.rows = rows
    index._loaded()
    index._count()
    return index
