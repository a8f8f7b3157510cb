"""The state of windows, as pages of flat buffers.

A page is made of named parts (counters, a ring, a keyed relation). A part can be shared with a snapshot without stopping the
engine. The bits that are written do not depend on how the input was cut into batches. Capacity, hash tables, free lists and string
codes are derived: no snapshot contains them and no output depends on them.

A part with many rows is paged: it is written as one piece, the layout, and row pages. Most row pages are the same as in the
previous snapshot and are not written again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from hotspare.base.errors import SnapshotDamaged
from hotspare.rows.chunk import Int64s
from hotspare.table.memory import WindowMemory
from hotspare.table.strings import FrozenStrings

W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Column:
    """A flat buffer of a part. `codes`: the columns of a two-dimensional int64 array that hold codes of the string table."""

    array: npt.NDArray[Any]
    codes: tuple[int, ...] = ()


Columns = Mapping[str, Column]


class Part(Protocol):
    """A piece of a page. A part does its own copy-on-write when it is mutated."""

    def freeze(self) -> Part:
        """Returns a twin with the current content, cheaply: it shares buffers until this part is next written to."""

    def columns(self) -> Columns:
        """Returns the content in canonical form: equal inputs give equal arrays, however they were cut into batches."""


@runtime_checkable
class WholePart(Part, Protocol):
    """A part that is written as one piece."""

    def load(self, columns: Columns) -> None:
        """Replaces the content by columns that `columns` returned. Raises SnapshotDamaged if they do not fit."""


class RowPage(Protocol):
    """The rows of one page of a paged part. `store_key`: the store's reference to the page, None if the page is not stored. The
    stored page may hold rows removed since; the part's `columns` show which rows exist."""

    @property
    def number(self) -> int: ...

    @property
    def store_key(self) -> object: ...

    def set_store_key(self, known: object) -> None:
        """Records `known` as the `store_key`, for later snapshots, too; callable from any thread."""

    def content(self) -> tuple[Columns, FrozenStrings | None]:
        """Returns the rows that the page holds, and the strings of their codes (None: those of the table)."""


class FilterPiece(Enum):
    """A piece of a key filter that is stored on its own. The value begins the piece's name in a snapshot."""

    OUTLINE = "outline"
    """Whether the filter may have a half, and the first expiry keys; a restored engine reads all outlines at its first event."""
    HALVES = "keys"


class KeyFilterPage(Protocol):
    """A piece of a key filter, stored next to row pages; `store_key` as in `RowPage`."""

    @property
    def number(self) -> int: ...

    @property
    def piece(self) -> FilterPiece: ...

    @property
    def store_key(self) -> object: ...

    def set_store_key(self, known: object) -> None: ...

    def columns(self, hashes: npt.NDArray[np.uint64]) -> Columns:
        """Returns the piece's columns to be written. `hashes`: the hashes of the table's strings, by code."""


@runtime_checkable
class LazyPart(Protocol):
    """A paged part whose row pages a restore may load later."""

    def key_filters(self) -> Sequence[KeyFilterPage]:
        """Returns the pieces of the key filters of a frozen twin: which row pages may hold a key (`key_filters`)."""

    @property
    def has_unloaded_pages(self) -> bool:
        """Whether row pages are still unloaded."""

    def load_some_pages(self, rows: int) -> bool:
        """Loads a few unloaded pages, the more the greater `rows` is, the rows of the last step. Returns False if all loading is
        done."""


@runtime_checkable
class Paged(Protocol):
    """A part with row pages. Its `columns` are written next to the row pages."""

    def row_pages(self) -> Sequence[RowPage]:
        """Returns the row pages of a frozen twin, by number; pages without rows may be omitted."""

    def load_pages(self, columns: Columns, pages: Mapping[int, Columns]) -> None:
        """Replaces the content by that of a snapshot: what `columns` and `row_pages` returned. A page may hold rows that had been
        removed when `columns` was written. Raises SnapshotDamaged if they do not fit."""


@runtime_checkable
class EvictablePart(Protocol):
    """A part whose rows may be evicted from memory."""

    def set_window_memory(self, home: WindowMemory) -> None:
        """Sets the memory in which the rows live; called before the first row."""


class Counters:
    """A few int64 numbers. `values` may be written in place; they are too few for copy-on-write."""

    def __init__(self, count: int) -> None:
        self.values: Int64s = np.zeros(count, np.int64)

    def freeze(self) -> Counters:
        twin = Counters(len(self.values))
        twin.values[:] = self.values
        return twin

    def columns(self) -> Columns:
        return {"values": Column(self.values)}

    def load(self, columns: Columns) -> None:
        self.values[:] = require_column(columns, "values", np.dtype(np.int64), self.values.shape).array


class Pending(Generic[W]):
    """Work of a window that waits for room in the outputs. No work waits when a snapshot is taken or strings are collected, so none
    is written."""

    def __init__(self) -> None:
        self.work: W | None = None

    def freeze(self) -> Pending[W]:
        return Pending()

    def columns(self) -> Columns:
        return {}

    def load(self, columns: Columns) -> None:
        pass


@dataclass(slots=True)
class Page:
    """The state of one window, or of a slice of it: parts by name. A stateless window has no parts. `is_pinned`: whether no part of
    it may be evicted."""

    parts: dict[str, Part] = field(default_factory=dict)
    is_pinned: bool = False

    def freeze(self) -> Page:
        return Page({name: part.freeze() for name, part in self.parts.items()})


def require_column(columns: Columns, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Column:
    """Returns the column of that name, type and shape (-1 is any length). Raises SnapshotDamaged otherwise."""
    column = columns.get(name)
    if column is None:
        raise SnapshotDamaged(f"a page has no buffer {name}")
    array = column.array
    fits = array.ndim == len(shape) and all(want in (-1, have) for want, have in zip(shape, array.shape, strict=True))
    if array.dtype != dtype or not fits:
        raise SnapshotDamaged(
            f"buffer {name} of a page has an unexpected form",
            detail=f"found {array.dtype} {array.shape}, expected {dtype} {shape}",
        )
    return column
