"""Law Crash at the core: stop after any prefix, restore the snapshot of that moment, continue; all later outputs are the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.table.pages import Counters
from tests.cases.case import Case, Message, outputs_by_cause, raw_batches, run
from tests.examples import examples
from tests.laws.core_scripts import plan, scripts, snapshot_bytes

pytestmark = pytest.mark.law


def check_crash(case: Case) -> None:
    """Restarts after every message."""
    batches = [[batch] for batch in raw_batches(case)]
    expected, snapshot = run(case, batches, restarts=False)
    outputs, restarted_snapshot = run(case, batches, restarts=True)
    assert outputs_by_cause(outputs) == outputs_by_cause(expected)
    assert restarted_snapshot == snapshot


@examples(0.35)
@given(scripts())
def test_restart_after_every_message(case: Case) -> None:
    check_crash(case)


@examples(0.35)
@given(scripts(), st.integers(0, 20))
def test_restored_state_is_the_state(case: Case, prefix: int) -> None:
    """A restored snapshot, frozen again, is the same bytes; sequences, digests and ids continue from it (SPEC Z14)."""
    head = Head.from_plan(case.plan)
    pipeline = Pipeline.fresh(case.plan)
    for raw in raw_batches(case)[: prefix + 1]:
        pipeline.feed(head.decode(raw))
    frozen = pipeline.freeze()
    restored = Pipeline.restore(case.plan, frozen.header, dict(frozen.pages()))
    assert snapshot_bytes(restored) == snapshot_bytes(pipeline)
    assert (restored.sequences, restored.digests, restored.last_ids) == (pipeline.sequences, pipeline.digests, pipeline.last_ids)
    assert (restored.next_offsets, restored.time_us) == (pipeline.next_offsets, pipeline.time_us)


def test_the_law_bites() -> None:
    """A counter that is lost in a restore is found."""
    messages = [Message(1_000_000 * i, "" if i % 2 else "loose", "" if i % 2 else f"I,N,k{i},0,{i},s") for i in range(2, 8)]
    case = Case(plan(), tuple(messages), ())
    check_crash(case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Counters, "load", lambda self, columns: None)
        with pytest.raises(AssertionError):
            check_crash(case)
