"""The input of a simulated run as it was recorded, also what the bus has let go of since, and what follows from it.

What was due is computed from the ticks that should have come, and not from those that came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hotspare.bus.contract import Bus, Partition
from tests.simulation.engines import read_raw
from tests.simulation.kits import Kit, Raw


@dataclass
class Recorded:
    """`bus`: a client that nothing befalls."""

    kit: Kit
    bus: Bus
    archive: dict[tuple[int, int], list[Raw]] = field(default_factory=dict)
    """Messages that the bus has let go of, by topic and partition."""

    def count(self) -> int:
        """How many messages the input topics have had, ticks included."""
        return sum(self.bus.end_offset(partition) for _, partition in self.kit.topics.partitions)

    def ends(self) -> dict[tuple[int, int], int]:
        """Where each inbound partition ends now."""
        return {(i, p.number): self.bus.end_offset(p) for i, p in self.kit.topics.partitions}

    def archive_before(self, topic: int, number: int, before: int) -> None:
        """Keep what is about to be trimmed."""
        messages = self.archive.setdefault((topic, number), [])
        messages += [m for m in self._held(topic, Partition(self.kit.topics.inbound[topic].name, number)) if m.offset < before]

    def reference(self, skew_max_ms: int) -> dict[str, list[tuple[object, ...]]]:
        """What an uninterrupted engine makes of it."""
        return self._computed(self._messages(), skew_max_ms)

    def due_by(self, bus_ms: int, ends: Mapping[tuple[int, int], int], skew_max_ms: int) -> dict[str, int]:
        """How many outputs per stream it has, up to `ends`, once the bus's time has come to `bus_ms`."""
        messages = [m for m in self._messages() if m.offset < ends[m.topic, m.partition]]
        messages += [Raw(topic, number, end, bus_ms * 1000, True, b"") for (topic, number), end in ends.items()]
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
        return {s: list(zip(*(c.to_pylist() for c in b.columns), strict=True)) for s, b in outputs.items()}
