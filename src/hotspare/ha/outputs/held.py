"""Holds the outputs that are not known to be committed: the next transaction of the active engine, and what a spare publishes if it
takes over.

An output is released only when it is known to be committed, or by its stream's quality (SPEC D15, Z10): no ring buffer drops any.
Outputs beyond a memory budget are written to Arrow files, and loaded when they are needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hotspare.base.errors import StateError, StoreError
from hotspare.bus.contract import OutputId
from hotspare.flow.digest_chain import rechained
from hotspare.ha.core import Core


@dataclass(frozen=True, slots=True)
class OutputMark:
    """The sequence and id of an output, and the digest of its stream up to and including it. Sequence 0 precedes the first
    output."""

    sequence: int
    output_id: OutputId | None
    digest: int


def numbers_of(output_id: OutputId | None) -> tuple[int, int, int, int, int] | None:
    """Returns (topic, partition, offset, index, ordinal), in the order of an output batch's columns; None for None."""
    if output_id is None:
        return None
    return output_id.topic, output_id.partition, output_id.offset, output_id.index, output_id.ordinal


NO_OUTPUT = OutputMark(0, None, 0)
_DIGEST = 6
"""The index of the digest's column in an output batch."""


def mark_of(batch: pa.RecordBatch, row: int) -> OutputMark:
    """Returns the output mark of one row of an output batch (`rows.batch.output_schema`)."""
    sequence, topic, partition, offset, index, ordinal, digest = (batch.column(i)[row].as_py() for i in range(7))
    return OutputMark(sequence, OutputId(topic, partition, offset, index, ordinal), digest)


@dataclass(slots=True)
class _Segment:
    """The consecutive outputs with sequences `first` to `last`, in memory (`batch`) or in the file `path`."""

    first: int
    last: int
    batch: pa.RecordBatch | None
    bytes_total: int
    path: Path | None = None

    def load(self) -> pa.RecordBatch:
        if self.batch is not None:
            return self.batch
        assert self.path is not None
        try:
            with pa.memory_map(str(self.path)) as source:
                return pa.ipc.open_file(source).get_batch(0)
        except (OSError, pa.ArrowInvalid) as error:
            raise StoreError(f"cannot read back held outputs from {self.path}", detail=str(error)) from error


_TRAIL_ROWS_MAX = 1 << 16
"""The maximum of digests in a `DigestTrail`; beyond it the oldest are discarded, and their outputs are not compared."""


