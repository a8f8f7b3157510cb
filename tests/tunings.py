"""Random sizes of the engine core for laws: the computed state does not depend on them, so every example draws its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from hypothesis import strategies as st

from hotspare.rows.tuning import DEFAULT, SMALL, Tuning

SIZES: Mapping[str, Sequence[int]] = {
    "page_slots": (1, 2, 4, 16),
    "spare_slots": (0,),
    "late_index_rows_max": (0, 2, 7, DEFAULT.late_index_rows_max),
    "linked_rows": (1, 7),
    "key_filter_pages_min": (1, 2),
    "key_filter_spans": (1, 3),
    "queue_rows_min": (1, 4),
    "release_rows": (1, 8),
    "text_page_bits": (3, 5, 12),
    "small_text_bytes": (1 << 9, DEFAULT.small_text_bytes),
    "text_run_pages": (1, 2),
    "collect_codes_min": (1, DEFAULT.collect_codes_min),
    "collect_bytes_min": (1, DEFAULT.collect_bytes_min),
    "looks_min": (1, 3, DEFAULT.looks_min),
    "looks_per_row": (0, 1, 4),
    "looks_per_string": (1, 16),
    "csv_piece_bytes": (1, 16, DEFAULT.csv_piece_bytes),
    "json_piece_rows": (1, 3, DEFAULT.json_piece_rows),
    "clock_rows": (1, 2, DEFAULT.clock_rows),
    "transposed_lanes": (1, 16),
    "small_bytes": (1 << 12, DEFAULT.small_bytes),
    "reserved_bytes": (1 << 20,),
}
"""Values of each field, mostly those at which a few rows reach a limit."""
_TEXTS = ("text_", "small_text_", "collect_", "looks_")


def with_roomy_texts(tuning: Tuning) -> Tuning:
    """Returns the same tuning, under which a test collects no text."""
    roomy = {name: getattr(DEFAULT, name) for name in SIZES if name.startswith(_TEXTS)}
    return replace(tuning, **roomy)


def tunings(**fixed: int) -> st.SearchStrategy[Tuning]:
    """Draws any tuning of `SIZES`, except for the fields that are `fixed`. Shrinks towards `SMALL`."""
    fields = {name: st.sampled_from(sizes) for name, sizes in SIZES.items() if name not in fixed}
    drawn = st.fixed_dictionaries(fields).map(lambda sizes: Tuning(**sizes, **fixed))
    return st.one_of(st.just(replace(SMALL, **fixed)), drawn)


def any_tuning(random: Random, **fixed: int) -> Tuning:
    """Returns a tuning like those of `tunings`, drawn from a random generator."""
    return Tuning(**{name: random.choice(sizes) for name, sizes in SIZES.items()} | fixed)
