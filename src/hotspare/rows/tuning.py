"""The sizes that the engine core uses for its state: they change how the core works, never what it computes.

Outputs, digests and the rows of a snapshot are the same under every value, so tests run under `SMALL`, under which a few rows reach
each limit: pages fill, rings wrap, indexes are built, texts are collected. Parts of a state read the current value when they are
constructed, and retain it; a restored state has the page size of its snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Sizes of a state, with the values of production as defaults. 0 is allowed for `spare_slots`, `late_index_rows_max`,
    `small_bytes`, `small_text_bytes` and the `looks_` fields."""

    page_slots: int = 4096
    """Slots of a page of rows."""
    spare_slots: int = 1 << 18
    """Gaps (slots of removed rows) that a small relation may have: if it changes often, its pages become empty at no cost."""
    late_index_rows_max: int = 1 << 14
    """A relation with more rows that may need an index later builds it now: for this many rows that takes some milliseconds."""
    linked_rows: int = 4096
    """Restored rows that are linked into the list of retention at a time."""

    key_filter_pages_min: int = 16
    """A snapshot with fewer row pages has no key filters, and a restore loads all rows at once."""
    key_filter_spans: int = 64
    """Row pages, by number, that one key filter covers. A snapshot is restored under the value under which it was written."""

    queue_rows_min: int = 64
    """Rows for which a queue has room at first."""
    release_rows: int = 1 << 14
    """Rows of a large queue whose memory is released at a time."""

    text_page_bits: int = 16
    """The binary logarithm of the bytes of a text page."""
    small_text_bytes: int = 1 << 20
    """Up to this many bytes of text are in an ordinary array; more text has reserved address space."""
    text_run_pages: int = 1 << 10
    """The most free text pages chosen to be filled next, unless one text needs more."""
    collect_codes_min: int = 65_536
    """With at most this many codes, and at most `collect_bytes_min` bytes of text, no text is collected."""
    collect_bytes_min: int = 64 << 20
    looks_min: int = 1 << 16
    """Codes that the text collector checks after a step, about a millisecond of work. `looks_per_row` for each row and
    `looks_per_string` for each new string are added."""
    looks_per_row: int = 4
    looks_per_string: int = 16

    csv_piece_bytes: int = 1 << 19
    """Bytes of CSV that are decoded together, about the size of the processor's cache; or one message if it is longer."""
    json_piece_rows: int = 1 << 14
    """The most good rows of JSON messages that are decoded together, and the most bad ones. This size and
    `csv_piece_bytes` are read for each batch, because decoding has no state."""
    clock_rows: int = 64
    """Rows that the clock of a partition checks at first; each time that these decide nothing, it checks four times as many."""

    transposed_lanes: int = 1 << 21
    """The most values that a transpose window emits together, unless one row has more."""

    small_bytes: int = 8 << 20
    """Up to this size an array grows by copying, which takes a few milliseconds; a larger one has reserved address space.
    `small_bytes` and `reserved_bytes` are also read when an array grows, because an array that grew under other values is still
    valid."""
    reserved_bytes: int = 1 << 37
    """Address space of one array that may grow."""


DEFAULT = Tuning()
SMALL = Tuning(
    page_slots=4,
    spare_slots=0,
    late_index_rows_max=2,
    linked_rows=7,
    key_filter_pages_min=2,
    key_filter_spans=3,
    queue_rows_min=4,
    release_rows=8,
    text_page_bits=5,
    small_text_bytes=1 << 9,
    text_run_pages=2,
    collect_codes_min=1,
    collect_bytes_min=1,
    looks_min=3,
    looks_per_row=1,
    looks_per_string=1,
    csv_piece_bytes=16,
    json_piece_rows=2,
    clock_rows=2,
    transposed_lanes=1,
    small_bytes=1 << 12,
    reserved_bytes=1 << 20,
)
"""The sizes for tests: a few rows reach each limit."""

_current = [DEFAULT]


def current() -> Tuning:
    """Returns the tuning for parts that are constructed now; it applies to the whole process."""
    return _current[-1]


@contextmanager
def tuning_override(tuning: Tuning) -> Iterator[None]:
    """Makes `tuning` the current value within the `with` block. For tests: no other thread may construct parts of a state
    meanwhile."""
    _current.append(tuning)
    try:
        yield
    finally:
        _current.pop()
