"""A spare of a group without an active engine: no engine ticks, so rows wait for another topic."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.base.choices import RunnerKind
from hotspare.base.processes import process_start
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.naming import group_name, inbound_topic
from hotspare.bus.sqlite import SqliteBus
from hotspare.coordination.contract import Member
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.ha.peers import PeerServer
from hotspare.ha.rules.settings import GroupSettings
from hotspare.host import process
from hotspare.host.options import EngineOptions
from hotspare.projects.load import load_project
from hotspare.telemetry.log import Log
from hotspare.testing.cluster import wait_until

PROJECT = """
project: p
queries:
  q:
    windows:
      a: {type: source, schema: "id*:int64", opcodes: insert-only, index: empty}
      b: {type: source, schema: "id*:int64", opcodes: insert-only, index: empty}
      c: {type: copy, index: empty, publish: true}
      d: {type: copy, index: empty, publish: true}
    edges: [a -> c, b -> d]
"""
GROUP, FIRST = group_name("hotspare", "p"), Partition(inbound_topic("hotspare", "p", "q", "a"))
MESSAGE_ROWS, ROWS, WAIT_S = 10_000, 700_000, 100


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'bus.db'}"


@pytest.fixture
def spare(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[process.EngineProcess]:
    """Yields a running spare; `away` has the role for an hour and gives no other sign."""
    monkeypatch.setattr(process, "stop_on_signals", lambda stop: contextlib.nullcontext())
    own, host, server = process_start(os.getpid()), socket.gethostname(), PeerServer("away")
    coordination = open_coordination(default_coordination_url(url))
    away = Member("away", server.address, os.getpid(), own, host, "", "", "", "", {}, {})
    assert coordination.campaign(GROUP, 0, away, 3_600_000) == 1
    file = tmp_path / "p.yaml"
    file.write_text(PROJECT)
    with contextlib.ExitStack() as stack:
        options = EngineOptions(file, url, runner=RunnerKind.LOCAL, settings=GroupSettings(lease_ms=10_000))
        engine = process.EngineProcess(options, load_project(file), Log(), stack)
        thread = threading.Thread(target=engine.run)
        thread.start()
        try:
            yield engine
        finally:
            engine.request_stop()
            thread.join()
    coordination.close()
    server.close()


def publish(url: str, messages: int) -> None:
    bus = SqliteBus(Path(url.removeprefix("sqlite:///")))
    bus.create_topic(FIRST.topic)
    for _ in range(messages):
        bus.append(FIRST, [Outgoing(b"i,n,1\n" * MESSAGE_ROWS)])
    bus.close()


def test_not_all_that_is_on_the_bus_is_taken_into_memory(spare: process.EngineProcess, url: str) -> None:
    publish(url, ROWS // MESSAGE_ROWS)

    def waiting() -> int:
        state = spare.group._state
        return 0 if state is None else state.core.waiting_rows

    def is_over() -> bool:
        state = spare.group._state
        return waiting() >= ROWS or (state is not None and state.intake.only_partition is not None)

    wait_until(is_over, "all is read, or one topic alone", WAIT_S)
    assert 0 < waiting() < ROWS
