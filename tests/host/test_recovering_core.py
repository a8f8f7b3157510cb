"""An event on which the engine itself fails: found from the state before, the same in every engine, and refused or named."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.call_place import CallPlace, Decision, HangCause
from hotspare.base.errors import PoisonousEvent, SnapshotDamaged, StateError
from hotspare.bus.contract import TICK_HEADER, Bus, Outgoing, Partition
from hotspare.bus.memory import MemoryBus
from hotspare.coordination.memory import MemoryCoordination
from hotspare.flow import step as flow_step
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.ha.rules.settings import EventPolicy, GroupTopics, InboundTopic
from hotspare.host.recovering_core import RecoveringCore, RecoveringCoreFactory, Recovery
from hotspare.projects.load import load_text
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.batch import BAD_STREAM
from hotspare.rows.chunk import Chunk, Timeline
from hotspare.runners import contract as runner
from hotspare.runners.local import read_recorded
from hotspare.runners.reading import pieces
from hotspare.stores.contract import StoredSnapshot
from hotspare.stores.memory import MemoryStore
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable
from hotspare.windows.copy.operator import CopyOperator
from hotspare.windows.shared.contract import OperatorResult
from tests.examples import examples
from tests.laws.core_scripts import joined

PROJECT = """
project: p
queries:
  cq:
    windows:
      loose: {type: source, opcodes: any, schema: "id*:int64,v:int64,s:string"}
      kept: {type: copy, retention: {bytime_sliding: 2 seconds}, publish: true}
      counted: {type: functional, schema: "id*:int64,v:int64,n:int64", functions: {n: eventCounter()}, publish: true}
      beside: {type: filter, condition: v > 0, publish: true}
    edges: [loose -> kept, kept -> counted, loose -> beside]
"""
POISON = 13
TOPIC = Partition("in")
LIMITS = runner.BatchLimits(wait_ms=0)
Batches = list[pa.Table]


@cache
def plan() -> Plan:
    return compile_plan(load_text(PROJECT).resolved)


class Planted(Exception):
    """A planted error of the engine."""


@contextmanager
def planted(fails: Callable[[Chunk, Timeline], bool], error: type[BaseException] = Planted) -> Iterator[None]:
    """Makes the copy window fail on some chunks, after it has changed its state."""
    apply = CopyOperator.process_chunks

    def failing(
        self: CopyOperator, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable
    ) -> OperatorResult:
        applied = apply(self, page, inputs, timeline, strings)
        if fails(inputs[0], timeline):
            raise error(f"at {id(page)}")
        return applied

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CopyOperator, "process_chunks", failing)
        yield


def on_poison_value(chunk: Chunk, _: Timeline) -> bool:
    """Whether a chunk has the poison value; deletes by retention do not count."""
    return bool(np.any((chunk.lanes[:, 1] == POISON) & (chunk.opcode != 4)))


class Group:
    """The shared resources of a group's engines: the bus with its messages, snapshots, facts."""

    limits = LIMITS

    def __init__(self, values: Sequence[int | None], on_poison: EventPolicy = EventPolicy.BAD_EVENT) -> None:
        times = itertools.count(1_000_000, 700_000)
        self.bus: Bus = MemoryBus(clock=lambda: next(times)).client("e")
        self.bus.create_topic(TOPIC.topic)
        for i, value in enumerate(values):
            tick = value is None
            text = b"" if tick else f"p,n,{i % 5},{value},s{i}\np,n,{i % 3},1,t{i}".encode()
            self.bus.append(TOPIC, [Outgoing(text, ((TICK_HEADER, b""),) if tick else ())])
        self.store, self.coordination = MemoryStore(), MemoryCoordination().client("e")
        self.on_poison = on_poison
        self.told: list[str] = []

    def decoded(self) -> pa.Table:
        return pa.concat_tables(read_recorded(self.bus, (runner.SourceTopic("in"),), Head.from_plan(plan()), LIMITS))

    def core(self) -> RecoveringCore:
        source = runner.RunnerInput("", (runner.SourceTopic("in"),), Head.from_plan(plan()), limits=self.limits)
        topics = GroupTopics((InboundTopic("in"),), ())
        recovery = Recovery("g", topics, self.bus, self.store, self.coordination, source, self.told.append)
        recovery.on_poison = self.on_poison
        core = RecoveringCoreFactory(Pipelines(), recovery).fresh()
        core.set_partitions([(0, 0)])
        return core

    def snapshot(self, core: RecoveringCore, name: str) -> None:
        frozen = core.freeze()
        self.store.write_candidate("g", name, "e", sum(core.next_offsets.values()), frozen.header, frozen.pages())
        self.store.confirm("g", name)


