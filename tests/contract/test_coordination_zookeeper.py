"""ZooKeeper coordination beyond the shared suite: servers that die, hang or lose a session, several processes, leases without a
common clock (SPEC C5-C7, E7). The content of the nodes: test_zookeeper_nodes.py."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from hotspare.base.errors import CoordinationLost, CoordinationSuspended
from hotspare.coordination.contract import Leader
from hotspare.coordination.open import open_coordination
from hotspare.coordination.zookeeper.coordination import GroupPaths, ZooKeeperCoordination
from hotspare.coordination.zookeeper.session import monotonic_ms
from hotspare.testing.cluster import wait_until
from tests.contract.material import child, member
from tests.contract.zookeeper_doors import LONG_MS, PATIENT, WAIT_S, Doors

pytestmark = pytest.mark.servers
HASTY = "call_timeout_ms=50&session_timeout_ms=30000"


@dataclass
class Clock:
    """A clock in milliseconds; each engine has one of its own, and they need not agree."""

    now_ms: int

    def __call__(self) -> int:
        return self.now_ms


def answers_again(coordination: ZooKeeperCoordination) -> None:
    def answered() -> bool:
        try:
            coordination.leader("g")
        except CoordinationSuspended:
            return False
        return True

    wait_until(answered, "coordination answers again", WAIT_S)


def is_lost(coordination: ZooKeeperCoordination) -> bool:
    try:
        coordination.requested_successor("g")
    except CoordinationSuspended:
        return False
    except CoordinationLost:
        return True
    return False


# --- leases -----------------------------------------------------------------------------------------------------------------


def test_a_lease_is_measured_by_the_onlookers_own_clock(doors: Doors) -> None:
    """SPEC F5, B10: no two clocks are ever compared."""
    theirs, mine = Clock(5_000_000), Clock(17)
    holder, onlooker = doors.open(clock=theirs), doors.open(clock=mine)
    assert holder.campaign("g", 0, member("a"), 2_000) == 1
    assert onlooker.leader("g").lease_left_ms == 2_000
    mine.now_ms += 400
    assert onlooker.leader("g").lease_left_ms == 1_600
    theirs.now_ms -= 4_000_000
    assert holder.renew("g", 1, "a", 2_000)
    assert onlooker.leader("g").lease_left_ms == 2_000
    mine.now_ms += 2_001
    assert onlooker.leader("g").lease_left_ms == -1
    assert holder.leader("g").lease_left_ms == 2_000
    theirs.now_ms += 300
    assert holder.leader("g").lease_left_ms == 1_700


def test_who_has_just_read_who_leads_campaigns_by_one_write(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC E2: a takeover waits for each round trip. A stale read of the leader is repeated."""
    holder, spare = doors.open(), doors.open()
    for name, each in (("e0", holder), ("e1", spare)):
        each.refresh_member("g", member(name))
    assert holder.campaign("g", 0, member("e0"), LONG_MS) == 1
    assert spare.leader("g").epoch == 1
    assert holder.renew("g", 1, "e0", LONG_MS)
    assert spare.campaign("g", 1, member("e1"), LONG_MS) == 2
    assert holder.leader("g").epoch == 2
    asked: list[str] = []
    session = holder._session
    answers = session.execute_all
    monkeypatch.setattr(session, "execute_all", lambda *requests: asked.append("") or answers(*requests))
    assert holder.campaign("g", 2, member("e0"), LONG_MS) == 3
    assert len(asked) == 1


def test_asking_for_a_switchover_does_not_renew_the_lease(doors: Doors) -> None:
    clock = Clock(0)
    holder, onlooker = doors.open(), doors.open(clock=clock)
    holder.campaign("g", 0, member("a"), 2_000)
    onlooker.leader("g")
    clock.now_ms += 900
    onlooker.request_switchover("g", "b")
    assert onlooker.leader("g").lease_left_ms == 1_100
    assert holder.renew("g", 1, "a", 2_000)
    assert onlooker.requested_successor("g") == "b"


