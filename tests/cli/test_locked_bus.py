"""A lock of the embedded bus that another process holds kills no healthy process."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path

from hotspare.adapters.files.publisher import PublishOptions, PublishProgress, publish_file
from hotspare.base.processes import process_start
from hotspare.bus.contract import Partition
from hotspare.bus.sqlite import SqliteBus
from hotspare.cli.shared.turns import TurnOptions, run_in_turns
from hotspare.coordination.contract import Member
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.testing.cluster import wait_until
from tests.base.lock_children import child

IN = Partition("p.project.cq.source.I")
_LOCKS = 'import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute("BEGIN IMMEDIATE")'


def test_a_publisher_ends_who_is_stopped_with_the_lock_and_not_who_had_the_turn_before(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bus.db"
    bus = SqliteBus(tmp_path / "bus.db", 50)
    bus.create_topic(IN.topic)
    rows = tmp_path / "in.csv"
    rows.write_bytes(b"i,n,1,1\n")
    stop, done = threading.Event(), list[PublishProgress | None]()
    with child("") as before, child(_LOCKS, tmp_path / "bus.db") as holder:
        coordination = open_coordination(default_coordination_url(url))
        leader = Member("before", "", before.pid, process_start(before.pid), socket.gethostname(), "", "", "", "", {}, {})
        assert coordination.campaign("adapter:g", 0, leader, 1) == 1
        coordination.close()
        holder.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED)

        def work(turn: threading.Event) -> PublishProgress:
            return publish_file(bus, IN, rows, PublishOptions(), turn)

        adapter = threading.Thread(
            target=lambda: done.append(run_in_turns(TurnOptions("g", lease_ms=60_000), bus, url, work, stop))
        )
        adapter.start()
        wait_until(lambda: before.poll() is not None or bool(done), "somebody is ended, or the row is published")
        stop.set()
        adapter.join()
        assert before.poll() is None
        assert holder.wait(30) == -signal.SIGKILL
    assert [each.events for each in done if each is not None] == [1]
    bus.close()
