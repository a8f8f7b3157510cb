"""Numbers output chunks: assigns each output its sequence, output id and digest, and builds the Arrow batch with these columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.flow.output_room import SMALL_OUTPUT_ROWS_MAX
from hotspare.flow.plan import BAD_SCHEMA
from hotspare.flow.project_state import StreamState
from hotspare.model.events import Flag, Opcode
from hotspare.rows.batch import CAUSE_COLUMNS
from hotspare.rows.chunk import OUTPUT_BYTES_MAX, Bools, Chunk, Int64s, Positions, UInt8s, is_all
from hotspare.rows.elementwise import shared
from hotspare.rows.refusals import BadEvents
from hotspare.table.lanes import OutputForm, to_arrow_columns
from hotspare.table.loops.outputs import causes_of, number_outputs, write_outputs
from hotspare.table.strings import StringTable, text_hashes
from hotspare.table.text_pieces import pieces_of, text_pieces

_UINT8, _INT32, _INT64, _UINT64 = pa.uint8(), pa.int32(), pa.int64(), pa.uint64()
_POSITION = (_INT32, _INT32, _INT64, _INT32)


class Causes:
    """The input positions, opcodes and flags of outputs as Arrow columns. They are cached, because streams of one batch often share
    them."""

    def __init__(self, positions: Positions) -> None:
        self.positions = positions
        self._rank = _NO_RANKS
        self._columns: list[pa.Array] | None = None
        self._what: list[tuple[UInt8s, pa.Array]] = [(_NO_BYTES, None)] * 2
        self.first = self.last = (0, 0, 0, 0)
        """Topic, partition, offset and index of the first and the last row selected."""

    def select_ranks(self, rank: Int64s) -> None:
        """Selects the input rows `rank` (indexes into `positions`, at least one), to which `first`, `last` and `columns` then
        refer."""
        if rank is not self._rank and rank.tobytes() != self._rank.tobytes():
            self._columns = None
            first, last = rank.item(0), rank.item(-1)
            topics, partitions, offsets, indexes = self.positions
            self.first = topics.item(first), partitions.item(first), offsets.item(first), indexes.item(first)
            self.last = topics.item(last), partitions.item(last), offsets.item(last), indexes.item(last)
        self._rank = rank

    @property
    def columns(self) -> list[pa.Array]:
        """Topic, partition, offset and index of the selected rows."""
        if self._columns is None:
            values = [np.empty(len(self._rank), column.dtype) for column in self.positions]
            causes_of(self._rank, self.positions, Positions(*values))
            self._columns = [shared(column, type_) for column, type_ in zip(values, _POSITION, strict=True)]
        return self._columns

    def opcode_and_flags(self, chunk: Chunk) -> list[pa.Array]:
        """Returns the chunk's opcodes and flags as two Arrow columns."""
        for i, values in enumerate((chunk.opcode, chunk.flags)):
            if values is not self._what[i][0]:
                self._what[i] = values, shared(values, _UINT8)
        return [column for _, column in self._what]


_NO_RANKS, _NO_BYTES = np.empty(0, np.int64), np.empty(0, np.uint8)


def number_and_write(chunk: Chunk, form: OutputForm, causes: Causes, stream: StreamState, strings: StringTable) -> pa.RecordBatch:
    """Numbers the outputs of a chunk that is not empty, advances `stream` past them, and returns them in
    `rows.batch.output_schema`."""
    if len(chunk) <= SMALL_OUTPUT_ROWS_MAX and form.is_plain and is_all(chunk.valid):
        return _number_small_batch(chunk, form, causes, stream)
    head = _numbered(chunk, form.is_coded, strings.hashes, causes, stream)
    return form.batch([*head, *to_arrow_columns(chunk.lanes, chunk.valid, form.schema, strings)])


def _number_small_batch(chunk: Chunk, form: OutputForm, causes: Causes, stream: StreamState) -> pa.RecordBatch:
    """Does the same as `number_and_write` for few outputs without nulls whose values are their lanes (`form.is_plain`), in the
    preallocated columns of `stream.room`."""
    count, room, ordinal = len(chunk), stream.room, _next_ordinal(stream, causes, chunk.rank)
    at = room.reserve(count, form)
    write_outputs(
        chunk.rank,
        chunk.opcode,
        chunk.flags,
        chunk.lanes,
        chunk.valid,
        form.is_coded,
        _NO_HASHES,
        causes.positions,
        np.uint64(stream.digest),
        ordinal,
        stream.sequence + 1,
        room.columns,
        at,
    )
    last = at + count - 1
    _advance_stream(stream, count, room.columns.digests.item(last), causes, room.columns.ints.item(3, last))
    return room.last_written(count)


