"""Laws of a relation's layout, and of the outlines of its key filters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import SnapshotDamaged
from hotspare.table.key_filters import HashHalves, KeyOutline
from hotspare.table.loops import unloaded as k
from hotspare.table.pages import Column
from hotspare.table.row_layout import Layout
from tests.examples import examples

pytestmark = pytest.mark.law


@examples(1)
@given(st.integers(1, 20), st.integers(0, 90), st.integers(0, 90))
def test_contiguous_rows_are_those_from_the_first_to_the_last(page_slots: int, first: int, rows: int) -> None:
    """Bits, counts and words agree, and a layout that was written is read back equal."""
    last = first + rows
    layout = Layout.contiguous(first, last, page_slots)
    alive = np.array([layout.alive(at) for at in range(len(layout.numbers))], np.bool_).reshape(-1, page_slots)
    positions = layout.numbers[:, np.newaxis] * page_slots + np.arange(page_slots)
    assert np.array_equal(alive, (positions >= first) & (positions < last))
    assert layout.counts.tolist() == alive.sum(axis=1).tolist()
    assert np.array_equal(np.unpackbits(layout.words.view(np.uint8), bitorder="little")[: alive.size], alive.reshape(-1))
    if rows:
        assert Layout.load(layout.columns()).is_as(layout)


def test_a_bit_after_the_last_slot_is_damage() -> None:
    columns = dict(Layout.contiguous(0, 20, 12).columns())
    columns["alive"] = Column(columns["alive"].array | np.uint8(0x80))
    with pytest.raises(SnapshotDamaged, match="contradict"):
        Layout.load(columns)


@examples(1)
@given(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=60), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_an_outline_has_every_half(pages: list[list[int]], other: int) -> None:
    """A half that an outline lacks is in no page; one that is in a page is never missed, also after writing and reading."""
    halves = HashHalves.from_pages([np.array(page, np.uint32) for page in pages])
    outline = KeyOutline.from_halves(np.arange(len(pages)), [halves], {})
    (marks,) = KeyOutline.load(outline.columns(), 1).marks
    for half in halves.halves.tolist():
        assert k.may_have_half(marks, np.array([half], np.uint32))
    if not k.may_have_half(marks, np.array([other], np.uint32)):
        assert other not in halves.halves
    assert k.may_have_half(marks, halves.halves) == bool(len(halves.halves))
