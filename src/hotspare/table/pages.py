"""Pages: what windows remember, as flat buffers.

A page is made of named parts (counters, a ring, a keyed relation). Each part knows three things: how to be shared with a snapshot
without stopping the engine, how to be written so that the bits do not depend on how the input was cut, and how to be read back.
Capacity, hash tables, free lists and string codes are derived: they are in no snapshot and never show in an output.

A part with many rows is paged: it is written as one piece that tells what stands where, and row pages, most of which are the same
as in the snapshot before and need not be written again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from hotspare.base.errors import SnapshotDamaged
from hotspare.rows.chunk import Int64s
from hotspare.table.memory import Home
from hotspare.table.strings import FrozenStrings

W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Column:
    """One flat buffer of a part. `codes`: which columns of a two-dimensional int64 array hold codes of the string table."""

    array: npt.NDArray[Any]
    codes: tuple[int, ...] = ()


Columns = Mapping[str, Column]


class Part(Protocol):
    """A piece of a page. Whoever mutates one takes care of its own copy-on-write."""

    def freeze(self) -> Part:
        """A twin with today's content, cheaply: buffers are shared until this part is next written to."""

    def columns(self) -> Columns:
        """The content, canonical: equal histories give equal arrays however they were cut into batches."""


@runtime_checkable
class Whole(Part, Protocol):
    """A part that is written as one piece."""

    def load(self, columns: Columns) -> None:
        """Takes over what `columns` returned; raises SnapshotDamaged if it does not fit."""


class RowPage(Protocol):
    """Rows of a paged part. `known`: what a store said when it took the page as it is now, but for rows that are gone meanwhile,
    which `columns` of the part tell; None where none did."""

    @property
    def number(self) -> int: ...

    @property
    def known(self) -> object: ...

    def note(self, known: object) -> None:
        """Keep `known` for snapshots to come; from any thread."""

    def content(self) -> tuple[Columns, FrozenStrings | None]:
        """The rows that are there; the strings that their codes are of, None: those of the table."""


class KeyPage(Protocol):
    """Beside row pages; `known` and `note` as theirs."""

    @property
    def number(self) -> int: ...

    @property
    def known(self) -> object: ...

    def note(self, known: object) -> None: ...

    def columns(self, hashes: npt.NDArray[np.uint64]) -> Columns:
        """`hashes`: of the strings of the table, by code."""


@runtime_checkable
class Keyed(Protocol):
    """A paged part of which a restore may read row pages later."""

    def key_pages(self) -> Sequence[KeyPage]:
        """Of a frozen twin: what tells in which row pages a key may be (`key_pages.Halves`)."""

    @property
    def is_read_later(self) -> bool:
        """Whether row pages were not read yet."""

    def read_some(self, rows: int) -> bool:
        """After a step of so many rows: read some of the pages that were not read yet. False where none is left."""


@runtime_checkable
class Paged(Protocol):
    """A part with row pages. Its `columns` are what is written next to them."""

    def row_pages(self) -> Sequence[RowPage]:
        """Of a frozen twin, by number; a page without rows may be left out."""

    def load_pages(self, columns: Columns, pages: Mapping[int, Columns]) -> None:
        """Take over what `columns` and `row_pages` returned; SnapshotDamaged where that cannot be. A page may hold rows that were
        gone when `columns` was written."""


@runtime_checkable
class Housed(Protocol):
    """A part whose rows may leave memory."""

    def live_in(self, home: Home) -> None:
        """Where they live from now on; there are none yet."""


class Counters:
    """A few int64 numbers. `values` may be written in place; copy-on-write is not worth it for so little."""

    def __init__(self, count: int) -> None:
        self.values: Int64s = np.zeros(count, np.int64)

    def freeze(self) -> Counters:
        twin = Counters(len(self.values))
        twin.values[:] = self.values
        return twin

    def columns(self) -> Columns:
        return {"values": Column(self.values)}

    def load(self, columns: Columns) -> None:
        self.values[:] = expect(columns, "values", np.dtype(np.int64), self.values.shape).array


class Pending(Generic[W]):
    """Work that waits for room. There is none when a snapshot is taken or strings are collected."""

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
    """The state of one window, or of a slice of it: parts by name. A stateless window has a page without parts. `stays`: none of it
    is to leave memory."""

    parts: dict[str, Part] = field(default_factory=dict)
    stays: bool = False

    def freeze(self) -> Page:
        return Page({name: part.freeze() for name, part in self.parts.items()})


def expect(columns: Columns, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Column:
    """The column of that name, type and shape (-1 is any length); SnapshotDamaged otherwise."""
    column = columns.get(name)
    if column is None:
        raise SnapshotDamaged(f"a page lacks its buffer {name}")
    array = column.array
    fits = array.ndim == len(shape) and all(want in (-1, have) for want, have in zip(shape, array.shape, strict=True))
    if array.dtype != dtype or not fits:
        raise SnapshotDamaged(
            f"buffer {name} of a page has another form",
            detail=f"found {array.dtype} {array.shape}, expected {dtype} {shape}",
        )
    return column
