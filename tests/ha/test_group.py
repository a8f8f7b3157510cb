"""The group engine as a host uses it: threads, the SQLite bus and coordination, a folder of snapshots (SPEC E2, E5, C9, M5)."""

import contextlib
import json
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hotspare.base.errors import StateError, UsageError
from hotspare.base.processes import process_start
from hotspare.bus.contract import TICK, Bus, Outgoing, Partition, Producer
from hotspare.bus.open import open_bus
from hotspare.bus.sqlite import SqliteBus
from hotspare.coordination.contract import Leader, Member
from hotspare.coordination.open import open_coordination
from hotspare.formats import arrow_block
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group import GroupDefinition, GroupEngine
from hotspare.ha.outputs import qualities
from hotspare.ha.ports import Ports
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupSettings
from hotspare.ha.rules.snapshots import STORE_STUCK_MAX
from hotspare.ha.rules.view import PeerStatus
from hotspare.host.background import Background
from hotspare.host.clock import monotonic_ms
from hotspare.model.quality import PRECISE, SIMPLE
from hotspare.stores.contract import Store
from hotspare.stores.open import open_store
from hotspare.testing.cluster import wait_until
from tests.contract.material import child
from tests.simulation.engines import read_raw
from tests.simulation.kits import fast_kit
from tests.simulation.world import project

SETTINGS = GroupSettings(lease_ms=2_000, heartbeat_ms=50, snapshot_interval_ms=100, member_refresh_ms=50, quality_poll_ms=20)
RENEWALS_PER_LEASE = 4
WAIT_S = 60


class Peers:
    """A connection whose closing the test determines."""

    def __init__(self) -> None:
        self.answer = PeerStatus.CONNECTED

    def watch(self, leader: Leader) -> None:
        self.answer = PeerStatus.CONNECTED

    def status(self) -> PeerStatus:
        return self.answer


class HeldFences:
    """A bus on which fences end when the test allows it."""

    def __init__(self, inner: Bus) -> None:
        self._inner = inner
        self._fencing, self._go_on = threading.Event(), threading.Event()
        self._go_on.set()

    def hold_fences(self) -> tuple[threading.Event, threading.Event]:
        """Blocks fences from now on. Returns (an event that a fence has begun, an event that unblocks them)."""
        self._go_on.clear()
        return self._fencing, self._go_on

    def producer(self, group: str, output_topics: Sequence[str]) -> Producer:
        producer = self._inner.producer(group, output_topics)
        fence = producer.fence

        def held(epoch: int) -> None:
            self._fencing.set()
            assert self._go_on.wait(WAIT_S)
            fence(epoch)

        producer.fence = held  # type: ignore[method-assign]
        return producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Host:
    """An engine with a runner thread and a timer thread of its own."""

    def __init__(
        self,
        folder: Path,
        name: str,
        settings: GroupSettings = SETTINGS,
        machine: str = "host",
        snapshots: str = "snapshots",
    ) -> None:
        self.kit, self.peers, self.name = fast_kit(), Peers(), name
        self.events: list[HaEvent] = []
        self.ended: list[object] = []
        self.bus: Any = HeldFences(open_bus(f"sqlite:///{folder / 'bus.db'}"))
        self.input = SqliteBus(folder / "bus.db", busy_timeout_ms=int(WAIT_S * 1_000))
        """A publisher's client of the bus: on a busy machine an engine may hold the lock for longer than engines wait."""
        self.coordination = open_coordination(f"sqlite:///{folder / 'bus.db-coord'}")
        ports = Ports(
            bus=self.bus,
            coordination=self.coordination,
            store=open_store((folder / snapshots).as_uri()),
            peers=self.peers,
            codec=arrow_block,
            clock_ms=monotonic_ms,
            report=self.events.append,
            background=lambda job: job(),
            end_process=self._end_process,
        )
        identity = Member(name, "127.0.0.1:1", 1, 1, machine, "", "", "", "", {}, {})
        definition = GroupDefinition("g", self.kit.topics, project(), self.kit.cores, settings)
        self.engine = GroupEngine(definition, identity, ports, folder / machine / name)
        self._dead = threading.Event()
        self._threads = [threading.Thread(target=self._run), threading.Thread(target=self._beat)]
        self.offsets: dict[tuple[int, int], int] = {}
        self.rounds = 0
        """The count of its readings of all partitions."""

    def start(self) -> None:
        self.offsets = dict(self.engine.start().next_offsets)
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._dead.is_set():
            for index, partition in self.kit.topics.partitions:
                self.bus.read(partition, self.offsets[index, partition.number], messages_max=1, bytes_max=1, wait_ms=2)
                messages = read_raw(self.bus, index, partition, self.offsets, 50)
                if messages:
                    self.engine.on_batch(self.kit.decode(messages))
            self.rounds += 1

    def _beat(self) -> None:
        while not self._dead.is_set():
            due_ms = self.engine.next_due_ms()
            left_ms = 50 if due_ms is None else due_ms - monotonic_ms()
            self._dead.wait(max(0, min(50, left_ms)) / 1000)
            self.engine.run_ha_loop()

    def _end_process(self, *process: object) -> bool:
        self.ended.append(process)
        return False

    def kill(self) -> None:
        """Stops the engine wherever it is, without any sign to the others."""
        self._dead.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def close(self) -> None:
        self.kill()
        self.engine.close()
        self.bus.close()
        self.input.close()
        self.coordination.close()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    made = [Host(tmp_path, "e0"), Host(tmp_path, "e1")]
    yield made
    for host in made:
        host.close()


