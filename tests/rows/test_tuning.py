"""Sizes of a state: each test and each part has its own."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from hotspare.rows.chunk import Chunk, Timeline
from hotspare.rows.tuning import DEFAULT, SMALL, Tuning, current, tuning_override
from hotspare.table.relation import Relation, Shape
from tests.table.relations import reload
from tests.tunings import SIZES

SHAPE = Shape(1, (0,), ())
UPSERT = 3


def upserts(keys: range) -> tuple[Chunk, Timeline]:
    count = len(keys)
    opcode, flags = np.full(count, UPSERT, np.uint8), np.ones(count, np.uint8)
    chunk = Chunk(np.arange(count), opcode, flags, np.array(keys).reshape(-1, 1), np.ones((count, 1), np.bool_))
    return chunk, Timeline(np.zeros(count, np.int64), np.empty(0, np.int64))


def test_laws_draw_every_size() -> None:
    assert list(SIZES) == [each.name for each in fields(Tuning)]
    assert all(getattr(SMALL, name) < getattr(DEFAULT, name) for name in SIZES)


def test_a_tuning_lasts_as_long_as_its_block() -> None:
    with tuning_override(SMALL):
        with pytest.raises(ValueError, match="in the block"), tuning_override(Tuning(page_slots=2)):
            assert current().page_slots == 2
            raise ValueError("in the block")
        assert current() is SMALL
    assert current() is DEFAULT


def test_a_relation_keeps_the_tuning_under_which_it_was_made() -> None:
    """A restored one has the page size of its snapshot, and otherwise the current values."""
    with tuning_override(SMALL):
        relation = Relation(SHAPE)
    relation.change(*upserts(range(9)))
    assert (relation.pages.page_slots, len(relation.row_pages())) == (4, 3)
    with tuning_override(Tuning(page_slots=2)):
        restored = reload(relation, Relation(SHAPE))
    restored.change(*upserts(range(9, 12)))
    assert (restored.pages.page_slots, len(restored.row_pages())) == (4, 3)
    assert restored.stored()[0].tolist() == [[key] for key in range(12)]
