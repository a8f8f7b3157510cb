"""Parts that derive structures from the rows of a relation; a snapshot contains only the rows.

The rows are frozen, written, loaded and marked as those of a relation. A subclass rebuilds what it derives after rows were loaded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from hotspare.rows.chunk import UInt8s
from hotspare.table.key_filters import FrozenKeyFilter
from hotspare.table.memory import WindowMemory
from hotspare.table.pages import Columns
from hotspare.table.relation import Relation
from hotspare.table.row_layout import FrozenRowPage


class DerivedPart(ABC):
    """A part of `rows` and the structures derived from them."""

    rows: Relation

    @abstractmethod
    def _loaded(self) -> None:
        """Rebuilds the derived structures after rows were replaced."""

    @property
    @abstractmethod
    def pinned_bytes(self) -> int:
        """Bytes of the derived structures."""

    def set_window_memory(self, home: WindowMemory) -> None:
        self.rows.set_window_memory(home)
        self._loaded()
        self._register_derived()

    def _register_derived(self) -> None:
        """Counts the derived structures where the rows live."""
        self.rows.pages.home.register_counted(self)

    def freeze(self) -> Relation:
        """Returns a twin of the rows: all that a snapshot needs."""
        return self.rows.freeze()

    def columns(self) -> Columns:
        return self.rows.columns()

    def row_pages(self) -> list[FrozenRowPage]:
        return self.rows.row_pages()

    def load_pages(self, columns: Columns, pages: Mapping[int, Columns]) -> None:
        self.rows.load_pages(columns, pages)
        self._loaded()

    def key_filters(self) -> Sequence[FrozenKeyFilter]:
        return self.rows.key_filters()

    @property
    def has_unloaded_pages(self) -> bool:
        return self.rows.has_unloaded_pages

    @property
    def codes_per_row(self) -> int:
        return self.rows.codes_per_row

    @property
    def write_position(self) -> int:
        return self.rows.write_position

    def mark(self, marks: UInt8s, mark: int, since: int, rows: int) -> int:
        return self.rows.mark(marks, mark, since, rows)