class DigestTrail:
    """The digests of outputs that a spare released before they were known to be committed, by rising sequence. Not thread-safe.

    A stream that may lose outputs is not held, or only for a while. Its digests, eight bytes per output, show whether its outputs
    differ from those committed. So a snapshot of a state that differs is never confirmed (SPEC D14).
    """

    def __init__(self, rows_max: int = _TRAIL_ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._rows = 0
        self._parts: deque[tuple[int, NDArray[np.uint64]]] = deque()

    def append(self, first: int, digests: NDArray[np.uint64]) -> None:
        """Appends the digests of the outputs from sequence `first` on, which must follow those appended before."""
        skipped = max(0, len(digests) - self._rows_max)
        kept = digests[skipped:].copy()
        self._parts.append((first + skipped, kept))
        self._rows += len(kept)
        while self._rows > self._rows_max:
            self._shorten(self._rows - self._rows_max)

    def find_digest(self, sequence: int) -> int | None:
        for first, digests in self._parts:
            if first <= sequence < first + len(digests):
                return int(digests[sequence - first])
        return None

    def forget_through(self, sequence: int) -> None:
        while self._parts and self._parts[0][0] <= sequence:
            self._shorten(sequence - self._parts[0][0] + 1)

    def _shorten(self, count: int) -> None:
        """Discards the oldest `count` digests, but at most the oldest array."""
        first, digests = self._parts.popleft()
        rest = digests[count:]
        self._rows -= len(digests) - len(rest)
        if len(rest):
            self._parts.appendleft((first + count, rest))


class HeldStream:
    """The held outputs of one stream, in order of sequence without a gap. Not thread-safe."""

    def __init__(self, base: OutputMark, shift: int = 0) -> None:
        """Holds outputs after `base`. `shift` is added to the sequence of each appended output; `base` has the sum already."""
        self.shift = shift
        self._base = base
        self._segments: deque[_Segment] = deque()
        self._trail = DigestTrail()
        self.last_sequence = base.sequence
        self.memory_bytes = self.spilled_bytes = 0

    @property
    def base(self) -> OutputMark:
        """The newest released output; before any release, the last output before this engine's state began."""
        return self._base

    @property
    def rows(self) -> int:
        return self.last_sequence - self._base.sequence

    def append(self, batch: pa.RecordBatch) -> None:
        """Holds the next outputs, after adding `shift` to their sequences. Raises StateError unless they follow the newest held
        output without a gap."""
        if not batch.num_rows:
            return
        if self.shift:
            batch = renumbered(batch, self.shift)
        first, last = batch.column(0)[0].as_py(), batch.column(0)[batch.num_rows - 1].as_py()
        if first != self.last_sequence + 1 or last - first + 1 != batch.num_rows:
            raise StateError(f"output {first} follows output {self.last_sequence}", detail="sequences must rise by 1")
        size_bytes = batch.get_total_buffer_size()
        self._segments.append(_Segment(first, last, batch, size_bytes))
        self.memory_bytes += size_bytes
        self.last_sequence = last

    def mark_at(self, sequence: int) -> OutputMark | None:
        """Returns the output mark at `sequence` if that output is held or is the base; None for any other."""
        if sequence == self._base.sequence:
            return self._base
        if not self._base.sequence < sequence <= self.last_sequence:
            return None
        segment = next(s for s in self._segments if s.last >= sequence)
        return mark_of(segment.load(), sequence - segment.first)

    def digest_at(self, sequence: int) -> int | None:
        """Returns the digest of the output at `sequence`, held or released; None if it is not retained."""
        mark = self.mark_at(sequence)
        return self._trail.find_digest(sequence) if mark is None else mark.digest

    def release_keeping_digests(self, sequence: int) -> None:
        """Releases the outputs up to and including `sequence`, which may be uncommitted, and retains their digests in the
        `DigestTrail`."""
        for segment in self._segments:
            if segment.first > sequence:
                break
            first, last = max(segment.first, self._base.sequence + 1), min(segment.last, sequence)
            if first <= last:
                digests = segment.load().column(_DIGEST).slice(first - segment.first, last - first + 1)
                self._trail.append(first, digests.to_numpy())
        self.drop_through(sequence)

    def forget_digests(self, sequence: int) -> None:
        """Discards the retained digests up to and including `sequence`, whose outputs were compared."""
        self._trail.forget_through(sequence)

    def drop_through(self, sequence: int) -> None:
        """Releases the outputs up to and including `sequence`, and does not retain their digests."""
        sequence = min(sequence, self.last_sequence)
        if sequence <= self._base.sequence:
            return
        mark = self.mark_at(sequence)
        assert mark is not None
        self._base = mark
        while self._segments and self._segments[0].last <= sequence:
            self._discard(self._segments.popleft())

    def batches_after(self, sequence: int, rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
        """Yields the held outputs after `sequence` in order, at most `rows_max` rows and about `bytes_max` bytes. Does not release
        them."""
        for segment in self._segments:
            skipped = max(0, sequence + 1 - segment.first)
            if segment.last - segment.first + 1 <= skipped:
                continue
            batch = segment.load()
            row_bytes = max(1, batch.nbytes // batch.num_rows)
            rows = batch.slice(skipped, min(rows_max, -(-bytes_max // row_bytes)))
            yield rows
            rows_max -= rows.num_rows
            bytes_max -= rows.num_rows * row_bytes
            if min(rows_max, bytes_max) <= 0:
                return

    def sequence_at_or_before(self, newest: OutputMark) -> int:
        """Returns the sequence of the held output with the id and digest of `newest`, an output of the stream that another project
        may have computed.

        If that output is not held, returns the sequence of the last held output that the same partition caused at the same or an
        earlier input position. If there is none, returns the base's sequence.
        """
        place, at = self._base.sequence, newest.output_id
        if at is None or (at, newest.digest) == (self._base.output_id, self._base.digest):
            return place
        for segment in self._segments:
            rows = segment.load()
            topic, partition, offset, index, ordinal = (rows.column(i).to_numpy() for i in range(1, 6))
            same = (topic == at.topic) & (partition == at.partition)
            here = same & (offset == at.offset) & (index == at.index)
            earlier = np.flatnonzero(here | (same & ((offset < at.offset) | ((offset == at.offset) & (index < at.index)))))
            if not len(earlier):
                continue
            place = segment.first + int(earlier[-1])
            twin = np.flatnonzero(here & (ordinal == at.ordinal))
            if len(twin) and rows.column(_DIGEST)[int(twin[0])].as_py() == newest.digest:
                return segment.first + int(twin[0])
        return place

    def renumber_from(self, newest: OutputMark, through: int) -> None:
        """Releases the outputs up to and including `through`, and renumbers all later ones to follow `newest`, which is
        committed."""
        shift = newest.sequence - through
        before, self.shift = self.shift, 0
        for rows in self._restart_after(newest, through):
            self.append(renumbered(rows, shift))
        self.shift = before + shift

    def _restart_after(self, newest: OutputMark, through: int) -> list[pa.RecordBatch]:
        """Discards all held outputs and makes `newest` the base; returns the outputs that were held after `through`."""
        kept = [s.load().slice(max(0, through + 1 - s.first)) for s in self._segments if s.last > through]
        self.close()
        self._trail = DigestTrail()
        self._base, self.last_sequence = newest, newest.sequence
        return kept

    def sequence_of(self, output_id: OutputId) -> int | None:
        """Returns the sequence of the held output with this id; None if it is not held."""
        for segment in self._segments:
            rows = segment.load()
            same = np.ones(rows.num_rows, np.bool_)
            for i, number in enumerate(numbers_of(output_id) or (), start=1):
                same &= rows.column(i).to_numpy() == number
            if same.any():
                return segment.first + int(np.flatnonzero(same)[0])
        return None

    def rebase(self, newest: OutputMark, through: int) -> None:
        """Releases the outputs up to and including `through`, makes `newest` the base, and recomputes sequences and digests of the
        later ones so that they follow `newest`.

        Outputs appended afterwards must already follow it.
        """
        before = self.digest_at(through)
        assert before is not None and not self.shift
        base = newest.digest
        for rows in self._restart_after(newest, through):
            digests = rows.column(_DIGEST).to_numpy()
            chained = rechained(digests, before, base)
            before, base = int(digests[-1]), int(chained[-1])
            renamed = renumbered(rows, newest.sequence - through)
            self.append(renamed.set_column(_DIGEST, renamed.schema.field(_DIGEST), pa.array(chained)))

    def spill(self, path: Path) -> int:
        """Moves the outputs in memory to the new file `path`; returns its bytes, 0 if none are in memory. Raises StoreError if the
        file cannot be written; the outputs then stay in memory."""
        staying = [s for s in self._segments if s.batch is None]
        moving = [s for s in self._segments if s.batch is not None]
        if not moving:
            return 0
        try:
            whole = pa.Table.from_batches([s.batch for s in moving]).combine_chunks().to_batches()[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
                writer.write_batch(whole)
        except OSError as error:
            raise StoreError(
                f"cannot write held outputs to {path}", detail=str(error), hint="give the engine's folder more space"
            ) from error
        moved = _Segment(moving[0].first, moving[-1].last, None, whole.nbytes, path)
        self._segments = deque([*staying, moved])
        self.memory_bytes = 0
        self.spilled_bytes += moved.bytes_total
        return moved.bytes_total

    def close(self) -> None:
        while self._segments:
            self._discard(self._segments.popleft())

    def _discard(self, segment: _Segment) -> None:
        if segment.batch is not None:
            self.memory_bytes -= segment.bytes_total
        else:
            self.spilled_bytes -= segment.bytes_total
        if segment.path is not None:
            segment.path.unlink(missing_ok=True)


def base_of(core: Core, stream: str, shift: int = 0) -> OutputMark:
    """Returns the output mark of the last output in a core's state, with `shift` added to its sequence; sequence `shift` if the
    state has none."""
    sequence, last_id = core.sequences.get(stream, 0), core.last_ids.get(stream)
    if not sequence or last_id is None:
        return replace(NO_OUTPUT, sequence=sequence + shift)
    output_id = OutputId(last_id.topic, last_id.partition, last_id.offset, last_id.index, last_id.ordinal)
    return OutputMark(sequence + shift, output_id, core.digests.get(stream, 0))


def renumbered(batch: pa.RecordBatch, shift: int) -> pa.RecordBatch:
    return batch.set_column(0, batch.schema.field(0), pc.add(batch.column(0), shift))


@dataclass
class HeldOutputs:
    """The held outputs of every stream of one group, within one memory budget.

    `folder` receives the outputs that exceed `memory_bytes_max`; it belongs to this engine alone and is created when first needed.
    Raises StoreError if a file cannot be written.
    """

    bases: Mapping[str, OutputMark]
    memory_bytes_max: int
    folder: Path
    shifts: Mapping[str, int] = field(default_factory=dict)
    """The shift of each stream that has one (`HeldStream`)."""
    streams: dict[str, HeldStream] = field(init=False)
    spilled_files: int = 0

    def __post_init__(self) -> None:
        self.streams = {name: HeldStream(base, self.shifts.get(name, 0)) for name, base in self.bases.items()}

    def restart_stream(self, stream: str, base: OutputMark) -> None:
        """Releases all held outputs of a stream; from now on it holds those after `base`."""
        self.streams[stream].close()
        self.streams[stream] = HeldStream(base)

    def rebase(self, stream: str, newest: OutputMark, through: int) -> None:
        """Calls `HeldStream.rebase` for the stream, then spills outputs to disk if the memory budget is exceeded."""
        self.streams[stream].rebase(newest, through)
        self._keep_budget(self.streams.values())

    def append(self, outputs: Mapping[str, pa.RecordBatch]) -> int:
        """Holds the outputs of one part, by stream; returns the bytes that were spilled to disk to stay within the memory
        budget."""
        for stream, batch in outputs.items():
            self.streams[stream].append(batch)
        return self._keep_budget(self.streams.values())

    def _keep_budget(self, streams: Iterable[HeldStream]) -> int:
        spilled = 0
        while sum(s.memory_bytes for s in streams) > self.memory_bytes_max:
            largest = max(streams, key=lambda s: s.memory_bytes)
            self.spilled_files += 1
            spilled += largest.spill(self.folder / f"held-{self.spilled_files}.arrow")
        return spilled

    @property
    def memory_bytes(self) -> int:
        return sum(s.memory_bytes for s in self.streams.values())

    def close(self) -> None:
        for stream in self.streams.values():
            stream.close()
