"""The core for input that is already in one order over all topics, so that no row waits for another partition.

Tables are such an input (`hotspare.spark`): Spark has sorted them. The outputs equal those of a `Pipeline` whose merge gives the
rows the same order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from hotspare.base.step_size import STEP_ROWS_MAX
from hotspare.flow.plan import Plan
from hotspare.flow.step import fresh_state, step
from hotspare.rows.batch import BAD_TYPE, TRACE_PREFIX, RowKind
from hotspare.rows.elementwise import chosen
from hotspare.rows.merged import FIXED, MergedRows

_NONE_BAD = pa.array([], BAD_TYPE)


class GivenOrderCore:
    """Steps one state through batches in their order. Used by one thread."""

    def __init__(self, plan: Plan, shard: int = 0) -> None:
        """Starts with the state of shard number `shard` before its first event."""
        self._plan = plan
        self._state = fresh_state(plan, shard)

    def compute_parts(self, decoded: pa.RecordBatch) -> Iterator[dict[str, pa.RecordBatch]]:
        """Processes rows of `rows.batch.decoded_schema`, ordered by time, and yields the outputs by stream, part by part. The
        caller must consume all parts before the next batch. Raises PositionOrder if positions of a partition do not rise."""
        rows = in_given_order(decoded)
        for at in range(0, rows.num_rows, STEP_ROWS_MAX):
            for made in step(self._plan, self._state, rows.slice(at, STEP_ROWS_MAX)):
                yield {name: batch for name, batch in made.items() if not name.startswith(TRACE_PREFIX)}


def in_given_order(decoded: pa.RecordBatch) -> MergedRows:
    """Returns the decoded rows as merged rows, without changing their order."""
    fixed = {name: decoded.column(name).to_numpy() for name in FIXED}
    topics = len(decoded.schema) - len(FIXED) - 1
    place, bad = np.arange(decoded.num_rows), _NONE_BAD
    is_bad = fixed["kind"] == RowKind.BAD
    if is_bad.any():
        at = np.flatnonzero(is_bad)
        bad = chosen(decoded.column("bad"), at)
        place[at] = np.arange(len(at))
    return MergedRows(fixed, place, {topic: decoded.column(f"e{topic}") for topic in range(topics)}, bad)
