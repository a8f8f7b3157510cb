"""One cycle of an engine ends, however long each of its calls takes: the next batch has to get its turn (DESIGN section 5)."""

from pathlib import Path
from typing import Any

from hotspare.bus.contract import Message, Outgoing, Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.coordination.contract import Member
from hotspare.coordination.memory import MemoryCoordination
from hotspare.engine.codec import arrow_block
from hotspare.ha.group import GroupDefinition, GroupEngine
from hotspare.ha.ports import Ports
from hotspare.ha.roles import Role
from hotspare.ha.settings import GroupSettings
from hotspare.ha.view import PeerStatus
from hotspare.stores.memory import MemoryStore
from tests.simulation.doors import SimulatedPeers
from tests.simulation.engines import read_raw
from tests.simulation.kits import fast_kit
from tests.simulation.world import project

SETTINGS = GroupSettings(lease_ms=1_000, merge_wait_ms=50, leader_poll_ms=100, snapshot_interval_ms=0)


class SlowAppends(MemoryBusClient):
    """Every append of this engine takes longer than an idle partition may hold up the merge."""

    def __init__(self, bus: MemoryBus) -> None:
        super().__init__(bus, "e0")
        self.now_ms = 1_000
        self.appends = 0

    def append(self, partition: Partition, messages: Any) -> int:
        self.now_ms += 60
        self.appends += 1
        return super().append(partition, messages)


def test_ticks_that_fall_due_again_during_slow_calls_wait_for_the_next_batch(tmp_path: Path) -> None:
    """Two topics, an event in one of them: the cycle ticks each once or twice, and then the engine reads what it has ticked."""
    kit, shared = fast_kit(), MemoryBus()
    bus = SlowAppends(shared)
    ports = Ports(
        bus=bus,
        coordination=MemoryCoordination(lambda: bus.now_ms).client("e0"),
        store=MemoryStore(lambda: bus.now_ms * 1_000),
        peers=SimulatedPeers(lambda *_: PeerStatus.UNKNOWN),
        codec=arrow_block,
        clock_ms=lambda: bus.now_ms,
        report=lambda event: None,
        background=lambda job: job(),
        end_process=lambda leader: False,
    )
    identity = Member("e0", "127.0.0.1:1", 1, 1, "host", "", "", "", "", {}, {})
    engine = GroupEngine(GroupDefinition("g", kit.topics, project(), kit.cores, SETTINGS), identity, ports, tmp_path)
    offsets = dict(engine.start().next_offsets)
    engine.cycle()
    assert engine.role is Role.ACTIVE
    shared.client("world").append(Partition("in0"), [Outgoing(b"2")])
    bus.appends = 0
    engine.on_batch(kit.decode(read_raw(shared.client(), 0, Partition("in0"), offsets, 50)))
    assert 0 < bus.appends <= 4
    engine.on_batch(kit.decode(read_raw(shared.client(), 1, Partition("in1"), offsets, 50)))
    published: list[Message] = list(shared.client().read(Partition("out0"), 0, messages_max=9, bytes_max=1 << 20))
    assert len(published) == 1
