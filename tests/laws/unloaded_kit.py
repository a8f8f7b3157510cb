"""Tools for the laws of pages that a restore left in the store: a store that records page reads, and the unread pages of an
engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hotspare.base.errors import StoreError
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan
from hotspare.stores.contract import Store
from hotspare.stores.open import open_store
from hotspare.stores.settings import StoreSettings
from hotspare.table.derived_parts import DerivedPart
from hotspare.table.pages import FilterPiece
from hotspare.table.queue import RowQueue
from hotspare.table.relation import Relation
from hotspare.table.row_pages import RowPages
from tests.cases.case import Case, Message, raw_batches


def is_of_key_filter(name: str) -> bool:
    """Whether a page of a snapshot is a piece of a key filter."""
    return any(f"/{piece.value}" in name for piece in FilterPiece)


class StoreFault(StoreError):
    """A page cannot be read."""


class Asked(Mapping[str, bytes]):
    """Pages of a store that reads them one by one, and the names of those that were read, in order."""

    def __init__(self, pages: Mapping[str, bytes], fails_at: int = -1) -> None:
        """`fails_at`: the number of the read that raises StoreFault; -1: none does."""
        self.pages, self._fails_at = pages, fails_at
        self.names: list[str] = []

    def store_key_of(self, page: str) -> object:
        return None

    def prefetch_pages(self, pages: Sequence[str]) -> None:
        assert set(pages) <= set(self.pages)

    def __getitem__(self, name: str) -> bytes:
        self.names.append(name)
        if len(self.names) - 1 == self._fails_at:
            raise StoreFault(f"page {name} cannot be read")
        return self.pages[name]

    def __contains__(self, name: object) -> bool:
        return name in self.pages

    def __iter__(self) -> Iterator[str]:
        return iter(self.pages)

    def __len__(self) -> int:
        return len(self.pages)


def only_at_use(patch: pytest.MonkeyPatch) -> None:
    """Switches off the reads after a step: a page is read only if it is needed."""
    patch.setattr(RowPages, "load_some_pages", lambda each, rows: True)
    patch.setattr(RowQueue, "load_some_pages", lambda each, rows: each.unloaded is not None)


def walk_typed(pipeline: Pipeline) -> dict[str, Relation]:
    """Returns the rows of each part that has some, by window and part."""
    found = {}
    for name, page in pipeline._state.pages.items():
        for part, rows in page.parts.items():
            if isinstance(rows, Relation | DerivedPart):
                relation = rows if isinstance(rows, Relation) else rows.rows
                found[f"{name.partition('/')[2].partition('#')[0]} {part}"] = relation
    return found


def absent(pipeline: Pipeline) -> dict[str, int]:
    """Returns the number of unread pages, by window and part."""
    found = {}
    for name, each in walk_typed(pipeline).items():
        if each._queue is not None and each._queue.unloaded is not None:
            found[name] = each._queue.unloaded.pages
        elif each.pages.unloaded is not None:
            found[name] = each.pages.unloaded.left
    return found


def unread(pieces: list[pa.RecordBatch], pipeline: Pipeline) -> list[pa.RecordBatch]:
    """Returns the rows that a restored pipeline reads again, as they waited in its merge."""
    topics = 1 + max(topic for topic, _ in pipeline.next_offsets) if pipeline.next_offsets else 1
    following = np.zeros(max([topics, *(1 + int(piece.column("topic").to_numpy().max(initial=0)) for piece in pieces)]), np.int64)
    for (topic, _), offset in pipeline.next_offsets.items():
        following[topic] = offset
    where = [(piece.column("topic").to_numpy(), piece.column("offset").to_numpy()) for piece in pieces]
    return [piece.filter(pa.array(offset >= following[topic])) for piece, (topic, offset) in zip(pieces, where, strict=True)]


def decoded(plan: Plan, messages: Sequence[Message]) -> list[pa.RecordBatch]:
    """Returns a batch for each message."""
    head = Head.from_plan(plan)
    return [head.decode(raw) for raw in raw_batches(Case(plan, tuple(messages), ()))]


def in_one(plan: Plan, offset: int, messages: Sequence[Message]) -> pa.RecordBatch:
    """Returns all messages in one batch, with offsets from `offset` on."""
    raw = pa.concat_batches(raw_batches(Case(plan, tuple(messages), ())))
    return Head.from_plan(plan).decode(raw.set_column(2, "offset", pa.array(np.arange(offset, offset + raw.num_rows))))


def opened(kind: str, folder: Path) -> Store:
    """Opens a folder, or, for any other `kind`, a store that is read as one on a server is. Pages of any size are read later."""
    url = (folder / "store").as_uri() if kind == "folder" else f"sqlite:///{folder}/store.db"
    return open_store(url, settings=StoreSettings(eager_bytes_max=0))
