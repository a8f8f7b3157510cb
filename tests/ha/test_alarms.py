"""An error that recurs many times a second is reported once a minute, with the reason, and is in the member record (SPEC M5)."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from hotspare.base.errors import BusUnavailable, CoordinationSuspended, HotspareError, StoreError, UnknownResult
from hotspare.bus.contract import Partition
from hotspare.coordination.contract import Leader
from hotspare.flow.head.unknown_members import UnknownMember, with_unknown
from hotspare.ha.effects import snapshots
from hotspare.ha.effects.ha_loop import process_batch
from hotspare.ha.effects.perform import perform
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group_state import BadCounts, InboundState
from hotspare.ha.member_record import member_of
from hotspare.ha.ports import ConnectorFacts
from hotspare.ha.rules import actions as do
from hotspare.ha.rules.facts import InboundFacts
from hotspare.ha.rules.roles import Reason
from hotspare.ha.rules.snapshots import REFUSED_MAX
from hotspare.rows.batch import NextInput, decoded_schema
from tests.ha.test_snapshots import Rig

FULL = "database or disk is full"


class FullDisk:
    """A coordination on a full disk: every other call writes and fails, the others read and succeed."""

    def __init__(self, error: HotspareError) -> None:
        self._error = error
        self._calls = 0

    def leader(self, group: str) -> Leader:
        self._calls += 1
        if self._calls % 2:
            raise self._error
        return Leader(1, "other", "", 1_000)


class NoPeers:
    def watch(self, leader: Leader) -> None:
        """Ignores the leader: there are no peers."""


@pytest.mark.parametrize(
    ("error", "kind", "lines"),
    [
        (CoordinationSuspended("file c.db cannot be used now", detail=FULL), HaEventKind.COORDINATION_CHANGED, 4),
        (BusUnavailable("bus b.db cannot be used now", detail=FULL), HaEventKind.BUS_TROUBLE, 2),
    ],
)
def test_a_full_disk_is_reported_once_a_minute_with_the_reason(error: HotspareError, kind: HaEventKind, lines: int) -> None:
    """Calls that read succeed, so an engine finds coordination back ten times a second. `lines`: the reports in two minutes."""
    rig = Rig()
    rig.ports = replace(rig.ports, coordination=FullDisk(error), peers=NoPeers())  # type: ignore[arg-type]
    for _ in range(2 * 60 * 20 - 1):
        perform(do.ReadLeader(Reason.STOP_ASKED), rig.state, rig.ports)
        rig.now_ms += 50
    told = rig.told(kind)
    assert len(told) == lines
    assert sum(FULL in sentence for sentence in told) == 2
    assert FULL in member_of(rig.state, rig.now_ms, {}).detail["trouble"], "so that `status` shows it"
    assert member_of(rig.state, rig.now_ms + 60_000, {}).detail["trouble"] == "", "it has passed"


def test_coordination_that_is_late_once_is_no_alarm() -> None:
    rig = Rig()
    error = CoordinationSuspended("zookeeper cannot be reached", detail="no answer within 150 ms")
    for pause_ms in (10_000, 60_000, 11_000):
        rig.ports = replace(rig.ports, coordination=FullDisk(error), peers=NoPeers())  # type: ignore[arg-type]
        for _ in range(2):
            perform(do.ReadLeader(Reason.STOP_ASKED), rig.state, rig.ports)
            rig.now_ms += 100
        rig.now_ms += pause_ms
        assert member_of(rig.state, rig.now_ms, {}).detail["trouble"] == ""
    assert rig.told(HaEventKind.COORDINATION_CHANGED) == []
    assert len(rig.told(HaEventKind.COORDINATION_LATE)) == 2, "at most one in a minute"


class NothingWritten:
    """A coordination, a bus and a producer on a disk that is full."""

    def campaign(self, *_: object) -> int:
        raise CoordinationSuspended("the commit to c.db was not answered", detail=FULL)

    def fence(self, *_: object) -> int:
        raise UnknownResult("the commit to bus b.db was not answered", detail=FULL)

    append = fence


@pytest.mark.parametrize(
    ("action", "kind", "words"),
    [
        (do.Campaign(1, Reason.LEASE_OVER), HaEventKind.ACTED, "campaigns for epoch 2: lease over"),
        (do.Fence(1), HaEventKind.RESULT_UNKNOWN, f"the commit to bus b.db was not answered: {FULL}"),
        (do.Tick(0, Reason.TIMER), HaEventKind.RESULT_UNKNOWN, f"the commit to bus b.db was not answered: {FULL}"),
    ],
)
def test_what_an_engine_does_again_and_again_is_reported_once_a_minute(action: do.HaAction, kind: HaEventKind, words: str) -> None:
    """An unanswered action is repeated ten times a second; two minutes of a full disk give two lines."""
    rig = Rig()
    rig.ports = replace(rig.ports, coordination=NothingWritten(), bus=NothingWritten())  # type: ignore[arg-type]
    rig.state.inbound = [InboundState(Partition("in"), InboundFacts(0, 0))]
    rig.state.producer = NothingWritten()  # type: ignore[assignment]
    for _ in range(2 * 60 * 10 - 1):
        perform(action, rig.state, rig.ports)
        rig.now_ms += 100
    assert rig.told(kind) == [words] * 2
    assert FULL in member_of(rig.state, rig.now_ms, {}).detail["trouble"]


def test_snapshots_that_fail_for_want_of_room_are_reported_once_a_minute() -> None:
    rig = Rig()
    for _ in range(24):
        rig.store.error = StoreError("no space left")
        rig.take()
        rig.work()
        rig.now_ms += 5_000
    assert len(rig.told(HaEventKind.SNAPSHOT_FAILED)) == 2
    assert "no space left" in rig.state.snapshots.failure


def test_snapshots_that_differ_are_in_the_member_record() -> None:
    rig = Rig()
    names = []
    for _ in range(REFUSED_MAX + 1):
        names.append(rig.take())
        rig.work()
        snapshots.discard(rig.state, rig.ports, names[-1])
        rig.work()
    refused = json.loads(member_of(rig.state, 0, {}).detail["snapshots_refused"])
    assert refused == [f"snapshot {name} is deleted: its outputs differ from those committed" for name in names[1:]]


def test_bad_events_are_counted_by_window_and_reason() -> None:
    counts = BadCounts()
    rows = [("q/a", "expression"), ("q/a", "expression"), ("q/b", "null-key"), (None, "utf8")]
    batch = pa.RecordBatch.from_pylist([{"hs:sequence": 1, "window": window, "reason": reason} for window, reason in rows])
    for each in (batch, None, batch.slice(0, 0), batch.slice(1)):
        counts.add(each)
    assert counts.largest(9) == [("q/a", "expression", 3), ("", "utf8", 2), ("q/b", "null-key", 2)]
    assert counts.largest(1) == [("q/a", "expression", 3)]


def test_unknown_members_are_reported_once_per_window_and_counted() -> None:
    rig, told = Rig(), list[HaEvent]()
    rig.ports = replace(rig.ports, report=told.append)
    rig.core.set_partitions([(0, 0)])
    empty = decoded_schema([]).empty_table()
    crad, note = UnknownMember("q/w", "crad", "card", 3), UnknownMember("q/w", "note", "", 1)
    for found in ([crad], [], [crad, note, UnknownMember("q/v", "note", "", 2)]):
        for _ in process_batch(rig.state, rig.ports, with_unknown(empty, found), NextInput.AWAITED):
            pass
    assert [each.sentence.split(" have ")[0] for each in told if each.kind is HaEventKind.MEMBERS_UNKNOWN] == [
        "events of window q/w",
        "events of window q/v",
    ]
    counted = [["q/w", "crad", "card", 6], ["q/v", "note", "", 2], ["q/w", "note", "", 1]]
    assert json.loads(member_of(rig.state, 0, {}).detail["unknown_members"]) == counted


def test_connectors_are_in_the_member_record_those_that_failed_first() -> None:
    rig = Rig()
    found = {f"q/w/{number:03}": ConnectorFacts("running", number) for number in range(200)}
    found["q/w/zzz"] = ConnectorFacts("failed", 7, "e" * 9_999, 1_500)
    told = json.loads(member_of(rig.state, 0, found).detail["connectors"])
    assert told["q/w/zzz"] == ["failed", 7, "e" * 500, 1_500]
    assert (len(told), told["q/w/098"], "q/w/099" in told) == (100, ["running", 98, "", None], False)
