"""Chunks that leave: sequence, output id and digest for each output, and the Arrow batch that carries them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from hotspare.engine.batch import output_schema
from hotspare.engine.chunk import OUTPUT_BYTES_MAX, Chunk
from hotspare.engine.kernels.outputs import Positions, number_outputs
from hotspare.engine.lanes import CODED, to_arrow_columns
from hotspare.engine.plan import BAD_SCHEMA
from hotspare.engine.refusals import BadEvents
from hotspare.engine.state import OutputId, StreamState
from hotspare.engine.strings import StringTable
from hotspare.model.events import Flag, Opcode
from hotspare.model.types import Schema


def number_and_write(
    chunk: Chunk, schema: Schema, positions: Positions, stream: StreamState, strings: StringTable
) -> pa.RecordBatch:
    """Carry `stream` on over a chunk that is not empty, and return the outputs as `batch.output_schema(schema)` says."""
    count = len(chunk)
    ordinals = np.empty(count, np.int32)
    digests = np.empty(count, np.uint64)
    coded = np.array([f.type in CODED for f in schema.fields])
    number_outputs(
        chunk.rank,
        chunk.opcode,
        chunk.flags,
        chunk.lanes,
        chunk.valid,
        coded,
        strings.hashes,
        positions,
        np.uint64(stream.digest),
        _first_ordinal(stream.last_id, positions, int(chunk.rank[0])),
        ordinals,
        digests,
    )
    topic, partition = positions.topics[chunk.rank], positions.partitions[chunk.rank]
    offset, index = positions.offsets[chunk.rank], positions.indexes[chunk.rank]
    first = stream.sequence + 1
    stream.sequence += count
    stream.digest = int(digests[-1])
    stream.last_id = OutputId(int(topic[-1]), int(partition[-1]), int(offset[-1]), int(index[-1]), int(ordinals[-1]))
    head = (np.arange(first, first + count), topic, partition, offset, index, ordinals, digests, chunk.opcode, chunk.flags)
    columns = [pa.array(column) for column in head]
    columns += to_arrow_columns(chunk.lanes, chunk.valid, schema, strings)
    return pa.RecordBatch.from_arrays(columns, schema=output_schema(schema))


def in_pieces(chunk: Chunk, schema: Schema, strings: StringTable) -> list[Chunk]:
    """The rows, in order, in chunks of about OUTPUT_BYTES_MAX of text at most, or of one row: what a step puts out is bounded in
    rows, and a row may be of megabytes."""
    coded = [i for i, field in enumerate(schema.fields) if field.type in CODED]
    if strings.longest * len(coded) * len(chunk) <= OUTPUT_BYTES_MAX:
        return [chunk]
    sizes = np.zeros(len(chunk), np.int64)
    for i in coded:
        sizes += strings.sizes(np.ascontiguousarray(chunk.lanes[:, i]))
    ends, pieces, begin = np.cumsum(sizes), [], 0
    while begin < len(chunk):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + OUTPUT_BYTES_MAX, side="right")))
        pieces.append(chunk.between(begin, end))
        begin = end
    return pieces


def _first_ordinal(last: OutputId | None, positions: Positions, rank: int) -> int:
    """What a position causes in a stream may come in several chunks: ordinals go on."""
    if last is None:
        return 0
    here = (positions.topics[rank], positions.partitions[rank], positions.offsets[rank], positions.indexes[rank])
    return last.ordinal + 1 if here == (last.topic, last.partition, last.offset, last.index) else 0


def bad_chunk(bad: BadEvents, strings: StringTable) -> Chunk:
    """Bad events with their windows, in order of rank, as a chunk of BAD_SCHEMA."""
    lanes = np.empty((len(bad), len(BAD_SCHEMA)), np.int64)
    for i, column in enumerate(bad.columns):
        lanes[:, i], _ = strings.intern(column)
    opcode = np.full(len(bad), Opcode.INSERT, np.uint8)
    flags = np.full(len(bad), Flag.NORMAL, np.uint8)
    return Chunk(bad.rank, opcode, flags, lanes, np.ones(lanes.shape, np.bool_))
