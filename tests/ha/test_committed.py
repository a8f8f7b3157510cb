"""Comparing what is computed with what is committed, however far an engine is behind it (SPEC Z9, Z10, D14)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.bus.contract import OutputId, Progress
from hotspare.coordination.contract import Member
from hotspare.formats import arrow_block
from hotspare.ha.calls.store_jobs import Candidate
from hotspare.ha.effects import committed
from hotspare.ha.events import HaEvent
from hotspare.ha.group_state import GroupState
from hotspare.ha.outputs.held import NO_OUTPUT, HeldOutputs
from hotspare.ha.outputs.qualities import Qualities
from hotspare.ha.ports import Ports
from hotspare.ha.rules.facts import RoleState
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupSettings, GroupTopics, InboundTopic, OutputStream
from hotspare.ha.rules.snapshots import is_settled
from hotspare.model.quality import PRECISE, SIMPLE, TRIMMED, Quality
from tests.ha.facts import learn, learn_of_stream, seen
from tests.ha.outputs import digest, outputs
from tests.simulation.fast_core import FastCore

TOPICS = GroupTopics((InboundTopic("in"),), (OutputStream("a", "out-a"),))
QUALITIES = (PRECISE, TRIMMED, SIMPLE)


class _Peers:
    def status(self) -> None:
        return None


class Spare:
    """A standby whose outputs and progress the test determines."""

    def __init__(self, quality: Quality = PRECISE) -> None:
        held = HeldOutputs({"a": NO_OUTPUT}, 1 << 30, Path())
        identity = Member("e", "127.0.0.1:1", 1, 1, "host", "", "", "", "", {}, {})
        qualities = Qualities({"a": quality})
        self.state = GroupState(
            "g", identity, GroupSettings(), TOPICS, FastCore(), held, [], role_state=RoleState(role=Role.STANDBY)
        )
        self.state.qualities = qualities
        self.events: list[HaEvent] = []
        nothing: object = None
        self.ports = Ports(
            bus=nothing,  # type: ignore[arg-type]
            coordination=nothing,  # type: ignore[arg-type]
            store=nothing,  # type: ignore[arg-type]
            peers=_Peers(),  # type: ignore[arg-type]
            codec=arrow_block,
            clock_ms=lambda: 0,
            report=self.events.append,
            background=lambda job: job(),
            end_process=lambda leader: False,
        )

    def compute(self, through: int) -> None:
        held = self.state.held.streams["a"]
        if through > held.last_sequence:
            self.state.held.append({"a": outputs(held.last_sequence + 1, through)})
        committed.reconcile_held_outputs(self.state, self.ports)
        committed.release_by_quality(self.state, 0)

    def read(self, sequence: int, *, wrong: int = 0, epoch: int = 3) -> None:
        """Reports committed progress to the spare; `wrong` makes its digest differ from what this spare computes."""
        point = Progress(sequence, OutputId(0, 0, sequence, 0, 0), digest(sequence) ^ wrong, epoch)
        committed.record_progress(self.state, self.ports, {"a": point})

    def verified(self) -> int:
        return self.state.streams["a"].verified

    def is_settled(self, sequence: int) -> bool:
        return is_settled(seen(self.state), Candidate("s", 1, {"a": sequence}))


@pytest.mark.parametrize("quality", QUALITIES)
@given(steps=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30), lag=st.integers(0, 60))
def test_a_spare_is_compared_wherever_progress_was_read_and_however_far_it_lags(
    quality: Quality, steps: list[tuple[int, int]], lag: int
) -> None:
    """The newest point that it passed is verified, and so is a snapshot before it, even while the active goes on (SPEC C1)."""
    spare, done, computed, points = Spare(quality), 0, 0, [0]
    for more_done, more_computed in steps:
        done += more_done
        spare.read(done)
        points.append(done)
        computed = max(computed, min(computed + more_computed, done - lag))
        spare.compute(computed)
        passed = max(point for point in points if point <= computed)
        assert spare.verified() == passed
        assert spare.is_settled(passed)
        assert spare.state.held.streams["a"].rows == 0
        assert not spare.state.differences


@pytest.mark.parametrize("quality", QUALITIES)
def test_a_wrong_spare_that_lags_is_noticed_while_it_lags(quality: Quality) -> None:
    """SPEC Z9, F2: it is noticed at the first point that it passes, before it has caught up with an active that goes on."""
    spare = Spare(quality)
    for second in range(60):
        spare.read(100 * second + 100, wrong=1)
        spare.compute(max(0, 100 * second - 1_000))
    assert [(d.sequence, d.epoch) for d in spare.state.differences] == [(100, 3)]
    assert len(spare.events) == 1


def test_a_difference_under_an_old_epoch_ends_where_a_newer_one_commits_the_same() -> None:
    """A wrong active was deposed while this spare was far behind; the outputs of both epochs are compared in turn."""
    spare = Spare()
    for sequence, wrong, epoch in ((10, 0, 3), (20, 1, 3), (30, 0, 4), (40, 0, 4)):
        spare.read(sequence, wrong=wrong, epoch=epoch)
    spare.compute(15)
    assert (spare.verified(), spare.state.differences) == (10, [])
    spare.compute(25)
    assert [d.sequence for d in spare.state.differences] == [20]
    spare.compute(35)
    assert (spare.verified(), spare.state.differences) == (30, [])


def test_who_differs_keeps_digests_and_not_the_outputs_that_are_committed_anyway() -> None:
    """Another spare may show the same digests; the committed outputs are never published again."""
    spare = Spare()
    spare.compute(50)
    spare.read(40, wrong=1)
    held = spare.state.held.streams["a"]
    assert spare.state.differences[0].sequence == 40
    assert (held.base.sequence, held.rows) == (40, 10)
    assert [held.digest_at(n) for n in (1, 25, 40, 50)] == [digest(n) for n in (1, 25, 40, 50)]


def test_what_was_overruled_is_not_compared_later() -> None:
    """The engine is promoted while points are pending: it goes on from what is committed, and only later commits prove its
    state."""
    spare = Spare()
    for sequence in (10, 20, 30):
        spare.read(sequence, wrong=1)
    spare.compute(15)
    committed.accept_committed(spare.state)
    spare.compute(35)
    assert not spare.state.differences
    assert not spare.is_settled(15)
    spare.read(35)
    assert spare.is_settled(15)


def test_a_promotion_with_points_pending_compares_them_all_the_same() -> None:
    """It publishes nothing before it has passed them."""
    spare = Spare()
    spare.read(10)
    learn(spare.state, role=Role.PROMOTING)
    spare.read(20, wrong=1)
    learn(spare.state, role=Role.ACTIVE)
    spare.compute(25)
    assert spare.verified() == 10
    assert [d.sequence for d in spare.state.differences] == [20]


def test_in_the_middle_of_a_batch_an_unplaced_stream_waits_for_outputs_of_input_that_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """These outputs are committed already, and would be published again after the newest one (SPEC Z6)."""
    spare = Spare()
    learn_of_stream(spare.state, "a", is_shift_unknown=True)
    assert not seen(spare.state).streams["a"].is_behind
    monkeypatch.setattr(spare.state.core, "is_between_batches", False)
    assert seen(spare.state).streams["a"].is_behind
    learn_of_stream(spare.state, "a", is_shift_unknown=False)
    assert not seen(spare.state).streams["a"].is_behind
