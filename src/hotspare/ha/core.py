"""What a group needs of the engine core, so that it can be driven without loading compiled kernels or Spark."""

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
    """A state at a batch boundary; it can be encoded in another thread while the core goes on."""

    @property
    def header(self) -> bytes: ...

    def contents(self) -> Iterable[tuple[str, bytes | Content]]:
        """Every page by name, as stores take it."""


class Core(Protocol):
    """A deterministic core with its state: `hotspare.flow.pipeline.Pipeline`.

    Mappings are by stream name; a stream without outputs yet may be absent. `next_offsets` is by (topic index, partition).
    """

    def parts(self, decoded: pa.RecordBatch | pa.Table, take: Callable[[int], int]) -> Iterator[Mapping[str, pa.RecordBatch]]:
        """Take a batch and yield its outputs part by part, at least one. All are to be taken before the next batch. Before each
        step `take` is told how many rows are left, and says how many the step takes."""

    def bound_parts(self, extra_rows: int) -> None:
        """How many rows a single row, such as a tick, may cause in each part that follows, beside a few for each row given."""

    @property
    def is_whole(self) -> bool:
        """Whether all parts are taken. Only then `freeze` may be called, and do `next_offsets` tell of the batch."""

    def set_partitions(self, partitions: Iterable[tuple[int, int]], skew_max_us: int | None = None) -> None: ...

    def freeze(self) -> FrozenState: ...

    def adopt(self, stream: str, sequence: int, digest: int, last: tuple[int, int, int, int, int] | None) -> None:
        """From now on the newest output of the stream has this number and this digest, and, where one is given, this id: topic,
        partition, offset, index and ordinal. Only between batches."""

    @property
    def waiting(self) -> int:
        """Rows that wait for another partition, or for what follows them in their own."""

    @property
    def waiting_bytes(self) -> int:
        """Of memory that they take."""

    @property
    def last_partition(self) -> tuple[int, int]:
        """The one that all waiting rows wait for."""

    @property
    def holding_up(self) -> Collection[tuple[int, int]]:
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
    def memory(self) -> Mapping[str, int]:
        """Bytes of the state by what they are, for people; empty where it has no budget."""

    @property
    def memory_by_window(self) -> Mapping[str, Mapping[str, int]]:
        """The same of each window whose rows may leave memory."""


class CoreFactory(Protocol):
    """Makes cores of one project."""

    def fresh(self) -> Core:
        """The state before the first event."""

    def restore(self, header: bytes, pages: Mapping[str, bytes]) -> Core:
        """The state of a snapshot. ProjectChanged, SnapshotFormat, SnapshotDamaged."""
