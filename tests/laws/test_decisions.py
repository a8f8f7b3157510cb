"""Decisions about calls of user code, over random graphs: law Cut holds with them, and it does not matter when they are learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.call_place import BEFORE_EVENTS, CallPlace, Decision, HangCause
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan
from hotspare.flow.snapshot import decisions_of
from hotspare.rows.batch import BAD_STREAM
from tests.examples import examples
from tests.laws.any_changelogs import raw_messages
from tests.laws.core_scripts import joined, snapshot_bytes
from tests.laws.graph_laws import Outputs, same
from tests.laws.search import drawn

pytestmark = pytest.mark.law

SEEDS = st.integers(0, 1 << 40)
_POSITION = ("topic", "partition", "offset", "index")
_REASONS = {"code-deadline", "code-memory", "code-quarantined"}


@dataclass(frozen=True)
class Trial:
    """A graph with user code, its input, and decisions about some of its positions."""

    plan: Plan
    messages: Sequence[pa.RecordBatch]
    rows: pa.RecordBatch
    decisions: tuple[Decision, ...]

    @classmethod
    def drawn(cls, seed: int) -> Trial:
        """Returns the trial of the first seed from `seed` on whose graph has user code."""
        graph, script = next((graph, script) for graph, script in map(drawn, count(seed)) if graph.plan().code_nodes)
        plan, random = graph.plan(), Random(seed)
        windows = sorted(plan.nodes[i].window for i in plan.code_nodes)
        messages = raw_messages(script, len(plan.entries))
        rows = Head.from_plan(plan).decode(pa.concat_batches(messages))
        names = [str(source) for source in plan.resolved.sources]
        at = random.sample(positions(rows), min(rows.num_rows, random.randint(1, 9)))
        causes = {
            CallPlace(
                names[topic],
                partition,
                offset,
                BEFORE_EVENTS if cause is HangCause.LIFTED else index,
                window,
                plan.window_versions[window],
            ): cause
            for (topic, partition, offset, index), window, cause in (
                (each, random.choice(windows[: random.randint(1, 2)]), random.choice(list(HangCause))) for each in at
            )
        }
        decisions = (Decision(place, causes[place], number) for number, place in enumerate(sorted(causes), 1))
        return cls(plan, messages, rows, tuple(decisions))

    @property
    def places(self) -> list[CallPlace]:
        return [each.place for each in self.decisions]

    def pieces(self, edges: Sequence[int]) -> list[pa.RecordBatch]:
        return [self.rows.slice(begin, end - begin) for begin, end in pairwise(sorted({0, self.rows.num_rows, *edges}))]

    def fed(self, decisions: Sequence[Decision], edges: Sequence[int] = (), part_rows: int = 1 << 14) -> tuple[Outputs, bytes]:
        """Returns the outputs and the snapshot of a fresh pipeline."""
        pipeline = Pipeline.fresh(self.plan, extra_rows_max=part_rows)
        pipeline.set_decisions(decisions)
        outputs = [pipeline.feed(piece) for piece in self.pieces(edges)]
        assert not pipeline.missing_decisions
        return joined(outputs), snapshot_bytes(pipeline)


def positions(rows: pa.RecordBatch) -> list[tuple[int, int, int, int]]:
    return list(zip(*(rows.column(name).to_pylist() for name in _POSITION), strict=True))


@examples(0.3)
@given(seed=SEEDS)
def test_decided_outputs_do_not_depend_on_the_cut(seed: int) -> None:
    """The same results in other batches and parts, and with a restore after every message."""
    trial, random = Trial.drawn(seed), Random(seed)
    whole, snapshot = trial.fed(trial.decisions)
    for edges in (range(trial.rows.num_rows), [random.randrange(trial.rows.num_rows + 1) for _ in range(3)]):
        for part_rows in (1 << 14, random.randint(1, 3)):
            made, state = trial.fed(trial.decisions, edges, part_rows)
            same("law Cut, decided", made, whole)
            assert state == snapshot
    same("law Crash, decided", *(resumed(trial), whole))


def resumed(trial: Trial) -> Outputs:
    head, pipeline = Head.from_plan(trial.plan), Pipeline.fresh(trial.plan)
    outputs, rest = [], list[pa.RecordBatch]()
    for message in trial.messages:
        pipeline.set_decisions(trial.decisions)
        outputs.append(pipeline.feed(head.decode(pa.concat_batches([*rest, message]))))
        frozen, following = pipeline.freeze(), pipeline.next_offsets
        pipeline = Pipeline.restore(trial.plan, frozen.header, dict(frozen.pages()))
        rest = [left for each in [*rest, message] if (left := _unread(each, following)).num_rows]
    assert set(decisions_of(frozen.header)) == set(pipeline._state.decisions) <= set(trial.decisions)
    return joined(outputs)


def _unread(raw: pa.RecordBatch, following: dict[tuple[int, int], int]) -> pa.RecordBatch:
    places = zip(*(raw[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    return raw.filter(pa.array([offset >= following.get((topic, number), 0) for topic, number, offset in places]))


@examples(0.3)
@given(seed=SEEDS)
def test_a_decision_at_a_stop_is_one_known_from_the_start(seed: int) -> None:
    """Nothing at or after the place is computed before the decision, and nothing before it is held back."""
    trial, random = Trial.drawn(seed), Random(seed)
    whole, snapshot = trial.fed(trial.decisions)
    pipeline, known, outputs = Pipeline.fresh(trial.plan), list[Decision](), []
    pipeline.stop_before(trial.places)
    for piece in trial.pieces([random.randrange(trial.rows.num_rows + 1) for _ in range(2)]):
        for part in pipeline.compute_parts(piece):
            outputs.append(part)
            while (place := pipeline.stopped_at) is not None:
                assert not part
                assert not pipeline.is_between_batches
                known += [each for each in trial.decisions if each.place == place]
                pipeline.set_decisions(known)
        assert pipeline.is_between_batches
    same("stop and decide", joined(outputs), whole)
    assert snapshot_bytes(pipeline) == snapshot
    assert set(known) == set(pipeline._state.decisions)


@examples(0.3)
@given(seed=SEEDS)
def test_a_passed_place_is_computed_like_any_other(seed: int) -> None:
    trial, random = Trial.drawn(seed), Random(seed)
    whole, snapshot = trial.fed(())
    pipeline, outputs = Pipeline.fresh(trial.plan), []
    pipeline.stop_before(trial.places)
    early = trial.places[: random.randint(0, len(trial.places))]
    for place in early:
        pipeline.pass_place(place)
    for part in pipeline.compute_parts(trial.rows):
        outputs.append(part)
        while (stopped := pipeline.stopped_at) is not None:
            assert stopped not in early
            pipeline.pass_place(stopped)
    same("pass", joined(outputs), whole)
    assert snapshot_bytes(pipeline) == snapshot


@examples(0.2)
@given(seed=SEEDS)
def test_a_state_beyond_a_decision_is_void_and_other_windows_are_not_touched(seed: int) -> None:
    trial = Trial.drawn(seed)
    late, known = Pipeline.fresh(trial.plan), Pipeline.fresh(trial.plan)
    known.set_decisions(trial.decisions)
    whole, decided = (joined([pipeline.feed(trial.rows)]) for pipeline in (late, known))
    late.set_decisions(trial.decisions)
    applied = decisions_of(known.freeze().header)
    assert set(late.missing_decisions) == set(applied) <= set(trial.decisions)
    assert not known.missing_decisions
    windows = {each.place.window for each in trial.decisions}
    bad = decided[BAD_STREAM].to_pylist() if BAD_STREAM in decided else []
    assert {row["window"] for row in bad if row["reason"] in _REASONS} <= windows
    touched = set(windows)
    for window in trial.plan.resolved.windows:  # in order of evaluation
        touched |= {str(window.id)} if any(str(source) in touched for source, _ in window.inputs) else set()
    for name in whole.keys() - touched - {BAD_STREAM}:
        same("other windows", {name: decided[name]}, {name: whole[name]})
