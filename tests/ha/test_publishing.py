"""Builds one transaction from held outputs, and progress from a topic's tail."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import BusUnavailable, Fenced, HotspareError, StateError, UnknownResult
from hotspare.bus.contract import Commit, Outgoing, OutputId, Partition, Progress
from hotspare.bus.memory import MemoryBus
from hotspare.coordination.contract import Member
from hotspare.formats import arrow_block
from hotspare.ha.effects.committed import record_own_commit
from hotspare.ha.effects.perform import perform
from hotspare.ha.effects.publishing import next_commit, progress_from_tail
from hotspare.ha.group_state import GroupState
from hotspare.ha.outputs.held import NO_OUTPUT, HeldOutputs
from hotspare.ha.outputs.qualities import Qualities
from hotspare.ha.ports import Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules.commit_budget import RETRY_AFTER, CommitBudget
from hotspare.ha.rules.facts import LONG_AGO_MS, RoleState
from hotspare.ha.rules.publishing import await_due_ms, has_pending, progress_due_ms, publish_due_ms
from hotspare.ha.rules.roles import Reason, Role, Step
from hotspare.ha.rules.settings import GroupSettings, GroupTopics, InboundTopic, OutputStream
from hotspare.ha.rules.view import PeerStatus
from hotspare.model.quality import Quality, QualityKind
from hotspare.rows.batch import NextInput
from tests.ha.facts import learn, learn_of_stream, records, seen
from tests.ha.outputs import digest, outputs
from tests.simulation.fast_core import FastCore

TOPICS = GroupTopics((InboundTopic("in"),), (OutputStream("a", "out-a"), OutputStream("b", "out-b")))


def state(rows: dict[str, int], committed: dict[str, int], settings: GroupSettings) -> GroupState:
    held = HeldOutputs({"a": NO_OUTPUT, "b": NO_OUTPUT}, 1 << 30, Path())
    for stream, count in rows.items():
        for sequence in range(1, count + 1, 3):
            held.streams[stream].append(outputs(sequence, min(sequence + 2, count)))
    identity = Member("e", "127.0.0.1:1", 1, 1, "host", "", "", "", "", {}, {})
    made = GroupState("g", identity, settings, TOPICS, FastCore(), held, [], role_state=RoleState(epoch=4))
    for stream, n in committed.items():
        learn_of_stream(made, stream, committed=Progress(n, None, 0, 3))
    return made


def ports() -> Ports:
    nothing: object = None
    return Ports(
        bus=nothing,  # type: ignore[arg-type]
        coordination=nothing,  # type: ignore[arg-type]
        store=nothing,  # type: ignore[arg-type]
        peers=SimpleNamespace(watch=lambda leader: None, status=lambda: PeerStatus.UNKNOWN),
        codec=arrow_block,
        clock_ms=lambda: 0,
        report=lambda event: None,
        background=lambda job: job(),
        end_process=lambda leader: False,
        repeat_in_background=lambda task, every_ms: contextlib.nullcontext(),
    )


def rows_of(commit: Commit, topic: str) -> list[int]:
    return [s for m in commit.messages.get(topic, ()) for s in arrow_block.decode(m.value).column(0).to_pylist()]


def test_outputs_wait_for_others_only_while_more_input_is_at_hand() -> None:
    """A transaction takes its time however small it is (docs/qualities.md)."""
    made = state({"a": 6}, {"a": 3}, GroupSettings(commit_wait_ms=400, commit_rows_max=4))
    learn(made, published_ms=1_000, next_input=NextInput.AT_HAND)
    waits = seen(made)
    assert publish_due_ms(waits) == 1_400
    hand_over: dict[str, Any] = {"is_stop_requested": True, "switchover": ""}
    # a promotion is not over before its first commit
    for name, value in {"next_input": NextInput.AWAITED, "is_first_commit_due": True, **hand_over}.items():
        urgent = replace(waits, **records(waits, **{name: value}))
        assert publish_due_ms(urgent) == LONG_AGO_MS, name
    made.qualities = Qualities({"b": Quality(QualityKind.SIMPLE)})
    assert publish_due_ms(seen(made)) == LONG_AGO_MS, "a spare holds nothing of a simple stream"
    made.qualities = Qualities({})
    made.held.streams["a"].append(outputs(7, 7))
    assert publish_due_ms(seen(made)) == LONG_AGO_MS, "it would fill a transaction"
    small = state({"a": 6}, {}, GroupSettings(commit_bytes_max=1))
    learn(small, published_ms=1_000, next_input=NextInput.AT_HAND)
    assert publish_due_ms(seen(small)) == LONG_AGO_MS


@given(rows=st.integers(1, 20), bytes_max=st.integers(1, 3_000))
def test_a_commit_of_limited_memory_goes_on_where_the_last_one_ended(rows: int, bytes_max: int) -> None:
    made = state({"a": rows}, {}, GroupSettings(commit_bytes_max=bytes_max))
    row_bytes = outputs(1, 3).nbytes / 3
    brought: list[int] = []
    while len(brought) < rows:
        following = next_commit(made, seen(made), arrow_block)
        found = rows_of(following.commit, "out-a")
        assert found
        assert len(found) == 1 or len(found) * row_bytes <= 2 * bytes_max + 3 * row_bytes
        brought += found
        record_own_commit(made, following.commit.progress, following.sent, 0)
    assert brought == [*range(1, rows + 1)]


@given(
    rows=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    committed=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    commit_rows_max=st.integers(1, 9),
    message_rows_max=st.integers(1, 9),
)
def test_a_commit_is_what_follows_the_committed_within_its_limits(
    rows: tuple[int, int], committed: tuple[int, int], commit_rows_max: int, message_rows_max: int
) -> None:
    settings = GroupSettings(commit_rows_max=commit_rows_max, message_rows_max=message_rows_max)
    made = state({"a": rows[0], "b": rows[1]}, {"a": committed[0], "b": committed[1]}, settings)
    commit = next_commit(made, seen(made), arrow_block).commit
    left = commit_rows_max
    for stream, count, done in zip("ab", rows, committed, strict=True):
        expected = list(range(done + 1, count + 1))[:left]
        left -= len(expected)
        assert rows_of(commit, f"out-{stream}") == expected
        assert all(arrow_block.decode(m.value).num_rows <= message_rows_max for m in commit.messages.get(f"out-{stream}", ()))
        if expected:
            last = expected[-1]
            assert commit.progress[stream] == Progress(last, OutputId(0, 0, last, 0, 0), digest(last), 4)
        else:
            assert stream not in commit.progress


@given(
    rows=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    commit_rows_max=st.integers(1, 30),
    takes=st.integers(1, 30),
    fails=st.sampled_from([BusUnavailable, UnknownResult, Fenced]),
)
def test_a_bus_that_takes_little_at_once_gets_less_until_it_takes_it(
    rows: tuple[int, int], commit_rows_max: int, takes: int, fails: type[HotspareError]
) -> None:
    """The time limit is that of a whole transaction: a backlog of many streams must not fail for ever."""
    made = state({"a": rows[0], "b": rows[1]}, {}, GroupSettings(commit_rows_max=commit_rows_max))
    taken: dict[str, list[int]] = {"out-a": [], "out-b": []}

    class Producer:
        def publish(self, epoch: int, commit: Commit) -> None:
            found = {topic: rows_of(commit, topic) for topic in taken}
            if sum(map(len, found.values())) > takes:
                raise fails("it took too long")
            for topic, sequences in found.items():
                taken[topic] += sequences

    made.producer = Producer()  # type: ignore[assignment]
    learn(made, role=Role.ACTIVE)
    tries = 0
    while not (rows[0] == len(taken["out-a"]) and rows[1] == len(taken["out-b"])):
        tries += 1
        assert tries < 10 + 2 * sum(rows)
        perform(do.Publish(), made, ports())
        perform(do.AwaitCommit(), made, ports())
        learn(made, role=Role.ACTIVE, step=Step.NONE, bus_retry_ms=0)
    assert taken == {"out-a": [*range(1, rows[0] + 1)], "out-b": [*range(1, rows[1] + 1)]}


class Begun:
    """A call that ends when the test waits for it (`ha.calls.pending_call.PendingCall`)."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call, self.is_over = call, False

    def wait(self) -> None:
        self.is_over = True
        self._call()


