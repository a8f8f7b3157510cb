"""Chunks that leave: sequence, output id and digest for each output, and the Arrow batch that carries them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.engine.kernels.outputs import Positions, number_outputs
from hotspare.engine.plan import BAD_SCHEMA
from hotspare.engine.rows.chunk import OUTPUT_BYTES_MAX, Bools, Chunk, Int64s
from hotspare.engine.rows.refusals import BadEvents
from hotspare.engine.state.lanes import OutputForm, to_arrow_columns
from hotspare.engine.state.project_state import OutputId, StreamState
from hotspare.engine.state.strings import StringTable, text_hashes
from hotspare.model.events import Flag, Opcode


class Causes:
    """Where in the input outputs come from, as columns: streams of one batch often have outputs of the same rows."""

    def __init__(self, positions: Positions) -> None:
        self.positions = positions
        self._rank = np.empty(0, np.int64)
        self._columns: list[pa.Array] = []

    def columns(self, rank: Int64s) -> list[pa.Array]:
        """Topic, partition, offset and index of rows of the batch."""
        if rank is not self._rank and not np.array_equal(rank, self._rank):
            self._columns = [pa.array(column[rank]) for column in self.positions]
        self._rank = rank
        return self._columns


def number_and_write(chunk: Chunk, form: OutputForm, causes: Causes, stream: StreamState, strings: StringTable) -> pa.RecordBatch:
    """Carry `stream` on over a chunk that is not empty, and return the outputs as `batch.output_schema` says."""
    head = _numbered(chunk, form.is_coded, strings.hashes, causes, stream)
    columns = to_arrow_columns(chunk.lanes, chunk.valid, form.schema, strings)
    return pa.RecordBatch.from_arrays([*head, *columns], schema=form.arrow)


def number_and_write_bad(bad: BadEvents, causes: Causes, stream: StreamState) -> pa.RecordBatch:
    """The same of bad events with their windows, in order of rank. Their texts are not looked at again: they stay as they are, and
    the hashes that digests take stand in the lanes."""
    lanes = np.empty((len(bad), len(BAD_SCHEMA)), np.int64)
    for i, column in enumerate(bad.columns):
        lanes[:, i] = text_hashes(column).view(np.int64)
    opcode = np.full(len(bad), Opcode.INSERT, np.uint8)
    flags = np.full(len(bad), Flag.NORMAL, np.uint8)
    chunk = Chunk(bad.rank, opcode, flags, lanes, np.ones(lanes.shape, np.bool_))
    head = _numbered(chunk, np.zeros(len(BAD_SCHEMA), np.bool_), _NO_HASHES, causes, stream)
    return pa.RecordBatch.from_arrays([*head, *bad.columns], schema=_BAD_FORM.arrow)


_BAD_FORM = OutputForm(BAD_SCHEMA)
_NO_HASHES = np.empty(0, np.uint64)


def _numbered(chunk: Chunk, coded: Bools, hashes: npt.NDArray[np.uint64], causes: Causes, stream: StreamState) -> list[pa.Array]:
    """The columns before the fields. `hashes` are those of the codes in the lanes that are `coded`."""
    count, positions = len(chunk), causes.positions
    ordinals = np.empty(count, np.int32)
    digests = np.empty(count, np.uint64)
    number_outputs(
        chunk.rank,
        chunk.opcode,
        chunk.flags,
        chunk.lanes,
        chunk.valid,
        coded,
        hashes,
        positions,
        np.uint64(stream.digest),
        _first_ordinal(stream.last_id, positions, int(chunk.rank[0])),
        ordinals,
        digests,
    )
    first, last = stream.sequence + 1, int(chunk.rank[-1])
    stream.sequence += count
    stream.digest = int(digests[-1])
    topic, partition, offset, index = (int(column[last]) for column in positions)
    stream.last_id = OutputId(topic, partition, offset, index, int(ordinals[-1]))
    own = [pa.array(column) for column in (ordinals, digests, chunk.opcode, chunk.flags)]
    return [pa.array(np.arange(first, first + count)), *causes.columns(chunk.rank), *own]


def in_pieces(chunk: Chunk, form: OutputForm, strings: StringTable) -> list[Chunk]:
    """The rows, in order, in chunks of about OUTPUT_BYTES_MAX of text at most, or of one row: what a step puts out is bounded in
    rows, and a row may be of megabytes."""
    if strings.longest * len(form.coded) * len(chunk) <= OUTPUT_BYTES_MAX:
        return [chunk]
    sizes = np.zeros(len(chunk), np.int64)
    for i in form.coded:
        sizes += strings.sizes(np.ascontiguousarray(chunk.lanes[:, i]))
    return [chunk.between(begin, end) for begin, end in _pieces(sizes)]


def bad_in_pieces(bad: BadEvents) -> list[BadEvents]:
    """The same of bad events."""
    if sum(column.nbytes for column in bad.columns) <= OUTPUT_BYTES_MAX:
        return [bad]
    sizes = np.zeros(len(bad), np.int64)
    for column in bad.columns:
        sizes += pc.binary_length(column).to_numpy()
    return [bad.slice(begin, end) for begin, end in _pieces(sizes)]


def _pieces(sizes: Int64s) -> Iterator[tuple[int, int]]:
    """Where pieces of rows of such sizes begin and end."""
    ends, begin = np.cumsum(sizes), 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + OUTPUT_BYTES_MAX, side="right")))
        yield begin, end
        begin = end


def _first_ordinal(last: OutputId | None, positions: Positions, rank: int) -> int:
    """What a position causes in a stream may come in several chunks: ordinals go on."""
    if last is None:
        return 0
    here = (positions.topics[rank], positions.partitions[rank], positions.offsets[rank], positions.indexes[rank])
    return last.ordinal + 1 if here == (last.topic, last.partition, last.offset, last.index) else 0
