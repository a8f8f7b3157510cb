"""The interface of the engine core to a group, so that a group can be driven without loading compiled kernels or Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from hotspare.base.call_place import CallPlace, Decision
from hotspare.stores.contract import Content


class OutputIdLike(Protocol):
    """The fields that `bus.contract.OutputId` and the core's own class of output ids share, since the core may not import the
    bus."""

    @property
    def topic(self) -> int: ...

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def index(self) -> int: ...

    @property
    def ordinal(self) -> int: ...


class FrozenState(Protocol):
    """A state at a batch boundary; it can be encoded in another thread while the core continues."""

    @property
    def header(self) -> bytes: ...

    def contents(self) -> Iterable[tuple[str, bytes | Content]]:
        """Returns (name, content) of every page, as `Store.write_candidate` accepts them."""


class Core(Protocol):
    """A deterministic core with its state: `hotspare.flow.pipeline.Pipeline`.

    Mappings are by stream name, and may lack streams without outputs. Keys of `next_offsets` are (topic index, partition).
    """

    def compute_parts(
        self, decoded: pa.RecordBatch | pa.Table, take: Callable[[int], int]
    ) -> Iterator[Mapping[str, pa.RecordBatch]]:
        """Computes a batch; yields its outputs by stream, part by part, at least one part. All parts have to be consumed before the
        next batch.

        Before each step the core calls `take` with the count of remaining rows; `take` returns how many rows this step computes.
        """

    def limit_part_rows(self, extra_rows: int) -> None:
        """Limits the rows that one input row, such as a tick, may cause in a part: at most `extra_rows` in addition to a few for
        each input row. Takes effect with the next part."""

    @property
    def is_between_batches(self) -> bool:
        """Whether all parts of the last batch are consumed. Only then may `freeze` be called, and only then `next_offsets` includes
        the batch."""

    def set_partitions(self, partitions: Iterable[tuple[int, int]], skew_max_us: int | None = None) -> None: ...

    def freeze(self) -> FrozenState: ...

    def set_decisions(self, decisions: Sequence[Decision]) -> None:
        """Sets all decisions of the group about calls of user code, by number. They hold for steps that begin later."""

    @property
    def missing_decisions(self) -> tuple[Decision, ...]:
        """The known decisions about positions that the state has passed without applying them. If there are any, the state is
        void."""

    def stop_before(self, places: Collection[CallPlace]) -> None:
        """Sets the places before which the core stops unless they are decided: it processes no row at or after them."""

    def pass_place(self, place: CallPlace) -> None:
        """Lets the core compute the row at `place` without limits, and not stop before it."""

    @property
    def stopped_at(self) -> CallPlace | None:
        """The place before which `compute_parts` waits now; None if it does not. While it waits, all its parts are empty, and the
        core is not between batches."""

    def row_by_row(self, places: Collection[CallPlace]) -> None:
        """Sets the windows over columns that call their code for one row at a time: those of `places`."""

    def adopt(self, stream: str, sequence: int, digest: int, last: tuple[int, int, int, int, int] | None) -> None:
        """Sets sequence and digest of the stream's newest output, and its id unless `last` is None. To be called only between
        batches.

        `last` is (topic, partition, offset, index, ordinal).
        """

    @property
    def waiting_rows(self) -> int:
        """The count of rows that wait for rows of another partition, or for later rows of their own partition."""

    @property
    def waiting_bytes(self) -> int:
        """The bytes of memory that the waiting rows take."""

    @property
    def awaited_partition(self) -> tuple[int, int]:
        """The partition that all waiting rows wait for, as (topic index, number)."""

    @property
    def blocking_partitions(self) -> Collection[tuple[int, int]]:
        """The partitions, as (topic index, number), for which an event of another partition may be waiting."""

    @property
    def sequences(self) -> Mapping[str, int]: ...

    @property
    def digests(self) -> Mapping[str, int]: ...

    @property
    def last_ids(self) -> Mapping[str, OutputIdLike | None]: ...

    @property
    def next_offsets(self) -> Mapping[tuple[int, int], int]: ...

    @property
    def time_us(self) -> int: ...

    @property
    def memory_by_kind(self) -> Mapping[str, int]:
        """The bytes of the state by kind, for users; empty if the state has no memory budget."""

    @property
    def memory_by_window(self) -> Mapping[str, Mapping[str, int]]:
        """The bytes by window and kind, only of windows whose rows may be evicted."""


class CoreFactory(Protocol):
    """Creates the cores of one project."""

    def fresh(self) -> Core:
        """Returns a core with the state before the first event."""

    def restore(self, header: bytes, pages: Mapping[str, bytes]) -> Core:
        """Returns a core with the state of a snapshot. Raises ProjectChanged, SnapshotFormat or SnapshotDamaged."""
