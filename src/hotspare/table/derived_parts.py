"""Parts that derive structures from the rows of a relation; a snapshot contains only the rows.

The part freezes, writes, loads and marks its rows as a relation does. A subclass rebuilds the derived structures after rows were
loaded.
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
    """A part that consists of `rows` and of structures derived from them."""

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
        """Registers the derived structures with the memory of the rows, so that their bytes count."""
        self.rows.pages.home.register_counted(self)

    def freeze(self) -> Relation:
        """Returns a frozen copy of the rows alone, because a snapshot needs nothing else."""
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