_RENEW_FOR_EVER = """
import sys
from hotspare.coordination.open import open_coordination
from tests.contract.material import member
coordination = open_coordination(sys.argv[1])
coordination.refresh_member("g", member("a"))
print(coordination.campaign("g", 0, member("a"), 2000), flush=True)
while coordination.renew("g", 1, "a", 2000):
    pass
print("overtaken", flush=True)
"""


def test_a_frozen_holder_is_overtaken_and_learns_it(doors: Doors) -> None:
    """Its session and its members survive: only the lease shows it."""
    onlooker = doors.open()
    with child(_RENEW_FOR_EVER, f"{doors.url}?{PATIENT}") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        wait_until(lambda: onlooker.leader("g").lease_left_ms <= 0, "the lease is over", WAIT_S)
        assert [m.engine for m in onlooker.members("g")] == ["a"]
        assert onlooker.campaign("g", 1, member("b"), LONG_MS) == 2
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == "overtaken\n"


def test_a_lease_ends_with_the_holders_session_also_for_who_looks_first_then(doors: Doors) -> None:
    holder = doors.open()
    holder.campaign("g", 0, member("a"), LONG_MS)
    assert doors.open().leader("g").lease_left_ms > 0
    holder.close()
    leader = doors.open().leader("g")
    assert (leader.epoch, leader.holder, leader.lease_left_ms) == (1, "a", 0)


# --- sessions ---------------------------------------------------------------------------------------------------------------


def test_a_lost_session_is_told_once_and_everything_goes_on_with_a_new_one(doors: Doors) -> None:
    """Members and lease are lost with it; epoch and facts are kept."""
    one, other = doors.open("call_timeout_ms=20000&session_timeout_ms=6000"), doors.open()
    one.refresh_member("g", member("a"))
    other.refresh_member("g", member("b"))
    one.campaign("g", 0, member("a"), LONG_MS)
    one.set_fact_once("g", "origin", b"x")
    doors.server.expire_session(one._session.client_id)
    wait_until(lambda: is_lost(one), "the client is told that its session is over", WAIT_S)
    assert [m.engine for m in other.members("g")] == ["b"]
    assert other.leader("g").holder == "a"
    assert other.leader("g").lease_left_ms <= 0
    answers_again(one)  # and is not told again
    assert one.renew("g", 1, "a", LONG_MS)
    assert other.leader("g").lease_left_ms > 0
    one.refresh_member("g", member("a"))
    assert [m.engine for m in other.members("g")] == ["b", "a"]
    assert one.fact("g", "origin") == b"x"


def test_an_engine_that_comes_back_under_its_name_is_one_member(doors: Doors) -> None:
    before, after = doors.open(), doors.open()
    before.refresh_member("g", member("a", role="active"))
    before.refresh_member("g", member("b"))
    after.refresh_member("g", member("a", role="joining"))
    assert [(m.engine, m.role) for m in before.members("g")] == [("b", "standby"), ("a", "joining")]
    assert len(before._session.children(GroupPaths(before._root, "g").members)) == 2, "no node of it from before is left"
    before.close()
    assert [m.engine for m in after.members("g")] == ["a"]


# --- servers ----------------------------------------------------------------------------------------------------------------


def test_a_dead_server_suspends_at_once_and_nothing_is_lost(own_doors: Doors) -> None:
    """SPEC E7: the engine's thread never waits for a service that is down."""
    one, server = own_doors.open(), own_doors.server
    one.refresh_member("g", member("a"))
    assert one.campaign("g", 0, member("a"), LONG_MS) == 1
    server.kill()
    wait_until(lambda: not one._session._client.connected, "the client sees the connection close", WAIT_S)
    for call in (
        lambda: one.leader("g"),
        lambda: one.refresh_member("g", member("a")),
        lambda: one.campaign("g", 1, member("a"), LONG_MS),
        lambda: one.renew("g", 1, "a", LONG_MS),
        lambda: one.release("g", 1, "a", ""),
        lambda: one.fact("g", "origin"),
        lambda: one.reset_group("g"),
        one.groups,
    ):
        with pytest.raises(CoordinationSuspended, match="no connection"):
            call()
    server.restart()
    answers_again(one)
    assert one.renew("g", 1, "a", LONG_MS)
    assert [m.engine for m in one.members("g")] == ["a"]


