"""Rows of several inputs in the one order in which a window takes them: by rank, then by input, then as they came (SPEC A35)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotspare.engine.rows.chunk import Chunk, Int64s


def in_order(ranks: Sequence[Int64s]) -> tuple[Int64s, Int64s]:
    """(number of the input, row there) of every row; `ranks`: of each input's rows. The two rows of an update block stay together:
    they have one rank."""
    counts = [len(rank) for rank in ranks]
    numbers = np.repeat(np.arange(len(ranks), dtype=np.int64), counts)
    rows = np.concatenate([np.arange(count, dtype=np.int64) for count in counts])
    if sum(count > 0 for count in counts) > 1:
        order = np.argsort(np.concatenate(ranks), kind="stable")
        return numbers[order], rows[order]
    return numbers, rows


def merged(chunks: Sequence[Chunk]) -> Chunk:
    """All rows, of one schema, in order."""
    filled = [chunk for chunk in chunks if len(chunk)]
    if len(filled) < 2:
        return filled[0] if filled else chunks[0]
    order = np.argsort(np.concatenate([chunk.rank for chunk in filled]), kind="stable")
    columns = ([getattr(chunk, name) for chunk in filled] for name in ("rank", "opcode", "flags", "lanes", "valid"))
    return Chunk(*(np.concatenate(column)[order] for column in columns))