def number_and_write_bad(bad: BadEvents, causes: Causes, stream: StreamState) -> pa.RecordBatch:
    """Numbers bad events, which must be in order of rank, as `number_and_write` numbers outputs. Texts are not copied: the chunk's
    lanes hold only their hashes, for the digests."""
    lanes = np.empty((len(bad), len(BAD_SCHEMA)), np.int64)
    for i, column in enumerate(bad.columns):
        lanes[:, i] = text_hashes(column).view(np.int64)
    opcode = np.full(len(bad), Opcode.INSERT, np.uint8)
    flags = np.full(len(bad), Flag.NORMAL, np.uint8)
    chunk = Chunk(bad.rank, opcode, flags, lanes, np.ones(lanes.shape, np.bool_))
    head = _numbered(chunk, np.zeros(len(BAD_SCHEMA), np.bool_), _NO_HASHES, causes, stream)
    return _BAD_FORM.batch([*head, *bad.columns])


_BAD_FORM = OutputForm(BAD_SCHEMA)
_NO_HASHES = np.empty(0, np.uint64)


def _numbered(chunk: Chunk, coded: Bools, hashes: npt.NDArray[np.uint64], causes: Causes, stream: StreamState) -> list[pa.Array]:
    """Numbers the outputs of a chunk, advances `stream`, and returns the columns of `output_schema` before the fields. `coded`:
    which lanes hold string codes; `hashes`: the strings' hashes by code."""
    count, ordinal = len(chunk), _next_ordinal(stream, causes, chunk.rank)
    ordinals, digests = np.empty(count, np.int32), np.empty(count, np.uint64)
    number_outputs(
        chunk.rank,
        chunk.opcode,
        chunk.flags,
        chunk.lanes,
        chunk.valid,
        coded,
        hashes,
        causes.positions,
        np.uint64(stream.digest),
        ordinal,
        ordinals,
        digests,
    )
    first = stream.sequence + 1
    _advance_stream(stream, count, digests.item(-1), causes, ordinals.item(-1))
    numbers = shared(np.arange(first, first + count), _INT64)
    return [numbers, *causes.columns, shared(ordinals, _INT32), shared(digests, _UINT64), *causes.opcode_and_flags(chunk)]


def _next_ordinal(stream: StreamState, causes: Causes, rank: Int64s) -> int:
    """Selects the rows `rank` in `causes` and returns the ordinal of the first output. If the stream's last output has the same
    position, the ordinal continues from there: a position's outputs may be in several chunks."""
    causes.select_ranks(rank)
    before = stream.last
    return before[4] + 1 if before is not None and before[:4] == causes.first else 0


def _advance_stream(stream: StreamState, count: int, digest: int, causes: Causes, ordinal: int) -> None:
    """Advances the stream past `count` outputs. `digest` and `ordinal` are those of the last output."""
    stream.sequence += count
    stream.digest, stream.last = digest, (*causes.last, ordinal)


def in_pieces(chunk: Chunk, form: OutputForm, strings: StringTable) -> list[Chunk]:
    """Splits the rows, in order, into chunks of at most about OUTPUT_BYTES_MAX bytes of text, or of one row. A step limits only the
    number of rows, but one row may have megabytes."""
    pieces = text_pieces(chunk.lanes, form.coded, strings)
    return [chunk] if len(pieces) == 1 else [chunk.between(begin, end) for begin, end in pieces]


def with_causes(batches: list[pa.RecordBatch], chunk: Chunk, time_us: Int64s) -> list[pa.RecordBatch]:
    """Returns the outputs of a chunk with CAUSE_COLUMNS added. `batches`: the outputs, in the order of the chunk's rows; `time_us`:
    the system time by rank."""
    second = (chunk.opcode == Opcode.DELETE) & np.concatenate(([False], chunk.opcode[:-1] == Opcode.UPDATE_BLOCK))
    added, at = [pa.array(time_us[chunk.rank]), pa.array(second)], 0
    found = []
    for batch in batches:
        columns = [*batch.columns, *(column.slice(at, len(batch)) for column in added)]
        fields = [*batch.schema, *(pa.field(*each) for each in CAUSE_COLUMNS)]
        found.append(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)))
        at += len(batch)
    return found


def bad_in_pieces(bad: BadEvents) -> list[BadEvents]:
    """Splits bad events as `in_pieces` splits rows."""
    if sum(column.nbytes for column in bad.columns) <= OUTPUT_BYTES_MAX:
        return [bad]
    sizes = np.zeros(len(bad), np.int64)
    for column in bad.columns:
        sizes += pc.binary_length(column).to_numpy()
    return [bad.slice(begin, end) for begin, end in pieces_of(sizes)]


def joined_parts(parts: Iterable[Mapping[str, pa.RecordBatch]]) -> dict[str, pa.RecordBatch]:
    """Returns the outputs of all parts, one batch per stream."""
    first, *others = parts
    if not others:
        return dict(first)
    outputs: dict[str, list[pa.RecordBatch]] = {}
    for part in (first, *others):
        for name, batch in part.items():
            outputs.setdefault(name, []).append(batch)
    return {name: pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces) for name, pieces in outputs.items()}
