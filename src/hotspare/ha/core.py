"""The interface of the engine core to a group, so that a group can be driven without loading compiled kernels or Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from hotspare.stores.contract import Content


class OutputIdLike(Protocol):
    """The fields of `bus.contract.OutputId`; the core, which knows no bus, has a class of its own."""

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
        """Returns every page by name, as stores take it."""


class Core(Protocol):
    """A deterministic core with its state: `hotspare.flow.pipeline.Pipeline`.

    Mappings are by stream name; a stream without outputs yet may be absent. `next_offsets` is by (topic index, partition).
    """

    def compute_parts(
        self, decoded: pa.RecordBatch | pa.Table, take: Callable[[int], int]
    ) -> Iterator[Mapping[str, pa.RecordBatch]]:
        """Takes a batch and yields its outputs part by part, at least one. All are to be taken before the next batch.

        Before each step `take` receives the count of rows left, and returns how many the step takes.
        """

    def limit_part_rows(self, extra_rows: int) -> None:
        """Sets how many rows a single row, such as a tick, may cause in each following part, besides a few for each input row."""

    @property
    def is_between_batches(self) -> bool:
        """Whether all parts are taken. Only then `freeze` may be called, and only then `next_offsets` includes the batch."""

    def set_partitions(self, partitions: Iterable[tuple[int, int]], skew_max_us: int | None = None) -> None: ...

    def freeze(self) -> FrozenState: ...

    def adopt(self, stream: str, sequence: int, digest: int, last: tuple[int, int, int, int, int] | None) -> None:
        """Sets the number and the digest of the stream's newest output, and its id, if given. Only between batches.

        The id is topic, partition, offset, index and ordinal.
        """

    @property
    def waiting_rows(self) -> int:
        """Rows that wait for another partition, or for the rows that follow them in their own."""

    @property
    def waiting_bytes(self) -> int:
        """The memory that these rows take."""

    @property
    def awaited_partition(self) -> tuple[int, int]:
        """The partition that all waiting rows wait for."""

    @property
    def blocking_partitions(self) -> Collection[tuple[int, int]]:
        """The partitions that an event elsewhere may be waiting for."""

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
        """Bytes of the state by kind, for users; empty if it has no budget."""

    @property
    def memory_by_window(self) -> Mapping[str, Mapping[str, int]]:
        """The same for each window whose rows may be evicted."""


class CoreFactory(Protocol):
    """Makes cores of one project."""

    def fresh(self) -> Core:
        """Returns a core with the state before the first event."""

    def restore(self, header: bytes, pages: Mapping[str, bytes]) -> Core:
        """Returns a core with the state of a snapshot. Raises ProjectChanged, SnapshotFormat or SnapshotDamaged."""
