"""SQLite coordination as a file: several processes, kill -9, a lock that is not released, a restart of the machine."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from hotspare.base.errors import CoordinationSuspended, UsageError
from hotspare.base.processes import boot_id
from hotspare.bus.sqlite import SqliteBus
from hotspare.coordination.sqlite import SqliteCoordination, clock_ms
from tests.contract.material import child, member

LONG_MS = 3_600_000

_CAMPAIGN_FOR_EVER = """
import sys
from pathlib import Path
from hotspare.coordination.sqlite import SqliteCoordination
from tests.contract.material import member
coordination = SqliteCoordination(Path(sys.argv[1]), busy_timeout_ms=20000)
me = member(sys.argv[2])
while True:
    won = coordination.campaign("g", coordination.leader("g").epoch, me, 2000)
    if won:
        print(won, flush=True)
        coordination.refresh_member("g", me)
        coordination.renew("g", won, me.engine, 2000)
"""


def test_two_processes_never_win_one_epoch_and_a_kill_loses_none(tmp_path: Path) -> None:
    file = tmp_path / "coord"
    won: list[int] = []
    for _ in range(3):
        with child(_CAMPAIGN_FOR_EVER, file, "a") as one, child(_CAMPAIGN_FOR_EVER, file, "b") as two:
            said: list[str] = []
            for process in (one, two):
                assert process.stdout is not None
                said += [process.stdout.readline() for _ in range(20)]
            for process in (one, two):
                process.send_signal(signal.SIGKILL)
                process.wait()
                rest, _ = process.communicate()
                said += rest.splitlines()
        epochs = sorted(int(line) for line in said if line.strip())
        assert len(epochs) == len(set(epochs))
        assert not set(epochs) & set(won)
        won += epochs
        coordination = SqliteCoordination(file)
        assert coordination.leader("g").epoch >= max(epochs)
        coordination.close()


_HOLD_THE_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
"""


def test_a_lock_that_is_not_given_back_suspends_writing_only(tmp_path: Path) -> None:
    file = tmp_path / "coord"
    coordination = SqliteCoordination(file, busy_timeout_ms=50)
    assert coordination.campaign("g", 0, member("a"), LONG_MS) == 1
    with child(_HOLD_THE_LOCK, file) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(CoordinationSuspended, match="locked by another process"):
            coordination.campaign("g", 1, member("a"), LONG_MS)
        with pytest.raises(CoordinationSuspended, match="locked by another process"):
            coordination.renew("g", 1, "a", LONG_MS)
        assert coordination.leader("g").holder == "a"
    assert coordination.campaign("g", 1, member("a"), LONG_MS) == 2
    coordination.close()


def test_after_a_restart_of_the_machine_leases_and_members_are_over_and_the_rest_stays(tmp_path: Path) -> None:
    file = tmp_path / "coord"
    before = SqliteCoordination(file, boot="first")
    before.refresh_member("g", member("a"))
    before.campaign("g", 0, member("a"), LONG_MS)
    before.set_fact_once("g", "origin", b"x")
    assert before.leader("g").lease_left_ms > 0
    before.close()
    after = SqliteCoordination(file, boot="second")
    leader = after.leader("g")
    assert (leader.epoch, leader.holder) == (1, "a")
    assert leader.lease_left_ms <= 0
    assert (list(after.members("g")), after.fact("g", "origin")) == ([], b"x")
    after.refresh_member("g", member("b"))
    after.request_switchover("g", "b")
    assert [m.engine for m in after.members("g")] == ["b"]
    assert after.leader("g").lease_left_ms <= 0
    after.close()


def test_the_clock_and_the_boot_are_the_same_in_every_process() -> None:
    imports = "from hotspare.base.processes import boot_id; from hotspare.coordination.sqlite import clock_ms"
    script = f"{imports}; print(boot_id(), clock_ms())"
    before = clock_ms()
    with child(script) as process:
        said, _ = process.communicate(timeout=180)
    boot, now = said.split()
    assert boot == boot_id()
    assert before <= int(now) <= clock_ms()


def test_a_bus_file_is_not_a_coordination_file(tmp_path: Path) -> None:
    SqliteBus(tmp_path / "bus.db").close()
    with pytest.raises(UsageError, match="is not a coordination file of hotspare"):
        SqliteCoordination(tmp_path / "bus.db")


def test_members_that_ended_without_leaving_fill_no_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine has a new name at each start; a supervisor may restart one for months without a restart of the machine."""
    now_ms = 10**9
    monkeypatch.setattr("hotspare.coordination.sqlite.clock_ms", lambda: now_ms)
    coordination = SqliteCoordination(tmp_path / "coord.db", members_max=3)
    for start in range(40):
        coordination.refresh_member("g", member("lasting"))
        coordination.refresh_member("g", member(f"host-{start}"))
        now_ms += 2_400_000
    assert [each.engine for each in coordination.members("g")] == ["lasting", "host-38", "host-39"]
    coordination.close()
