"""Bugs in what belongs to one shard: only a divided project can find them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hotspare.bus.contract import TICK, Bus, Outgoing, Partition
from hotspare.bus.memory import MemoryBus
from hotspare.bus.naming import shard_group, whole_group
from tests.simulation import engines
from tests.simulation.doors import UnreliableBus, UnreliableStore
from tests.simulation.fast_core import FastCore, FastCores
from tests.simulation.faults import FaultKind
from tests.simulation.kits import Raw
from tests.simulation.planting import Groups, planted
from tests.simulation.transactional import OpenTransactions
from tests.simulation.world import World


def _first_of(group: str) -> str:
    """Returns the group of the first shard, or of the project if it is not divided."""
    whole = whole_group(group)
    return group if whole == group else shard_group(whole, 0)


class _OneFolder:
    """A store in which the groups of all shards are one."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        return call if name == "identity" else partial(self._of_first, call)

    @staticmethod
    def _of_first(call: Any, group: str, *arguments: Any) -> Any:
        return call(_first_of(group), *arguments)


@planted(FaultKind.CRASH, FaultKind.ALL_DEAD, groups=Groups.SHARDS)
def snapshots_of_all_shards_in_one_folder() -> Any:
    """A shard's snapshot is restored into another one."""
    right = UnreliableStore.of
    return patch.object(UnreliableStore, "of", lambda self, name, lasting: _OneFolder(right(self, name, lasting)))


class _PerProject(dict[str, int]):
    """A mapping by group that keeps one entry per project."""

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(whole_group(key), default)

    def __getitem__(self, key: str) -> int:
        return super().__getitem__(whole_group(key))

    def __setitem__(self, key: str, value: int) -> None:
        super().__setitem__(whole_group(key), value)


@planted(FaultKind.CRASH, FaultKind.SWITCHOVER, groups=Groups.SHARDS)
def one_transactional_id_for_all_shards() -> Any:
    """A fence for one shard also fences the active engine of another."""
    right = MemoryBus.__init__

    def init(self: MemoryBus, *arguments: Any, **options: Any) -> None:
        right(self, *arguments, **options)
        self.epochs, self.generations = _PerProject(), _PerProject()

    return patch.object(MemoryBus, "__init__", init)


@planted(FaultKind.CRASH, FaultKind.SWITCHOVER, groups=Groups.SHARDS)
def progress_of_the_first_shard() -> Any:
    """A new active reads the progress of the first shard."""
    right = OpenTransactions.visible
    return patch.object(OpenTransactions, "visible", lambda self, group: right(self, _first_of(group)))


@planted(groups=Groups.SHARDS)
def keys_without_their_shard() -> Any:
    """Every shard generates keys from 0 on."""
    return patch.object(FastCores, "fresh", lambda self: FastCore(salt=self.salt))


@planted(FaultKind.CRASH, groups=Groups.SHARDS)
def every_shard_reads_the_first_partition() -> Any:
    """Every shard reads the first shard's partition."""

    def read_raw(bus: Bus, index: int, partition: Partition, offsets: dict[tuple[int, int], int], count: int) -> list[Raw]:
        key = (index, partition.number)
        messages = bus.read(Partition(partition.topic), offsets[key], messages_max=count, bytes_max=1 << 20)
        if messages:
            offsets[key] = messages[-1].offset + 1
        return [Raw(*key, m.offset, m.append_time_us, m.is_tick, m.value) for m in messages]

    return patch.object(engines, "read_raw", read_raw)


@planted(groups=Groups.SHARDS)
def ticks_for_the_first_partition_alone() -> Any:
    """Time does not pass in the other shards."""
    right = UnreliableBus.append

    def append(self: UnreliableBus, partition: Partition, messages: Sequence[Outgoing]) -> int:
        return right(self, Partition(partition.topic) if TICK in messages else partition, messages)

    return patch.object(UnreliableBus, "append", append)


@planted(FaultKind.SHORT_MEMORY, FaultKind.LAG, FaultKind.BUS_OUTAGE, groups=Groups.SHARDS)
def held_outputs_of_all_shards_in_one_folder() -> Any:
    """A shard's spilled outputs overwrite those of another one."""

    def scratch(self: World, door: str) -> Path:
        return self.folder / door

    return patch.object(World, "scratch", scratch)
