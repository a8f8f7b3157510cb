"""Background work on the store: whatever its result, the engine goes on and snapshots are taken again (SPEC H3, G4)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hotspare.base.choices import SnapshotForm
from hotspare.base.errors import StoreError
from hotspare.bus import naming
from hotspare.bus.memory import MemoryBus
from hotspare.coordination.contract import Member
from hotspare.formats import arrow_block
from hotspare.ha.effects import snapshots
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group_state import GroupState
from hotspare.ha.member_record import member_of
from hotspare.ha.outputs.held import NO_OUTPUT, HeldOutputs
from hotspare.ha.ports import Ports
from hotspare.ha.rules.facts import RoleState
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupSettings, GroupTopics, InboundTopic, OutputStream
from hotspare.stores.contract import SnapshotStatus
from hotspare.stores.memory import MemoryStore
from tests.contract.material import Page
from tests.simulation.fast_core import FastCore

TOPICS = GroupTopics((InboundTopic("in"),), (OutputStream("a", "out-a"),))


class FailingStore(MemoryStore):
    """A store whose calls fail once with `error`."""

    error: Exception | None = None

    def _fail(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error

    def write_candidate(self, *arguments: object) -> object:  # type: ignore[override]
        self._fail()
        return super().write_candidate(*arguments)  # type: ignore[arg-type]

    def confirm(self, group: str, name: str) -> None:
        self._fail()
        super().confirm(group, name)


class Rig:
    """The state of one engine. The test runs its background work; an exception ends only that work, as in a thread."""

    def __init__(self) -> None:
        self.store, self.now_ms = FailingStore(), 1_000
        self.jobs: list[Callable[[], None]] = []
        self.events: list[HaEvent] = []
        identity = Member("e", "127.0.0.1:1", 1, 1, "host", "", "", "", "", {}, {})
        held = HeldOutputs({"a": NO_OUTPUT}, 1 << 30, Path())
        self.core = FastCore()
        self.state = GroupState(
            "g", identity, GroupSettings(), TOPICS, self.core, held, [], role_state=RoleState(role=Role.STANDBY)
        )
        nothing: object = None
        bus = MemoryBus().client()
        bus.create_topic("in")
        self.ports = Ports(
            bus=bus,
            coordination=nothing,  # type: ignore[arg-type]
            store=self.store,
            peers=nothing,  # type: ignore[arg-type]
            codec=arrow_block,
            clock_ms=lambda: self.now_ms,
            report=self.events.append,
            background=self.jobs.append,
            end_process=lambda leader: False,
        )

    def work(self) -> None:
        while self.jobs:
            with contextlib.suppress(Exception):
                self.jobs.pop(0)()
        snapshots.record_store_results(self.state, self.ports)

    def take(self) -> str:
        self.core.positions[0, 0] = self.core.positions.get((0, 0), 0) + 1
        snapshots.start_snapshot(self.state, self.ports)
        return f"{self.state.order:016d}-e-1"

    def told(self, kind: HaEventKind) -> list[str]:
        return [event.sentence for event in self.events if event.kind is kind]

    def confirmed(self) -> list[str]:
        return [info.name for info in self.store.list("g") if info.status is SnapshotStatus.CONFIRMED]


@pytest.mark.parametrize("error", [StoreError("no space"), OSError(5, "gone"), RuntimeError("a bug"), MemoryError()])
def test_a_write_that_fails_in_any_way_is_told_and_another_may_begin(error: Exception) -> None:
    rig = Rig()
    rig.store.error = error
    rig.take()
    assert rig.state.store_jobs.current_load.is_writing
    rig.work()
    assert not rig.state.store_jobs.current_load.is_writing
    (sentence,) = rig.told(HaEventKind.SNAPSHOT_FAILED)
    assert str(error.args[-1] if error.args else "MemoryError") in sentence
    assert member_of(rig.state, 0, {}).detail["snapshot_failure"] == sentence, "so that `status` can say it"
    name = rig.take()
    rig.work()
    assert member_of(rig.state, 0, {}).detail["snapshot_failure"] == ""
    assert [c.name for c in rig.state.snapshots.candidates] == [name]


def test_a_confirmation_is_made_in_the_background_and_told() -> None:
    """A store that hangs must not keep the engine from its lease."""
    rig = Rig()
    older, name = rig.take(), ""
    rig.work()
    name = rig.take()
    rig.work()
    snapshots.confirm(rig.state, rig.ports, name)
    assert rig.confirmed() == []
    rig.work()
    rig.work()
    assert rig.confirmed() == [name]
    assert set(rig.ports.bus.readers()) == set(naming.snapshot_readers("g")), "the bus keeps what it needs"
    assert older not in [info.name for info in rig.store.list("g")], "an older candidate is of no use"
    assert rig.told(HaEventKind.SNAPSHOT_CONFIRMED) == [f"snapshot {name} may be restored"]
    assert (rig.state.snapshots.newest.engine, rig.state.snapshots.confirmed_order) == ("e", rig.state.order)


def test_work_without_an_answer_is_given_up_and_counts_if_it_ends_after_all() -> None:
    rig = Rig()
    name = rig.take()
    slow = rig.jobs.pop()
    rig.now_ms += rig.state.settings.store_wait_ms - 1
    snapshots.abandon_stuck_jobs(rig.state, rig.ports)
    assert rig.state.store_jobs.current_load.is_writing
    rig.now_ms += 1
    snapshots.abandon_stuck_jobs(rig.state, rig.ports)
    assert not rig.state.store_jobs.current_load.is_writing
    assert len(rig.state.store_jobs.stuck) == 1
    assert "has not answered" in rig.told(HaEventKind.SNAPSHOT_FAILED)[0]
    newer = rig.take()
    rig.work()
    slow()
    rig.work()
    assert sorted(c.name for c in rig.state.snapshots.candidates) == [name, newer]
    assert not rig.state.store_jobs.stuck


def test_where_no_thread_can_be_had_the_work_has_failed() -> None:
    rig = Rig()

    def no_thread(job: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    object.__setattr__(rig.ports, "background", no_thread)
    rig.take()
    rig.work()
    assert not rig.state.store_jobs.current_load.is_writing
    assert "can't start new thread" in rig.told(HaEventKind.SNAPSHOT_FAILED)[0]


def test_a_snapshot_that_takes_long_is_not_given_up_while_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of gigabytes takes minutes: the time since the last sign of life counts."""
    rig = Rig()
    wait_ms = rig.state.settings.store_wait_ms

    def later() -> None:
        rig.now_ms += wait_ms - 1
        snapshots.abandon_stuck_jobs(rig.state, rig.ports)

    pages = [(f"q/w#0/rows/{number}", Page(b"%d" % number, later)) for number in range(4)]
    monkeypatch.setattr(rig.core, "freeze", lambda: SimpleNamespace(header=b"h", contents=lambda: pages))
    rig.take()
    rig.jobs.pop()()
    assert rig.state.store_jobs.current_load.is_writing
    assert rig.told(HaEventKind.SNAPSHOT_FAILED) == []
    snapshots.record_store_results(rig.state, rig.ports)
    assert len(rig.state.snapshots.candidates) == 1


def test_a_full_snapshot_writes_again_what_the_store_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC G8: full or incremental, as set; the bits are those of the state either way."""
    written: dict[SnapshotForm, int] = {}
    for form in SnapshotForm:
        rig = Rig()
        page = Page(b"unchanged")
        frozen = SimpleNamespace(header=b"h", contents=lambda page=page: [("q/w#0", page), ("q/w#1", b"small")])
        monkeypatch.setattr(rig.core, "freeze", lambda frozen=frozen: frozen)
        rig.state.settings = replace(rig.state.settings, snapshot_form=form)
        for _ in range(3):
            name = rig.take()
            rig.work()
            assert dict(rig.store.get("g", name).pages) == {"q/w#0": b"unchanged", "q/w#1": b"small"}
        written[form] = page.encoded
    assert written == {SnapshotForm.INCREMENTAL: 1, SnapshotForm.FULL: 3}
