"""The form of batches that pass through Spark: one row per frame, whose binary column is an Arrow IPC stream.

Spark's own columns cannot carry a decoded batch (no unsigned integers, no timestamps in seconds). They would also turn every event
into a JVM row and back. Spark does not read a frame, so the head's bytes arrive unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hotspare.flow.head.unknown_members import unknown_of, with_unknown

FRAME_SCHEMA_DDL = "topic int, partition int, first bigint, frame binary"
FRAME_SCHEMA = pa.schema(
    [
        ("topic", pa.int32()),
        ("partition", pa.int32()),
        ("first", pa.int64()),  # offset of the first message that the frame was made from
        ("frame", pa.binary()),
    ]
)


def packed(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Returns batches of one schema, at least one batch, as an Arrow IPC stream. The unknown members of all batches are stored in
    the stream's schema."""
    unknown = [each for batch in batches for each in unknown_of(batch.schema)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, with_unknown(batches[0], unknown).schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def unpacked(stream: bytes | pa.Buffer) -> list[pa.RecordBatch]:
    """Returns the batches of a stream that `packed` wrote. The first batch has the unknown members of all batches."""
    found = list(pa.ipc.open_stream(stream))
    return [*found[:1], *(with_unknown(batch, []) for batch in found[1:])]


def frame(topic: int, partition: int, first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns one row of FRAME_SCHEMA that holds `batch`."""
    stream = packed([batch])
    value = pa.Array.from_buffers(pa.binary(), 1, [None, _offsets(stream.size), stream])
    return pa.RecordBatch.from_arrays(
        [pa.array([topic], pa.int32()), pa.array([partition], pa.int32()), pa.array([first], pa.int64()), value],
        schema=FRAME_SCHEMA,
    )


def _offsets(length: int) -> pa.Buffer:
    return pa.array([0, length], pa.int32()).buffers()[1]


def unframe(frames: pa.Table) -> list[pa.RecordBatch]:
    """Returns the batches of all frames, ordered by (topic, partition, first), because Spark's tasks deliver frames in any
    order."""
    keys = zip(*(frames.column(name).to_pylist() for name in ("topic", "partition", "first")), strict=True)
    order = [row for _, row in sorted((key, row) for row, key in enumerate(keys))]
    values = frames.column("frame")
    return [batch for row in order for batch in unpacked(values[row].as_buffer())]
