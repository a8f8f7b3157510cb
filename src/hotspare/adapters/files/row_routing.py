"""The partition of each row of a source, in a divided project: by the values that the head decodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.formats.csv.decode import decode_rows
from hotspare.formats.json.decode import decode_json
from hotspare.model.types import Schema
from hotspare.rows.batch import MessageFormat
from hotspare.rows.routing import Routing


@dataclass(frozen=True, slots=True)
class RowRouting:
    """Computes the partition of each row of a source window from the value of its routing field. `schema`: the source window's."""

    schema: Schema
    routing: Routing

    @property
    def count(self) -> int:
        """The number of the topic's partitions."""
        return self.routing.count

    def partitions(self, rows: Sequence[bytes], format_: MessageFormat) -> npt.NDArray[np.int64]:
        """Returns the partition of each row. `rows` are as topics hold them, in CSV or JSON.

        A text that is not a row of the schema goes to the first partition, and is a bad event there. A JSON text with several
        events is not divided: its events that belong elsewhere are bad events.
        """
        found = np.zeros(len(rows), np.int64)
        decode = decode_json if format_ is MessageFormat.JSON else decode_rows
        decoded, _ = decode(pa.array(rows, pa.binary()), self.schema)
        for each in decoded:
            found[each.message] = self.routing.partitions(each.columns[self.routing.field])
        return found
