"""The recorded input of a simulated run, including messages deleted from the bus since, and the outputs expected for it.

Due outputs are computed from the ticks that should have been appended, not from those that were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from hotspare.bus.contract import Bus, Partition
from tests.exact_rows import exact_rows
from tests.simulation.engines import read_raw
from tests.simulation.kits import Kit, Raw


@dataclass
class Recorded:
    """The recorded input of a group. `bus`: a client without faults."""

    kit: Kit
    bus: Bus
    archive: dict[tuple[int, int], list[Raw]] = field(default_factory=dict)
    """Messages that the bus has deleted, by topic and partition."""

    def count(self) -> int:
        """Returns the count of messages that the input topics have had, ticks included."""
        return sum(self.bus.end_offset(partition) for _, partition in self.kit.topics.partitions)

    def ends(self) -> dict[tuple[int, int], int]:
        """Returns the end offset of each inbound partition."""
        return {(i, p.number): self.bus.end_offset(p) for i, p in self.kit.topics.partitions}

    def archive_before(self, topic: int, number: int, before: int) -> None:
        """Archives the messages before offset `before`, which are about to be trimmed."""
        messages = self.archive.setdefault((topic, number), [])
        messages += [m for m in self._held(topic, Partition(self.kit.topics.inbound[topic].name, number)) if m.offset < before]

    def reference(self, skew_max_ms: int) -> dict[str, list[tuple[object, ...]]]:
        """Returns the outputs of an uninterrupted engine for it."""
        return self._computed(self._messages(), skew_max_ms)

    def due_by(self, bus_ms: int, ends: Mapping[tuple[int, int], int], skew_max_ms: int) -> dict[str, int]:
        """Returns the count of outputs per stream due for the input up to `ends`, once the bus's time is `bus_ms`.

        Events before the next tick may make outputs that wait for a pulse needless. So no more is due than what actual ticks have
        released, once these have reached that time.
        """
        messages = self._messages()
        ticked = [m for m in messages if m.offset < ends[m.topic, m.partition]]
        ticked += [Raw(*key, ends[key], bus_ms * 1000, True, b"") for key in self._ticked_keys]
        due = self._counted(ticked, skew_max_ms)
        if self.kit.folds and (through := self._ticked_since(messages, bus_ms, ends)) is not None:
            came = self._counted([m for m in messages if m.offset <= through[m.topic, m.partition]], skew_max_ms)
            due = {stream: min(count, came.get(stream, 0)) for stream, count in due.items()}
        return due

    def has_ticked(self, bus_ms: int, ends: Mapping[tuple[int, int], int]) -> bool:
        """Whether every partition has a tick after `ends` with a time of at least `bus_ms`."""
        return self._ticked_since(self._messages(), bus_ms, ends) is not None

    @staticmethod
    def _ticked_since(
        messages: Sequence[Raw], bus_ms: int, ends: Mapping[tuple[int, int], int]
    ) -> dict[tuple[int, int], int] | None:
        """Returns the offset of the first such tick of each partition; None if one has none."""
        found: dict[tuple[int, int], int] = {}
        for m in messages:
            key = (m.topic, m.partition)
            if m.is_tick and m.offset >= ends[key] and m.time_us >= bus_ms * 1_000:
                found.setdefault(key, m.offset)
        return found if len(found) == len(ends) else None

    @property
    def _ticked_keys(self) -> list[tuple[int, int]]:
        """The partitions that the group ticks itself."""
        return [(i, p.number) for i, p in self.kit.topics.own_partitions]

    def _counted(self, messages: list[Raw], skew_max_ms: int) -> dict[str, int]:
        return {stream: len(rows) for stream, rows in self._computed(messages, skew_max_ms).items()}

    def _held(self, topic: int, partition: Partition) -> list[Raw]:
        offsets = {(topic, partition.number): self.bus.begin_offset(partition)}
        return read_raw(self.bus, topic, partition, offsets, 1 << 20)

    def _messages(self) -> list[Raw]:
        messages: list[Raw] = []
        for index, partition in self.kit.topics.partitions:
            messages += self.archive.get((index, partition.number), [])
            messages += self._held(index, partition)
        return messages

    def _computed(self, messages: list[Raw], skew_max_ms: int) -> dict[str, list[tuple[object, ...]]]:
        core = self.kit.cores.fresh()
        core.set_partitions([(i, p.number) for i, p in self.kit.topics.partitions], skew_max_ms * 1000)
        outputs = core.feed(self.kit.decode(messages)) if messages else {}
        return {stream: self._rows(batch) for stream, batch in outputs.items()}

    def _rows(self, outputs: pa.RecordBatch) -> list[tuple[object, ...]]:
        return exact_rows(outputs)
