"""File adapters as processes, killed or frozen at random instants: no row is lost or duplicated (SPEC C14, E8, E9, I5, I6).

A single one is restarted; in a group another instance goes on, and a frozen one may wake at any time.
"""

from __future__ import annotations

import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hotspare.adapters.failover.subscriber_position import load_position
from hotspare.base.errors import BusLocked
from hotspare.base.file_locks import end_if_stopped
from hotspare.base.retry import Retry
from hotspare.bus.contract import Bus, Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.coordination.contract import Coordination, Leader
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.formats import arrow_block
from hotspare.formats.csv.rows import CsvStyle, rows_to_csv
from hotspare.testing.cluster import hotspare_command, wait_until
from tests.adapters.outputs import I, N, Row, block

pytestmark = pytest.mark.system

INBOUND = Partition("hotspare.project.cq.source.I")
OUTBOUND = Partition("hotspare.project.cq.window.O")
KILLS = 6
TIMEOUT_S = 180.0


@pytest.fixture
def bus_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'bus.db'}"


@pytest.fixture
def bus(bus_url: str) -> Iterator[Bus]:
    opened = open_bus(bus_url)
    yield opened
    opened.close()


def start(tmp_path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    log = (tmp_path / "log").open("ab")
    with log:
        return subprocess.Popen(hotspare_command(*arguments), stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def kill_when(process: subprocess.Popen[bytes], reached: Callable[[], bool], log: Path) -> None:
    """Kills the process once `reached`, or accepts that it has ended normally before."""
    try:
        wait_until(lambda: reached() or process.poll() is not None, f"progress; {log.read_text()}", TIMEOUT_S)
    finally:
        process.kill()
        status = process.wait()
    assert status in (0, -signal.SIGKILL), log.read_text()


def published(bus: Bus) -> list[bytes]:
    rows: list[bytes] = []
    offset = 0
    while messages := bus.read(INBOUND, offset, messages_max=10_000, bytes_max=1 << 24):
        rows += [row for message in messages for row in message.value.split(b"\n")]
        offset = messages[-1].offset + 1
    return rows


def test_a_killed_publisher_goes_on_with_the_next_row(tmp_path: Path, bus: Bus, bus_url: str) -> None:
    instants = random.Random(20)
    bus.create_topic(INBOUND.topic)
    rows = [b"i,n,%d,%d" % (number, number * number) for number in range(3000)]
    path, log = tmp_path / "in.csv", tmp_path / "log"
    path.write_bytes(b"opcode,flags,id,square\n" + b"\n".join(rows) + b"\n")
    arguments = ["publish", "--bus", bus_url, "--window", "project/cq/source", "--header", "1", "--rate", "4000", str(path)]
    for kill in range(KILLS):
        target = len(rows) * kill // KILLS + instants.randint(1, len(rows) // KILLS)
        kill_when(start(tmp_path, *arguments), lambda target=target: len(published(bus)) >= target, log)  # type: ignore[misc]
    assert start(tmp_path, *arguments).wait(TIMEOUT_S) == 0, log.read_text()
    assert published(bus) == rows


def test_a_killed_publisher_of_a_growing_file_goes_on(tmp_path: Path, bus: Bus, bus_url: str) -> None:
    """The file grows by pieces that end anywhere, also in the middle of a row."""
    instants = random.Random(21)
    bus.create_topic(INBOUND.topic)
    rows = [b"i,n,%d,%s" % (number, b"x" * (number % 30)) for number in range(1500)]
    text = b"\n".join(rows) + b"\n"
    path, log = tmp_path / "in.csv", tmp_path / "log"
    path.write_bytes(b"")
    stop = threading.Event()

    def grow() -> None:
        place = 0
        with path.open("ab", buffering=0) as file:
            while place < len(text) and not stop.wait(0.002):
                size = instants.randint(1, 40)
                file.write(text[place : place + size])
                place += size

    writer = threading.Thread(target=grow)
    writer.start()
    arguments = ["publish", "--bus", bus_url, "--window", "project/cq/source", "--growing", str(path)]
    try:
        for _ in range(KILLS):
            target = len(published(bus)) + instants.randint(1, len(rows) // KILLS)
            reached = min(target, len(rows) - 1)
            kill_when(start(tmp_path, *arguments), lambda reached=reached: len(published(bus)) >= reached, log)  # type: ignore[misc]
        writer.join()
    finally:
        stop.set()
        writer.join()
    last = start(tmp_path, *arguments)
    wait_until(lambda: len(published(bus)) >= len(rows), f"the last row; {log.read_text()}", TIMEOUT_S)
    rows.append(b"i,n,-1,end")
    with path.open("ab") as file:
        file.write(rows[-1] + b"\n")
    wait_until(lambda: len(published(bus)) >= len(rows), f"one more row; {log.read_text()}", TIMEOUT_S)
    last.send_signal(signal.SIGINT)
    assert last.wait(TIMEOUT_S) == 0, log.read_text()
    assert published(bus) == rows


def publish_outputs(bus: Bus, instants: random.Random, expected: list[bytes], messages: int) -> None:
    """Publishes messages of 1 to 5 outputs each, in sequence, and adds the expected file rows of each to `expected`. Ends a process
    that was frozen with the lock of the bus, as a writing engine does: readers too take that lock for an instant."""

    def is_locked(error: Exception) -> bool:
        if isinstance(error, BusLocked) and error.holder is not None:
            end_if_stopped(*error.holder)
        return isinstance(error, BusLocked)

    locked = Retry(lasting_s=TIMEOUT_S, pause_s=0.05)
    for _ in range(messages):
        first = sum(text.count(b"\n") for text in expected) + 1
        rows: list[Row] = [(I, N, first + i, first / 7) for i in range(instants.randint(1, 5))]
        outputs = block(rows, first)
        message = [Outgoing(arrow_block.encode(outputs))]
        locked.call(lambda message=message: bus.append(OUTBOUND, message), is_locked)  # type: ignore[misc]
        expected.append(rows_to_csv(outputs, CsvStyle.FILE))


def test_a_killed_subscriber_writes_each_output_once(tmp_path: Path, bus: Bus, bus_url: str) -> None:
    """SPEC C15, E9."""
    instants = random.Random(22)
    bus.create_topic(OUTBOUND.topic)
    path, log = tmp_path / "out.csv", tmp_path / "log"
    expected: list[bytes] = []

    arguments = ["subscribe", "--bus", bus_url, "--window", "project/cq/window", str(path)]
    for _ in range(KILLS):
        before = path.stat().st_size if path.exists() else 0
        process = start(tmp_path, *arguments)
        wait_until(lambda: path.exists() and load_position(path) is not None, f"a position; {log.read_text()}", TIMEOUT_S)
        writer = threading.Thread(target=publish_outputs, args=(bus, instants, expected, 30))
        writer.start()
        size = before + instants.randint(1, 800)
        kill_when(process, lambda size=size: path.stat().st_size >= size, log)  # type: ignore[misc]
        writer.join()
        with path.open("ab") as file:
            file.write(b"I,N, torn"[: instants.randint(0, 9)])  # as a power cut may leave it
    assert start(tmp_path, *arguments, "--to-end").wait(TIMEOUT_S) == 0, log.read_text()
    assert path.read_bytes() == b"".join(expected)


GROUP = "adapter:both"
LEASE_MS = 2_000


@pytest.fixture
def coordination(bus_url: str) -> Iterator[Coordination]:
    opened = open_coordination(default_coordination_url(bus_url))
    yield opened
    opened.close()


class Instances:
    """Two processes of one adapter group at any time; the last ones are stopped at the end."""

    def __init__(self, folder: Path, coordination: Coordination, *arguments: str) -> None:
        self.log = folder / "log"
        self._folder = folder
        self._coordination = coordination
        self._arguments = [*arguments, "--group", "both", "--lease-ms", str(LEASE_MS)]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Instances:
        self.add()
        self.wait_for_turn(0)
        self.add()
        wait_until(lambda: len(self._coordination.members(GROUP)) == 2, f"a standby; {self.log.read_text()}", TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def add(self) -> None:
        process = start(self._folder, *self._arguments)
        self.processes[process.pid] = process

    def wait_for_turn(self, after_epoch: int) -> Leader:
        """Returns the leader of a later epoch."""
        wait_until(lambda: self._coordination.leader(GROUP).epoch > after_epoch, f"a turn; {self.log.read_text()}", TIMEOUT_S)
        return self._coordination.leader(GROUP)

    def strike(self, number: signal.Signals) -> tuple[subprocess.Popen[bytes], Leader]:
        """Sends a signal to the active instance; returns it, and its successor."""
        leader = self._coordination.leader(GROUP)
        process = self.processes[leader.process_id]
        process.send_signal(number)
        if number == signal.SIGKILL:
            process.wait()
            self.add()
        return process, self.wait_for_turn(leader.epoch)

    def stop(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGINT)
        for process in self.processes.values():
            process.wait(TIMEOUT_S)


def test_another_publisher_goes_on_with_the_next_row(tmp_path: Path, bus: Bus, bus_url: str, coordination: Coordination) -> None:
    """SPEC E8, C14: killed, and frozen and woken while its successor works: every row once, in order."""
    instants = random.Random(23)
    bus.create_topic(INBOUND.topic)
    rows = [b"i,n,%d,%d" % (number, number * number) for number in range(9000)]
    path = tmp_path / "in.csv"
    path.write_bytes(b"\n".join(rows) + b"\n")
    arguments = ["publish", "--bus", bus_url, "--window", "project/cq/source", "--rate", "500", "--blocksize", "3", str(path)]
    with Instances(tmp_path, coordination, *arguments) as group:
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL):
            target = len(published(bus)) + instants.randint(50, 500)
            wait_until(lambda target=target: len(published(bus)) >= target, f"progress; {group.log.read_text()}", TIMEOUT_S)  # type: ignore[misc]
            process, _ = group.strike(number)
            target = len(published(bus)) + 100
            wait_until(lambda target=target: len(published(bus)) >= target, f"a successor; {group.log.read_text()}", TIMEOUT_S)  # type: ignore[misc]
            if number == signal.SIGSTOP:
                process.send_signal(signal.SIGCONT)
        wait_until(lambda: len(published(bus)) >= len(rows), f"the last row; {group.log.read_text()}", TIMEOUT_S)
        group.stop()
    assert published(bus) == rows


def test_another_subscriber_goes_on_in_the_same_file(tmp_path: Path, bus: Bus, bus_url: str, coordination: Coordination) -> None:
    """SPEC E9: the same for a file that both instances write."""
    instants = random.Random(24)
    bus.create_topic(OUTBOUND.topic)
    path = tmp_path / "out.csv"
    expected: list[bytes] = []

    arguments = ["subscribe", "--bus", bus_url, "--window", "project/cq/window", str(path)]
    with Instances(tmp_path, coordination, *arguments) as group:
        for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGSTOP):
            writer = threading.Thread(target=publish_outputs, args=(bus, instants, expected, 60))
            writer.start()
            process, _ = group.strike(number)
            writer.join()
            text = b"".join(expected)
            wait_until(lambda text=text: path.read_bytes() == text, f"the rows; {group.log.read_text()}", TIMEOUT_S)  # type: ignore[misc]
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
            elif number == signal.SIGSTOP:  # it was frozen with the lock of the bus, and was killed
                group.add()
        publish_outputs(bus, instants, expected, 20)
        wait_until(lambda: path.read_bytes() == b"".join(expected), f"the last rows; {group.log.read_text()}", TIMEOUT_S)
        group.stop()
    assert path.read_bytes() == b"".join(expected)
