"""Parts that derive structures from the rows of a relation; a snapshot contains only the rows.

The rows are frozen, written, loaded and marked as those of a relation. A subclass rebuilds what it derives after rows were loaded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from hotspare.rows.chunk import UInt8s
from hotspare.table.key_pages import KeysOfPages
from hotspare.table.memory import Home
from hotspare.table.pages import Columns
from hotspare.table.relation import Relation
from hotspare.table.row_layout import RowsOfPage


class OverRows(ABC):
    """A part of `rows` and the structures derived from them."""

    rows: Relation

    @abstractmethod
    def _loaded(self) -> None:
        """Rebuilds the derived structures after rows were replaced."""

    @property
    @abstractmethod
    def stays_bytes(self) -> int:
        """Bytes of the derived structures."""

    def live_in(self, home: Home) -> None:
        self.rows.live_in(home)
        self._loaded()
        self._count()

    def _count(self) -> None:
        """Counts the derived structures where the rows live."""
        self.rows.pages.home.count(self)

    def freeze(self) -> Relation:
        """Returns a twin of the rows: all that a snapshot needs."""
        return self.rows.freeze()

    def columns(self) -> Columns:
        return self.rows.columns()

    def row_pages(self) -> list[RowsOfPage]:
        return self.rows.row_pages()

    def load_pages(self, columns: Columns, pages: Mapping[int, Columns]) -> None:
        self.rows.load_pages(columns, pages)
        self._loaded()

    def key_pages(self) -> Sequence[KeysOfPages]:
        return self.rows.key_pages()

    @property
    def is_read_later(self) -> bool:
        return self.rows.is_read_later

    @property
    def codes_per_row(self) -> int:
        return self.rows.codes_per_row

    @property
    def written(self) -> int:
        return self.rows.written

    def mark(self, marks: UInt8s, mark: int, since: int, rows: int) -> int:
        return self.rows.mark(marks, mark, since, rows)
