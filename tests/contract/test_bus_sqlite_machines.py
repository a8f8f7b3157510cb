"""A bus in a SQLite file belongs to one machine: what another machine, or the same one after a restart, may do with it."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil
import pytest

from hotspare.base import processes
from hotspare.base.errors import BusError, UsageError
from hotspare.bus.contract import Partition
from hotspare.bus.sqlite import SqliteBus
from tests.contract.material import outgoing, values

IN = Partition("in")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    bus = SqliteBus(tmp_path / "bus.db")
    bus.create_topic("in")
    bus.append(IN, outgoing("a"))
    bus.close()
    return tmp_path / "bus.db"


def move(monkeypatch: pytest.MonkeyPatch, boot: str) -> None:
    """Makes this process report another boot id from now on."""
    monkeypatch.setattr(processes, "boot_id", lambda: boot, raising=False)


def test_a_file_that_another_machine_writes_to_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch ends with the first write that it sees."""
    here, over = SqliteBus(file), threading.Event()

    def tick() -> None:
        while not over.wait(0.05):
            here.append(IN, outgoing("tick"))

    ticking = threading.Thread(target=tick)
    ticking.start()
    try:
        move(monkeypatch, "elsewhere")
        with pytest.raises(UsageError, match="is in use on another machine") as refused:
            SqliteBus(file, watch_s=60.0)
        assert "kafka://" in refused.value.hint
    finally:
        over.set()
        ticking.join()
        here.close()


def test_a_file_that_nobody_writes_to_is_taken_over_and_who_slept_writes_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = SqliteBus(file)
    producer = before.producer("g", [])
    producer.fence(1)
    move(monkeypatch, "elsewhere")
    bus = SqliteBus(file, watch_s=0.1)
    assert bus.append(IN, outgoing("b")) == 1
    with pytest.raises(BusError, match="taken over by another machine"):
        before.append(IN, outgoing("lost"))
    with pytest.raises(BusError, match="taken over by another machine"):
        producer.fence(2)
    assert values(bus, "in") == ["a", "b"]
    before.close()
    bus.close()


def test_a_machine_that_was_started_again_goes_on_at_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was written after the restart, so the file is not watched."""
    later = psutil.time.time() + 3600
    monkeypatch.setattr(psutil, "boot_time", lambda: later)
    move(monkeypatch, "after the restart")
    bus = SqliteBus(file, watch_s=1e9)
    assert bus.append(IN, outgoing("b")) == 1
    bus.close()
