"""Turns of an adapter's instances, and the output file that several of them share (SPEC C14, E8, E9, I6)."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from hotspare.adapters.failover.adapter_group import GROUP_PREFIX, AdapterGroup, AdapterRole, AdapterSettings
from hotspare.adapters.failover.subscriber_position import (
    PartitionPosition,
    SubscriberPosition,
    load_position,
    position_path,
    save_position,
)
from hotspare.adapters.failover.turn import LOCK_BLOCKED_S_MAX, Turn
from hotspare.adapters.files.output_file import LOCK_WAIT_S, OutputFile, Rotation, TurnOver, part_path
from hotspare.adapters.files.output_rows import FileStyle, HeaderLine, OutputRows
from hotspare.adapters.files.subscriber import SubscribeOptions, Until, subscribe_file
from hotspare.base.errors import FileInUse, UsageError
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.coordination.contract import Member
from hotspare.coordination.memory import MemoryCoordination
from hotspare.formats import arrow_block
from hotspare.testing.cluster import wait_until
from tests.adapters.outputs import I, N, block
from tests.base.lock_children import FLOCK, locking, stop

TOPIC = "p.project.cq.window.O"
TIMEOUT_S = 120.0
LEASE_MS = 600_000


def member(name: str) -> Member:
    return Member(name, "", 1, 1, "host", "", "", "", "", {}, {})


class Instance:
    """An instance in a thread; its work lasts until the turn is over, or `end` is set."""

    def __init__(self, coordination: MemoryCoordination, name: str, **given: Any) -> None:
        self.client = coordination.client(name)
        self.stop, self.end = threading.Event(), threading.Event()
        self.epochs: list[int] = []
        self.roles: list[AdapterRole] = []
        settings = AdapterSettings("g", LEASE_MS, renewals_per_lease=10_000, polls_per_lease=10_000, **given)
        self.group = AdapterGroup(self.client, settings, member(name), changed=lambda role, epoch: self.roles.append(role))
        self.thread = threading.Thread(target=self.group.run, args=(self._work, self.stop))

    def _work(self, turn: Turn) -> None:
        self.epochs.append(turn.epoch)
        while not turn.is_set() and not self.end.wait(0.01):
            pass

    def __enter__(self) -> Instance:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(TIMEOUT_S)


def wait(condition: object, what: str) -> None:
    wait_until(condition, what, TIMEOUT_S)  # type: ignore[arg-type]


def test_one_works_and_another_goes_on_when_it_has_finished() -> None:
    """SPEC C14."""
    coordination = MemoryCoordination()
    with Instance(coordination, "a") as a:
        wait(lambda: a.epochs == [1], "the first turn")
        with Instance(coordination, "b") as b:
            wait(lambda: AdapterRole.STANDBY in b.roles, "a standby")
            a.end.set()
            wait(lambda: b.epochs == [2], "the second turn")
            a.thread.join(TIMEOUT_S)
            assert not a.thread.is_alive()
            assert a.roles == [AdapterRole.STANDBY, AdapterRole.ACTIVE, AdapterRole.STOPPED]


def test_a_lost_lease_ends_the_turn() -> None:
    """The next renewal ends it, long before the instance's own clock."""
    now_ms = 0
    coordination = MemoryCoordination(lambda: now_ms)
    with Instance(coordination, "a") as a:
        wait(lambda: a.epochs == [1], "the first turn")
        other = coordination.client("x")
        assert other.campaign(GROUP_PREFIX + "g", 1, member("x"), LEASE_MS) == 2
        wait(lambda: a.roles[-1] is AdapterRole.STANDBY, "the end of the turn")
        assert other.leader(GROUP_PREFIX + "g").holder == "x"
        now_ms += LEASE_MS
        wait(lambda: a.epochs == [1, 3], "another turn, once the other lease is over")


def test_what_the_work_raises_ends_the_instance_and_frees_the_turn() -> None:
    coordination = MemoryCoordination()
    client = coordination.client("a")

    def work(turn: Turn) -> None:
        raise UsageError("no")

    with pytest.raises(UsageError, match="no"):
        AdapterGroup(client, AdapterSettings("g"), member("a")).run(work, threading.Event())
    assert client.leader(GROUP_PREFIX + "g").holder == ""
    assert not client.members(GROUP_PREFIX + "g")


class _Hanging(Instance):
    """Its work never checks its turn."""

    def _work(self, turn: Turn) -> None:
        self.epochs.append(turn.epoch)
        assert self.end.wait(TIMEOUT_S)