def test_after_an_outage_a_lease_is_counted_anew(own_doors: Doors) -> None:
    """The holder could not renew either; no engine takes its role for that."""
    clock = Clock(0)
    holder, onlooker = own_doors.open(), own_doors.open(clock=clock)
    holder.campaign("g", 0, member("a"), 2_000)
    assert onlooker.leader("g").lease_left_ms == 2_000
    own_doors.server.kill()
    wait_until(lambda: not onlooker._session._client.connected, "the client sees the connection close", WAIT_S)
    clock.now_ms += 5_000
    own_doors.server.restart()
    answers_again(onlooker)
    answers_again(holder)
    assert onlooker.leader("g").lease_left_ms == 2_000
    clock.now_ms += 2_000
    assert onlooker.leader("g").lease_left_ms == 0


def test_a_session_that_ended_in_an_outage_does_not_end_the_lease(own_doors: Doors) -> None:
    """A server that is down for longer than a session loses them all; the holder gets a lease to return."""
    clock = Clock(0)
    holder, onlooker = own_doors.open(), own_doors.open(clock=clock)
    holder.campaign("g", 0, member("a"), 2_000)
    onlooker.leader("g")
    own_doors.server.kill()
    wait_until(lambda: onlooker._session.contact and not onlooker._session._client.connected, "the connection closes", WAIT_S)
    own_doors.server.restart()
    answers_again(holder)
    own_doors.server.expire_session(holder._session.client_id)
    answers_again(onlooker)
    assert onlooker.leader("g").lease_left_ms == 2_000
    clock.now_ms += 2_000
    assert onlooker.leader("g").lease_left_ms == 0


def test_a_server_that_hangs_is_waited_for_once(own_doors: Doors) -> None:
    one = hasty_holder(own_doors)
    own_doors.server.freeze()
    with pytest.raises(CoordinationSuspended, match="no answer within 50 ms"):
        one.renew("g", 1, "a", LONG_MS)
    for _ in range(1_000):  # would be 50 s
        with pytest.raises(CoordinationSuspended, match="no answer to an earlier call yet"):
            one.leader("g")
    own_doors.server.thaw()
    answers_again(one)
    wait_until(lambda: renewed(one), "the holder still holds", WAIT_S)


def test_a_thread_that_has_time_waits_longer_beside_others_that_have_none(own_doors: Doors) -> None:
    """The first is a shard that joins in a process whose other shards already run."""
    one = hasty_holder(own_doors)
    own_doors.server.freeze()
    with pytest.raises(CoordinationSuspended, match="no answer within 50 ms"):
        one.renew("g", 1, "a", LONG_MS)
    asks = threading.Event()

    def asked() -> Leader:
        with one.extended_timeouts():
            asks.set()
            return one.leader("g")

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(asked)
        asks.wait()
        with pytest.raises(CoordinationSuspended, match="no answer to an earlier call yet"):
            one.leader("g")
        own_doors.server.thaw()
        assert answer.result().holder == "a"


