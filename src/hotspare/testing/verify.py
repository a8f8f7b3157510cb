"""Compares a group's delivered outputs with those of an uninterrupted run: lost, doubled, wrong (SPEC E11).

The reference is the `local` runner over the recorded inbound topics, ticks included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.rows.arrays import packed


@dataclass(frozen=True, slots=True)
class DeliveryVerdict:
    """Counts of output events. If `lost`, `doubled` and `wrong` are 0, the delivered outputs equal the reference, in its order."""

    reference: int = 0
    delivered: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0

    def __add__(self, other: DeliveryVerdict) -> DeliveryVerdict:
        return DeliveryVerdict(
            self.reference + other.reference,
            self.delivered + other.delivered,
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.wrong + other.wrong,
        )

    @property
    def is_exact(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)


def _same_cells(left: pa.ChunkedArray, right: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Returns, for each row, whether both cells are null or have the same bits (NaN equals NaN, and 0.0 differs from -0.0)."""
    left, right = left.combine_chunks(), right.combine_chunks()
    if pa.types.is_list(left.type):
        left, right = packed(left), packed(right)
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    if pa.types.is_float64(left.type):
        filled = [pc.fill_null(side, 0.0).to_numpy(zero_copy_only=False).view(np.int64) for side in (left, right)]
        equal = pa.array(filled[0] == filled[1])
        equal = pc.and_(equal, pc.equal(pc.is_null(left), pc.is_null(right)))
    else:
        equal = pc.fill_null(pc.equal(left, right), False)  # noqa: FBT003 - Arrow's own signature
    return pc.or_(both_null, equal).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def compare_stream(reference: pa.Table, delivered: pa.Table) -> DeliveryVerdict:
    """Returns the comparison of two tables of one stream (columns of `rows.batch.output_schema`); `delivered` in the order of the
    bus.

    lost: sequences of the reference that were never delivered. doubled: rows whose sequence was delivered before. wrong: rows that
    differ from the reference row of their sequence in any column, that the reference lacks, or that are out of order.
    """
    seen = delivered.column("hs:sequence").to_numpy()
    wanted = reference.column("hs:sequence").to_numpy()
    _, first_places = np.unique(seen, return_index=True)
    is_first = np.zeros(len(seen), np.bool_)
    is_first[first_places] = True
    firsts = delivered.filter(pa.array(is_first))
    sequences = seen[is_first]
    behind = np.zeros(len(sequences), np.bool_)
    if len(sequences):
        behind[1:] = sequences[1:] < np.maximum.accumulate(sequences)[:-1]
    known = np.isin(sequences, wanted)
    differs = ~known | behind
    places = np.searchsorted(wanted, sequences[known])
    expected, got = reference.take(pa.array(places)), firsts.filter(pa.array(known))
    same = np.ones(len(places), np.bool_)
    for name in reference.column_names:
        same &= _same_cells(expected.column(name), got.column(name))
    differs[np.flatnonzero(known)[~same]] = True
    return DeliveryVerdict(
        reference=len(wanted),
        delivered=len(seen),
        lost=int(len(wanted) - np.isin(wanted, sequences).sum()),
        doubled=int(len(seen) - is_first.sum()),
        wrong=int(differs.sum()),
    )


def compare(reference: Mapping[str, pa.Table], delivered: Mapping[str, pa.Table]) -> DeliveryVerdict:
    """Returns the sum of the comparisons of all streams, by name; a stream that one side lacks counts as empty there."""
    verdict = DeliveryVerdict()
    for stream in sorted({*reference, *delivered}):
        some = reference.get(stream, delivered.get(stream))
        assert some is not None
        verdict += compare_stream(reference.get(stream, some.slice(0, 0)), delivered.get(stream, some.slice(0, 0)))
    return verdict