class Taker:
    """A producer that takes every transaction, or refuses it."""

    def __init__(self, error: HotspareError | None = None) -> None:
        self.commits: list[Commit] = []
        self._error = error

    def publish(self, epoch: int, commit: Commit) -> None:
        if self._error is not None:
            raise self._error
        self.commits.append(commit)

    def close(self) -> None: ...


def under_way(producer: Taker, settings: GroupSettings | None = None) -> tuple[GroupState, Ports, list[Begun]]:
    """Returns an active engine whose outputs 1 to 3 of stream `a` are being committed."""
    begun: list[Begun] = []

    def begin(call: Callable[[], None]) -> Begun:
        begun.append(Begun(call))
        return begun[-1]

    made, doors = state({"a": 3}, {}, settings or GroupSettings()), replace(ports(), start_call=begin)
    made.producer = producer  # type: ignore[assignment]
    learn(made, role=Role.ACTIVE)
    perform(do.Publish(), made, doors)
    return made, doors, begun


def test_an_engine_computes_on_while_a_transaction_is_under_way_and_begins_no_other() -> None:
    settings = GroupSettings(lease_ms=1_000, commit_rows_max=4)
    producer = Taker()
    made, doors, begun = under_way(producer, settings)
    assert (has_pending(seen(made)), publish_due_ms(seen(made)), await_due_ms(seen(made))) == (
        False,
        None,
        settings.commit_patience_ms,
    )
    made.held.streams["a"].append(outputs(4, 5))
    assert has_pending(seen(made))
    assert await_due_ms(seen(made)) == settings.commit_patience_ms
    made.held.streams["a"].append(outputs(6, 7))
    assert await_due_ms(seen(made)) == LONG_AGO_MS, "the next one is full: from here on the engine would only fill memory"
    perform(do.AwaitCommit(), made, doors)
    assert (len(begun), await_due_ms(seen(made)), made.held.streams["a"].base.sequence) == (1, None, 3)
    perform(do.Publish(), made, doors)
    perform(do.AwaitCommit(), made, doors)
    assert [rows_of(commit, "out-a") for commit in producer.commits] == [[1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("leaving", [{"is_stop_requested": True}, {"switchover": ""}])
def test_before_the_role_is_handed_over_what_is_under_way_is_waited_for(leaving: dict[str, Any]) -> None:
    made, _, begun = under_way(Taker())
    view = seen(made)
    assert await_due_ms(replace(view, **records(view, **leaving))) == LONG_AGO_MS
    begun[0].is_over = True
    assert await_due_ms(seen(made)) == LONG_AGO_MS


@pytest.mark.parametrize("error", [Fenced("by another"), UnknownResult("no answer"), BusUnavailable("away")])
def test_nothing_is_let_go_of_what_a_transaction_under_way_did_not_bring(error: HotspareError) -> None:
    made, doors, _ = under_way(Taker(error))
    made.held.streams["a"].append(outputs(4, 5))
    perform(do.AwaitCommit(), made, doors)
    assert (made.transaction, made.held.streams["a"].base.sequence, has_pending(seen(made))) == (None, 0, True)
    assert made.role_state.role is (Role.ACTIVE if isinstance(error, BusUnavailable) else Role.PROMOTING)


def test_who_loses_the_role_hears_no_more_of_what_is_under_way() -> None:
    """It reads what is committed, as any other spare does."""
    made, doors, _ = under_way(Taker())
    perform(do.StepDown(Reason.NEWER_EPOCH), made, doors)
    assert (made.role_state.role, made.transaction, made.streams["a"].committed) == (Role.STANDBY, None, None)
    assert has_pending(seen(made))


@given(rows=st.tuples(st.integers(1, 40), st.integers(1, 40)), commit_rows_max=st.integers(1, 8))
def test_a_long_backlog_of_one_stream_keeps_no_other_waiting(rows: tuple[int, int], commit_rows_max: int) -> None:
    made = state({"a": rows[0], "b": rows[1]}, {}, GroupSettings(commit_rows_max=commit_rows_max))
    shares = []
    while any(held.rows for held in made.held.streams.values()):
        following = next_commit(made, seen(made), arrow_block)
        shares.append(set(following.commit.messages))
        record_own_commit(made, following.commit.progress, following.sent, 0)
        learn(made, cut_stream=following.cut_stream)
        assert following.rows <= commit_rows_max
    for before, after in pairwise(shares):
        assert before | after == {"out-a", "out-b"} or len(before) == len(after) == 1
    first_b = next(i for i, share in enumerate(shares) if "out-b" in share)
    assert first_b <= 1


def test_a_budget_grows_back_to_what_the_settings_allow() -> None:
    budget = CommitBudget(1_000, 1_000)
    for _ in range(20):
        budget.record_failure(budget.rows, budget.bytes)
    assert (budget.rows, budget.bytes) == (1, 1)
    budget.record_failure(0, 0)
    for _ in range(60 + RETRY_AFTER):
        budget.record_success()
    assert (budget.rows, budget.bytes) == (1_000, 1_000)


def test_what_failed_by_its_size_is_seldom_tried_again() -> None:
    """Each failure costs a fence: if the bus takes at most `taken` rows, few of the transactions are larger."""
    taken, budget, failures = 7, CommitBudget(1_000, 1_000), 0
    for _ in range(20 * RETRY_AFTER):
        if budget.rows > taken:
            failures += 1
            budget.record_failure(budget.rows, budget.bytes)
        else:
            budget.record_success()
    assert failures <= 20 + 10


def test_a_lost_record_of_progress_is_written_again_though_nothing_new_comes() -> None:
    """Spares release nothing without it; but it does not prove this engine's own outputs."""
    made = state({"a": 2}, {"a": 5}, GroupSettings())
    found = Progress(5, OutputId(0, 0, 5, 0, 0), digest(5), 0)
    learn_of_stream(made, "a", unrecorded=found)
    assert progress_due_ms(seen(made)) is not None
    following = next_commit(made, seen(made), arrow_block)
    assert following.commit == Commit({}, {"a": replace(found, epoch=4)})
    record_own_commit(made, following.commit.progress, following.sent, 0)
    assert made.streams["a"].verified == 0
    assert progress_due_ms(seen(made)) is None
    assert next_commit(made, seen(made), arrow_block).commit == Commit({}, {})


def bus_with(*values: bytes) -> MemoryBus:
    bus = MemoryBus()
    bus.client().create_topic("out-a")
    bus.client().append(Partition("out-a"), [Outgoing(v) for v in values])
    return bus


def test_progress_is_rebuilt_from_the_newest_block() -> None:
    bus = bus_with(*(arrow_block.encode(outputs(s, s + 1)) for s in range(1, 61, 2)))
    assert progress_from_tail(bus.client(), arrow_block, "a", Partition("out-a")) == Progress(
        60, OutputId(0, 0, 60, 0, 0), digest(60), 0
    )


def test_what_is_no_block_at_the_tail_is_passed_over() -> None:
    bus = bus_with(arrow_block.encode(outputs(1, 5)), *[b"not a block"] * 40)
    rebuilt = progress_from_tail(bus.client(), arrow_block, "a", Partition("out-a"))
    assert rebuilt is not None
    assert rebuilt.sequence == 5


def test_an_empty_topic_has_no_progress() -> None:
    assert progress_from_tail(bus_with().client(), arrow_block, "a", Partition("out-a")) == Progress(0, None, 0, 0)


def test_records_that_are_missing_are_written_before_any_output() -> None:
    """The remains of an aborted transaction in a topic look like outputs that retention has removed."""
    made = state({"a": 2, "b": 3}, {}, GroupSettings())
    learn_of_stream(made, "b", unrecorded=Progress(0, None, 0, 0))
    following = next_commit(made, seen(made), arrow_block)
    assert following.commit == Commit({}, {"b": Progress(0, None, 0, 4)})
    record_own_commit(made, following.commit.progress, following.sent, 0)
    assert set(next_commit(made, seen(made), arrow_block).commit.messages) == {"out-a", "out-b"}


@pytest.mark.parametrize("kept", [0, 3])
def test_a_topic_that_was_written_to_and_cannot_be_read_is_refused(kept: int) -> None:
    """Never publish from zero."""
    bus = bus_with(*[b"not a block"] * 3)
    bus.client().trim(Partition("out-a"), 3 - kept)
    with pytest.raises(StateError, match="no record of its progress"):
        progress_from_tail(bus.client(), arrow_block, "a", Partition("out-a"))


def test_blocks_are_read_back_bit_for_bit() -> None:
    made = state({"a": 7}, {}, GroupSettings())
    (message,) = next_commit(made, seen(made), arrow_block).commit.messages["out-a"]
    assert pa.Table.from_batches([arrow_block.decode(message.value)]).equals(pa.Table.from_batches([outputs(1, 7)]))