class Pipelines:
    """Makes pipelines (`PipelineFactoryLike`)."""

    def fresh(self) -> Pipeline:
        return Pipeline.fresh(plan())

    def restore(self, header: bytes, pages: dict[str, bytes]) -> Pipeline:
        return Pipeline.restore(plan(), header, pages)


VALUES = st.lists(st.sampled_from([1, 2, POISON, 3, None]), min_size=1, max_size=14)


@examples(0.5)
@given(VALUES, st.integers(1, 9), st.integers(1, 9), st.sets(st.integers(0, 13), max_size=3))
def test_every_engine_refuses_the_same_events_however_its_batches_are_cut(
    values: list[int | None], one: int, other: int, snapshots: set[int]
) -> None:
    """The window that fails refuses them, and all others get them."""
    results = []
    for rows_max in (one, other):
        group = Group(values)
        core = group.core()
        outputs = []
        with planted(on_poison_value):
            for i, table in enumerate(pieces(group.decoded(), rows_max, 100)):
                outputs.append(core.feed(table))
                if i in snapshots:
                    group.snapshot(core, f"s{i}")
        results.append((joined(outputs), core.freeze().header, dict(core.freeze().pages())))
    assert results[0][1:] == results[1][1:]
    assert all(results[0][0][name].equals(results[1][0][name]) for name in results[0][0].keys() | results[1][0].keys())
    made = results[0][0]
    bad = made[BAD_STREAM].to_pylist() if BAD_STREAM in made else []
    assert [row["hs:offset"] for row in bad] == [offset for offset, value in enumerate(values) if value == POISON]
    assert {(row["reason"], row["window"], row["hs:index"]) for row in bad} <= {("poison", "cq/kept", 0)}
    sequences = made["cq/kept"]["hs:sequence"].to_pylist() if "cq/kept" in made else []
    assert sequences == list(range(1, len(sequences) + 1))
    whole = joined([Group(values).core().feed(Group(values).decoded())])
    assert whole.get("cq/beside") == made.get("cq/beside")


def test_the_bad_event_names_the_window_and_says_what_came() -> None:
    """The error, such as an address in it, differs between engines, so only the log has it."""
    group = Group([1, POISON])
    with planted(on_poison_value):
        outputs = group.core().feed(group.decoded())
    (bad,) = outputs[BAD_STREAM].to_pylist()
    assert (bad["reason"], bad["text"], bad["window"]) == ("poison", "I,1,13,s1", "cq/kept")
    assert bad["message"] == BadReason.POISON.sentence
    assert POISON in outputs["cq/beside"]["v"].to_pylist()
    assert "offset 1 of in, partition 0" in group.told[-1] and "Planted" in group.told[-1]


