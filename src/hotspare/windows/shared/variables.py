"""Variables that the code of a window keeps from event to event, as a part of its page (SPEC A24, Z8)."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getsizeof
from typing import Any

import numpy as np
import pyarrow as pa

from hotspare.base.errors import SnapshotDamaged
from hotspare.expressions.prelude import Variable, stored
from hotspare.table.memory import CountsItself
from hotspare.table.pages import Column, Columns, expect


class Variables(CountsItself):
    """`values`: by name, times as the numbers that are stored; it may be written in place. They are few, so a snapshot copies them.
    As columns they are texts: what Arrow writes of a value, it reads back equal."""

    def __init__(self, declared: Sequence[Variable], prefix: str) -> None:
        self._types = {prefix + v.name: v.type.arrow for v in declared}
        self.values: dict[str, Any] = {prefix + v.name: v.initial for v in declared}

    @property
    def stays_bytes(self) -> int:
        return sum(getsizeof(value) for value in self.values.values())

    def freeze(self) -> Variables:
        twin = Variables((), "")
        twin._types, twin.values = self._types, dict(self.values)
        return twin

    def columns(self) -> Columns:
        arrays = [pa.array([self.values[name]], type_) for name, type_ in self._types.items()]
        batch = pa.RecordBatch.from_arrays(arrays, names=list(self._types))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return {"values": Column(np.frombuffer(sink.getvalue(), np.uint8))}

    def load(self, columns: Columns) -> None:
        data = expect(columns, "values", np.dtype(np.uint8), (-1,)).array
        try:
            batch = pa.ipc.open_stream(pa.py_buffer(data.tobytes())).read_next_batch()
            batch.validate(full=True)
        except (pa.ArrowException, StopIteration, OSError) as error:
            raise SnapshotDamaged("the variables of a window cannot be read", detail=type(error).__name__) from error
        if batch.schema != pa.schema(list(self._types.items())) or batch.num_rows != 1:
            raise SnapshotDamaged("the variables of a window are others", detail=f"found {batch.schema.names}")
        self.values = {name: stored(batch.column(name))[0] for name in self._types}