@pytest.fixture
def patient_hosts(tmp_path: Path) -> Iterator[list[Host]]:
    """Yields two engines between which the role moves only when the test ends a process."""
    made = [Host(tmp_path, name, replace(SETTINGS, lease_ms=600_000)) for name in ("e0", "e1")]
    yield made
    for host in made:
        host.close()


def publish(host: Host, *values: int) -> None:
    for value in values:
        host.input.append(Partition("in0"), [Outgoing(str(value).encode())])


def held_through(host: Host) -> int:
    state = host.engine._state
    return 0 if state is None else state.held.streams["q/a"].last_sequence


def wait_read(host: Host) -> None:
    """Waits until the runner has delivered all input, and reads in vain."""
    ends = {(index, place.number): host.bus.end_offset(place) for index, place in host.kit.topics.partitions}
    wait_until(lambda: all(host.offsets[key] >= end for key, end in ends.items()), "all is read", WAIT_S)
    rounds = host.rounds
    wait_until(lambda: host.rounds > rounds + 1, "what was read is taken", WAIT_S)


def tick(host: Host) -> None:
    """Ticks both topics, as only an active does: without ticks a spare cannot know the order of events in two topics."""
    for topic in ("in0", "in1"):
        host.input.append(Partition(topic), [TICK])


def published(host: Host) -> list[int]:
    offsets = {(0, 0): 0}
    rows = read_raw(host.bus, 0, Partition("out0"), offsets, 100_000)
    return [s for row in rows for s in arrow_block.decode(row.value).column(0).to_pylist()]


def test_two_engines_on_the_embedded_default_and_a_takeover(patient_hosts: list[Host]) -> None:
    """SPEC E2, E3, C1: the output goes on without gap or duplicate, and the restarted one is a spare (SPEC C4, E5)."""
    first, second = patient_hosts
    first.start()
    wait_until(lambda: first.engine.role is Role.ACTIVE, "e0 is active", WAIT_S)
    wait_until(lambda: len(first.bus.progress("g")) == 2, "that nothing is published is recorded", WAIT_S)
    second.start()
    assert not [e for e in first.events if e.kind is HaEventKind.PROMOTED]
    publish(first, *range(20))
    wait_until(lambda: published(first) == list(range(1, 21)), "20 outputs", WAIT_S)
    wait_until(lambda: second.engine.status().streams["q/a"].committed == 20, "the spare knows", WAIT_S)
    assert second.engine.status().streams["q/a"].held == 0
    first.kill()
    publish(second, *range(20))
    second.peers.answer = PeerStatus.ENDED
    wait_until(lambda: published(second) == list(range(1, 41)), "40 outputs", WAIT_S)
    assert second.engine.role is Role.ACTIVE
    promoted = [e for e in second.events if e.kind is HaEventKind.PROMOTED]
    assert len(promoted) == 1
    assert set(promoted[0].numbers) >= {"election_ms", "fencing_ms", "first_output_ms", "total_ms"}