def test_an_instance_whose_work_hangs_loses_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress of the work keeps the lease, not the thread that renews it."""
    now_ms, renewals = 0, list[int]()
    coordination = MemoryCoordination(lambda: now_ms)
    hung, other = _Hanging(coordination, "a", hung_after_s=0.0), Instance(coordination, "b")
    renew = hung.client.renew
    monkeypatch.setattr(hung.client, "renew", lambda *given: renewals.append(given[1]) or renew(*given))
    with hung:
        wait(lambda: hung.epochs == [1], "the first turn")
        with other:
            wait(lambda: AdapterRole.STANDBY in other.roles, "a standby")
            now_ms += LEASE_MS
            wait(lambda: other.epochs == [2], "the other one's turn")
            hung.end.set()
    assert renewals == []


class _Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_turn_ends_by_its_own_clock() -> None:
    """A process that was frozen finds the turn over at its first check."""
    clock = _Clock()
    turn = Turn(1, clock=clock)
    turn.extend(5.0)
    assert not turn.is_set()
    clock.now_s = 5.0
    assert turn.is_set()
    turn.extend(50.0)
    assert turn.is_set()
    assert turn.wait(0)


def test_a_locks_holder_is_looked_for_when_it_is_in_the_way_for_long() -> None:
    clock, asked = _Clock(), list[float]()
    turn = Turn(1, clock)

    def hinder() -> None:
        turn.record_lock_blocked(lambda: asked.append(clock.now_s))

    hinder()
    clock.now_s = LOCK_BLOCKED_S_MAX - 0.1
    hinder()
    turn.record_lock_free()
    hinder()
    assert not asked
    clock.now_s += 2 * LOCK_BLOCKED_S_MAX
    hinder()
    assert asked == [clock.now_s]


def new_bus(rows: int) -> MemoryBusClient:
    bus = MemoryBus().client("c")
    bus.create_topic(TOPIC)
    for sequence in range(1, rows + 1):
        bus.append(Partition(TOPIC), [Outgoing(arrow_block.encode(block([(I, N, sequence, 0.5)], sequence)))])
    return bus


def subscribe(
    bus: MemoryBusClient, path: Path, turn: threading.Event, rotation: Rotation | None = None, lock_wait_s: float = LOCK_WAIT_S
) -> None:
    options = SubscribeOptions(until=Until.END, rotation=rotation or Rotation(), lock_wait_s=lock_wait_s)
    subscribe_file(bus, TOPIC, path, OutputRows(FileStyle(HeaderLine.NAMES)), options, turn)


def lines(sequences: range) -> str:
    return "".join(f"I,N, {number},0.500000\n" for number in sequences)


class _Woken(MemoryBusClient):
    """Another instance has its turn between a read and the write of its messages."""

    def read(self, *args: object, **options: object):  # type: ignore[no-untyped-def, override]
        messages = super().read(*args, **options)  # type: ignore[arg-type]
        if self.others:
            self.others.pop()()
        return messages


def test_an_instance_that_wakes_writes_nothing_into_its_successors_file(tmp_path: Path) -> None:
    """SPEC E9: the old instance has read messages, freezes, and continues after its successor has written them and more."""
    path = tmp_path / "out.csv"
    bus = new_bus(5)
    bus.__class__ = _Woken
    done: list[str] = []

    def successor() -> None:
        subscribe(bus, path, Turn(2))
        done.append(path.read_text())

    bus.others = [successor]  # type: ignore[attr-defined]
    turn = Turn(1)
    subscribe(bus, path, turn)
    assert done[0].endswith(lines(range(1, 6)))
    assert path.read_text() == done[0]
    assert turn.is_set()
    position = load_position(path)
    assert position is not None
    assert (position.epoch, position.places) == (2, (PartitionPosition(5, 5),))


def test_an_older_turn_takes_no_file_over(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    subscribe(new_bus(2), path, Turn(7))
    before, turn = path.read_bytes(), Turn(6)
    subscribe(new_bus(9), path, turn)
    assert turn.is_set()
    assert path.read_bytes() == before
    assert load_position(path).epoch == 7  # type: ignore[union-attr]


def test_alone_and_in_a_group_a_file_is_continued_alike(tmp_path: Path) -> None:
    path, bus = tmp_path / "out.csv", new_bus(3)
    subscribe(bus, path, threading.Event())
    for turn in (Turn(1), threading.Event(), Turn(2)):
        sequence = bus.end_offset(Partition(TOPIC)) + 1
        bus.append(Partition(TOPIC), [Outgoing(arrow_block.encode(block([(I, N, sequence, 0.5)], sequence)))])
        subscribe(bus, path, turn)
    assert path.read_text().splitlines(keepends=True)[1:] == lines(range(1, 7)).splitlines(keepends=True)


def test_who_is_stopped_with_the_files_lock_is_ended_and_the_file_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with locking(path, FLOCK) as frozen:
        stop(frozen)
        subscribe(new_bus(3), path, Turn(1))
        assert frozen.wait(TIMEOUT_S) == -signal.SIGKILL
    assert path.read_text().endswith(lines(range(1, 4)))


def test_who_works_with_the_files_lock_is_waited_for_and_named(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with locking(path, FLOCK) as busy:
        for turn in (Turn(1, locked_s=0.0), Turn(locked_s=0.0)):
            with pytest.raises(FileInUse, match=f"process {busy.pid} "):
                subscribe(new_bus(3), path, turn, lock_wait_s=0.2)
        assert busy.poll() is None


def test_parts_of_a_limited_size(tmp_path: Path) -> None:
    """SPEC I6: each part begins with the title, ends with a whole message, and a restart continues the last one."""
    path, rotation = tmp_path / "out.csv", Rotation(part_bytes=60)
    bus = new_bus(4)
    subscribe(bus, path, threading.Event(), rotation)
    for sequence in range(5, 9):
        bus.append(Partition(TOPIC), [Outgoing(arrow_block.encode(block([(I, N, sequence, 0.5)], sequence)))])
        subscribe(bus, path, threading.Event(), rotation)
    parts = sorted(tmp_path.glob("out.0*.csv"))
    assert len(parts) > 1
    assert not path.exists()
    title = parts[0].read_text().splitlines(keepends=True)[0]
    bodies = [part.read_text().removeprefix(title) for part in parts]
    assert "".join(bodies) == lines(range(1, 9))
    assert all(part.read_text().startswith(title) for part in parts)
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match="another form"):
        subscribe(bus, path, threading.Event())


def test_parts_have_their_size_however_much_is_read_at_once(tmp_path: Path) -> None:
    """SPEC I6: a part ends with the first whole message that makes it large enough, and none is empty."""
    subscribe(new_bus(40), tmp_path / "out.csv", threading.Event(), Rotation(part_bytes=60))
    parts = [part.read_text() for part in sorted(tmp_path.glob("out.0*.csv"))]
    title = parts[0].splitlines(keepends=True)[0]
    assert "".join(part.removeprefix(title) for part in parts) == lines(range(1, 41))
    assert all(len(part) >= 60 for part in parts[:-1])
    assert all(title < part and len(part) - len(part.splitlines(keepends=True)[-1]) < 60 for part in parts)


def test_parts_of_a_limited_age(tmp_path: Path) -> None:
    now = [1000.0]
    path, rotation = tmp_path / "out.csv", Rotation(part_s=60)
    output = OutputFile(path, Turn(), rotation, lambda: now[0])
    with output.opened(), output.writing():
        position = output.recover_position(lambda: SubscriberPosition(TOPIC, "form"))
        now[0] += 59
        output.write(b"a\n")
        assert not output.is_rotation_due(output.sync_and_record(position))
        now[0] += 1
        assert output.is_rotation_due(position)
        position = output.next_part(position)
        assert (position.part, position.file_bytes, position.opened_s) == (2, 0, 1060)
        now[0] += 100
        assert not output.is_rotation_due(output.sync_and_record(position))  # no empty part is left
        output.write(b"b\n")
        output.sync_and_record(position)
    assert [part_path(path, part, rotation).read_bytes() for part in (1, 2)] == [b"a\n", b"b\n"]


def test_what_a_crash_left_of_a_next_part_is_cut_off(tmp_path: Path) -> None:
    path, rotation = tmp_path / "out.csv", Rotation(part_bytes=1)
    subscribe(new_bus(1), path, threading.Event(), rotation)
    (tmp_path / "out.000002.csv").write_bytes(b"torn")
    subscribe(new_bus(2), path, threading.Event(), rotation)
    assert (tmp_path / "out.000002.csv").read_text().endswith(lines(range(2, 3)))
    assert "torn" not in (tmp_path / "out.000002.csv").read_text()


def test_a_position_that_lacks_what_its_version_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    save_position(path, SubscriberPosition(TOPIC, "form", places=(PartitionPosition(3), PartitionPosition(4, 2, True, 1))))
    assert load_position(path) == SubscriberPosition(TOPIC, "form", places=(PartitionPosition(3), PartitionPosition(4, 2, True, 1)))
    text = position_path(path).read_text()
    for lacking in ('"part": 1, ', '"opened_s": 0, ', '"epoch": 0, ', '"sequence": 0, ', ', "taken": 0'):
        assert lacking in text
        position_path(path).write_text(text.replace(lacking, "", 1))
        with pytest.raises(UsageError, match="cannot be read as the position"):
            load_position(path)


def test_a_changed_record_ends_the_turn(tmp_path: Path) -> None:
    path, turn = tmp_path / "out.csv", Turn(3)
    output = OutputFile(path, turn)
    with output.opened():
        with output.writing():
            position = output.recover_position(lambda: SubscriberPosition(TOPIC, "form"))
        save_position(path, position.with_partition_place(0, PartitionPosition(1)))
        with pytest.raises(TurnOver), output.writing():
            output.write(b"never")
    assert turn.is_set()
    assert path.read_bytes() == b""
