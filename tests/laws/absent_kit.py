"""What the laws of pages that a restore left in the store share: small pages, stores that tell what they were asked for, and the
law itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hotspare.engine.head.head import Head
from hotspare.engine.pipeline import Pipeline
from hotspare.engine.plan import Plan
from hotspare.engine.state.over_rows import OverRows
from hotspare.engine.state.queue import RowQueue
from hotspare.engine.state.relation import Relation
from hotspare.engine.state.row_pages import RowPages
from hotspare.engine.tuning import Tuning, under
from hotspare.stores.contract import Store
from hotspare.stores.open import open_store
from hotspare.stores.settings import StoreSettings
from tests.cases.case import Case, Message, raw_batches
from tests.laws.core_scripts import bytes_of, joined, snapshot_bytes
from tests.laws.test_cut import cut


class Comes(Enum):
    """When pages come that a restore left in the store."""

    AT_USE = "at use"
    BY_AND_BY = "by and by"


class Asked(Mapping[str, bytes]):
    """Pages as of a store that reads them when they are asked for, and which were."""

    def __init__(self, pages: Mapping[str, bytes]) -> None:
        self.pages = pages
        self.names: list[str] = []

    def known(self, page: str) -> object:
        return None

    def expect(self, pages: Sequence[str]) -> None:
        assert set(pages) <= set(self.pages)

    def __getitem__(self, name: str) -> bytes:
        self.names.append(name)
        return self.pages[name]

    def __contains__(self, name: object) -> bool:
        return name in self.pages

    def __iter__(self) -> Iterator[str]:
        return iter(self.pages)

    def __len__(self) -> int:
        return len(self.pages)


FEW_KEY_PAGES = Tuning(key_pages_min=2)
"""Under it `filled` writes key pages for a few thousand rows."""


def small_pages(slots: int, pages_min: int = 2) -> Tuning:
    """Pages, of rows and of keys, are small, and few rows come into a list at a time."""
    return Tuning(page_slots=slots, spare_slots=0, key_pages_min=pages_min, key_page_spans=3, linked_rows=7)


def only_at_use(patch: pytest.MonkeyPatch) -> None:
    """No page comes because a step is done."""
    patch.setattr(RowPages, "bring_some", lambda each, rows: True)
    patch.setattr(RowQueue, "bring_some", lambda each, rows: each.absent is not None)


def parts_of(pipeline: Pipeline) -> dict[str, Relation]:
    """The rows of all parts that have some, by window and part."""
    found = {}
    for name, page in pipeline._state.pages.items():
        for part, rows in page.parts.items():
            if isinstance(rows, Relation | OverRows):
                relation = rows if isinstance(rows, Relation) else rows.rows
                found[f"{name.partition('/')[2].partition('#')[0]} {part}"] = relation
    return found


def absent(pipeline: Pipeline) -> dict[str, int]:
    """How many pages are, by window and part."""
    found = {}
    for name, each in parts_of(pipeline).items():
        if each._queue is not None and each._queue.absent is not None:
            found[name] = each._queue.absent.pages
        elif each.pages.absent is not None:
            found[name] = each.pages.absent.left
    return found


def fed(pieces: list[pa.RecordBatch], pipeline: Pipeline) -> dict[str, pa.Table]:
    return joined([pipeline.feed(piece) for piece in pieces])


def unread(pieces: list[pa.RecordBatch], pipeline: Pipeline) -> list[pa.RecordBatch]:
    """What a restored pipeline reads again: rows that waited in its merge."""
    topics = 1 + max(topic for topic, _ in pipeline.next_offsets) if pipeline.next_offsets else 1
    following = np.zeros(max(topics, *(1 + int(piece.column("topic").to_numpy().max()) for piece in pieces)), np.int64)
    for (topic, _), offset in pipeline.next_offsets.items():
        following[topic] = offset
    where = [(piece.column("topic").to_numpy(), piece.column("offset").to_numpy()) for piece in pieces]
    return [piece.filter(pa.array(offset >= following[topic])) for piece, (topic, offset) in zip(pieces, where, strict=True)]


def decoded(plan: Plan, messages: Sequence[Message]) -> list[pa.RecordBatch]:
    """A batch of each message."""
    head = Head.of(plan)
    return [head.decode(raw) for raw in raw_batches(Case(plan, tuple(messages), ()))]


def in_one(plan: Plan, offset: int, messages: Sequence[Message]) -> pa.RecordBatch:
    """All messages in one batch, from this offset on."""
    raw = pa.concat_batches(raw_batches(Case(plan, tuple(messages), ())))
    return Head.of(plan).decode(raw.set_column(2, "offset", pa.array(np.arange(offset, offset + raw.num_rows))))


@dataclass(frozen=True, slots=True)
class Went:
    """How many pages were absent after a restore, and at the end."""

    before: dict[str, int]
    after: dict[str, int]


def check_after_restore(plan: Plan, pieces: Sequence[pa.RecordBatch], place: int, comes: Comes, patch: pytest.MonkeyPatch) -> Went:
    """Of a restore after so many batches: outputs, and snapshots that are taken at once, while pages are absent and in the end, are
    what they are where all is read; in many pieces and in few, and after another restore amid. Strings that nothing holds are
    forgotten meanwhile."""
    pieces, whole = list(pieces), Pipeline.fresh(plan)
    fed(pieces[:place], whole)
    frozen, was = whole.freeze(), snapshot_bytes(whole)
    expected = Pipeline.restore(plan, frozen.header, dict(frozen.pages()))
    assert absent(expected) == {}
    outputs, after = fed(unread(pieces, expected), expected), snapshot_bytes(expected)
    if comes is Comes.AT_USE:
        only_at_use(patch)
    for many in (True, False):
        restored = Pipeline.restore(plan, frozen.header, Asked(dict(frozen.pages())))
        before = absent(restored)
        assert snapshot_bytes(restored) == was
        rest = unread(pieces, restored)
        rest = [part for piece in rest for part in cut(piece, list(range(0, 200, 11)))] if many else rest
        restored._state.forget_strings()
        again = restored.freeze()
        made = [restored.feed(piece) for piece in rest[: len(rest) // 3]]
        amid = restored.freeze()
        made += [restored.feed(piece) for piece in rest[len(rest) // 3 :]]
        assert joined(made) == outputs
        assert bytes_of(again) == was
        assert snapshot_bytes(restored) == after
        if many:
            continue
        third = Pipeline.restore(plan, amid.header, Asked(dict(amid.pages())))
        fed(unread(pieces, third), third)
        assert snapshot_bytes(third) == after
    return Went(before, absent(restored))


def check_restarts(plan: Plan, pieces: Sequence[pa.RecordBatch], places: Sequence[int]) -> None:
    """With a restore at each of these places, one after the other, outputs and the last snapshot are those of a run without."""
    pieces, whole, restored = list(pieces), Pipeline.fresh(plan), Pipeline.fresh(plan)
    outputs, made = fed(pieces, whole), []
    for end in [*sorted(places), len(pieces)]:
        made += [restored.feed(piece) for piece in unread(pieces[:end], restored)] if end else []
        frozen = restored.freeze()
        restored = Pipeline.restore(plan, frozen.header, Asked(dict(frozen.pages())))
    assert joined(made) == outputs
    assert snapshot_bytes(restored) == snapshot_bytes(whole)


def check_any_restarts(plan: Plan, pieces: Sequence[pa.RecordBatch], places: Sequence[int], tuning: Tuning, comes: Comes) -> None:
    """`check_restarts` under a drawn tuning."""
    with under(tuning), pytest.MonkeyPatch.context() as patch:
        if comes is Comes.AT_USE:
            only_at_use(patch)
        check_restarts(plan, pieces, places)


def restored_at(plan: Plan, pieces: Sequence[pa.RecordBatch], place: int, count: int) -> Iterator[Pipeline]:
    """The same snapshot, after so many batches, so often."""
    whole = Pipeline.fresh(plan)
    fed(list(pieces)[:place], whole)
    frozen = whole.freeze()
    for _ in range(count):
        yield Pipeline.restore(plan, frozen.header, Asked(dict(frozen.pages())))


def check_all_comes(plan: Plan, pieces: Sequence[pa.RecordBatch], place: int) -> dict[str, int]:
    """After a restore and a while nothing is absent, also where no event comes, and what was not read is read once. How many pages
    were absent at first."""
    pieces, whole = list(pieces), Pipeline.fresh(plan)
    fed(pieces[:place], whole)
    frozen = whole.freeze()
    pages = Asked(dict(frozen.pages()))
    restored = Pipeline.restore(plan, frozen.header, pages)
    before = absent(restored)
    while restored._state.read_later:
        restored._state.read_some(0)
    assert absent(restored) == {}
    assert len(set(pages.names)) == len(pages.names) == len(pages)
    other = Pipeline.restore(plan, frozen.header, dict(frozen.pages()))
    assert fed(unread(pieces, restored), restored) == fed(unread(pieces, other), other)
    return before


def opened(kind: str, folder: Path) -> Store:
    """A folder, or a store that is read as one on a server is."""
    url = (folder / "store").as_uri() if kind == "folder" else f"sqlite:///{folder}/store.db"
    return open_store(url, settings=StoreSettings(at_once_bytes_max=0))


def filled(store: Store, of: Plan, pieces: Iterable[pa.RecordBatch]) -> Store:
    """With a snapshot of what comes of these batches, of which pages are read later: under FEW_KEY_PAGES."""
    pipeline = Pipeline.fresh(of)
    for piece in pieces:
        pipeline.feed(piece)
    frozen = pipeline.freeze()
    store.put("g", "s", "e", 1, frozen.header, frozen.contents())
    store.confirm("g", "s")
    return store