_KEEP_LOCKED = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
"""


def test_of_a_lock_of_somebody_else_nobody_is_ended_but_who_holds_it(tmp_path: Path, hosts: list[Host]) -> None:
    """The lock is that of a stopped publisher, or a shell. The active engine is healthy, and the log names the
    holder."""
    first, second = hosts
    first.start()
    wait_until(lambda: first.engine.role is Role.ACTIVE, "e0 is active", WAIT_S)
    second.start()
    with child(_KEEP_LOCKED, tmp_path / "bus.db") as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "locked\n"
        started_ms = process_start(stranger.pid)
        stranger.send_signal(signal.SIGSTOP)
        wait_until(lambda: bool(first.ended or second.ended), "somebody is to be ended", WAIT_S)
        stranger.kill()
    assert set(first.ended + second.ended) == {(stranger.pid, started_ms)}


def test_a_fence_that_takes_longer_than_the_lease_ends(tmp_path: Path) -> None:
    """SPEC C3: the promotion keeps its lease meanwhile; otherwise each engine would take the role from the other before it is
    done."""
    made, renewals = [Host(tmp_path, name, replace(SETTINGS, lease_ms=4_000)) for name in ("e0", "e1")], list[int]()
    with contextlib.ExitStack() as stack:
        fences = [host.bus.hold_fences() for host in made]
        for host, (_, go_on) in zip(made, fences, strict=True):
            stack.callback(host.close)
            stack.callback(go_on.set)
            renew = host.coordination.renew
            host.coordination.renew = lambda *given, renew=renew: (renewals.append(given[1]), renew(*given))[1]  # type: ignore[method-assign]
            host.start()
        wait_until(lambda: any(fencing.is_set() for fencing, _ in fences), "a fence has begun", WAIT_S)
        wait_until(lambda: len(renewals) > RENEWALS_PER_LEASE, "it takes longer than a lease", WAIT_S)
        for _, go_on in fences:
            go_on.set()
        publish(made[0], 1)
        wait_until(lambda: published(made[0]) == [1], "the output", WAIT_S)
        assert made[0].coordination.leader("g").epoch == 1
        assert set(renewals) == {1}


def test_batches_are_held_while_a_promotion_waits_for_the_bus(tmp_path: Path) -> None:
    """SPEC E2: outputs of input since the last read are computed when the fence is done, and are published at once."""
    first, host = (Host(tmp_path, name, replace(SETTINGS, lease_ms=600_000)) for name in ("e0", "e1"))
    with contextlib.ExitStack() as stack:
        for each in (first, host):
            stack.callback(each.close)
        first.start()
        publish(first, 1)
        wait_until(lambda: published(first) == [1], "an output of the first", WAIT_S)
        host.start()
        wait_until(lambda: host.engine.role is Role.STANDBY and held_through(host) == 1, "a spare", WAIT_S)
        fencing, go_on = host.bus.hold_fences()
        stack.callback(go_on.set)
        first.kill()
        wait_read(host)  # otherwise the thread that reads would promote, and compute nothing meanwhile
        host.peers.answer = PeerStatus.ENDED
        assert fencing.wait(WAIT_S)
        publish(first, *range(5))
        tick(first)
        wait_until(lambda: held_through(host) == 6, "outputs beside the fence", WAIT_S)
        assert (host.engine.role, published(first)) == (Role.PROMOTING, [1])
        go_on.set()
        wait_until(lambda: published(first) == list(range(1, 7)), "the outputs", WAIT_S)


def test_a_second_engine_of_a_name_is_refused_from_another_machine_until_the_first_is_silent(tmp_path: Path) -> None:
    """SPEC C4, C10: from there neither its process nor its address shows whether it lives; its member record does."""
    unhurried = replace(SETTINGS, member_refresh_ms=1_000)  # on a busy machine a thread may wait for the time of some refreshes
    first, second, third = (Host(tmp_path, "e0", unhurried, machine) for machine in ("host", "far", "farther"))
    first.start()
    wait_until(lambda: len(first.coordination.members("g")) == 1, "e0 is a member", WAIT_S)
    with contextlib.ExitStack() as stack:
        for host in (first, second, third):
            stack.callback(host.close)
        with pytest.raises(UsageError, match="engine e0 already takes part in group g, as process 1 on host"):
            second.engine.start()
        first.kill()
        third.start()
        wait_until(lambda: third.engine.role is Role.ACTIVE, "it came back on another machine", WAIT_S)


def test_a_quality_changes_while_the_group_runs(patient_hosts: list[Host]) -> None:
    """SPEC D1, Z16, J12: no engine restarts, the other stream stays as it is, after the change back nothing is lost or
    duplicated."""
    first, second = patient_hosts
    first.start()
    wait_until(lambda: first.engine.role is Role.ACTIVE, "e0 is active", WAIT_S)
    second.start()

    def all_read(version: int) -> bool:
        members = first.coordination.members("g")
        return len(members) == 2 and all(m.detail["quality_version"] == str(version) for m in members)

    assert qualities.request_quality_change(second.coordination, "g", "q/a", SIMPLE) == 1
    wait_until(lambda: all_read(1), "both act by simple", WAIT_S)
    publish(first, *range(20))
    wait_until(lambda: len(published(first)) == 20, "20 outputs", WAIT_S)
    assert all(json.loads(m.detail["qualities"]) == {"q/a": "simple", "q/b": "precise"} for m in first.coordination.members("g"))
    assert qualities.request_quality_change(second.coordination, "g", "q/a", PRECISE) == 2
    wait_until(lambda: all_read(2), "both act by precise again", WAIT_S)
    publish(first, *range(20))
    wait_until(lambda: second.engine.status().streams["q/a"].committed == 40, "the spare knows", WAIT_S)
    first.kill()
    publish(second, *range(20))
    tick(second)
    wait_until(lambda: second.engine.status().streams["q/a"].held == 20, "the spare holds what nobody published", WAIT_S)
    second.peers.answer = PeerStatus.ENDED
    wait_until(lambda: published(second) == list(range(1, 61)), "60 outputs", WAIT_S)
    assert not any(e.kind is HaEventKind.OUTPUTS_LOST for e in second.events)


def test_a_simple_stream_goes_on_from_what_is_computed_then(patient_hosts: list[Host]) -> None:
    """SPEC D2, E13: outputs that the spare computed without an active are lost, and reported; none is published twice."""
    first, second = patient_hosts
    first.start()
    wait_until(lambda: first.engine.role is Role.ACTIVE, "e0 is active", WAIT_S)
    qualities.request_quality_change(first.coordination, "g", "q/a", SIMPLE)
    second.start()
    publish(first, *range(10))
    wait_until(lambda: len(published(first)) == 10 and second.engine.status().streams["q/a"].sequence == 10, "10 outputs", WAIT_S)
    first.kill()
    publish(second, *range(5))
    tick(second)
    wait_until(lambda: second.engine.status().streams["q/a"].sequence == 15, "the spare computed", WAIT_S)
    second.peers.answer = PeerStatus.ENDED
    wait_until(lambda: second.engine.role is Role.ACTIVE, "e1 is active", WAIT_S)
    publish(second, *range(5))
    wait_until(lambda: published(second)[-1:] == [20], "the newest output", WAIT_S)
    assert published(second) == [*range(1, 11), *range(16, 21)]
    (lost,) = [e for e in second.events if e.kind is HaEventKind.OUTPUTS_LOST]
    assert lost.numbers == {"outputs": 5}


def test_a_stop_leaves_the_group_and_the_next_start_begins_from_a_snapshot(hosts: list[Host], tmp_path: Path) -> None:
    """SPEC H8, Z6, Z23."""
    first, second = hosts
    first.start()
    publish(first, *range(10))
    wait_until(
        lambda: first.engine.status().snapshots_confirmed > 0 and len(published(first)) == 10, "a snapshot is confirmed", WAIT_S
    )
    first.engine.request_stop()
    wait_until(lambda: first.coordination.members("g") == (), "e0 left", WAIT_S)
    assert first.engine.role is Role.STOPPED
    assert first.engine.stopped_reason == "stop requested"
    assert first.coordination.leader("g").holder == ""
    plan = second.engine.start()
    assert plan.restored_from
    assert sum(plan.next_offsets.values()) > 0


class HungStore:
    """A store whose writes end only when the test allows it."""

    def __init__(self, inner: Store) -> None:
        self.inner, self.asked, self.go_on = inner, 0, threading.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def write_candidate(self, *arguments: object) -> object:
        self.asked += 1
        assert self.go_on.wait(WAIT_S)
        return self.inner.write_candidate(*arguments)  # type: ignore[arg-type]


def test_a_store_that_hangs_costs_two_threads_and_nothing_else(tmp_path: Path) -> None:
    """SPEC H3: the engine keeps its role and publishes, and takes snapshots again when the store answers."""
    host = Host(tmp_path, "e0", replace(SETTINGS, store_wait_ms=150))
    background, ports = Background(close_wait_s=WAIT_S), host.engine._serialised_ports
    hung = HungStore(ports.store)
    host.engine._serialised_ports = replace(ports, store=hung, background=background.run)  # type: ignore[arg-type]
    try:
        host.start()
        wait_until(lambda: hung.asked == STORE_STUCK_MAX, "two writes hang", WAIT_S)
        wait_until(lambda: len(stuck(host)) == STORE_STUCK_MAX, "both are given up", WAIT_S)
        publish(host, *range(20))
        wait_until(lambda: published(host) == list(range(1, 21)), "20 outputs", WAIT_S)
        assert (host.engine.role, host.engine.status().epoch, hung.asked) == (Role.ACTIVE, 1, STORE_STUCK_MAX)
        hung.go_on.set()
        wait_until(lambda: not stuck(host) and host.engine.status().snapshots_confirmed > 0, "snapshots again", WAIT_S)
    finally:
        hung.go_on.set()
        host.kill()
        background.close()
        host.close()


def stuck(host: Host) -> list[object]:
    state = host.engine._state
    assert state is not None
    return list(state.store_jobs.stuck)


def test_an_engine_with_a_store_of_its_own_does_not_join(hosts: list[Host], tmp_path: Path) -> None:
    """SPEC G4: a folder that is not shared is detected at once, not when a spare finds no snapshot."""
    first, second = hosts
    first.engine.start()
    other = Host(tmp_path, "e2", snapshots="not mounted")
    try:
        with pytest.raises(StateError, match="keeps its snapshots in another store"):
            other.engine.start()
    finally:
        other.close()
    second.engine.start()


def test_status_says_what_the_member_record_says(hosts: list[Host]) -> None:
    """SPEC M5, C9: role, epoch, positions, held outputs, digests."""
    host = hosts[0]
    host.start()
    wait_until(lambda: [m.role for m in host.coordination.members("g")] == ["active"], "the record says active", WAIT_S)
    (member,) = host.coordination.members("g")
    status = host.engine.status()
    assert (status.role, status.epoch, status.leader) == (Role.ACTIVE, 1, "e0")
    assert set(member.sequences) == {"q/a", "q/b"}
    assert set(member.detail) >= {"epoch", "positions", "held", "digests", "committed", "held_bytes"}


def test_an_engine_that_has_not_started_says_so(hosts: list[Host]) -> None:
    assert hosts[0].engine.role is Role.JOINING
    with pytest.raises(StateError, match="not started"):
        hosts[0].engine.run_ha_loop()
    hosts[0].engine.start()
    with pytest.raises(StateError, match="already"):
        hosts[0].engine.start()
