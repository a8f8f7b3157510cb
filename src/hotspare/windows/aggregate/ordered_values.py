"""Ordered multisets of values, many side by side, as a part of a page: what an aggregate finds least values and percentiles in.

A row of a relation is a value of a set, with how often it is there; `windows.aggregate.loops.ordered` has the trees over them, and
`windows.aggregate.loops.extremes` the heaps of sets that are only asked for extremes. They are derived, and in no snapshot.
Freezing costs what freezing the rows costs. After a restore trees have the rows that were read: whoever changes a set, or asks it,
brings what it lacks before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hotspare.rows.chunk import Int64s
from hotspare.table.absent import KeptPages, WhenRead
from hotspare.table.absent_relation import bring_to_clear
from hotspare.table.memory import longer
from hotspare.table.over_rows import OverRows
from hotspare.table.pages import Columns
from hotspare.table.relation import Relation, Shape
from hotspare.table.row_index import empty_index, grown_index, index_bytes
from hotspare.table.strings import StringTable
from hotspare.windows.aggregate.loops import values as k
from hotspare.windows.aggregate.loops.ordered import fill_trees


class OrderedValues(OverRows):
    """Sets are named by the key of a group, `keys` columns of which `codes` hold codes of strings, and a number; `kinds`: of the
    values of each number, `asked`: what they are asked, as `windows.aggregate.loops.values` has both. A kernel changes `trees`, and
    asks for `make_room`; then `settle`."""

    def __init__(self, keys: int, codes: tuple[int, ...], kinds: Int64s, asked: Int64s) -> None:
        self._keys, self._codes, self._kinds, self._asked = keys, codes, kinds, asked
        width = keys + k.OF_SET
        shape = Shape(width, tuple(range(width - 1)), (*codes, width - k.CODE), tuple(range(keys + 1)), asked=tuple(range(keys)))
        self.rows = Relation(shape, reading=WhenRead.AT_USE)
        self._strings: StringTable | None = None
        """Of a state that was restored: rows that come from the store have codes of it."""
        self._nodes = np.empty((0, k.NODES_WIDTH), np.int64)
        self._roots = empty_index()
        self._probe = np.zeros((1, width), np.int64)
        self._is_built = True

    @property
    def stays_bytes(self) -> int:
        return index_bytes(self._roots) + 8 * k.NODES_WIDTH * self.rows.pages.slots_used

    def bring(self, groups: Int64s) -> None:
        """Sets of groups with these keys are changed, or asked, next: read what a restore left of them in the store."""
        self.rows.pages.bring_by(groups)

    def begin(self, strings: StringTable) -> None:
        """Before a kernel changes anything: from now on rows that are moved are told."""
        self._enter(strings)
        self.rows.pages.note_moves()

    def bring_to_clear(self, strings: StringTable) -> None:
        """Read the page that the next change may clear, if it is absent."""
        bring_to_clear(self.rows.pages)
        self._enter(strings)

    def read_some(self, rows: int) -> bool:
        is_left = self.rows.read_some(rows)
        if self._strings is not None:
            self._enter(self._strings)
        return is_left

    def trees(self, strings: StringTable) -> k.Trees:
        """For kernels, and again after each `make_room`."""
        places, data = strings.texts
        return k.Trees(self.rows.pages.rows, self._nodes, self._roots, self._kinds, self._asked, places, data, self._probe)

    def make_room(self) -> None:
        """Room for one value more."""
        self.rows.pages.make_room()
        self._roots = grown_index(self._roots)
        self._follow_pages()

    def settle(self) -> None:
        """What a kernel made is taken."""
        self.rows.forget_outputs()

    def load_pages(self, columns: Columns, pages: Mapping[int, Columns]) -> None:
        self._strings = pages.strings if isinstance(pages, KeptPages) else None
        super().load_pages(columns, pages)

    def _loaded(self) -> None:
        self._is_built = False

    def __reduce__(self) -> tuple[Callable[..., OrderedValues], tuple[object, ...]]:
        return _received, (self._keys, self._codes, self._kinds, self._asked, self.rows)

    def _follow_pages(self) -> None:
        """Nodes for all slots that there is room for."""
        length = len(self.rows.lanes)
        if len(self._nodes) < length:
            self._nodes = longer(self._nodes, len(self._nodes), length)

    def _enter(self, strings: StringTable) -> None:
        """Let trees have all rows that are in memory."""
        if self._is_built:
            self._fill(self.rows.pages.taken_brought(), strings)
            return
        self._roots, self._is_built = empty_index(), True
        self._fill(self.rows.pages.present(), strings)
        self.rows.pages.tell_brought()

    def _fill(self, slots: Int64s, strings: StringTable) -> None:
        """To order texts, strings are needed, which a snapshot has elsewhere."""
        self._follow_pages()
        at = 0
        while at < len(slots) and (at := int(fill_trees(self.trees(strings), slots, np.int64(at)))) < len(slots):
            self._roots = grown_index(self._roots)


def _received(keys: int, codes: tuple[int, ...], kinds: Int64s, asked: Int64s, rows: Relation) -> OrderedValues:
    values = OrderedValues(keys, codes, kinds, asked)
    values.rows = rows
    values._loaded()
    values._count()
    return values
