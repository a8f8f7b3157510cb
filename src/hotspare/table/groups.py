"""Which rows of a relation are of one group, in order of arrival: where each group keeps its newest rows (`table.loops.groups`).

Lists are derived from rows, and in no snapshot; their index grows by splitting. After a restore they have the rows that were read:
those of the groups of a chunk come before it is taken.
"""

from __future__ import annotations

import numpy as np

from hotspare.rows.chunk import Chunk
from hotspare.rows.compile import Whole
from hotspare.table.loops import groups as k
from hotspare.table.loops.relation import PARTIAL, InputArrays, OutputArrays, Policy
from hotspare.table.memory import as_much, longer
from hotspare.table.row_index import empty_lists, grown_index, index_bytes
from hotspare.table.row_pages import RowPages


class GroupLists:
    """The lists of the rows of `pages`."""

    def __init__(self, pages: RowPages) -> None:
        self._pages = pages
        rows = pages.rows
        lists = empty_lists(rows, k.LINKS_WIDTH)
        self._groups = k.RowGroups(lists, np.zeros((1, rows.lanes.shape[1]), np.int64))
        pages.home.count(self)

    def relate(self, out: OutputArrays, policy: Policy, given: InputArrays) -> Whole:
        """As the kernel. Where it asks for room, it is to be made in the pages and here."""
        self._pages.note_moves()
        self.admit()
        return k.relate_groups(self._pages.rows, self._groups, out, policy, given)

    def make_room(self) -> None:
        """Room for one group more."""
        lists = self._groups.lists
        self._groups = self._groups._replace(lists=lists._replace(by_condition=grown_index(lists.by_condition)))

    def bring(self, chunk: Chunk) -> None:
        """Read what a restore left in the store of the groups to which these rows may come. Of a partial one that names some fields
        of its group the others are those of the stored row, or of one before it: then all is read."""
        if self._pages.absent is None:
            return
        named = chunk.valid[:, self._pages.rows.conditions]
        is_whole = named.all(axis=1)
        if (named.any(axis=1) & ~is_whole & (chunk.flags & PARTIAL > 0)).any():
            self._pages.bring_all()
        self._pages.bring_by(chunk.lanes[is_whole][:, self._pages.rows.conditions])

    def admit(self) -> None:
        """Let lists have rows that came from the store."""
        self._follow_pages()
        found, at = self._pages.taken_brought(), 0
        while at < len(found) and (at := int(k.admit_groups(self._groups.lists, found, np.int64(at)))) < len(found):
            self.make_room()

    def fill(self) -> None:
        """Enter all rows that were read."""
        self._follow_pages()
        order, at = self._pages.present(), 0
        while at < len(order) and (at := int(k.fill_groups(self._groups.lists, order, np.int64(at)))) < len(order):
            self.make_room()
        self._pages.tell_brought()

    @property
    def stays_bytes(self) -> int:
        """Of memory beside that of rows."""
        return index_bytes(self._groups.lists.by_condition) + 8 * k.LINKS_WIDTH * self._pages.slots_used

    def _follow_pages(self) -> None:
        """Name the memory in which rows stand now."""
        rows, lists = self._pages.rows, self._groups.lists
        links, length = lists.links, len(rows.lanes)
        if len(links) < length:
            known = links
            links = as_much(length, length, lambda most: longer(known, len(known), most))
        lists = lists._replace(links=links, lanes=rows.lanes, valid=rows.valid, order=rows.order, moved=rows.moved)
        self._groups = self._groups._replace(lists=lists)
