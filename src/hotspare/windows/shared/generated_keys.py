"""Keys that a window generates: for a source without keys of its own, and for a row that results from many events (SPEC A16, F9).

An int64 key counts 0, 1, 2 ... A string key looks like a GUID and is computed from the window's name and the same counter. So it is
the same in every engine and after a restore (SPEC Z8). Shard k of a project counts from k * 2**48, so no two shards generate the
same key.
"""

from __future__ import annotations

import numpy as np

from hotspare.model.project import WindowId
from hotspare.model.types import FieldType, Schema
from hotspare.rows.chunk import Bools, Int64s
from hotspare.table.identifiers import identifiers, seed_of
from hotspare.table.strings import StringTable


class KeyMaker:
    """Generates the keys of a window whose schema has one key field."""

    def __init__(self, window: WindowId, schema: Schema) -> None:
        self._key = schema.key_indexes[0] if schema.key_indexes else 0
        self._is_text = schema.fields[self._key].type is FieldType.STRING
        self._seed = seed_of(str(window))

    def write(self, counter: Int64s, lanes: Int64s, valid: Bools, strings: StringTable) -> None:
        """Writes the key of every row of `lanes` and `valid`, and increases the first entry of `counter` by the number of rows."""
        first, count = int(counter[0]), len(lanes)
        counter[0] += count
        valid[:, self._key] = True
        if self._is_text:
            lanes[:, self._key] = identifiers(self._seed, np.arange(first, first + count), strings)
        else:
            lanes[:, self._key] = np.arange(first, first + count)
