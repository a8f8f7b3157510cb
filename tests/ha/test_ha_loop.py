"""A run of the HA loop ends, however long each of its calls takes, so that the next batch gets its turn."""

from pathlib import Path
from typing import Any

from hotspare.bus.contract import Message, Outgoing, Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.coordination.contract import Member, Renewed
from hotspare.coordination.memory import MemoryCoordination
from hotspare.formats import arrow_block
from hotspare.ha.group import GroupDefinition, GroupEngine
from hotspare.ha.ports import Ports
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupSettings
from hotspare.ha.rules.view import PeerStatus
from hotspare.stores.memory import MemoryStore
from tests.simulation.doors import SimulatedPeers
from tests.simulation.engines import read_raw
from tests.simulation.kits import FastKit, fast_kit
from tests.simulation.world import project

SETTINGS = GroupSettings(lease_ms=1_000, merge_wait_ms=50, leader_poll_ms=100, switchover_poll_ms=100, snapshot_interval_ms=0)


class SlowAppends(MemoryBusClient):
    """A bus whose every append takes longer than an idle partition may hold up the merge."""

    def __init__(self, bus: MemoryBus) -> None:
        super().__init__(bus, "e0")
        self.now_ms = 1_000
        self.appends = 0

    def append(self, partition: Partition, messages: Any) -> int:
        self.now_ms += 60
        self.appends += 1
        return super().append(partition, messages)


def engine_on(bus: SlowAppends, kit: FastKit, coordination: Any, folder: Path) -> GroupEngine:
    """Returns an engine whose clock is that of its bus."""
    ports = Ports(
        bus=bus,
        coordination=coordination,
        store=MemoryStore(lambda: bus.now_ms * 1_000),
        peers=SimulatedPeers(lambda *_: PeerStatus.UNKNOWN),
        codec=arrow_block,
        clock_ms=lambda: bus.now_ms,
        report=lambda event: None,
        background=lambda job: job(),
        end_process=lambda leader: False,
    )
    identity = Member("e0", "127.0.0.1:1", 1, 1, "host", "", "", "", "", {}, {})
    return GroupEngine(GroupDefinition("g", kit.topics, project(), kit.cores, SETTINGS), identity, ports, folder)


def test_ticks_that_fall_due_again_during_slow_calls_wait_for_the_next_batch(tmp_path: Path) -> None:
    """Two topics, an event in one of them: the HA loop ticks each once or twice, and then the engine reads its ticks."""
    kit, shared = fast_kit(), MemoryBus()
    bus = SlowAppends(shared)
    engine = engine_on(bus, kit, MemoryCoordination(lambda: bus.now_ms).client("e0"), tmp_path)
    offsets = dict(engine.start().next_offsets)
    engine.run_ha_loop()
    assert engine.role is Role.ACTIVE
    shared.client("world").append(Partition("in0"), [Outgoing(b"2")])
    bus.appends = 0
    engine.on_batch(kit.decode(read_raw(shared.client(), 0, Partition("in0"), offsets, 50)))
    assert 0 < bus.appends <= 4
    engine.on_batch(kit.decode(read_raw(shared.client(), 1, Partition("in1"), offsets, 50)))
    published: list[Message] = list(shared.client().read(Partition("out0"), 0, messages_max=9, bytes_max=1 << 20))
    assert len(published) == 1


class SlowRenewals:
    """Coordination that renews a lease in the middle of a long call. `left_ms`: the rest of the previous lease at each renewal."""

    def __init__(self, inner: Any, bus: SlowAppends, takes_ms: int) -> None:
        self._inner, self._bus, self._takes_ms = inner, bus, takes_ms
        self.left_ms: list[int] = []

    def renew(self, group: str, epoch: int, engine: str, lease_ms: int) -> Renewed | None:
        self._bus.now_ms += self._takes_ms // 2
        self.left_ms.append(self._inner.leader(group).lease_left_ms)
        renewed: Renewed | None = self._inner.renew(group, epoch, engine, lease_ms)
        self._bus.now_ms += self._takes_ms // 2
        return renewed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_a_lease_is_renewed_in_time_however_long_the_renewal_takes(tmp_path: Path) -> None:
    """A watcher counts from the renewal in coordination, not from the answer to the holder."""
    kit, bus = fast_kit(), SlowAppends(MemoryBus())
    coordination = SlowRenewals(MemoryCoordination(lambda: bus.now_ms).client("e0"), bus, 8 * SETTINGS.lease_ms // 10)
    engine = engine_on(bus, kit, coordination, tmp_path)
    offsets = dict(engine.start().next_offsets)
    engine.run_ha_loop()
    while len(coordination.left_ms) < 12:
        for index, partition in kit.topics.partitions:
            if messages := read_raw(bus, index, partition, offsets, 50):
                engine.on_batch(kit.decode(messages))
        engine.run_ha_loop()
        bus.now_ms += 10
    assert min(coordination.left_ms[1:]) > 0
