"""In which partition of a topic the rows of a source belong, where the project is divided: by what the head decodes them to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.engine.codec.csv.decode import decode_rows
from hotspare.engine.routing import Routing
from hotspare.model.types import Schema


@dataclass(frozen=True, slots=True)
class RowRouting:
    """`schema` is that of the source window."""

    schema: Schema
    routing: Routing

    @property
    def count(self) -> int:
        """Of the topic's partitions."""
        return self.routing.count

    def partitions(self, rows: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """Of each row, in the form that topics hold. What is no row of the schema goes to the first, and is a bad event there."""
        found = np.zeros(len(rows), np.int64)
        decoded, _ = decode_rows(pa.array(rows, pa.binary()), self.schema)
        for each in decoded:
            found[each.message] = self.routing.partitions(each.columns[self.routing.field])
        return found
