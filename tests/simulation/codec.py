"""Output blocks as Arrow IPC streams, for runs that need no more than that."""

from __future__ import annotations

import pyarrow as pa


class StreamCodec:
    """A `BlockCodec` of Arrow IPC streams."""

    def encode(self, rows: pa.RecordBatch) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    def decode(self, value: bytes) -> pa.RecordBatch:
        with pa.ipc.open_stream(value) as reader:
            return reader.read_next_batch()