def test_members_that_are_known_are_asked_for_in_one_round_trip(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = doors.open(), doors.open()
    one.refresh_member("g", member("a"))
    one.members("g")
    trips, sent = [], one._session._sent
    monkeypatch.setattr(one._session, "_sent", lambda requests: trips.append(len(requests)) or sent(requests))
    one.refresh_member("g", member("a", role="active"))
    trips.clear()
    assert [each.role for each in one.members("g")] == ["active"]
    assert len(trips) == 1
    other.refresh_member("g", member("b"))
    assert [each.engine for each in one.members("g")] == ["a", "b"]
    other.remove_member("g", "b")
    assert [each.engine for each in one.members("g")] == ["a"]


def test_the_time_in_which_a_server_hangs_is_not_counted(own_doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder that could not renew does not lose its role for it."""
    clock, hung_ms = Clock(0), 0
    monkeypatch.setattr("hotspare.coordination.zookeeper.session.monotonic_ms", lambda: monotonic_ms() + hung_ms)
    holder, onlooker = own_doors.open(), own_doors.open(HASTY, clock)
    holder.campaign("g", 0, member("a"), LONG_MS)
    with onlooker.extended_timeouts():
        onlooker.refresh_member("g", member("a"))
        before_ms = onlooker.leader("g").lease_left_ms
    own_doors.server.freeze()
    with pytest.raises(CoordinationSuspended, match="no answer within 50 ms"):
        onlooker.leader("g")
    hung_ms = LONG_MS // 2
    clock.now_ms += hung_ms
    own_doors.server.thaw()
    answers_again(onlooker)
    with onlooker.extended_timeouts():
        assert onlooker.leader("g").lease_left_ms >= before_ms


def hasty_holder(doors: Doors) -> ZooKeeperCoordination:
    """Returns a client of the active member, with short timeouts except for the calls needed here."""
    one = doors.open(HASTY)
    with one.extended_timeouts():
        assert one.campaign("g", 0, member("a"), LONG_MS) == 1
        one.refresh_member("g", member("a"))
    return one


def renewed(coordination: ZooKeeperCoordination) -> bool:
    try:
        return coordination.renew("g", 1, "a", LONG_MS)
    except CoordinationSuspended:
        return False


def test_a_write_without_an_answer_takes_place_at_most_once(own_doors: Doors) -> None:
    """The contract's unknown result: it may have happened, and no other client can have won the same epoch."""
    one, other = hasty_holder(own_doors), own_doors.open()
    own_doors.server.freeze()
    with pytest.raises(CoordinationSuspended):
        one.campaign("g", 1, member("a"), LONG_MS)
    own_doors.server.thaw()
    answers_again(other)
    won = other.campaign("g", 1, member("b"), LONG_MS)
    leader = other.leader("g")
    assert leader.epoch == 2
    assert leader.holder == ("a" if won is None else "b")


def test_no_server_no_coordination(free_port: Callable[[], int]) -> None:
    with pytest.raises(CoordinationSuspended, match="no server of"):
        open_coordination(f"zookeeper://127.0.0.1:{free_port()}?connect_timeout_ms=200")


# --- processes --------------------------------------------------------------------------------------------------------------

_CAMPAIGN_FOR_EVER = """
import sys
from hotspare.coordination.open import open_coordination
from tests.contract.material import member
coordination = open_coordination(sys.argv[1])
me = member(sys.argv[2])
while True:
    leader = coordination.leader("g")
    won = leader.holder != me.engine and coordination.campaign("g", leader.epoch, me, 2000)
    if won:
        print(won, flush=True)
        coordination.refresh_member("g", me)
        coordination.renew("g", won, me.engine, 2000)
"""


def test_processes_never_win_one_epoch_and_a_kill_loses_none(own_doors: Doors) -> None:
    """Law 7 starts here. Of three, two always campaign against the third, the holder; the server is killed midway."""
    url, said = f"{own_doors.url}?{PATIENT}", list[str]()
    with ExitStack() as stack:
        processes = [stack.enter_context(child(_CAMPAIGN_FOR_EVER, url, name)) for name in "abc"]
        for process in processes:
            assert process.stdout is not None
            said += [process.stdout.readline() for _ in range(20)]
        own_doors.server.kill()
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
            rest, _ = process.communicate()
            said += rest.splitlines()
    own_doors.server.restart()
    epochs = sorted(int(line) for line in said if line.strip())
    assert len(epochs) == len(set(epochs))
    assert own_doors.open().leader("g").epoch >= max(epochs)