def test_an_event_on_which_no_single_window_fails_is_refused_altogether(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine fails when it writes outputs."""
    group, write = Group([1, POISON, 2]), flow_step.number_and_write

    def failing(chunk: Chunk, *rest: Any) -> pa.RecordBatch:
        if np.any(chunk.lanes[:, 1] == POISON):
            raise Planted
        return write(chunk, *rest)

    monkeypatch.setattr(flow_step, "number_and_write", failing)
    outputs = group.core().feed(group.decoded())
    bad = outputs[BAD_STREAM].to_pylist()
    assert [(row["hs:offset"], row["window"], row["text"]) for row in bad] == [(1, "cq/loose", "P,1,13,s1")]
    assert bad[0]["message"] == "window cq/loose: the engine fails on this event (Planted)"
    assert POISON not in outputs["cq/beside"]["v"].to_pylist()


def test_with_stop_the_engine_ends_and_names_the_event() -> None:
    group = Group([1, 2, POISON, 3], EventPolicy.STOP)
    with planted(on_poison_value), pytest.raises(PoisonousEvent, match="event 0 of the message at offset 2 of in, partition 0"):
        group.core().feed(group.decoded())


@pytest.mark.parametrize("error", [MemoryError, OSError, pa.ArrowMemoryError])
def test_want_of_memory_ends_the_engine_as_it_is(error: type[BaseException]) -> None:
    group = Group([1, POISON])
    with planted(on_poison_value, error), pytest.raises(error):
        group.core().feed(group.decoded())
    assert group.told == []


def test_what_does_not_fail_again_is_no_poison() -> None:
    group, failures = Group([1, POISON, 2]), iter([True])
    with planted(lambda *given: on_poison_value(*given) and next(failures, False)):
        found = group.core().feed(group.decoded())
    expected = group.core().feed(group.decoded())
    assert found.keys() == expected.keys() and all(found[name].equals(expected[name]) for name in found)


def on_a_heartbeat(_: Chunk, time: Timeline) -> bool:
    """Whether a heartbeat is in every third second."""
    seconds = time.time_us[time.heartbeat_rank] // 1_000_000
    return bool(np.any(seconds % 3 == 0))


@examples(0.5)
@given(VALUES, st.integers(1, 9), st.integers(1, 9), st.integers(1, 4))
def test_every_engine_refuses_the_same_ticks_however_its_batches_are_cut(
    values: list[int | None], one: int, other: int, messages_max: int
) -> None:
    """Their time passes, the failing window does not see them, and a bad event names it."""
    results = []
    for rows_max in (one, other):
        group = Group(values)
        group.limits = runner.BatchLimits(messages_max, wait_ms=0)
        core, whole = group.core(), group.decoded()
        with planted(on_a_heartbeat):
            outputs = [core.feed(table) for table in pieces(whole, rows_max, 100)]
        assert core.time_us == whole.column("time_us")[-1].as_py()
        results.append((joined(outputs), core.freeze().header, dict(core.freeze().pages())))
    assert results[0][1:] == results[1][1:]
    assert all(results[0][0][name].equals(results[1][0][name]) for name in results[0][0].keys() | results[1][0].keys())
    bad = results[0][0][BAD_STREAM].to_pylist() if BAD_STREAM in results[0][0] else []
    assert all(values[row["hs:offset"]] is None for row in bad)
    assert {(row["reason"], row["window"], row["text"]) for row in bad} <= {("poison", "cq/kept", "")}
    assert {row["message"] for row in bad} <= {BadReason.POISON.sentence}


def test_a_tick_on_which_the_engine_fails_is_a_bad_event() -> None:
    group = Group([1, None, 2, None])
    with planted(lambda _, time: len(time.heartbeat_rank) > 0):
        outputs = group.core().feed(group.decoded())
    assert [row["hs:offset"] for row in outputs[BAD_STREAM].to_pylist()] == [1, 3]
    assert outputs["cq/kept"].num_rows > 2
    assert "the tick at offset 3 of in, partition 0" in group.told[-1]


def test_with_stop_the_engine_ends_and_names_the_tick() -> None:
    group = Group([1, None, 2], EventPolicy.STOP)
    fails = planted(lambda _, time: len(time.heartbeat_rank) > 0)
    with fails, pytest.raises(PoisonousEvent, match="the tick at offset 1 of in, partition 0"):
        group.core().feed(group.decoded())


def test_what_was_poison_before_is_refused_again_when_the_state_is_made_anew() -> None:
    """This holds also if it is read again in a batch of its own, long before the one that fails now."""
    group = Group([1, POISON, 2, 3, POISON, 4])
    group.limits = runner.BatchLimits(1, wait_ms=0)
    core = group.core()
    with planted(on_poison_value):
        outputs = joined([core.feed(table) for table in pieces(group.decoded(), 1, 100)])
    assert [row["hs:offset"] for row in outputs[BAD_STREAM].to_pylist()] == [1, 4]


def test_a_rebuilt_core_keeps_decisions_and_waits_at_the_same_places() -> None:
    """A step fails before a place at which the core has to stop; a snapshot beyond a decision that it lacks is not used."""
    group = Group([1, 2, POISON, 3, 4])
    version = plan().window_versions["cq/counted"]
    places = [CallPlace("in", 0, offset, 0, "cq/counted", version) for offset in (0, 3)]
    decisions = [Decision(place, HangCause.DEADLINE, number) for number, place in enumerate(places, 1)]
    with planted(on_poison_value):
        known, core = group.core(), group.core()
        known.set_decisions(decisions)
        expected = joined([known.feed(group.decoded())])
        older = group.core()
        older.feed(group.decoded().slice(0, 2))
        group.snapshot(older, "without-decisions")
        core.set_decisions(decisions[:1])
        core.stop_before(places)
        outputs = []
        for part in core.compute_parts(group.decoded()):
            outputs.append(part)
            if core.stopped_at == places[1]:
                assert not core.is_between_batches
                assert core.sequences["cq/kept"] == sum(each["cq/kept"].num_rows for each in outputs if "cq/kept" in each)
                core.set_decisions(decisions)
    assert core.is_between_batches
    assert joined(outputs) == expected
    assert [row["hs:offset"] for row in expected[BAD_STREAM].to_pylist() if row["reason"] == "code-deadline"] == [0, 3]
    assert core.freeze().header == known.freeze().header
    assert not core.missing_decisions


def test_outputs_that_came_out_otherwise_when_read_again_end_the_engine() -> None:
    group = Group([1, 2, POISON])
    core, decoded = group.core(), group.decoded()
    core.feed(decoded.slice(0, 2))
    core._pipeline._state.streams["cq/kept"].digest += 1
    with planted(on_poison_value), pytest.raises(StateError, match="differs after its input was read again"):
        core.feed(decoded.slice(2))


def test_a_message_on_which_the_head_failed_is_told_or_ends_the_engine() -> None:
    group = Group([1, 2])
    decoded = group.decoded()
    bad = pa.array([{"reason": "poison", "message": "m", "text": "", "window": "cq/loose"}], decoded.schema.field("bad").type)
    columns = {name: decoded.column(name).slice(0, 1) for name in decoded.column_names}
    columns |= {"kind": pa.array([2], pa.int8()), "e0": pa.nulls(1, decoded.schema.field("e0").type), "bad": bad}
    refused = pa.table(columns, schema=decoded.schema)
    group.core().feed(refused)
    assert group.told == ["the engine fails on the message at offset 0 of in, partition 0, which becomes a bad event: m"]
    with pytest.raises(PoisonousEvent, match="the message at offset 0 of in"):
        Group([1, 2], EventPolicy.STOP).core().feed(refused)


def test_what_is_made_anew_is_no_state_to_freeze_until_it_is_there() -> None:
    """The failed step has changed part of the state. A snapshot of that would be confirmed by outputs of the rebuilt state."""
    group = Group([1, None, 2, POISON, 3, 4])
    group.limits = runner.BatchLimits(1, wait_ms=0)
    core = group.core()
    decoded = group.decoded()
    core.feed(decoded.slice(0, 3))
    with planted(on_poison_value):
        for _ in core.compute_parts(decoded.slice(3)):
            assert not core.is_between_batches
            with pytest.raises(StateError, match="cannot be frozen"):
                core.freeze()
    assert core.is_between_batches
    core.freeze()


def damaged(store: MemoryStore, name: str) -> Callable[[str, str], StoredSnapshot]:
    """Returns a `get` for the store that raises SnapshotDamaged for the snapshot `name`."""
    right = store.get

    def get(group: str, asked: str) -> StoredSnapshot:
        if asked == name:
            raise SnapshotDamaged(f"snapshot {asked} is truncated")
        return right(group, asked)

    return get


def test_a_damaged_snapshot_is_passed_over_for_an_older_one() -> None:
    """A joining engine does the same: otherwise no engine would get past the event, however often it starts."""
    group = Group([1, 2, 3, POISON, 4])
    core, decoded = group.core(), group.decoded()
    outputs = []
    for name, rows in (("s1", decoded.slice(0, 2)), ("s2", decoded.slice(2, 2))):
        outputs.append(core.feed(rows))
        group.snapshot(core, name)
    group.store.get = damaged(group.store, group.store.list("g")[0].name)  # type: ignore[method-assign]
    with planted(on_poison_value):
        outputs.append(core.feed(decoded.slice(4)))
    assert [row["hs:offset"] for row in joined(outputs)[BAD_STREAM].to_pylist()] == [3]
    assert any("snapshot s2 cannot be used" in sentence for sentence in group.told)
